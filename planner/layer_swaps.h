// Swaps that level one layer, the cheapest way first (spec 3.1 b).
//
// The busiest rank exchanges an expert for a lighter one of a rank below the
// target, again and again, until it is at the target itself or nothing helps.
// Of all such exchanges the one that takes most load off above the target per
// weighted byte is made; movement counts against the map before the first
// swap, so that sending an expert home earns its cost back. Where no exchange
// of two experts helps, two are exchanged for two.
//
// O(E + P) a swap, found by walking the sorted experts of two ranks side by
// side; about P / 2 swaps level a layer. One thread; pure.

#ifndef ROUTEPACK_PLANNER_LAYER_SWAPS_H_
#define ROUTEPACK_PLANNER_LAYER_SWAPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/movement.h"

namespace routepack {

// The experts in two slots of different ranks change places.
struct SlotSwap {
  uint32_t hot_slot = 0;
  uint32_t cold_slot = 0;
  uint64_t peak = 0;  // max_p load after it
  int64_t cost = 0;   // of it, in MovementModel::kCostUnit-ths
};

// No placement of these loads [E] has a lower peak: the mean, rounded up, or
// the hottest expert with the H - 1 lightest beside it. At least 1 rank.
struct LoadFloor {
  uint64_t peak = 0;
  bool hot_expert = false;  // and not the mean
};
LoadFloor FloorOf(std::span<const uint64_t> loads, uint32_t num_ranks);

// Swaps of layer l, in order. `expert_of_slot` [E] is the map before them.
// Stops at `target`, which is at least the floor. No more than E + 1 swaps.
std::vector<SlotSwap> LevelLayer(const MovementModel& model, uint32_t l,
                                 std::span<const uint64_t> loads,
                                 std::span<const uint32_t> expert_of_slot,
                                 uint64_t target);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_LAYER_SWAPS_H_
