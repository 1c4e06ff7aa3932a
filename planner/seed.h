// First layouts (RoutePack paper, Algorithm 2, lines 1-2; spec 1.6).

#ifndef ROUTEPACK_PLANNER_SEED_H_
#define ROUTEPACK_PLANNER_SEED_H_

#include <cstdint>

#include "planner/budget.h"
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

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_SEED_H_
