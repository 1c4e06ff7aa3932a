// From the current map to a balanced one in few moves (spec 3.1 b).
//
// Every layer proposes its own sequence of swaps (layer_swaps). Their common
// currency is sum_l max_p load against weighted bytes: sequences are joined by
// slope, steepest first, each layer's own cut at the corners of its concave
// hull, and made one after the other until
//   - the imbalance of all layers together is at the target,
//   - the movement budget is used up, or
//   - (break-even) what follows is not worth its transfer: of all the states
//     passed, the one is kept where time saved over the horizon less the time
//     of the busiest link is largest.
// Layers whose hottest expert is above the mean rank are only levelled to what
// that expert allows, and that floor counts as their balance.
//
// The horizon is 1 step by default: counts of the next window are not known
// yet, so a move has to pay within the step that it is made for; that later
// windows mostly keep its gain is a margin. Where the model knows no times
// there is no break-even rule.
//
// O(E + P) for each of some L P / 2 swaps, layers in parallel; the result does
// not depend on the number of threads.

#ifndef ROUTEPACK_PLANNER_INCREMENTAL_H_
#define ROUTEPACK_PLANNER_INCREMENTAL_H_

#include <cstdint>
#include <limits>
#include <span>

#include "planner/movement.h"
#include "planner/placement.h"

namespace routepack {

struct IncrementalOptions {
  // sum_l max_p load over sum_l floor, less 1; at least 0. No map is below the
  // floor, so that the default is within 0.3 % of LPT unless it stalls.
  double target_imbalance = 0.003;
  // Weighted bytes; infinite: no budget.
  double movement_budget = std::numeric_limits<double>::infinity();
  bool break_even = true;
  double horizon_steps = 1;
};

enum class IncrementalStop { kTarget, kStalled, kBudget, kBreakEven };

struct IncrementalResult {
  Placement placement;
  IncrementalStop stop = IncrementalStop::kTarget;
  uint32_t swaps = 0;
  uint32_t hot_expert_layers = 0;  // their floor is an expert, not the mean
  uint64_t floor_sum = 0;          // sum_l of the floors
  uint64_t peak_sum_before = 0;    // sum_l max_p load
  uint64_t peak_sum_after = 0;
  double weighted_bytes = 0;  // of the move from the current map
};

// `loads` [L, E]; `current` has the model's sizes. sum_l max_p load is at most
// 2^53 and never rises.
IncrementalResult IncrementalPlacement(std::span<const uint64_t> loads,
                                       const Placement& current,
                                       const MovementModel& model,
                                       const IncrementalOptions& options);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_INCREMENTAL_H_
