#include "planner/layout.h"

#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Placement ShuffledPlacement(TestRandom& random, const Window& window) {
  Placement placement =
      IdentityPlacement(window.num_layers(), window.num_experts(),
                        window.spec().topology.num_ranks());
  for (uint32_t l = 0; l < window.num_layers(); ++l) {
    std::vector<uint32_t> slots(window.num_experts());
    std::iota(slots.begin(), slots.end(), 0);
    random.Shuffle(slots);
    for (uint32_t e = 0; e < slots.size(); ++e) {
      placement.slot_of_expert[l * slots.size() + e] = slots[e];
      placement.expert_of_slot[l * slots.size() + slots[e]] = e;
    }
  }
  return placement;
}

// Spec 1.4 and 1.5 word by word, from the window's counts.
Evaluation EvaluateByDefinition(const Window& window,
                                const Placement& placement,
                                const Layout& layout) {
  const Topology& topology = window.spec().topology;
  const uint32_t num_shards = topology.num_shards();
  const uint32_t num_ranks = topology.num_ranks();
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;
  std::map<Key, uint64_t> w;  // r, g, l, p
  Evaluation found;
  found.attention.resize(layout.rows * num_shards);
  found.expert.resize(layout.rows * num_shards);
  found.layers.resize(window.num_layers());
  for (uint32_t r = 0; r < layout.rows; ++r) {
    for (uint32_t g = 0; g < num_shards; ++g) {
      for (const AttentionStage& stage : window.spec().attention) {
        int64_t slowest = 0;
        for (uint32_t d = 0; d < layout.slots; ++d) {
          if (topology.shard_of_slot(d) != g) continue;
          double t = 0;
          double t2 = 0;
          for (uint32_t i : layout.cell(r, d)) {
            if (i >= window.num_samples()) continue;
            t += window.tokens(i);
            t2 += std::pow(window.tokens(i), 2);
          }
          slowest = std::max<int64_t>(
              slowest,
              std::llround(256 * (stage.alpha * t +
                                  stage.beta * t2 / window.spec().token_cap)));
        }
        found.attention[r * num_shards + g] += slowest;
      }
    }
    for (uint32_t d = 0; d < layout.slots; ++d) {
      for (uint32_t i : layout.cell(r, d)) {
        if (i >= window.num_samples()) continue;
        for (uint32_t l = 0; l < window.num_layers(); ++l) {
          for (uint32_t e = 0; e < window.num_experts(); ++e) {
            w[{r, topology.shard_of_slot(d), l,
               placement.rank_of_expert(l, e)}] += window.count(i, l, e);
          }
        }
      }
    }
    for (uint32_t l = 0; l < window.num_layers(); ++l) {
      uint64_t peak_of_shards = 0;
      uint64_t total_of_shards = 0;
      for (uint32_t g = 0; g < num_shards; ++g) {
        uint64_t peak = 0;
        uint64_t total = 0;
        for (uint32_t p = 0; p < num_ranks; ++p) {
          peak = std::max(peak, w[{r, g, l, p}]);
          total += w[{r, g, l, p}];
        }
        found.expert[r * num_shards + g] += peak;
        peak_of_shards = std::max(peak_of_shards, peak);
        total_of_shards = std::max(total_of_shards, total);
      }
      found.layers[l].sum += peak_of_shards;
      found.layers[l].largest = std::max(found.layers[l].largest,
                                         static_cast<uint32_t>(peak_of_shards));
      found.ep_peak_sum += peak_of_shards;
      found.tail_peak =
          std::max(found.tail_peak, static_cast<uint32_t>(peak_of_shards));
      found.balance_load += total_of_shards;
    }
  }
  std::vector<int64_t> shard(num_shards);
  for (size_t k = 0; k < found.expert.size(); ++k) {
    const int64_t cost = found.attention[k] + 256 * found.expert[k];
    shard[k % num_shards] += cost;
    found.score.total += cost;
    found.score.worst_row = std::max(found.score.worst_row, cost);
  }
  found.score.slowest_shard = *std::max_element(shard.begin(), shard.end());
  return found;
}

// Two slots in one shard, two ranks, one layer, demand given by hand.
PackingProblem HandMadeProblem() {
  PackingProblem problem{
      .tokens = {4, 2, 3, 1},
      .occupancy = {4, 2, 3, 1},
      .num_samples = 4,
      .token_cap = 8,
      .attention = {{.name = "a", .alpha = 1, .beta = 2}},
      .topology = ValueOrDie(Topology::FromShards(2, 2, {}))};
  problem.demand = {
      .num_items = 4, .num_layers = 1, .num_ranks = 2, .stride = 8};
  problem.demand.values.resize(32);
  const uint32_t demand[4][2] = {{4, 0}, {1, 1}, {0, 3}, {1, 0}};
  for (int i = 0; i < 4; ++i) {
    problem.demand.values[i * 8] = demand[i][0];
    problem.demand.values[i * 8 + 1] = demand[i][1];
  }
  return problem;
}

