// Telling layouts apart (RoutePack paper, Algorithm 2, lines 11-20 and section
// 4.1.1; spec 1.6, points 4-6). Pure functions, safe to call from any thread;
// the same on every platform: additions, products and roots in a fixed order.
//
//   std::vector<LayoutSketch> sketches;
//   for (const Layout& layout : pool.layouts) {
//     sketches.push_back(SketchLayout(problem, layout, 32));
//   }
//   for (uint32_t k : QualityDiversitySelect(sketches, pool.scores, 16, 2)) {
//     // pool.layouts[k] is a member of the population.
//   }

#ifndef ROUTEPACK_PLANNER_DIVERSITY_H_
#define ROUTEPACK_PLANNER_DIVERSITY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/layout.h"

namespace routepack {

// The one form of all layouts that differ only in the order of items in a
// cell, of cells inside a row-shard, or of rows: items ascending in a cell,
// then cells of a row-shard by their first item, then rows by their first
// item. Scores are equal. Shards keep their slots. O(N log N).
Layout Canonicalize(const PackingProblem& problem, const Layout& layout);

// What distances are computed from: made once for each layout.
struct LayoutSketch {
  std::vector<uint32_t> items;         // [items] cell by cell
  std::vector<uint32_t> cell_of_item;  // [items]
  std::vector<uint32_t> row_of_item;   // [items]
  uint64_t cell_pairs = 0;             // pairs of items in the same cell
  uint64_t row_pairs = 0;              // in the same row
  std::vector<float> profile;          // [q][R] sorted projections
};

// `projections` (q) fixed random directions, the same for all problems of a
// shape, with entries of one size and random signs (Achlioptas, "Database-
// friendly random projections", 2003). The F features of a row: token and
// squared-token sums of the cells, sorted inside each shard, and the rank loads
// of each shard and layer, sorted. Each kind (tokens, squares, loads of a
// layer) is divided by its mean, and the two moments together and the loads
// together have equal weight. A projection is near 1 in size.
// O(N L P + R F (q + log P)), rows in parallel; memory O(R G L P), of which
// q R floats are kept.
LayoutSketch SketchLayout(const PackingProblem& problem, const Layout& layout,
                          uint32_t projections);

// In [0, inf): half co-assignment distance plus half sliced-Wasserstein
// distance. Co-assignment: pairs of items together in exactly one of the
// layouts over pairs together in at least one, the mean of cells and of rows.
// Sliced Wasserstein: (1/q) sum_k |phi_k(x) - phi_k(y)|_1 / R.
// Both of one problem, R and q. Symmetric. O(N + q R).
double LayoutDistance(const LayoutSketch& a, const LayoutSketch& b);

// Picks `population` of the candidates: the best score first, then repeatedly
// the one that maximises min distance to those picked minus `penalty` times
// the relative excess of its s0 over the best. For the first half of the picks
// only the better half by s0 may be picked (halves rounded up). Fewer
// candidates than the population are repeated cyclically in the order picked.
// Ties: lower index.
// O(population candidates (N + q R)), candidates in parallel.
std::vector<uint32_t> QualityDiversitySelect(
    std::span<const LayoutSketch> sketches, std::span<const Score> scores,
    uint32_t population, double penalty);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_DIVERSITY_H_
