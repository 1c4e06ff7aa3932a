#include "planner/layer_swaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/placement.h"
#include "tests/planner/random_movement.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using Loads = std::vector<uint64_t>;

uint64_t Peak(const Loads& loads, const std::vector<uint32_t>& expert_of_slot,
              uint32_t ranks) {
  const size_t slots = loads.size() / ranks;
  uint64_t peak = 0;
  for (size_t p = 0; p < ranks; ++p) {
    uint64_t load = 0;
    for (size_t h = 0; h < slots; ++h) {
      load += loads[expert_of_slot[p * slots + h]];
    }
    peak = std::max(peak, load);
  }
  return peak;
}

Loads RandomLoads(TestRandom& random, uint32_t size, uint32_t bound) {
  Loads loads(size);
  for (uint64_t& load : loads) {
    load = std::min(random.Below(bound), random.Below(bound));
  }
  return loads;
}

TEST(FloorOf, IsTheMeanOrTheHottestExpertInTheLightestCompany) {
  EXPECT_EQ(FloorOf(Loads{3, 4, 5, 5}, 2).peak, 9u);  // 17 / 2, rounded up
  EXPECT_FALSE(FloorOf(Loads{3, 4, 5, 5}, 2).hot_expert);
  EXPECT_EQ(FloorOf(Loads{1, 2, 100, 3}, 2).peak, 101u);
  EXPECT_TRUE(FloorOf(Loads{1, 2, 100, 3}, 2).hot_expert);
  EXPECT_EQ(FloorOf(Loads{1, 2, 3}, 1).peak, 6u);
  EXPECT_EQ(FloorOf(Loads{1, 2, 3}, 3).peak, 3u);
  EXPECT_EQ(FloorOf(Loads{0, 0}, 2).peak, 0u);
}

TEST(FloorOf, IsBelowEveryPlacement) {
  TestRandom random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const uint32_t ranks = random.Between(1, 4);
    const uint32_t slots = ranks > 2 ? random.Between(1, 2) : 3;
    const Loads loads =
        RandomLoads(random, ranks * slots, 1u << random.Between(1, 10));
    std::vector<uint32_t> map(loads.size());
    std::iota(map.begin(), map.end(), 0);
    uint64_t best = std::numeric_limits<uint64_t>::max();
    do {
      best = std::min(best, Peak(loads, map, ranks));
    } while (std::next_permutation(map.begin(), map.end()));
    ASSERT_LE(FloorOf(loads, ranks).peak, best);
    // With one slot or one rank it is attained.
    if (slots == 1 || ranks == 1) {
      ASSERT_EQ(FloorOf(loads, ranks).peak, best);
    }
  }
}

TEST(LevelLayer, SaysWhatEverySwapDoes) {
  TestRandom random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const MovementModel model =
        ValueOrDie(MovementModel::Create(RandomMovementSpec(random)));
    const uint32_t ranks = model.spec().num_ranks;
    const uint32_t slots = model.spec().slots_per_rank;
    const uint32_t experts = model.num_experts();
    const Loads loads = RandomLoads(random, experts, 200);
    std::vector<uint32_t> map =
        RandomPlacement(random, 1, experts, ranks).expert_of_slot;
    const std::vector<uint32_t> before = map;
    std::vector<uint32_t> home(experts);
    for (uint32_t v = 0; v < experts; ++v) home[map[v]] = v;
    const auto cost = [&] {
      int64_t sum = 0;
      for (uint32_t v = 0; v < experts; ++v) {
        sum += model.MoveCost(0, home[map[v]], v);
      }
      return sum;
    };
    const uint64_t target = FloorOf(loads, ranks).peak;
    int64_t last = 0;
    for (const SlotSwap& swap : LevelLayer(model, 0, loads, before, target)) {
      ASSERT_NE(swap.hot_slot / slots, swap.cold_slot / slots);
      std::swap(map[swap.hot_slot], map[swap.cold_slot]);
      ASSERT_EQ(swap.peak, Peak(loads, map, ranks));
      ASSERT_EQ(swap.cost, cost() - last);
      last = cost();
    }
    ASSERT_LE(Peak(loads, map, ranks),
              std::max(target, Peak(loads, before, ranks)));
  }
}

