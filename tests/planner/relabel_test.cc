#include "planner/relabel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/planner/random_movement.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

std::vector<uint64_t> RandomLoads(TestRandom& random, size_t size,
                                  uint32_t bound) {
  std::vector<uint64_t> loads(size);
  for (uint64_t& load : loads) load = random.Below(bound);
  return loads;
}

// Least cost of a layer whose groups may take any rank and, those of their
// experts that are not at home in it, any slot.
int64_t BruteForceLayer(const MovementModel& model, uint32_t l,
                        const Placement& lpt, const Placement& current) {
  const uint32_t ranks = lpt.num_ranks;
  const uint32_t slots = lpt.slots_per_rank();
  const size_t row = size_t{l} * lpt.num_experts;
  // [group][rank]
  std::vector<int64_t> cost(size_t{ranks} * ranks);
  for (uint32_t k = 0; k < ranks; ++k) {
    for (uint32_t p = 0; p < ranks; ++p) {
      std::vector<uint32_t> order(slots);
      std::iota(order.begin(), order.end(), 0);
      int64_t best = std::numeric_limits<int64_t>::max();
      do {
        int64_t sum = 0;
        bool kept = true;
        for (uint32_t h = 0; h < slots; ++h) {
          const uint32_t e = lpt.expert_of_slot[row + k * slots + h];
          const uint32_t home = current.slot_of_expert[row + e];
          const uint32_t slot = p * slots + order[h];
          kept = kept && (home / slots != p || home == slot);
          sum += model.MoveCost(l, home, slot);
        }
        if (kept) best = std::min(best, sum);
      } while (std::next_permutation(order.begin(), order.end()));
      cost[size_t{k} * ranks + p] = best;
    }
  }
  std::vector<uint32_t> rank_of_group(ranks);
  std::iota(rank_of_group.begin(), rank_of_group.end(), 0);
  int64_t best = std::numeric_limits<int64_t>::max();
  do {
    int64_t sum = 0;
    for (uint32_t k = 0; k < ranks; ++k) {
      sum += cost[size_t{k} * ranks + rank_of_group[k]];
    }
    best = std::min(best, sum);
  } while (std::next_permutation(rank_of_group.begin(), rank_of_group.end()));
  return best;
}

TEST(RelabelledLpt, IsTheCheapestOfAllLabelsAndSlots) {
  TestRandom random(1);
  for (int trial = 0; trial < 300; ++trial) {
    MovementSpec spec = RandomMovementSpec(random);
    if (trial % 10 == 0) {
      spec.num_ranks = 6;
      spec.node_of_rank.clear();
    }
    const MovementModel model = ValueOrDie(MovementModel::Create(spec));
    const uint32_t layers = spec.num_layers;
    const uint32_t experts = model.num_experts();
    const auto loads = RandomLoads(random, size_t{layers} * experts, 50);
    const Placement current =
        RandomPlacement(random, layers, experts, spec.num_ranks);
    const Placement placement = RelabelledLptPlacement(loads, current, model);
    ASSERT_TRUE(ValidatePlacement(placement, "placement").ok());
    const Placement lpt = LptPlacement(loads, layers, experts, spec.num_ranks);
    int64_t best = 0;
    for (uint32_t l = 0; l < layers; ++l) {
      best += BruteForceLayer(model, l, lpt, current);
    }
    ASSERT_EQ(MapCost(model, current, placement), best);
  }
}

TEST(RelabelledLpt, HasTheLoadsOfLpt) {
  TestRandom random(2);
  for (int trial = 0; trial < 50; ++trial) {
    MovementSpec spec = RandomMovementSpec(random);
    spec.num_ranks = random.Between(1, 20);
    spec.node_of_rank.clear();
    const MovementModel model = ValueOrDie(MovementModel::Create(spec));
    const uint32_t experts = model.num_experts();
    const auto loads =
        RandomLoads(random, size_t{spec.num_layers} * experts, 1000);
    const Placement current =
        RandomPlacement(random, spec.num_layers, experts, spec.num_ranks);
    const auto sorted = [&](const Placement& placement) {
      auto rank_loads = RankLoads(placement, loads);
      for (auto begin = rank_loads.begin(); begin != rank_loads.end();
           begin += spec.num_ranks) {
        std::sort(begin, begin + spec.num_ranks);
      }
      return rank_loads;
    };
    const Placement lpt =
        LptPlacement(loads, spec.num_layers, experts, spec.num_ranks);
    const Placement relabelled = RelabelledLptPlacement(loads, current, model);
    ASSERT_EQ(sorted(relabelled), sorted(lpt));
    ASSERT_LE(MapCost(model, current, relabelled),
              MapCost(model, current, lpt));
  }
}

TEST(RelabelledLpt, StaysWhenNothingChanged) {
  TestRandom random(3);
  const MovementModel model = ValueOrDie(MovementModel::Create(
      {.num_layers = 5, .num_ranks = 8, .slots_per_rank = 4}));
  const auto loads = RandomLoads(random, 5 * 32, 1000);
  // LPT's groups under other names and in other slots.
  const Placement start = RandomPlacement(random, 5, 32, 8);
  const Placement current = RelabelledLptPlacement(loads, start, model);
  EXPECT_EQ(RelabelledLptPlacement(loads, current, model), current);
}

TEST(RelabelledLpt, DoesNotDependOnThreads) {
  TestRandom random(4);
  MovementSpec spec = DescribeExperts(3000);
  spec.num_layers = 20;
  spec.num_shards = 4;
  spec.num_ranks = 16;
  spec.slots_per_rank = 8;
  spec.node_of_rank = NodesOfConsecutiveRanks(4, 16, 1, 8);
  const MovementModel model = ValueOrDie(MovementModel::Create(spec));
  const auto loads = RandomLoads(random, 20 * 128, 1000);
  const Placement current = RandomPlacement(random, 20, 128, 16);
  const Placement expected = RelabelledLptPlacement(loads, current, model);
  OnSeveralThreadCounts([&] {
    EXPECT_EQ(RelabelledLptPlacement(loads, current, model), expected);
  });
}

}  // namespace
}  // namespace routepack
