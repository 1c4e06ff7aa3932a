// Row-aware placement (spec 3.2): LPT balances what a rank gets in the whole
// window, but time is lost row by row, at sum_{r,g} max_p W[r,g,l,p]. Given a
// packing, experts of a layer are exchanged between ranks where that lowers the
// sum: the attention term does not change, so that is what the score gains.
//
// Layers are independent and run in parallel. Each is annealed: Metropolis
// proposals to exchange two experts of a pair of ranks, at temperatures that
// fall from a third of the mean growth of a worsening exchange to a hundredth
// of that (choice, measured). Then pairs of ranks take turns, the best exchange
// of a pair is made as long as there is one that pays, until no pair has any.
// Experts that stay in their rank keep their slot where that costs no more.
// A proposal costs O(R G), vectorised, and O(P R G / H) for the peaks of the
// other ranks; a turn of all pairs O(E^2 R G). Does not depend on the number of
// threads.

#ifndef ROUTEPACK_PLANNER_ROW_AWARE_H_
#define ROUTEPACK_PLANNER_ROW_AWARE_H_

#include <cstdint>
#include <functional>

#include "planner/budget.h"
#include "planner/layout.h"
#include "planner/placement.h"
#include "planner/window.h"

namespace routepack {

// What it costs, in assignments, that expert e of layer l is in a slot.
using SlotPrice =
    std::function<double(uint32_t layer, uint32_t expert, uint32_t slot)>;

struct RowAwareOptions {
  uint64_t proposals_per_expert = 100;  // of annealing; 0: exchanges only
  // Without it moves are free; with it exchanges must gain more than they add
  // to the sum of prices.
  SlotPrice price;
  uint64_t seed = 0;
};

struct RowAwareResult {
  Placement placement;
  int64_t gain = 0;  // assignments by which sum_{l,r,g} max_p W fell
  // Layers whose hottest expert alone makes the peak of every row-shard: no
  // placement improves them for this packing.
  uint32_t floor_layers = 0;
};

// `layout` is of the window's samples and perhaps fillers. Peaks and prices
// together never grow. A budget that runs out ends it early, with a valid
// placement. Memory: E R G + P R G loads a thread.
RowAwareResult RefinePlacement(const Window& window, const Layout& layout,
                               const Placement& placement,
                               const RowAwareOptions& options = {},
                               const Budget& budget = {});

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_ROW_AWARE_H_