TEST(LevelLayer, LeavesNoExchangeThatHelpsTheBusiestRank) {
  TestRandom random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const uint32_t ranks = random.Between(2, 6);
    const uint32_t slots = random.Between(1, 6);
    const MovementModel model = ValueOrDie(MovementModel::Create(
        {.num_layers = 1, .num_ranks = ranks, .slots_per_rank = slots}));
    const Loads loads = RandomLoads(random, ranks * slots, 30);
    std::vector<uint32_t> map(loads.size());
    std::iota(map.begin(), map.end(), 0);
    const uint64_t target = FloorOf(loads, ranks).peak;
    const auto swaps = LevelLayer(model, 0, loads, map, target);
    for (const SlotSwap& swap : swaps) {
      std::swap(map[swap.hot_slot], map[swap.cold_slot]);
    }
    if (swaps.size() >= loads.size() || Peak(loads, map, ranks) <= target) {
      continue;
    }
    // The load above the target cannot fall by an exchange with the first
    // rank that has the peak.
    std::vector<int64_t> rank_load(ranks, 0);
    for (uint32_t v = 0; v < map.size(); ++v) {
      rank_load[v / slots] += static_cast<int64_t>(loads[map[v]]);
    }
    const uint32_t hot = std::max_element(rank_load.begin(), rank_load.end()) -
                         rank_load.begin();
    const auto above = [&](int64_t load) {
      return std::max<int64_t>(0, load - static_cast<int64_t>(target));
    };
    for (uint32_t u = hot * slots; u < (hot + 1) * slots; ++u) {
      for (uint32_t v = 0; v < map.size(); ++v) {
        const uint32_t p = v / slots;
        if (p == hot) continue;
        const int64_t d = static_cast<int64_t>(loads[map[u]]) -
                          static_cast<int64_t>(loads[map[v]]);
        ASSERT_GE(above(rank_load[hot] - d) + above(rank_load[p] + d),
                  above(rank_load[hot]) + above(rank_load[p]));
      }
    }
  }
}

TEST(LevelLayer, MovesNothingAtTheFloor) {
  const MovementModel model = ValueOrDie(MovementModel::Create(
      {.num_layers = 1, .num_ranks = 2, .slots_per_rank = 3}));
  // The hot expert already has the lightest company; the rest is uneven.
  const Loads loads = {1000, 1, 1, 5, 50, 500};
  const std::vector<uint32_t> map = {0, 1, 2, 3, 4, 5};
  EXPECT_TRUE(LevelLayer(model, 0, loads, map, FloorOf(loads, 2).peak).empty());
}

TEST(LevelLayer, PrefersTheSameNode) {
  MovementSpec spec{.num_layers = 1, .num_ranks = 3, .slots_per_rank = 2};
  spec.node_of_rank = {0, 1, 0};
  const MovementModel model = ValueOrDie(MovementModel::Create(spec));
  const std::vector<uint32_t> map = {0, 1, 2, 3, 4, 5};
  const auto swaps = LevelLayer(model, 0, Loads{9, 6, 3, 3, 3, 3}, map, 9);
  ASSERT_FALSE(swaps.empty());
  EXPECT_EQ(swaps[0].cold_slot / 2, 2u);
}

TEST(LevelLayer, ExchangesTwoForTwoWhereOneForOneStalls) {
  const MovementModel model = ValueOrDie(MovementModel::Create(
      {.num_layers = 1, .num_ranks = 2, .slots_per_rank = 4}));
  // 110 against 108. No two experts differ by 1, but 15 + 15 and 13 + 16 do.
  const Loads loads = {15, 15, 30, 50, 13, 16, 27, 52};
  const std::vector<uint32_t> map = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto swaps = LevelLayer(model, 0, loads, map, 109);
  ASSERT_EQ(swaps.size(), 2u);
  EXPECT_EQ(swaps[1].peak, 109u);
}

}  // namespace
}  // namespace routepack
