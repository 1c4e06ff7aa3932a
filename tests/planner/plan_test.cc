#include "planner/plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/planner.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Placement Identity(const Window& window) {
  return IdentityPlacement(window.num_layers(), window.num_experts(),
                           window.spec().topology.num_ranks());
}

// With few proposals: how good the layout is does not matter here.
Plan PlanOf(const Window& window, PlanOptions options = {}) {
  options.search.steps = 2000;
  return ValueOrDie(MakePlan(window, Identity(window), options));
}

// A window whose plan has several rows and two fillers.
RandomWindowOptions WithFillers() {
  return {
      .num_samples = 22, .min_tokens = 10, .max_tokens = 20, .num_stages = 2};
}

TEST(CvGlobalTest, IsTheMeanOfLayers) {
  // Layer 0: 2 and 6, mean 4, deviation 2. Layer 1: balanced.
  const std::vector<uint64_t> loads = {2, 6, 5, 5};
  EXPECT_DOUBLE_EQ(CvGlobal(loads, 2, 2), 0.25);
}

TEST(CvGlobalTest, CountsALayerWithoutLoadAsZero) {
  const std::vector<uint64_t> loads = {2, 6, 0, 0};
  EXPECT_DOUBLE_EQ(CvGlobal(loads, 2, 2), 0.25);
}

TEST(CvGlobalTest, UsesThePopulationDeviation) {
  const std::vector<uint64_t> loads = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(CvGlobal(loads, 1, 4), std::sqrt(1.25) / 2.5);
}

