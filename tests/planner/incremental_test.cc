#include "planner/incremental.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planner/layer_swaps.h"
#include "planner/movement_report.h"
#include "tests/planner/random_movement.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using Loads = std::vector<uint64_t>;

uint64_t PeakSum(const Placement& placement, const Loads& loads) {
  const auto rank_loads = RankLoads(placement, loads);
  uint64_t sum = 0;
  for (auto begin = rank_loads.begin(); begin != rank_loads.end();
       begin += placement.num_ranks) {
    sum += *std::max_element(begin, begin + placement.num_ranks);
  }
  return sum;
}

// Skewed, as routing is: few experts far above the rest.
Loads RandomLoads(TestRandom& random, size_t size) {
  Loads loads(size);
  for (uint64_t& load : loads) load = 1000000 / random.Between(50, 2000);
  return loads;
}

// Routing a step later: every expert a little more or less popular.
Loads Drift(TestRandom& random, const Loads& loads, uint32_t percent) {
  Loads next = loads;
  for (uint64_t& load : next) {
    load = load * (100 - percent + random.Below(2 * percent + 1)) / 100;
  }
  return next;
}

MovementSpec SixteenRanks(uint32_t num_layers) {
  MovementSpec spec = DescribeExperts(3 * 1024);
  spec.num_layers = num_layers;
  spec.num_shards = 2;
  spec.num_ranks = 16;
  spec.slots_per_rank = 8;
  spec.node_of_rank = NodesOfConsecutiveRanks(2, 16, 1, 8);
  return spec;
}

constexpr IncrementalOptions kToTarget = {.break_even = false};

TEST(IncrementalPlacement, ReportsWhatItDoes) {
  TestRandom random(1);
  for (int trial = 0; trial < 300; ++trial) {
    MovementSpec spec = RandomMovementSpec(random);
    spec.seconds_per_assignment = random.Below(2) == 0 ? 0 : 1e-10;
    const MovementModel model = ValueOrDie(MovementModel::Create(spec));
    const uint32_t experts = model.num_experts();
    const Loads loads = RandomLoads(random, size_t{spec.num_layers} * experts);
    const Placement current =
        RandomPlacement(random, spec.num_layers, experts, spec.num_ranks);
    IncrementalOptions options;
    if (random.Below(2) == 0) {
      options.movement_budget = random.Below(200);
    }
    options.target_imbalance = 0.01 * random.Below(10);
    options.break_even = random.Below(2) == 0;
    const IncrementalResult result =
        IncrementalPlacement(loads, current, model, options);
    ASSERT_TRUE(ValidatePlacement(result.placement, "placement").ok());
    ASSERT_EQ(result.peak_sum_before, PeakSum(current, loads));
    ASSERT_EQ(result.peak_sum_after, PeakSum(result.placement, loads));
    ASSERT_LE(result.peak_sum_after, result.peak_sum_before);
    ASSERT_GE(result.peak_sum_after, result.floor_sum);
    ASSERT_EQ(result.weighted_bytes * MovementModel::kCostUnit,
              static_cast<double>(MapCost(model, current, result.placement)));
    ASSERT_LE(result.weighted_bytes, options.movement_budget);
    if (result.stop == IncrementalStop::kTarget) {
      ASSERT_LE(static_cast<double>(result.peak_sum_after),
                static_cast<double>(result.floor_sum) *
                    (1 + options.target_imbalance));
    }
    const MovementReport report =
        ReportMovement(model, current, result.placement, loads);
    if (options.break_even && KnowsTimes(model)) {
      ASSERT_GE(report.saved_seconds, report.transfer_seconds);
    }
  }
}

TEST(IncrementalPlacement, IsAsGoodAsLptForAFractionOfItsBytes) {
  TestRandom random(2);
  const MovementModel model =
      ValueOrDie(MovementModel::Create(SixteenRanks(20)));
  for (const uint32_t percent : {1u, 5u, 20u}) {
    Loads loads = RandomLoads(random, 20 * 128);
    Placement current = LptPlacement(loads, 20, 128, 16);
    double incremental_bytes = 0;
    double lpt_bytes = 0;
    Placement lpt = current;
    for (int step = 0; step < 5; ++step) {
      loads = Drift(random, loads, percent);
      const IncrementalResult result =
          IncrementalPlacement(loads, current, model, kToTarget);
      const Placement next = LptPlacement(loads, 20, 128, 16);
      EXPECT_LE(static_cast<double>(result.peak_sum_after),
                1.003 * static_cast<double>(PeakSum(next, loads)));
      incremental_bytes += result.weighted_bytes;
      lpt_bytes += ReportMovement(model, lpt, next, loads).weighted_bytes;
      current = result.placement;
      lpt = next;
    }
    EXPECT_LT(5 * incremental_bytes, lpt_bytes) << percent;
  }
}

TEST(IncrementalPlacement, StaysWhereNothingIsToBeGained) {
  TestRandom random(3);
  const MovementModel model =
      ValueOrDie(MovementModel::Create(SixteenRanks(4)));
  const Loads loads = RandomLoads(random, 4 * 128);
  const Placement current = RandomPlacement(random, 4, 128, 16);
  const Placement balanced =
      IncrementalPlacement(loads, current, model, kToTarget).placement;
  const IncrementalResult again =
      IncrementalPlacement(loads, balanced, model, kToTarget);
  EXPECT_EQ(again.placement, balanced);
  EXPECT_EQ(again.stop, IncrementalStop::kTarget);
  EXPECT_EQ(again.swaps, 0u);

  const IncrementalResult idle =
      IncrementalPlacement(Loads(4 * 128, 0), current, model, kToTarget);
  EXPECT_EQ(idle.placement, current);
}

