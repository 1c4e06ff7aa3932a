#include "planner/seed.h"

#include <algorithm>
#include <map>
#include <optional>
#include <stop_token>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/bin_packing.h"
#include "planner/diversity.h"
#include "planner/rows.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

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
// Step n draws from the best `width` row-shards by random number n: of m, the
// k-th from 0 is m - k tickets.
Layout PairByDefinition(const PackingProblem& problem, const Layout& layout,
                        uint32_t width = 1,
                        const CounterRandom& random = CounterRandom(0)) {
  const Cells cells = CellsOf(layout);
  std::vector<std::pair<int64_t, uint32_t>> order;
  for (uint32_t c = 0; c < cells.size(); ++c) {
    order.emplace_back(-PeakSum(problem, LoadsOf(problem, cells[c])), c);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::optional<std::vector<uint32_t>>> placed(cells.size());
  for (uint32_t step = 0; step < order.size(); ++step) {
    const uint32_t c = order[step].second;
    using Key = std::tuple<int64_t, int64_t, uint32_t, uint32_t>;
    std::map<std::pair<uint32_t, uint32_t>, Key> best_of_row_shard;
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
        const auto [it, is_new] = best_of_row_shard.try_emplace(
            {r, problem.topology.shard_of_slot(d)}, key);
        it->second = std::min(it->second, key);
      }
    }
    std::vector<Key> ranking;
    for (const auto& [row_shard, key] : best_of_row_shard) {
      ranking.push_back(key);
    }
    std::sort(ranking.begin(), ranking.end());
    const size_t m = std::min<size_t>(width, ranking.size());
    std::vector<Key> tickets;
    for (size_t k = 0; k < m; ++k)
      tickets.insert(tickets.end(), m - k, ranking[k]);
    const Key chosen = tickets[random.BelowAt(step, tickets.size())];
    placed[std::get<2>(chosen) * layout.slots + std::get<3>(chosen)] = cells[c];
  }
  Cells result;
  for (const auto& cell : placed) result.push_back(*cell);
  return LayoutFromCells(layout.rows, layout.slots, result);
}

// Algorithm 2, lines 4 to 8, sorting all feasible cells for each item.
Bins BinsByDefinition(const PackingProblem& problem, uint32_t num_cells,
                      uint32_t width, const CounterRandom& random) {
  std::vector<uint32_t> remaining = DecreasingOrder(problem.occupancy);
  std::vector<uint32_t> shuffled;
  while (!remaining.empty()) {
    const size_t drawn = random.BelowAt(
        shuffled.size(), std::min<size_t>(width, remaining.size()));
    shuffled.push_back(remaining[drawn]);
    remaining.erase(remaining.begin() + drawn);
  }
  Bins bins(num_cells);
  const auto occupancy = [&](uint32_t c) {
    uint32_t sum = 0;
    for (uint32_t i : bins[c]) sum += problem.occupancy[i];
    return sum;
  };
  for (uint32_t k = 0; k < shuffled.size(); ++k) {
    const uint32_t item = shuffled[k];
    if (k < num_cells) {
      bins[k].push_back(item);
      continue;
    }
    std::vector<std::tuple<int64_t, size_t, uint32_t>> feasible;
    for (uint32_t c = 0; c < num_cells; ++c) {
      if (occupancy(c) + problem.occupancy[item] <= problem.token_cap) {
        feasible.emplace_back(-int64_t{occupancy(c)}, bins[c].size(), c);
      }
    }
    if (feasible.empty()) return {};
    std::sort(feasible.begin(), feasible.end());
    const size_t drawn = random.BelowAt(
        shuffled.size() + k, std::min<size_t>(width, feasible.size()));
    bins[std::get<2>(feasible[drawn])].push_back(item);
  }
  return bins;
}

// A problem with its fewest rows and the length-only layout.
struct Packed {
  PackingProblem problem;
  Layout length;
};

Packed WithLengthLayout(PackingProblem problem) {
  RowResult rows =
      ValueOrDie(FewestRows(problem.occupancy,
                            {.num_slots = problem.topology.num_slots(),
                             .token_cap = problem.token_cap},
                            Budget{}));
  Layout length = LengthLayout(problem, rows.rows, std::move(rows.bins));
  return {.problem = std::move(problem), .length = std::move(length)};
}

