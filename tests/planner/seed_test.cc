#include "planner/seed.h"

#include <algorithm>
#include <optional>
#include <stop_token>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/bin_packing.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;

using Cells = std::vector<std::vector<uint32_t>>;

Cells CellsOf(const Layout& layout) {
  Cells cells;
  for (uint32_t c = 0; c < layout.num_cells(); ++c) {
    const auto items = layout.cell(c / layout.slots, c % layout.slots);
    cells.emplace_back(items.begin(), items.end());
  }
  return cells;
}

PackingProblem RandomProblem(uint64_t seed, uint32_t fillers) {
  const Window window = RandomWindow(RandomShape(seed));
  PackingProblem problem = MakeProblem(window, fillers);
  problem.demand =
      ProjectDemand(window,
                    IdentityPlacement(window.num_layers(), window.num_experts(),
                                      window.spec().topology.num_ranks()),
                    fillers);
  return problem;
}

// Loads of some items, [l][p] without padding.
std::vector<int64_t> LoadsOf(const PackingProblem& problem,
                             const std::vector<uint32_t>& items) {
  const Demand& demand = problem.demand;
  std::vector<int64_t> loads(demand.num_layers * demand.num_ranks);
  for (uint32_t i : items) {
    for (uint32_t l = 0; l < demand.num_layers; ++l) {
      for (uint32_t p = 0; p < demand.num_ranks; ++p) {
        loads[l * demand.num_ranks + p] +=
            demand.item(i)[l * demand.stride + p];
      }
    }
  }
  return loads;
}

int64_t PeakSum(const PackingProblem& problem,
                const std::vector<int64_t>& loads) {
  int64_t sum = 0;
  for (uint32_t l = 0; l < problem.demand.num_layers; ++l) {
    const auto first = loads.begin() + l * problem.demand.num_ranks;
    sum += *std::max_element(first, first + problem.demand.num_ranks);
  }
  return sum;
}

// Spec 1.6.3, recomputing everything at each step and trying every empty cell.
Layout PairByDefinition(const PackingProblem& problem, const Layout& layout) {
  const Cells cells = CellsOf(layout);
  std::vector<std::pair<int64_t, uint32_t>> order;
  for (uint32_t c = 0; c < cells.size(); ++c) {
    order.emplace_back(-PeakSum(problem, LoadsOf(problem, cells[c])), c);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::optional<std::vector<uint32_t>>> placed(cells.size());
  for (const auto& [negative_peak, c] : order) {
    using Key = std::tuple<int64_t, int64_t, uint32_t, uint32_t>;
    std::optional<Key> best;
    for (uint32_t r = 0; r < layout.rows; ++r) {
      for (uint32_t d = 0; d < layout.slots; ++d) {
        if (placed[r * layout.slots + d].has_value()) continue;
        std::vector<uint32_t> items;
        for (uint32_t other = 0; other < layout.slots; ++other) {
          const auto& cell = placed[r * layout.slots + other];
          if (cell.has_value() && problem.topology.shard_of_slot(other) ==
                                      problem.topology.shard_of_slot(d)) {
            items.insert(items.end(), cell->begin(), cell->end());
          }
        }
        const int64_t before = PeakSum(problem, LoadsOf(problem, items));
        items.insert(items.end(), cells[c].begin(), cells[c].end());
        const std::vector<int64_t> loads = LoadsOf(problem, items);
        const Key key(PeakSum(problem, loads) - before,
                      *std::max_element(loads.begin(), loads.end()), r, d);
        if (!best.has_value() || key < *best) best = key;
      }
    }
    placed[std::get<2>(*best) * layout.slots + std::get<3>(*best)] = cells[c];
  }
  Cells result;
  for (const auto& cell : placed) result.push_back(*cell);
  return LayoutFromCells(layout.rows, layout.slots, result);
}

// Four samples of 2 x 2 cells in one shard; two heat rank 0, two rank 1.
PackingProblem HotPairs() {
  PackingProblem problem{
      .tokens = {1, 1, 1, 1},
      .occupancy = {1, 1, 1, 1},
      .num_samples = 4,
      .token_cap = 8,
      .topology = ValueOrDie(Topology::FromShards(2, 2, {}))};
  problem.demand = {
      .num_items = 4, .num_layers = 1, .num_ranks = 2, .stride = 8};
  problem.demand.values.resize(32);
  problem.demand.values[0] = 10;
  problem.demand.values[8] = 9;
  problem.demand.values[17] = 8;
  problem.demand.values[25] = 7;
  return problem;
}

TEST(LengthLayoutTest, KeepsTheOrderOfBins) {
  PackingProblem problem = HotPairs();
  problem.occupancy = {5, 4, 3, 2};
  const Layout layout = LengthLayout(problem, 1, {{0, 2}, {1, 3}});
  EXPECT_EQ(CellsOf(layout), (Cells{{0, 2}, {1, 3}}));
}

TEST(LengthLayoutTest, SplitsBinsUntilEveryCellIsFilled) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const PackingProblem problem = RandomProblem(seed, 0);
    const uint32_t slots = problem.topology.num_slots();
    Bins bins = FirstFitDecreasing(problem.occupancy, problem.token_cap);
    const uint32_t fewest =
        (static_cast<uint32_t>(bins.size()) + slots - 1) / slots;
    const uint32_t most = problem.num_items() / slots;
    for (uint32_t rows = fewest; rows <= most; ++rows) {
      const Layout layout = LengthLayout(problem, rows, bins);
      EXPECT_EQ(layout.rows, rows);
      EXPECT_TRUE(ValidateLayout(problem, layout).ok());
    }
  }
}

