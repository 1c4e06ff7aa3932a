// Which samples run together, and the exact score of that (RoutePack paper,
// sections 3.4 and 3.5; spec 1.4).
//
// Scores are 64-bit integers in units of 2^-8 routed assignments, so every sum
// is exact and no compiler, vector width or thread count changes a bit. The
// attention cost of a cell and stage is rounded once, by CellCost.

#ifndef ROUTEPACK_PLANNER_LAYOUT_H_
#define ROUTEPACK_PLANNER_LAYOUT_H_

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "planner/attention.h"
#include "planner/demand.h"
#include "planner/pipeline.h"
#include "planner/topology.h"
#include "planner/window.h"

namespace routepack {

// What packing works on. Items are the window's samples 0..N-1, then fillers.
struct PackingProblem {
  std::vector<uint32_t> tokens;     // [items] t_i; fillers: 0
  std::vector<uint32_t> occupancy;  // [items] at most C; fillers: the
                                    // window's length_multiple
  uint32_t num_samples = 0;         // N; items beyond are fillers
  uint32_t token_cap = 0;           // C
  std::vector<AttentionStage> attention;
  Topology topology;
  Pipeline pipeline;  // for reports
  Demand demand;      // [items][l][p]; fillers: zeros

  uint32_t num_items() const { return static_cast<uint32_t>(tokens.size()); }
};

// The window's samples and fillers; the caller projects the demand.
PackingProblem MakeProblem(const Window& window, uint32_t num_fillers);

// R x D cells in row order, cell (r, d) = r D + d.
struct Layout {
  uint32_t rows = 0;                 // R
  uint32_t slots = 0;                // D
  std::vector<uint32_t> cell_begin;  // [R D + 1] offsets into items
  std::vector<uint32_t> items;       // item indices, cell by cell

  uint32_t num_cells() const { return rows * slots; }
  std::span<const uint32_t> cell(uint32_t r, uint32_t d) const {
    const uint32_t c = r * slots + d;
    return std::span(items).subspan(cell_begin[c],
                                    cell_begin[c + 1] - cell_begin[c]);
  }

  friend bool operator==(const Layout&, const Layout&) = default;
};

// cells.size() must be rows * slots.
Layout LayoutFromCells(uint32_t rows, uint32_t slots,
                       const std::vector<std::vector<uint32_t>>& cells);

// Compared lexicographically, smaller is better.
struct Score {
  int64_t slowest_shard = 0;  // max_g U[g]
  int64_t total = 0;          // sum_g U[g]
  int64_t worst_row = 0;      // max_{r,g} J[r,g]

  friend auto operator<=>(const Score&, const Score&) = default;
};

// Score units per routed assignment. A reported cost is score / (256 C).
inline constexpr int64_t kScoreScale = 256;

// The one rounding: llround(256 (alpha sum_t + beta sum_t2 / C)), evaluated
// left to right in double without contraction. sum_t2 <= C^2 <= 2^52 is exact.
int64_t CellCost(const AttentionStage& stage, uint64_t sum_t, uint64_t sum_t2,
                 uint32_t token_cap);
// Of all stages: `costs` [s].
void CellCosts(std::span<const AttentionStage> stages, uint64_t sum_t,
               uint64_t sum_t2, uint32_t token_cap, int64_t* costs);

// Peaks of loads: of a row-shard or cell over layers, of a layer over rows.
struct LoadPeaks {
  int64_t sum = 0;       // sum of the peaks
  uint32_t largest = 0;  // the highest of them

  friend bool operator==(const LoadPeaks&, const LoadPeaks&) = default;
};

// Everything the score and the metrics are made of.
struct Evaluation {
  std::vector<int64_t> attention;  // [r][g] A, score units
  std::vector<int64_t> expert;     // [r][g] sum_l max_p W, assignments
  std::vector<LoadPeaks> layers;   // [l] of max_{g,p} W, over rows
  uint64_t ep_peak_sum = 0;        // sum_{r,l} max_{g,p} W
  uint32_t tail_peak = 0;          // max W
  uint64_t balance_load = 0;       // sum_{r,l} max_g sum_p W
  Score score;

  // J[r,g] in score units.
  int64_t row_cost(size_t row_shard) const {
    return attention[row_shard] + kScoreScale * expert[row_shard];
  }

  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

// sum_l max_p and max_{l,p} of `a` + `b`, both [l][stride] with a stride that
// is a multiple of 8. Sums must fit 32 bits. Vectorised.
LoadPeaks PeaksOfSum(const uint32_t* a, const uint32_t* b, uint32_t num_layers,
                     uint32_t stride);

// into[k] += from[k]. Vectorised.
void AddLoads(const uint32_t* from, size_t size, uint32_t* into);

// Full evaluation, O(N L P + R G L P); rows and blocks of layers in parallel.
// The layout must be valid (ValidateLayout).
Evaluation EvaluateLayout(const PackingProblem& problem, const Layout& layout);

// The same cells, the rows of each EDP shard moved so that in every row the
// shards' expert terms have the same rank. The score does not depend on which
// rows of different shards run at the same time, the EP peak sum does; returns
// `layout` itself where that does not fall. `evaluation` is replaced by the
// result's. O(N L P).
Layout MatchShardRows(const PackingProblem& problem, const Layout& layout,
                      Evaluation& evaluation);

// INTERNAL unless every item is in exactly one cell, every cell is non-empty
// and within the cap, and the dimensions match.
absl::Status ValidateLayout(const PackingProblem& problem,
                            const Layout& layout);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_LAYOUT_H_