TEST(MakeMetricsTest, DividesScoresByTokenCapUnits) {
  const PackingProblem problem{
      .token_cap = 1000,
      .topology = ValueOrDie(Topology::FromShards(2, 4, {{0}, {1}}))};
  const Evaluation evaluation{
      .attention = {256'000, 128'000, 0, 128'000},
      .expert = {500, 400, 300, 200},
      .ep_peak_sum = 80,
      .tail_peak = 30,
      .balance_load = 240,
      .score = {.slowest_shard = 512'000, .total = 9, .worst_row = 8}};
  const Metrics metrics = MakeMetrics(problem, evaluation, 0.5);
  EXPECT_EQ(metrics.cv_global, 0.5);
  EXPECT_EQ(metrics.ep_peak_sum, 80u);
  EXPECT_EQ(metrics.tail_peak, 30u);
  EXPECT_DOUBLE_EQ(metrics.balance_efficiency, 0.75);
  EXPECT_DOUBLE_EQ(metrics.attention, 2.0);
  EXPECT_DOUBLE_EQ(metrics.joint, 2.0);
  EXPECT_EQ(metrics.score, evaluation.score);
}

TEST(MakeMetricsTest, AddsUpTheLayersOfEachStage) {
  const PackingProblem problem{
      .token_cap = 8,
      .topology = ValueOrDie(Topology::FromShards(1, 1, {})),
      .pipeline = {.num_stages = 3, .stage_of_layer = {0, 2, 0}}};
  const Evaluation evaluation{.layers = {{.sum = 10, .largest = 7},
                                         {.sum = 20, .largest = 12},
                                         {.sum = 9, .largest = 8}}};
  EXPECT_THAT(
      MakeMetrics(problem, evaluation, 0).stages,
      ElementsAre(
          StageMetrics{.num_layers = 2, .ep_peak_sum = 19, .tail_peak = 8},
          StageMetrics{},
          StageMetrics{.num_layers = 1, .ep_peak_sum = 20, .tail_peak = 12}));
}

// From the window's counts: loads of one row, shard and layer at a time.
std::vector<StageMetrics> StagesByDefinition(const Window& window,
                                             const Plan& plan) {
  const Topology& topology = window.spec().topology;
  const Pipeline& pipeline = window.spec().pipeline;
  std::vector<StageMetrics> stages(pipeline.num_stages);
  for (uint32_t l = 0; l < window.num_layers(); ++l) {
    StageMetrics& stage = stages[pipeline.stage_of_layer[l]];
    ++stage.num_layers;
    for (uint32_t r = 0; r < plan.layout.rows; ++r) {
      uint64_t peak = 0;
      for (uint32_t g = 0; g < topology.num_shards(); ++g) {
        std::vector<uint64_t> loads(topology.num_ranks());
        for (uint32_t d : topology.slots_of_shard(g)) {
          for (uint32_t i : plan.layout.cell(r, d)) {
            if (i >= window.num_samples()) continue;
            for (uint32_t e = 0; e < window.num_experts(); ++e) {
              loads[plan.placement.rank_of_expert(l, e)] +=
                  window.count(i, l, e);
            }
          }
        }
        peak = std::max(peak, *std::max_element(loads.begin(), loads.end()));
      }
      stage.ep_peak_sum += peak;
      stage.tail_peak = std::max(stage.tail_peak, peak);
    }
  }
  return stages;
}

TEST(MakePlanTest, ReportsThePeaksOfEveryStage) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomWindowOptions shape = RandomShape(seed);
    shape.num_stages = 2 + seed % 4;
    const Window window = RandomWindow(shape);
    const Plan plan = PlanOf(window, {.allow_filler = true});
    EXPECT_EQ(plan.routepack.stages, StagesByDefinition(window, plan));
    for (const Metrics* arm :
         {&plan.baseline, &plan.reorder, &plan.routepack}) {
      uint64_t sum = 0;
      uint64_t tail = 0;
      ASSERT_EQ(arm->stages.size(), shape.num_stages);
      for (const StageMetrics& stage : arm->stages) {
        sum += stage.ep_peak_sum;
        tail = std::max(tail, stage.tail_peak);
      }
      EXPECT_EQ(sum, arm->ep_peak_sum);
      EXPECT_EQ(tail, arm->tail_peak);
    }
  }
}

TEST(MakePlanTest, StagesChangeNothingElse) {
  RandomWindowOptions shape{.seed = 4};
  const Plan without = PlanOf(RandomWindow(shape));
  EXPECT_TRUE(without.routepack.stages.empty());
  shape.num_stages = 3;
  const Plan with = PlanOf(RandomWindow(shape));
  EXPECT_EQ(with.placement, without.placement);
  EXPECT_EQ(with.layout, without.layout);
  EXPECT_EQ(with.routepack.score, without.routepack.score);
}

TEST(MakeMetricsTest, WithoutLoadBalanceIsPerfect) {
  const PackingProblem problem{
      .token_cap = 8, .topology = ValueOrDie(Topology::FromShards(1, 1, {}))};
  EXPECT_EQ(MakeMetrics(problem, {}, 0).balance_efficiency, 1);
}

TEST(GapTest, IsRelativeToTheBound) {
  EXPECT_DOUBLE_EQ(Gap(110, 100), 0.1);
  EXPECT_EQ(Gap(100, 100), 0);
  EXPECT_EQ(Gap(5, 0), 0);
}

TEST(ValidatePlanTest, AcceptsWhatMakePlanMakes) {
  int planned = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow(RandomShape(seed));
    PlanOptions options{.allow_filler = seed % 2 == 0,
                        .row_search_nodes = 1000,
                        .search = {.steps = 2000}};
    if (seed % 3 == 0) options.row_order = RowOrder::kLightEnds;
    if (seed % 5 == 0) options.placement = PlacementPolicy::kIdentity;
    if (seed % 7 == 0) options.row_multiple = 2;
    const absl::StatusOr<Plan> plan =
        MakePlan(window, Identity(window), options);
    if (!plan.ok()) continue;
    ++planned;
    EXPECT_EQ(ValidatePlan(window, *plan), absl::OkStatus());
  }
  EXPECT_GT(planned, 50);
}

TEST(ValidatePlanTest, NeedsNoEvaluation) {
  const Window window = RandomWindow({});
  Plan plan = PlanOf(window);
  plan.evaluation = {};
  EXPECT_EQ(ValidatePlan(window, plan), absl::OkStatus());
}

TEST(ValidatePlanTest, RefusesAPlanOfAnotherWindow) {
  const Plan plan = PlanOf(RandomWindow({.seed = 1}));
  EXPECT_EQ(ValidatePlan(RandomWindow({.seed = 2}), plan).code(),
            absl::StatusCode::kInternal);
}

struct Corruption {
  std::string name;
  std::function<void(Plan&)> apply;
  std::string message;  // part of it
};

void SwapInPlace(std::vector<uint32_t>& values, size_t a, size_t b) {
  std::swap(values[a], values[b]);
}

