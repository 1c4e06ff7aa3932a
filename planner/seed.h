// First layouts (RoutePack paper, Algorithm 2; spec 1.6). Usable alone, for
// cheap plans:
//
//   SeedPool pool = MakeSeeds(problem, length_layout, {.candidates = 16}, 1);
//   const Layout& cheap = pool.layouts[pool.best()];

#ifndef ROUTEPACK_PLANNER_SEED_H_
#define ROUTEPACK_PLANNER_SEED_H_

#include <cstdint>
#include <vector>

#include "planner/budget.h"
#include "planner/counter_random.h"
#include "planner/layout.h"
#include "planner/rows.h"

namespace routepack {

// x_length: the packing that proved R feasible (bins of samples, at most C
// each), split to as many cells as samples and fillers leave: cells in the
// order of the bins, row by row, then every filler in a cell of its own.
// Length-only: it knows no routing. Needs bins.size() + fillers <= R D <=
// items.
Layout LengthLayout(const PackingProblem& problem, uint32_t rows, Bins bins);

// EDPAwarePair, deterministic: takes the layout's cells in decreasing
// routed-token peak (sum_l max_p of the cell; ties: lower cell) and puts each
// into the empty (r, d) with the least key (increase of sum_l max_p W of the
// row-shard, largest resulting max_{l,p} W; ties: lower r, then lower d).
// O((R D) (R G) L P), row-shards in parallel; memory O((R D + R G) L P).
// Samples stay in their cells. Cells without demand (fillers) cost O(R G) each.
// `layout` itself if the budget is exhausted first.
Layout EdpAwarePair(const PackingProblem& problem, const Layout& layout,
                    const Budget& budget = {});

// The same with chance: of the m = min(width, row-shards with an empty slot)
// best row-shards by that key, the k-th best (from 0) is drawn with weight
// m - k. The empty slots of a row-shard are exchangeable: the lowest is taken.
// `width` at least 1.
Layout RandomizedEdpAwarePair(const PackingProblem& problem,
                              const Layout& layout, uint32_t width,
                              const CounterRandom& random,
                              const Budget& budget = {});

// Cells of one trial of Algorithm 2: WindowShuffle of the items in decreasing
// occupancy (each next one is drawn from the first `width` that remain), the
// first `num_cells` open a cell each, the rest go by RandomizedBestFit: of the
// cells they fit into, in order of decreasing occupancy, then fewer items, then
// index, one of the first `width`. Returns no bins when some item fits nowhere.
// Fillers are items like others. `num_cells` at most the items, `width` at
// least 1. O(N (log N + width)): cells are kept sorted in a tree.
Bins RandomizedBins(const PackingProblem& problem, uint32_t num_cells,
                    uint32_t width, const CounterRandom& random);

struct SeedOptions {
  // M. x_length and its pairing are the first two and are always made.
  uint32_t candidates = 16;
  uint32_t choice_width = 4;  // w, at least 1
};

// Layouts that differ in canonical form, with their exact scores: x_length,
// EdpAwarePair of its cells unless that is worse, then the M - 2 random trials
// that succeeded, in order; of equal ones the first.
struct SeedPool {
  std::vector<Layout> layouts;  // canonical
  std::vector<Score> scores;
  Score length_score;    // of x_length
  Score paired_score;    // of EdpAwarePair(x_length)
  uint32_t trials = 0;   // tried
  uint32_t aborted = 0;  // trials without a feasible layout

  // Index of the best score, the lowest of equal ones.
  size_t best() const;
};

// `length` must be valid. Candidates are made in parallel and depend on `seed`
// and their number only. The budget ends them early; x_length is always there.
// Memory: M layouts, and that of EdpAwarePair as often as it fits into the
// demand's, at least once.
SeedPool MakeSeeds(const PackingProblem& problem, const Layout& length,
                   const SeedOptions& options, uint64_t seed,
                   const Budget& budget = {});

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_SEED_H_
