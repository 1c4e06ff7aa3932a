// Movement models and maps for tests.

#ifndef ROUTEPACK_TESTS_PLANNER_RANDOM_MOVEMENT_H_
#define ROUTEPACK_TESTS_PLANNER_RANDOM_MOVEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/movement.h"
#include "planner/placement.h"
#include "tests/planner/slow_lanes.h"
#include "tests/planner/test_windows.h"

namespace routepack {

// A few ranks of a few slots, every kind of state, nodes anyhow.
inline MovementSpec RandomMovementSpec(TestRandom& random) {
  MovementSpec spec;
  spec.num_layers = random.Between(1, 4);
  spec.num_shards = random.Between(1, 4);
  spec.num_ranks = random.Between(1, 5);
  spec.slots_per_rank = random.Between(1, 4);
  spec.gpus_per_rank = random.Between(1, 2);
  const uint32_t nodes = random.Between(1, 4);
  if (random.Below(4) != 0) {
    spec.node_of_rank.resize(size_t{spec.num_shards} * spec.num_ranks);
    for (uint32_t& node : spec.node_of_rank) node = 10 * random.Below(nodes);
  }
  spec.buffer = RandomBuffer(random, spec.num_layers);
  uint64_t elements = 0;
  for (const auto& parameter : spec.buffer.parameters) {
    elements += parameter.elements;
  }
  const uint32_t kinds = random.Below(4);
  for (uint32_t k = 0; k < kinds; ++k) {
    const bool owned = random.Below(3) != 0;
    spec.kinds.push_back(
        {"kind", (owned ? elements : 3) * random.Between(1, 4), owned});
  }
  spec.inter_node_cost = random.Between(0, 5);
  spec.seconds_per_assignment = 1e-9;
  for (uint32_t l = 0; l < spec.num_layers && random.Below(3) == 0; ++l) {
    spec.stage_of_layer.resize(spec.num_layers, 0);
    spec.stage_of_layer[l] = random.Below(2);
  }
  return spec;
}

// Any map.
inline Placement RandomPlacement(TestRandom& random, uint32_t num_layers,
                                 uint32_t num_experts, uint32_t num_ranks) {
  Placement placement = IdentityPlacement(num_layers, num_experts, num_ranks);
  for (uint32_t l = 0; l < num_layers; ++l) {
    std::vector<uint32_t> order(num_experts);
    for (uint32_t e = 0; e < num_experts; ++e) order[e] = e;
    random.Shuffle(order);
    for (uint32_t v = 0; v < num_experts; ++v) {
      placement.expert_of_slot[size_t{l} * num_experts + v] = order[v];
      placement.slot_of_expert[size_t{l} * num_experts + order[v]] = v;
    }
  }
  return placement;
}

// Weighted bytes of going from one map to another, times kCostUnit.
inline int64_t MapCost(const MovementModel& model, const Placement& from,
                       const Placement& to) {
  int64_t cost = 0;
  for (size_t j = 0; j < to.slot_of_expert.size(); ++j) {
    cost += model.MoveCost(static_cast<uint32_t>(j / to.num_experts),
                           from.slot_of_expert[j], to.slot_of_expert[j]);
  }
  return cost;
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_RANDOM_MOVEMENT_H_