const std::vector<Corruption>& Corruptions() {
  static const auto& all = *new std::vector<Corruption>{
      {"DuplicateExpert", [](Plan& p) { p.placement.slot_of_expert[0] = 1; },
       "placement"},
      {"OneDirectionOnly",
       [](Plan& p) { SwapInPlace(p.placement.expert_of_slot, 0, 1); },
       "placement"},
      {"LostLayer",
       [](Plan& p) {
         --p.placement.num_layers;
         p.placement.slot_of_expert.resize(24);
         p.placement.expert_of_slot.resize(24);
       },
       "placement.num_layers"},
      {"OtherRanks", [](Plan& p) { p.placement.num_ranks = 2; },
       "placement.num_ranks"},
      {"OtherPlacement",
       [](Plan& p) {
         p.placement = IdentityPlacement(3, 12, 4);
         SwapInPlace(p.placement.expert_of_slot, 0, 11);
         SwapInPlace(p.placement.slot_of_expert, 0, 11);
       },
       "recomputed"},
      {"ChangeTotal", [](Plan& p) { ++p.movement.change.experts_total; },
       "movement.change.experts_total"},
      {"ChangeOrder",
       [](Plan& p) {
         p.movement.change.experts_to_other_rank =
             p.movement.change.experts_to_other_slot + 1;
       },
       "movement.change"},
      {"RowCount", [](Plan& p) { ++p.rows.rows; }, "rows.rows"},
      {"RowsInfeasible",
       [](Plan& p) { p.rows.outcome = RowOutcome::kInfeasible; },
       "rows.outcome"},
      {"CertifiedWithoutProof", [](Plan& p) { p.rows.proof.clear(); }, "rows"},
      {"CertifiedAboveItsBound", [](Plan& p) { --p.rows.rows_lower_bound; },
       "rows"},
      {"BestKnownAtItsBound",
       [](Plan& p) { p.rows.outcome = RowOutcome::kBestKnown; }, "rows"},
      {"BinsBoundTooHigh",
       [](Plan& p) {
         p.rows.bins_lower_bound = p.rows.bins_upper_bound = 24;
         p.rows.nodes = 0;
         p.rows.proof = "capacity";
       },
       "rows.bins_lower_bound"},
      {"BinsCrossed",
       [](Plan& p) { p.rows.bins_lower_bound = p.rows.bins_upper_bound + 1; },
       "bins"},
      {"MoreBinsThanCells", [](Plan& p) { p.rows.bins_upper_bound = 25; },
       "bins"},
      {"FillerIdOfASample", [](Plan& p) { p.filler_ids[0] = 100; },
       "filler id 100"},
      {"FillerIdTwice", [](Plan& p) { p.filler_ids[0] = p.filler_ids[1]; },
       "filler id"},
      {"FillerUnlisted", [](Plan& p) { p.filler_ids.pop_back(); },
       "num_fillers"},
      {"FillerUncounted", [](Plan& p) { --p.rows.fillers; }, "rows.fillers"},
      {"ItemTwice", [](Plan& p) { p.layout.items[0] = p.layout.items[1]; },
       "repeats item"},
      {"ItemUnknown", [](Plan& p) { p.layout.items[0] = 99; },
       "unknown item 99"},
      {"ItemLost",
       [](Plan& p) {
         p.layout.items.pop_back();
         --p.layout.cell_begin.back();
       },
       "items"},
      {"EmptyCell", [](Plan& p) { p.layout.cell_begin[1] = 0; }, "empty"},
      {"SlotLost", [](Plan& p) { --p.layout.slots; }, "slots"},
      {"ItemsSwapped",
       [](Plan& p) {
         SwapInPlace(p.layout.items, 0, p.layout.items.size() - 1);
       },
       "recomputed"},
      {"BaselineCv", [](Plan& p) { p.baseline.cv_global *= 1.001; },
       "baseline.cv_global"},
      {"BaselineScore", [](Plan& p) { ++p.baseline.score.total; },
       "baseline.score.total"},
      {"ReorderPeakSum", [](Plan& p) { ++p.reorder.ep_peak_sum; },
       "reorder.ep_peak_sum"},
      {"ReorderScore", [](Plan& p) { ++p.reorder.score.slowest_shard; },
       "reorder.score.slowest_shard"},
      {"Tail", [](Plan& p) { ++p.routepack.tail_peak; }, "routepack.tail_peak"},
      {"StageMissing", [](Plan& p) { p.routepack.stages.pop_back(); },
       "routepack.stages.size"},
      {"StageLayers", [](Plan& p) { ++p.baseline.stages[1].num_layers; },
       "baseline.stages[1].num_layers"},
      {"StagePeakSum", [](Plan& p) { --p.reorder.stages[0].ep_peak_sum; },
       "reorder.stages[0].ep_peak_sum"},
      {"StageTail", [](Plan& p) { ++p.routepack.stages[1].tail_peak; },
       "routepack.stages[1].tail_peak"},
      {"Efficiency", [](Plan& p) { p.routepack.balance_efficiency += 1e-6; },
       "routepack.balance_efficiency"},
      {"AttentionNaN",
       [](Plan& p) {
         p.routepack.attention = std::numeric_limits<double>::quiet_NaN();
       },
       "routepack.attention"},
      {"Joint", [](Plan& p) { p.routepack.joint *= 0.999; }, "routepack.joint"},
      {"WorstRow", [](Plan& p) { --p.routepack.score.worst_row; },
       "routepack.score.worst_row"},
      {"Evaluation", [](Plan& p) { ++p.evaluation.expert[0]; }, "evaluation"},
      {"Bound", [](Plan& p) { ++p.bounds.for_placement; },
       "bounds.for_placement"},
      {"AnyBound", [](Plan& p) { ++p.bounds.for_any_placement; },
       "bounds.for_any_placement"},
      {"HotLayers", [](Plan& p) { p.bounds.hot_expert_layers.push_back(0); },
       "bounds.hot_expert_layers"},
  };
  return all;
}

