// LPT at less movement: same loads, other names (spec 3.1 a).
//
// Ranks are interchangeable for balance and so are the slots of a rank. LPT
// fixes which experts share a rank; which rank that is, and where in it they
// live, is chosen so that the move from the current map costs least: an
// assignment problem per layer. The multiset of rank loads is LPT's exactly.
//
// O(P^3 + P^2 H) a layer, layers in parallel; where owned state makes slots
// differ, P^2 H^2, and P^2 H^3 as long as that is little.

#ifndef ROUTEPACK_PLANNER_RELABEL_H_
#define ROUTEPACK_PLANNER_RELABEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/movement.h"
#include "planner/placement.h"

namespace routepack {

// LPT of `loads` [L, E], relabelled to move as little as possible from
// `current`, which has the model's sizes.
//
// Labels are the true optimum, given that experts which stay in their rank keep
// their slot, as long as newcomers' costs do not depend on their slots, or
// P^2 H^3 is at most kExactSlotWork; beyond it, every newcomer is priced at the
// cheapest free slot.
inline constexpr uint64_t kExactSlotWork = 1u << 18;
Placement RelabelledLptPlacement(std::span<const uint64_t> loads,
                                 const Placement& current,
                                 const MovementModel& model);

// Slots of rank p for `experts`, H of them: those at home in the rank keep
// their slot, the others take the freed ones at the least cost. `home` [E] is
// the slot of each expert in layer l before the move; `slots` [H] receives the
// slot of each expert. Returns the cost of the moves.
int64_t ChooseSlots(const MovementModel& model, uint32_t l, uint32_t p,
                    std::span<const uint32_t> home,
                    std::span<const uint32_t> experts,
                    std::span<uint32_t> slots);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_RELABEL_H_