void ExpectSamePool(const SeedPool& a, const SeedPool& b) {
  EXPECT_EQ(a.layouts, b.layouts);
  EXPECT_EQ(a.scores, b.scores);
  EXPECT_EQ(a.length_score, b.length_score);
  EXPECT_EQ(a.paired_score, b.paired_score);
  EXPECT_EQ(a.trials, b.trials);
  EXPECT_EQ(a.aborted, b.aborted);
}

// What holds for every pool.
void ExpectConsistent(const Packed& packed, const SeedPool& pool) {
  ASSERT_EQ(pool.layouts.size(), pool.scores.size());
  ASSERT_FALSE(pool.layouts.empty());
  EXPECT_LE(pool.layouts.size(), 2 + pool.trials - pool.aborted);
  EXPECT_EQ(pool.layouts[0], Canonicalize(packed.problem, packed.length));
  EXPECT_EQ(pool.scores[0], pool.length_score);
  for (size_t k = 0; k < pool.layouts.size(); ++k) {
    const Layout& layout = pool.layouts[k];
    EXPECT_TRUE(ValidateLayout(packed.problem, layout).ok());
    EXPECT_EQ(layout.rows, packed.length.rows);
    EXPECT_EQ(layout, Canonicalize(packed.problem, layout));
    EXPECT_EQ(pool.scores[k], EvaluateLayout(packed.problem, layout).score);
    EXPECT_EQ(std::count(pool.layouts.begin(), pool.layouts.end(), layout), 1);
    EXPECT_LE(pool.scores[pool.best()], pool.scores[k]);
  }
  EXPECT_LE(pool.scores[pool.best()], pool.length_score);
  EXPECT_LE(pool.scores[pool.best()], pool.paired_score);
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

TEST(RandomizedEdpAwarePairTest, EqualsTheDefinitionOnRandomProblems) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed, seed % 3);
    const uint32_t slots = problem.topology.num_slots();
    const uint32_t rows = random.Between(1, problem.num_items() / slots);
    const uint32_t width = random.Between(1, 7);
    const Layout layout =
        RandomLayout(random, rows, slots, problem.num_items());
    EXPECT_EQ(
        RandomizedEdpAwarePair(problem, layout, width, CounterRandom(seed)),
        PairByDefinition(problem, layout, width, CounterRandom(seed)));
  }
}

TEST(RandomizedEdpAwarePairTest, WidthOneIsDeterministic) {
  const PackingProblem problem = RandomProblem(4, 0);
  TestRandom random(4);
  const uint32_t slots = problem.topology.num_slots();
  const Layout layout = RandomLayout(random, 3, slots, problem.num_items());
  const Layout expected = EdpAwarePair(problem, layout);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(RandomizedEdpAwarePair(problem, layout, 1, CounterRandom(seed)),
              expected);
  }
}

// One cell of two, equal keys: the lower row has two of three tickets.
TEST(RandomizedEdpAwarePairTest, PrefersBetterPlaces) {
  const PackingProblem problem = HotPairs();
  const Layout layout = LayoutFromCells(2, 2, {{0}, {1}, {2}, {3}});
  int lower = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Layout drawn =
        RandomizedEdpAwarePair(problem, layout, 2, CounterRandom(seed));
    lower += drawn.cell(0, 0)[0] == 0;
  }
  EXPECT_NEAR(lower, 2000, 150);
}

TEST(RandomizedBinsTest, EqualsTheDefinitionOnRandomProblems) {
  int aborted = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed, seed % 3);
    // From as tight as can be to one cell an item.
    const uint32_t tight = CapacityBound(problem.occupancy, problem.token_cap);
    const uint32_t num_cells = seed % 2 == 0
                                   ? tight + seed % 4
                                   : random.Between(tight, problem.num_items());
    const uint32_t width = random.Between(1, 9);
    const CounterRandom draws(seed, 3);
    const Bins bins = RandomizedBins(problem, num_cells, width, draws);
    EXPECT_EQ(bins, BinsByDefinition(problem, num_cells, width, draws));
    aborted += bins.empty();
  }
  EXPECT_GT(aborted, 20);
  EXPECT_LT(aborted, 300);
}