TEST(LengthLayoutTest, GivesEveryFillerACellOfItsOwn) {
  const Window window =
      RandomWindow({.num_samples = 10, .num_slots = 4, .max_tokens = 20});
  const PackingProblem problem = MakeProblem(window, 2);
  Bins bins = FirstFitDecreasing(std::span(problem.occupancy).first(10),
                                 problem.token_cap);
  const Layout layout = LengthLayout(problem, 3, bins);
  EXPECT_TRUE(ValidateLayout(problem, layout).ok());
  EXPECT_THAT(layout.cell(2, 2), ElementsAre(10));
  EXPECT_THAT(layout.cell(2, 3), ElementsAre(11));
}

TEST(LengthLayoutDeathTest, RefusesMoreBinsThanCells) {
  EXPECT_DEATH(LengthLayout(HotPairs(), 1, {{0}, {1}, {2, 3}}), "3 bins");
  EXPECT_DEATH(LengthLayout(HotPairs(), 3, {{0}, {1}, {2, 3}}), "6 cells");
}

TEST(EdpAwarePairTest, PutsSamplesOfDifferentRanksTogether) {
  const Layout layout =
      EdpAwarePair(HotPairs(), LayoutFromCells(2, 2, {{0}, {1}, {2}, {3}}));
  // 0 (10 on rank 0) to row 0; 1 (9 on rank 0) would raise row 0's peak as
  // much as row 1's, where the resulting peak is smaller; 2 raises neither
  // and the smaller peak is row 1's.
  EXPECT_EQ(CellsOf(layout), (Cells{{0}, {3}, {1}, {2}}));
}

TEST(EdpAwarePairTest, EqualsTheDefinitionOnRandomProblems) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed, seed % 3);
    const uint32_t slots = problem.topology.num_slots();
    const uint32_t rows = random.Between(1, problem.num_items() / slots);
    const Layout layout =
        RandomLayout(random, rows, slots, problem.num_items());
    EXPECT_EQ(EdpAwarePair(problem, layout), PairByDefinition(problem, layout));
  }
}

TEST(EdpAwarePairTest, KeepsCellsWhole) {
  const PackingProblem problem = RandomProblem(4, 0);
  TestRandom random(4);
  const uint32_t slots = problem.topology.num_slots();
  const Layout layout = RandomLayout(random, 2, slots, problem.num_items());
  Cells before = CellsOf(layout);
  Cells after = CellsOf(EdpAwarePair(problem, layout));
  EXPECT_NE(before, after);
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  EXPECT_EQ(before, after);
}

TEST(EdpAwarePairTest, WithoutDemandKeepsTheOrder) {
  PackingProblem problem = HotPairs();
  std::fill(problem.demand.values.begin(), problem.demand.values.end(), 0);
  const Layout layout = LayoutFromCells(2, 2, {{1}, {3}, {0}, {2}});
  EXPECT_EQ(EdpAwarePair(problem, layout), layout);
}

TEST(EdpAwarePairTest, OutOfBudgetReturnsTheGivenLayout) {
  std::stop_source source;
  const Layout layout = LayoutFromCells(2, 2, {{0}, {1}, {2}, {3}});
  EXPECT_EQ(
      EdpAwarePair(HotPairs(), layout, {.deadline = absl::InfinitePast()}),
      layout);
  EXPECT_NE(EdpAwarePair(HotPairs(), layout, {.stop = source.get_token()}),
            layout);
  source.request_stop();
  EXPECT_EQ(EdpAwarePair(HotPairs(), layout, {.stop = source.get_token()}),
            layout);
}

// Large enough for several tasks a step.
TEST(EdpAwarePairTest, DoesNotDependOnThreads) {
  const Window window = RandomWindow({.num_samples = 64,
                                      .num_layers = 100,
                                      .num_experts = 64,
                                      .num_ranks = 64,
                                      .num_slots = 2,
                                      .num_shards = 1,
                                      .max_tokens = 20});
  PackingProblem problem = MakeProblem(window, 0);
  problem.demand = ProjectDemand(window, IdentityPlacement(100, 64, 64));
  TestRandom random(1);
  const Layout layout = RandomLayout(random, 32, 2, 64);
  const Layout expected = EdpAwarePair(problem, layout);
  OnSeveralThreadCounts(
      [&] { EXPECT_EQ(EdpAwarePair(problem, layout), expected); });
}

}  // namespace
}  // namespace routepack
