// Where experts live: one map per MoE layer (RoutePack paper, section 3.3 and
// Algorithm 1).
//
// Slot v of a layer belongs to EP rank v / H, H = E / P slots a rank. LPT is
// O(L (E log E + E log P)), layers in parallel.

#ifndef ROUTEPACK_PLANNER_PLACEMENT_H_
#define ROUTEPACK_PLANNER_PLACEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace routepack {

// An expert map, [L, E] in both directions. Plain value; ValidatePlacement
// checks it.
struct Placement {
  uint32_t num_layers = 0;               // L
  uint32_t num_experts = 0;              // E
  uint32_t num_ranks = 0;                // P
  std::vector<uint32_t> slot_of_expert;  // [l][e]
  std::vector<uint32_t> expert_of_slot;  // [l][v]

  uint32_t slots_per_rank() const { return num_experts / num_ranks; }  // H
  uint32_t rank_of_expert(uint32_t l, uint32_t e) const {
    return slot_of_expert[size_t{l} * num_experts + e] / slots_per_rank();
  }

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Expert e in slot e of every layer.
Placement IdentityPlacement(uint32_t num_layers, uint32_t num_experts,
                            uint32_t num_ranks);

// Longest processing time first: experts of a layer by decreasing load (ties:
// lower id), each to the least loaded rank that has a free slot (ties: lower
// rank), in that rank's next slot. `loads` is [L, E] window loads; those of a
// layer add up to less than 2^64.
Placement LptPlacement(std::span<const uint64_t> loads, uint32_t num_layers,
                       uint32_t num_experts, uint32_t num_ranks);

// [L, P] window load of each rank.
std::vector<uint64_t> RankLoads(const Placement& placement,
                                std::span<const uint64_t> expert_loads);

// How `to` differs from `from`, over all layers.
struct PlacementChange {
  uint64_t experts_to_other_rank = 0;
  uint64_t experts_to_other_slot = 0;  // those above included
  uint64_t experts_total = 0;          // L E
};
PlacementChange ComparePlacements(const Placement& from, const Placement& to);

// 32 hex digits over the map: ranks report it after a state swap.
std::string PlacementDigest(const Placement& placement);

// INVALID_ARGUMENT unless the sizes match and both directions are inverse
// permutations in every layer. `field` prefixes the paths of violations.
absl::Status ValidatePlacement(const Placement& placement,
                               std::string_view field);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_PLACEMENT_H_