class ValidatePlanCorruptionTest : public ::testing::TestWithParam<Corruption> {
};

TEST_P(ValidatePlanCorruptionTest, IsDetected) {
  const Window window = RandomWindow(WithFillers());
  Plan plan = PlanOf(window, {.min_rows = 6, .allow_filler = true});
  ASSERT_EQ(plan.num_fillers, 2u);
  ASSERT_EQ(plan.rows.outcome, RowOutcome::kCertified);
  ASSERT_EQ(ValidatePlan(window, plan), absl::OkStatus());
  GetParam().apply(plan);
  const absl::Status status = ValidatePlan(window, plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Every, ValidatePlanCorruptionTest,
                         ::testing::ValuesIn(Corruptions()),
                         [](const auto& info) { return info.param.name; });

// {5, 3, 2} and {4, 3, 3} fill bins of 10; first-fit decreasing needs a fifth
// bin and a third row, so the plan's length-only layout cannot be repeated.
TEST(ValidatePlanTest, ChecksWhatItCanWithoutTheLengthOnlyLayout) {
  const Window window = FirstFitMissesWindow();
  const Plan plan = PlanOf(window);
  ASSERT_EQ(plan.layout.rows, 2u);
  EXPECT_EQ(ValidatePlan(window, plan), absl::OkStatus());

  const auto message = [&](const std::function<void(Plan&)>& corrupt) {
    Plan bad = plan;
    corrupt(bad);
    return std::string(ValidatePlan(window, bad).message());
  };
  EXPECT_THAT(message([](Plan& p) { p.baseline.cv_global += 0.1; }),
              HasSubstr("baseline.cv_global"));
  EXPECT_THAT(message([](Plan& p) { p.reorder.cv_global += 0.1; }),
              HasSubstr("reorder.cv_global"));
  EXPECT_THAT(message([](Plan& p) { ++p.routepack.score.total; }),
              HasSubstr("routepack.score.total"));
  EXPECT_THAT(message([](Plan& p) {
                p.reorder.score.slowest_shard =
                    p.routepack.score.slowest_shard - 1;
              }),
              HasSubstr("worse than reorder"));
  EXPECT_THAT(message([](Plan& p) { p.baseline.score.slowest_shard = 0; }),
              HasSubstr("below its lower bound"));
}

// Two long samples share a cell.
TEST(ValidatePlanTest, RefusesACellAboveTheCap) {
  const Window window =
      RandomWindow({.num_samples = 8, .token_cap = 64, .min_tokens = 33});
  Plan plan = PlanOf(window);
  ASSERT_EQ(plan.layout.rows, 2u);
  const Window shorter =
      RandomWindow({.num_samples = 8, .token_cap = 64, .max_tokens = 3});
  Plan small = PlanOf(shorter);
  plan.layout = small.layout;
  plan.rows.rows = small.layout.rows;
  EXPECT_THAT(std::string(ValidatePlan(window, plan).message()),
              HasSubstr("the cap is 64"));
}

}  // namespace
}  // namespace routepack