TEST(RandomizedBinsTest, FillsEveryCellWithinTheCapOrAborts) {
  const PackingProblem problem = MakeProblem(FirstFitMissesWindow(), 0);
  int feasible = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Bins bins = RandomizedBins(problem, 4, 4, CounterRandom(seed));
    if (bins.empty()) continue;
    ++feasible;
    EXPECT_TRUE(ValidateLayout(problem, LayoutFromCells(2, 2, bins)).ok());
  }
  // Every cell must be exactly full: rare, and yet found.
  EXPECT_GT(feasible, 0);
  EXPECT_LT(feasible, 250);
}

// With a cell an item, the cells show the order.
TEST(RandomizedBinsTest, DrawsFromAWindowOfTheDecreasingOrder) {
  const PackingProblem problem = RandomProblem(9, 0);
  const uint32_t size = problem.num_items();
  const std::vector<uint32_t> decreasing = DecreasingOrder(problem.occupancy);
  for (uint32_t width : {1u, 2u, 5u, size, size + 7}) {
    const Bins bins =
        RandomizedBins(problem, size, width, CounterRandom(width));
    std::vector<uint32_t> remaining = decreasing;
    for (const std::vector<uint32_t>& bin : bins) {
      ASSERT_THAT(bin, SizeIs(1));
      const auto it = std::find(remaining.begin(), remaining.end(), bin[0]);
      ASSERT_NE(it, remaining.end());
      EXPECT_LT(it - remaining.begin(), width);
      remaining.erase(it);
    }
    EXPECT_TRUE(remaining.empty());
    Cells in_order;
    for (uint32_t i : decreasing) in_order.push_back({i});
    EXPECT_EQ(bins == in_order, width == 1);
  }
}

TEST(RandomizedBinsTest, TreatsFillersAsItems) {
  const Window window = RandomWindow({.num_samples = 10, .max_tokens = 20});
  const PackingProblem problem = MakeProblem(window, 2);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Bins bins = RandomizedBins(problem, 12, 3, CounterRandom(seed));
    ASSERT_THAT(bins, SizeIs(12));
    EXPECT_TRUE(ValidateLayout(problem, LayoutFromCells(3, 4, bins)).ok());
  }
}

TEST(MakeSeedsTest, IsConsistentOnRandomProblems) {
  int improved = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    const Packed packed = WithLengthLayout(RandomProblem(seed, 0));
    const SeedPool pool =
        MakeSeeds(packed.problem, packed.length,
                  {.candidates = 12, .choice_width = 3}, seed);
    EXPECT_EQ(pool.trials, 10u);
    ExpectConsistent(packed, pool);
    EXPECT_EQ(pool.paired_score,
              EvaluateLayout(packed.problem,
                             EdpAwarePair(packed.problem, packed.length))
                  .score);
    improved += pool.scores[pool.best()] <
                std::min(pool.length_score, pool.paired_score);
  }
  EXPECT_GT(improved, 20);
}

TEST(MakeSeedsTest, HoldsThePairingUnlessItIsWorse) {
  int better = 0;
  int worse = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    const Packed packed = WithLengthLayout(RandomProblem(seed, 0));
    const SeedPool pool =
        MakeSeeds(packed.problem, packed.length, {.candidates = 2}, seed);
    EXPECT_EQ(pool.trials, 0u);
    const bool is_better = pool.paired_score < pool.length_score;
    better += is_better;
    worse += pool.length_score < pool.paired_score;
    if (is_better) {
      ASSERT_THAT(pool.layouts, SizeIs(2));
      EXPECT_EQ(pool.layouts[1],
                Canonicalize(packed.problem,
                             EdpAwarePair(packed.problem, packed.length)));
      EXPECT_EQ(pool.best(), 1u);
    } else if (pool.length_score < pool.paired_score) {
      EXPECT_THAT(pool.layouts, SizeIs(1));
    }
  }
  EXPECT_GT(better, 5);
  EXPECT_GT(worse, 5);
}

TEST(MakeSeedsTest, DoesNotDependOnThreads) {
  const Packed packed = WithLengthLayout(RandomProblem(21, 0));
  const SeedOptions options{.candidates = 40, .choice_width = 4};
  const SeedPool expected =
      MakeSeeds(packed.problem, packed.length, options, 5);
  EXPECT_GT(expected.layouts.size(), 10u);
  OnSeveralThreadCounts([&] {
    ExpectSamePool(MakeSeeds(packed.problem, packed.length, options, 5),
                   expected);
  });
}