TEST(CellCostTest, IsInUnitsOfOne256thAssignment) {
  EXPECT_EQ(CellCost({.alpha = 1}, 3, 9, 8192), 3 * 256);
  EXPECT_EQ(CellCost({.beta = 1}, 3, 10, 4), 640);
  EXPECT_EQ(CellCost({.alpha = 2, .beta = 3}, 5, 16, 8), 256 * (10 + 6));
  EXPECT_EQ(CellCost({.alpha = 2, .beta = 3}, 0, 0, 8), 0);
}

TEST(CellCostTest, RoundsHalvesAwayFromZero) {
  EXPECT_EQ(CellCost({.alpha = 1.0 / 512}, 1, 1, 8), 1);
  EXPECT_EQ(CellCost({.alpha = 1.0 / 512}, 3, 9, 8), 2);
  EXPECT_EQ(CellCost({.alpha = 0.999 / 512}, 1, 1, 8), 0);
}

TEST(CellCostTest, TakesTheLargestCell) {
  const uint64_t cap = kMaxTokenCap;
  EXPECT_EQ(CellCost({.alpha = 1, .beta = 1}, cap, cap * cap, kMaxTokenCap),
            int64_t{256} * 2 * kMaxTokenCap);
}

TEST(LayoutTest, CellsComeBackInOrder) {
  const Layout layout = LayoutFromCells(2, 2, {{3}, {1, 0}, {4, 2}, {5}});
  EXPECT_EQ(layout.num_cells(), 4u);
  EXPECT_THAT(layout.cell(0, 0), ElementsAre(3));
  EXPECT_THAT(layout.cell(0, 1), ElementsAre(1, 0));
  EXPECT_THAT(layout.cell(1, 0), ElementsAre(4, 2));
  EXPECT_THAT(layout.cell(1, 1), ElementsAre(5));
}

TEST(LayoutTest, ProblemHoldsSamplesThenFillers) {
  const Window window = RandomWindow({.num_samples = 8, .length_multiple = 4});
  const PackingProblem problem = MakeProblem(window, 2);
  ASSERT_EQ(problem.num_items(), 10u);
  EXPECT_EQ(problem.num_samples, 8u);
  EXPECT_EQ(problem.token_cap, window.spec().token_cap);
  EXPECT_EQ(problem.topology, window.spec().topology);
  EXPECT_EQ(problem.attention, window.spec().attention);
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(problem.tokens[i], window.tokens(i));
    EXPECT_EQ(problem.occupancy[i], (window.tokens(i) + 3) / 4 * 4);
  }
  EXPECT_EQ(problem.tokens[9], 0u);
  EXPECT_EQ(problem.occupancy[9], 4u);
}

TEST(EvaluateLayoutTest, AddsUpAHandMadeExample) {
  const PackingProblem problem = HandMadeProblem();
  const Evaluation e =
      EvaluateLayout(problem, LayoutFromCells(2, 2, {{0}, {1}, {2}, {3}}));
  // Row 0: attention max(4 + 2 16/8, 2 + 2 4/8) = 8, loads (5, 1).
  // Row 1: attention max(3 + 2 9/8, 1 + 2/8) = 5.25, loads (1, 3).
  EXPECT_THAT(e.attention, ElementsAre(8 * 256, 1344));
  EXPECT_THAT(e.expert, ElementsAre(5, 3));
  EXPECT_THAT(e.layers, ElementsAre(LoadPeaks{.sum = 8, .largest = 5}));
  EXPECT_EQ(e.ep_peak_sum, 8u);
  EXPECT_EQ(e.tail_peak, 5u);
  EXPECT_EQ(e.balance_load, 10u);
  EXPECT_EQ(
      e.score,
      (Score{.slowest_shard = 5440, .total = 5440, .worst_row = 13 * 256}));
  EXPECT_EQ(e.row_cost(1), 1344 + 3 * 256);
}

TEST(EvaluateLayoutTest, LoadsMayPassTheSignedRange) {
  PackingProblem problem = HandMadeProblem();
  problem.demand.values[0] = 2'000'000'000;
  problem.demand.values[8] = 2'000'000'000;
  const Evaluation e =
      EvaluateLayout(problem, LayoutFromCells(2, 2, {{0}, {1}, {2}, {3}}));
  EXPECT_EQ(e.tail_peak, 4'000'000'000u);
  EXPECT_EQ(e.expert[0], 4'000'000'000);
}

TEST(EvaluateLayoutTest, EqualsTheDefinitionOnRandomWindows) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow(RandomShape(seed));
    TestRandom random(seed);
    const uint32_t slots = window.spec().topology.num_slots();
    const uint32_t rows = random.Between(1, window.num_samples() / slots);
    const uint32_t fillers = random.Below(3) == 0 ? random.Below(4) : 0;
    const Placement placement = ShuffledPlacement(random, window);
    PackingProblem problem = MakeProblem(window, fillers);
    problem.demand = ProjectDemand(window, placement, fillers);
    const Layout layout =
        RandomLayout(random, rows, slots, problem.num_items());
    EXPECT_EQ(EvaluateLayout(problem, layout),
              EvaluateByDefinition(window, placement, layout));
  }
}