TEST(IncrementalPlacement, WastesNoMovesOnAHotExpert) {
  TestRandom random(4);
  const MovementModel model =
      ValueOrDie(MovementModel::Create(SixteenRanks(3)));
  Loads loads = RandomLoads(random, 3 * 128);
  for (uint32_t l = 0; l < 3; ++l) loads[l * 128 + 7] = 10'000'000;
  const Placement current = RandomPlacement(random, 3, 128, 16);
  const IncrementalResult result =
      IncrementalPlacement(loads, current, model, kToTarget);
  EXPECT_EQ(result.hot_expert_layers, 3u);
  EXPECT_LE(result.swaps, 3u * 7u);  // the hot expert's company at most
  const Placement lpt = LptPlacement(loads, 3, 128, 16);
  EXPECT_LE(static_cast<double>(result.peak_sum_after),
            1.003 * static_cast<double>(PeakSum(lpt, loads)));
}

TEST(IncrementalPlacement, KeepsToTheMovementBudget) {
  TestRandom random(5);
  const MovementModel model =
      ValueOrDie(MovementModel::Create(SixteenRanks(8)));
  const Loads loads = RandomLoads(random, 8 * 128);
  const Placement current = RandomPlacement(random, 8, 128, 16);
  const IncrementalResult free =
      IncrementalPlacement(loads, current, model, kToTarget);
  uint64_t last = free.peak_sum_before;
  for (const double share : {0.0, 0.1, 0.3, 0.6, 1.0}) {
    IncrementalOptions options = kToTarget;
    options.movement_budget = share * free.weighted_bytes;
    const IncrementalResult result =
        IncrementalPlacement(loads, current, model, options);
    EXPECT_LE(result.weighted_bytes, options.movement_budget);
    EXPECT_LE(result.peak_sum_after, last);
    last = result.peak_sum_after;
    if (share < 0.9) {
      EXPECT_EQ(result.stop, IncrementalStop::kBudget);
    }
    if (share == 0.3) {
      // The steepest swaps come first.
      EXPECT_GT(result.peak_sum_before - result.peak_sum_after,
                0.3 * static_cast<double>(free.peak_sum_before -
                                          free.peak_sum_after));
    }
  }
}

TEST(IncrementalPlacement, MovesOnlyWhatPaysWithinTheHorizon) {
  TestRandom random(6);
  MovementSpec spec = SixteenRanks(8);
  const Loads loads = RandomLoads(random, 8 * 128);
  const Placement current = RandomPlacement(random, 8, 128, 16);
  spec.seconds_per_assignment = 1e-15;
  const MovementModel fast = ValueOrDie(MovementModel::Create(spec));
  const IncrementalResult none = IncrementalPlacement(loads, current, fast, {});
  EXPECT_EQ(none.placement, current);
  EXPECT_EQ(none.stop, IncrementalStop::kBreakEven);
  EXPECT_EQ(none.weighted_bytes, 0);

  double last = 0;
  for (const double horizon : {1e3, 1e4, 1e5, 1e6, 1e9}) {
    const IncrementalResult result =
        IncrementalPlacement(loads, current, fast, {.horizon_steps = horizon});
    EXPECT_GE(result.weighted_bytes, last);
    last = result.weighted_bytes;
    const MovementReport report =
        ReportMovement(fast, current, result.placement, loads);
    EXPECT_LE(report.break_even_steps, horizon);
  }
  EXPECT_EQ(
      last,
      IncrementalPlacement(loads, current, fast, kToTarget).weighted_bytes);
}

TEST(IncrementalPlacement, ReachesTheTargetOfAllLayersTogether) {
  TestRandom random(7);
  const MovementModel model =
      ValueOrDie(MovementModel::Create(SixteenRanks(8)));
  const Loads loads = RandomLoads(random, 8 * 128);
  const Placement current = RandomPlacement(random, 8, 128, 16);
  double last = std::numeric_limits<double>::infinity();
  for (const double target : {0.002, 0.01, 0.05, 0.2}) {
    IncrementalOptions options = kToTarget;
    options.target_imbalance = target;
    const IncrementalResult result =
        IncrementalPlacement(loads, current, model, options);
    EXPECT_EQ(result.stop, IncrementalStop::kTarget);
    EXPECT_LE(static_cast<double>(result.peak_sum_after),
              (1 + target) * static_cast<double>(result.floor_sum));
    EXPECT_LE(result.weighted_bytes, last);
    last = result.weighted_bytes;
  }
}

TEST(IncrementalPlacement, DoesNotDependOnThreads) {
  TestRandom random(8);
  const MovementModel model =
      ValueOrDie(MovementModel::Create(SixteenRanks(30)));
  const Loads loads = RandomLoads(random, 30 * 128);
  const Placement current = RandomPlacement(random, 30, 128, 16);
  IncrementalOptions options;
  options.horizon_steps = 1e5;
  const IncrementalResult expected =
      IncrementalPlacement(loads, current, model, options);
  OnSeveralThreadCounts([&] {
    const IncrementalResult result =
        IncrementalPlacement(loads, current, model, options);
    EXPECT_EQ(result.placement, expected.placement);
    EXPECT_EQ(result.weighted_bytes, expected.weighted_bytes);
  });
}

}  // namespace
}  // namespace routepack