TEST(MakeSeedsTest, TrialsDependOnSeedAndNumberOnly) {
  const Packed packed = WithLengthLayout(RandomProblem(21, 0));
  const auto make = [&](uint32_t candidates, uint64_t seed) {
    return MakeSeeds(packed.problem, packed.length, {.candidates = candidates},
                     seed)
        .layouts;
  };
  const std::vector<Layout> many = make(40, 5);
  const std::vector<Layout> few = make(20, 5);
  ASSERT_LT(few.size(), many.size());
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(make(40, 6), many);
}

TEST(MakeSeedsTest, CountsAbortedTrials) {
  const Window window = FirstFitMissesWindow();
  PackingProblem problem = MakeProblem(window, 0);
  problem.demand = ProjectDemand(window, IdentityPlacement(1, 4, 2));
  const Packed packed = WithLengthLayout(std::move(problem));
  EXPECT_EQ(packed.length.rows, 2u);
  const SeedPool pool =
      MakeSeeds(packed.problem, packed.length, {.candidates = 102}, 1);
  EXPECT_EQ(pool.trials, 100u);
  EXPECT_GT(pool.aborted, 50u);
  EXPECT_LT(pool.aborted, 100u);
  ExpectConsistent(packed, pool);
}

TEST(MakeSeedsTest, WidthOneTriesOneLayoutOnly) {
  const Packed packed = WithLengthLayout(RandomProblem(21, 0));
  const SeedPool pool = MakeSeeds(packed.problem, packed.length,
                                  {.candidates = 20, .choice_width = 1}, 3);
  EXPECT_EQ(pool.trials, 18u);
  EXPECT_LE(pool.layouts.size(), 3u);
  ExpectConsistent(packed, pool);
}

TEST(MakeSeedsTest, OutOfBudgetKeepsTheLengthLayout) {
  const Packed packed = WithLengthLayout(RandomProblem(21, 0));
  std::stop_source source;
  source.request_stop();
  for (const Budget& budget : {Budget{.stop = source.get_token()},
                               Budget{.deadline = absl::InfinitePast()}}) {
    const SeedPool pool =
        MakeSeeds(packed.problem, packed.length, {.candidates = 20}, 3, budget);
    ExpectConsistent(packed, pool);
    EXPECT_THAT(pool.layouts, SizeIs(1));
    EXPECT_EQ(pool.paired_score, pool.length_score);
    EXPECT_EQ(pool.trials, 0u);
  }
}

TEST(MakeSeedsTest, FindsArrangementsOfOneSampleCells) {
  PackingProblem problem = HotPairs();
  problem.attention = {{.name = "linear", .alpha = 1}};
  const Packed packed = {.problem = problem,
                         .length = LayoutFromCells(2, 2, {{0}, {1}, {2}, {3}})};
  const SeedPool pool =
      MakeSeeds(packed.problem, packed.length, {.candidates = 60}, 1);
  EXPECT_EQ(pool.aborted, 0u);
  ExpectConsistent(packed, pool);
  // All ways to pair up four samples.
  EXPECT_THAT(pool.layouts, SizeIs(3));
}

TEST(MakeSeedsTest, SpreadsFillers) {
  const Window window =
      RandomWindow({.num_samples = 10, .num_slots = 4, .max_tokens = 20});
  PackingProblem problem = MakeProblem(window, 2);
  problem.demand = ProjectDemand(window, IdentityPlacement(3, 12, 4), 2);
  Bins bins;
  for (uint32_t i = 0; i < 10; ++i) bins.push_back({i});
  Layout length = LengthLayout(problem, 3, bins);
  const Packed packed = {.problem = std::move(problem),
                         .length = std::move(length)};
  const SeedPool pool =
      MakeSeeds(packed.problem, packed.length, {.candidates = 20}, 1);
  ExpectConsistent(packed, pool);
  EXPECT_GT(pool.layouts.size(), 5u);
}

TEST(MakeSeedsTest, HandlesShardsOfOneSlot) {
  const Window window = RandomWindow({.num_slots = 4, .num_shards = 4});
  PackingProblem problem = MakeProblem(window, 0);
  problem.demand = ProjectDemand(window, IdentityPlacement(3, 12, 4));
  const Packed packed = WithLengthLayout(std::move(problem));
  const SeedPool pool =
      MakeSeeds(packed.problem, packed.length, {.candidates = 20}, 1);
  ExpectConsistent(packed, pool);
  EXPECT_GT(pool.layouts.size(), 5u);
}

}  // namespace
}  // namespace routepack