// Layers are evaluated in blocks: more than one of them.
TEST(EvaluateLayoutTest, EqualsTheDefinitionAcrossBlocksOfLayers) {
  const Window window = RandomWindow({.num_samples = 6,
                                      .num_layers = 45,
                                      .num_experts = 260,
                                      .top_k = 3,
                                      .num_ranks = 130});
  TestRandom random(5);
  const Placement placement = ShuffledPlacement(random, window);
  PackingProblem problem = MakeProblem(window, 0);
  problem.demand = ProjectDemand(window, placement);
  const Layout layout = RandomLayout(random, 1, 4, 6);
  EXPECT_EQ(EvaluateLayout(problem, layout),
            EvaluateByDefinition(window, placement, layout));
}

TEST(EvaluateLayoutTest, DoesNotDependOnThreads) {
  const Window window =
      RandomWindow({.num_samples = 60, .num_layers = 40, .num_experts = 16});
  PackingProblem problem = MakeProblem(window, 0);
  problem.demand = ProjectDemand(window, IdentityPlacement(40, 16, 4));
  TestRandom random(1);
  const Layout layout = RandomLayout(random, 9, 4, 60);
  const Evaluation expected = EvaluateLayout(problem, layout);
  OnSeveralThreadCounts(
      [&] { EXPECT_EQ(EvaluateLayout(problem, layout), expected); });
}

TEST(PeaksOfSumTest, EqualsPlainLoops) {
  TestRandom random(11);
  for (int trial = 0; trial < 200; ++trial) {
    const uint32_t stride = 8 * random.Between(1, 20);
    const uint32_t num_layers = random.Between(0, 9);
    // One off, so that rows are not aligned.
    std::vector<uint32_t> a(num_layers * stride + 1);
    std::vector<uint32_t> b(a.size());
    for (uint32_t& x : a) x = random.Below(uint64_t{1} << 31);
    for (uint32_t& x : b) x = random.Below(uint64_t{1} << 31);
    LoadPeaks expected;
    for (uint32_t l = 0; l < num_layers; ++l) {
      uint32_t peak = 0;
      for (uint32_t p = 0; p < stride; ++p) {
        const size_t k = 1 + l * stride + p;
        peak = std::max(peak, a[k] + b[k]);
      }
      expected.sum += peak;
      expected.largest = std::max(expected.largest, peak);
    }
    const LoadPeaks found =
        PeaksOfSum(a.data() + 1, b.data() + 1, num_layers, stride);
    EXPECT_EQ(found, expected);
  }
}

TEST(AddLoadsTest, AddsEveryElement) {
  for (size_t size : {0, 1, 7, 8, 9, 64, 1001}) {
    std::vector<uint32_t> from(size);
    std::vector<uint32_t> into(size + 1, 5);
    std::iota(from.begin(), from.end(), 3'000'000'000u);
    AddLoads(from.data(), size, into.data());
    for (size_t k = 0; k < size; ++k) ASSERT_EQ(into[k], from[k] + 5);
    EXPECT_EQ(into[size], 5u);
  }
}

TEST(ValidateLayoutTest, AcceptsAFullLayout) {
  EXPECT_TRUE(
      ValidateLayout(HandMadeProblem(), LayoutFromCells(1, 2, {{0, 2, 3}, {1}}))
          .ok());
}

TEST(ValidateLayoutTest, NamesEachDefect) {
  const PackingProblem problem = HandMadeProblem();
  const auto error = [&](const Layout& layout) {
    const absl::Status status = ValidateLayout(problem, layout);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    return std::string(status.message());
  };
  const Layout good = LayoutFromCells(1, 2, {{0, 2}, {1, 3}});

  EXPECT_THAT(error(Layout{}), HasSubstr("0 rows"));
  EXPECT_THAT(error(LayoutFromCells(1, 3, {{0}, {1}, {2, 3}})),
              HasSubstr("3 slots"));
  EXPECT_THAT(error(LayoutFromCells(1, 2, {{0, 2}, {1}})),
              HasSubstr("3 items"));
  EXPECT_THAT(error(LayoutFromCells(1, 2, {{0, 2}, {1, 1}})),
              HasSubstr("repeats item 1"));
  EXPECT_THAT(error(LayoutFromCells(1, 2, {{0, 2}, {1, 4}})),
              HasSubstr("unknown item 4"));
  EXPECT_THAT(error(LayoutFromCells(1, 2, {{}, {0, 1, 2, 3}})),
              HasSubstr("(row 0, slot 0) is empty"));
  EXPECT_THAT(error(LayoutFromCells(1, 2, {{3}, {0, 1, 2}})),
              HasSubstr("(row 0, slot 1) holds 9 tokens; the cap is 8"));

  Layout offsets = good;
  offsets.cell_begin = {0, 9, 4};
  EXPECT_THAT(error(offsets), HasSubstr("empty"));
  offsets.cell_begin = {0, 2};
  EXPECT_THAT(error(offsets), HasSubstr("offsets"));
  offsets.cell_begin = {1, 2, 4};
  EXPECT_THAT(error(offsets), HasSubstr("offsets"));
}

}  // namespace
}  // namespace routepack
