#include "planner/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/errors.h"
#include "planner/seed.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Placement Identity(const Window& window) {
  return IdentityPlacement(window.num_layers(), window.num_experts(),
                           window.spec().topology.num_ranks());
}

// With few proposals unless the options say how many.
absl::StatusOr<Plan> TryPlan(const Window& window, PlanOptions options = {},
                             const Budget& budget = {},
                             PlanObserver* observer = nullptr) {
  if (options.search == SearchOptions{}) options.search.steps = 4000;
  return MakePlan(window, Identity(window), options, budget, observer);
}

// Equal but for what depends on the clock.
void ExpectSamePlans(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.placement, b.placement);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.evaluation, b.evaluation);
  EXPECT_EQ(a.filler_ids, b.filler_ids);
  EXPECT_EQ(a.rows.proof, b.rows.proof);
  EXPECT_EQ(a.rows.nodes, b.rows.nodes);
  EXPECT_EQ(a.baseline.score, b.baseline.score);
  EXPECT_EQ(a.reorder.score, b.reorder.score);
  EXPECT_EQ(a.routepack.score, b.routepack.score);
  EXPECT_EQ(a.routepack.cv_global, b.routepack.cv_global);
  EXPECT_EQ(a.bounds.for_placement, b.bounds.for_placement);
  EXPECT_EQ(a.bounds.for_any_placement, b.bounds.for_any_placement);
  EXPECT_EQ(a.movement.weighted_bytes, b.movement.weighted_bytes);
  EXPECT_EQ(a.transfer.size(), b.transfer.size());
  EXPECT_EQ(a.refinement.has_value(), b.refinement.has_value());
  EXPECT_EQ(a.warnings, b.warnings);
  EXPECT_EQ(a.truncated, b.truncated);
}

// Fewer samples than the cells of one row.
Window ShortWindow() {
  return RandomWindow(
      {.num_samples = 6, .num_slots = 4, .num_shards = 1, .max_tokens = 10});
}

struct Recorder : PlanObserver {
  void OnPlacement(const Placement& placement, const MovementReport& movement,
                   std::span<const StageSchedule> transfer) override {
    events.push_back("placed");
    announced = placement;
    announced_change = movement.change;
    announced_sends = 0;
    for (const StageSchedule& stage : transfer) {
      announced_sends += stage.sends.size();
    }
    if (stop_at == "placed") source.request_stop();
  }
  void OnProgress(const PlanProgress& progress) override {
    events.emplace_back(progress.stage);
    all.push_back(progress);
    if (stop_at == progress.stage) source.request_stop();
  }

  std::vector<std::string> events;
  std::vector<PlanProgress> all;
  Placement announced;
  PlacementChange announced_change;
  size_t announced_sends = 0;
  std::string stop_at;
  std::stop_source source;
};

TEST(MakePlanTest, IsNeverWorseThanLengthOnlyPackingNorBelowItsBounds) {
  int improved = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow(RandomShape(seed));
    const absl::StatusOr<Plan> plan =
        TryPlan(window, {.allow_filler = true, .row_search_nodes = 1000});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->routepack.score, plan->reorder.score);
    EXPECT_LE(plan->bounds.for_placement, plan->routepack.score.slowest_shard);
    EXPECT_LE(plan->bounds.for_any_placement, plan->bounds.for_placement);
    EXPECT_LE(plan->bounds.for_any_placement,
              plan->baseline.score.slowest_shard);
    EXPECT_LE(plan->reorder.cv_global, plan->baseline.cv_global + 1e-12);
    EXPECT_EQ(plan->reorder.attention, plan->baseline.attention);
    EXPECT_EQ(plan->routepack.cv_global, plan->reorder.cv_global);
    if (plan->routepack.score < plan->reorder.score) ++improved;
  }
  EXPECT_GT(improved, 20);
}

TEST(MakePlanTest, DoesNotDependOnThreads) {
  for (uint64_t seed : {3, 14, 15}) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow({.seed = seed,
                                        .num_samples = 80,
                                        .num_layers = 30,
                                        .num_experts = 32,
                                        .num_ranks = 16,
                                        .num_slots = 8,
                                        .num_shards = 3});
    for (bool refine : {false, true}) {
      const PlanOptions options = {.refine_after_announce = refine};
      const Plan expected = ValueOrDie(TryPlan(window, options));
      OnSeveralThreadCounts([&] {
        ExpectSamePlans(ValueOrDie(TryPlan(window, options)), expected);
      });
    }
  }
}

TEST(MakePlanTest, PoliciesChooseThePlacement) {
  const Window window = RandomWindow({});
  const Placement identity = Identity(window);
  Placement current = identity;
  std::swap(current.expert_of_slot[0], current.expert_of_slot[11]);
  std::swap(current.slot_of_expert[0], current.slot_of_expert[11]);

  const auto plan = [&](PlacementPolicy policy) {
    return ValueOrDie(MakePlan(
        window, current, {.placement = policy, .search = {.steps = 2000}}));
  };
  const Plan kept = plan(PlacementPolicy::kKeep);
  EXPECT_EQ(kept.placement, current);
  EXPECT_EQ(kept.movement.change.experts_to_other_slot, 0u);

  const Plan reset = plan(PlacementPolicy::kIdentity);
  EXPECT_EQ(reset.placement, identity);
  EXPECT_EQ(reset.movement.change.experts_to_other_rank, 2u);
  EXPECT_EQ(reset.baseline.score, reset.reorder.score);

  const Plan lpt = plan(PlacementPolicy::kLpt);
  EXPECT_EQ(lpt.placement, LptPlacement(window.ExpertLoads(), 3, 12, 4));
  EXPECT_LT(lpt.routepack.cv_global, lpt.baseline.cv_global);

  const Plan relabelled = plan(PlacementPolicy::kLptRelabel);
  EXPECT_EQ(relabelled.routepack.cv_global, lpt.routepack.cv_global);
  EXPECT_LT(relabelled.movement.weighted_bytes, lpt.movement.weighted_bytes);

  const Plan incremental = plan(PlacementPolicy::kIncremental);
  EXPECT_LT(incremental.routepack.cv_global, kept.routepack.cv_global);
  EXPECT_LT(incremental.movement.weighted_bytes, lpt.movement.weighted_bytes);
  EXPECT_EQ(plan(PlanOptions{}.placement).placement, incremental.placement);
}

TEST(MakePlanTest, PlansTheTransferThatItReports) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow(RandomShape(seed));
    PlanOptions options{.placement = PlacementPolicy::kLpt,
                        .allow_filler = true};
    options.movement = DescribeExperts(1'000'000);
    const Plan plan = ValueOrDie(TryPlan(window, options));
    size_t sends = 0;
    for (const StageSchedule& stage : plan.transfer) {
      sends += stage.sends.size();
    }
    EXPECT_EQ(sends, plan.movement.change.experts_to_other_rank);
    EXPECT_EQ(plan.movement.weighted_bytes > 0, sends > 0);
    EXPECT_EQ(plan.movement.transfer_seconds > 0, sends > 0);
  }
}

TEST(MakePlanTest, RefinesTheAnnouncedPlacementWhereThatPays) {
  int refined = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow(RandomShape(seed));
    Recorder recorder;
    const Plan plan = ValueOrDie(
        TryPlan(window, {.refine_after_announce = true, .allow_filler = true},
                {}, &recorder));
    EXPECT_TRUE(ValidatePlan(window, plan).ok());
    ASSERT_TRUE(plan.refinement.has_value());
    EXPECT_EQ(plan.refinement->announced_digest,
              PlacementDigest(recorder.announced));
    EXPECT_EQ(plan.refinement->change.experts_to_other_slot,
              ComparePlacements(recorder.announced, plan.placement)
                  .experts_to_other_slot);
    size_t sends = 0;
    for (const StageSchedule& stage : plan.transfer) {
      sends += stage.sends.size();
    }
    EXPECT_EQ(sends, plan.movement.change.experts_to_other_rank);
    if (plan.placement == recorder.announced) continue;
    ++refined;
    // Better than length-only packing under the announced placement, too.
    const Plan announced = ValueOrDie(
        MakePlan(window, recorder.announced,
                 {.placement = PlacementPolicy::kKeep,
                  .allow_filler = true,
                  .search = {.effort = Effort::kSeeds, .candidates = 2}}));
    EXPECT_LE(plan.routepack.score, announced.reorder.score);
  }
  EXPECT_GT(refined, 5);
}

TEST(MakePlanTest, MovesThatDoNotPayAreNotRefined) {
  const Window window = RandomWindow({.num_samples = 60});
  PlanOptions options{.refine_after_announce = true};
  // An expert so large, and so fast, that no exchange is worth its transfer.
  options.movement = DescribeExperts(1ull << 34, 1e18);
  const Plan plan = ValueOrDie(TryPlan(window, options));
  EXPECT_EQ(plan.placement, Identity(window));
  EXPECT_EQ(plan.refinement->change.experts_to_other_slot, 0u);
}

TEST(MakePlanTest, LightEndsOrdersRowsAndKeepsTheScore) {
  const Window window =
      RandomWindow({.num_samples = 60, .num_slots = 3, .num_shards = 2});
  const Plan as_planned = ValueOrDie(TryPlan(window));
  const Plan ordered =
      ValueOrDie(TryPlan(window, {.row_order = RowOrder::kLightEnds}));
  EXPECT_EQ(ordered.routepack.score, as_planned.routepack.score);
  EXPECT_EQ(ordered.routepack.ep_peak_sum, as_planned.routepack.ep_peak_sum);
  EXPECT_NE(ordered.layout, as_planned.layout);

  std::vector<int64_t> cost(ordered.layout.rows);
  for (size_t k = 0; k < 2 * cost.size(); ++k) {
    cost[k / 2] += ordered.evaluation.row_cost(k);
  }
  ASSERT_GE(cost.size(), 5u);
  const auto heaviest = std::max_element(cost.begin(), cost.end());
  EXPECT_TRUE(std::is_sorted(cost.begin(), heaviest + 1));
  EXPECT_TRUE(
      std::is_sorted(cost.rbegin(), std::make_reverse_iterator(heaviest)));
  // The two lightest are at the two ends.
  EXPECT_LE(std::max(cost.front(), cost.back()),
            *std::min_element(cost.begin() + 1, cost.end() - 1));
}

TEST(MakePlanTest, HoldsTheRowConstraints) {
  const Window window = RandomWindow({.num_samples = 60, .max_tokens = 20});
  const Plan plan =
      ValueOrDie(TryPlan(window, {.min_rows = 4, .row_multiple = 3}));
  EXPECT_EQ(plan.layout.rows, 6u);
  EXPECT_EQ(plan.rows.outcome, RowOutcome::kCertified);
  EXPECT_THAT(plan.rows.bins, IsEmpty());
}

// Stands for an allocation that fails in the middle of planning.
class OutOfMemory : public PlanObserver {
 public:
  void OnProgress(const PlanProgress&) override { throw std::bad_alloc(); }
};

TEST(MakePlanTest, ReturnsAnErrorWhenMemoryRunsOut) {
  const Window window = RandomWindow({.num_samples = 40});
  OutOfMemory observer;
  EXPECT_EQ(TryPlan(window, {}, {}, &observer).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// {5, 3, 2} and {4, 3, 3} fill bins of 10, twice each; first-fit decreasing
// puts the fives together and opens a fifth bin.
TEST(MakePlanTest, PlansOnAnExactPackingWhereFirstFitNeedsMoreRows) {
  const Window window = FirstFitMissesWindow();
  const Plan plan = ValueOrDie(TryPlan(window));
  EXPECT_EQ(plan.layout.rows, 2u);
  EXPECT_EQ(plan.rows.outcome, RowOutcome::kCertified);
  EXPECT_EQ(ValidatePlan(window, plan), absl::OkStatus());
}

TEST(MakePlanTest, TooFewSamplesNameTheBoundAndTheRepair) {
  const absl::Status status = TryPlan(ShortWindow(), {.min_rows = 2}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PreconditionOf(status).type, "CELLS_EXCEED_SAMPLES");
  EXPECT_EQ(PreconditionOf(status).subject, "rows");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2 rows x 4 slots = 8 cells but the window has "
                              "6 samples"),
                    HasSubstr("min-rows"), HasSubstr("add 2 filler")));
}

TEST(MakePlanTest, AddsTheFillersThatRepairIt) {
  const Window window = ShortWindow();
  const Plan plan =
      ValueOrDie(TryPlan(window, {.min_rows = 2, .allow_filler = true}));
  EXPECT_EQ(plan.num_fillers, 2u);
  // Sample ids are 100, 103, ... 115.
  EXPECT_THAT(plan.filler_ids, ElementsAre(116, 117));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("2 filler samples")));
  EXPECT_EQ(ValidatePlan(window, plan), absl::OkStatus());
}

TEST(MakePlanTest, FillerIdsStayFreeAtTheEndOfTheRange) {
  WindowBuilder builder = ValueOrDie(WindowBuilder::Create(
      {.num_samples = 3,
       .num_layers = 1,
       .num_experts = 2,
       .top_k = 1,
       .token_cap = 10,
       .topology = ValueOrDie(Topology::FromShards(6, 2, {}))}));
  for (uint64_t id :
       {std::numeric_limits<uint64_t>::max() - 1, uint64_t{0}, uint64_t{2}}) {
    builder.AddSample({.id = id, .tokens = 2}, std::vector<uint32_t>{1, 1});
  }
  const Window window = ValueOrDie(std::move(builder).Seal());
  const Plan plan = ValueOrDie(TryPlan(window, {.allow_filler = true}));
  EXPECT_THAT(plan.filler_ids, ElementsAre(1, 3, 4));
  EXPECT_EQ(ValidatePlan(window, plan), absl::OkStatus());
}

TEST(MakePlanTest, RefusesFillersBeyondMemory) {
  const absl::Status status =
      TryPlan(ShortWindow(), {.min_rows = 1 << 22, .allow_filler = true})
          .status();
  EXPECT_EQ(PreconditionOf(status).type, "TOO_MANY_FILLERS");
}

TEST(MakePlanTest, RefusesPlacementOptionsOutOfRange) {
  const auto fields_of = [](const PlanOptions& options) {
    std::vector<std::string> fields;
    for (const FieldViolation& violation :
         ViolationsOf(TryPlan(RandomWindow({}), options).status())) {
      fields.push_back(violation.field);
    }
    return fields;
  };
  EXPECT_THAT(
      fields_of({.incremental = {.target_imbalance = -1,
                                 .movement_budget = std::nan(""),
                                 .horizon_steps = 0},
                 .transfer = {.experts_per_round = 0, .max_staging = 0}}),
      ElementsAre("header.options.incremental.target_imbalance",
                  "header.options.incremental.movement_budget",
                  "header.options.incremental.horizon_steps",
                  "header.options.transfer.experts_per_round",
                  "header.options.transfer.max_staging"));
  EXPECT_THAT(fields_of({.placement = PlacementPolicy::kKeep,
                         .incremental = {.movement_budget = 5},
                         .refine_after_announce = true}),
              ElementsAre("header.options.refine_after_announce",
                          "header.options.refine_after_announce"));
  PlanOptions nodes;
  nodes.movement.node_of_rank = {0};
  EXPECT_THAT(fields_of(nodes),
              ElementsAre("header.options.movement.node_of_rank"));
}

TEST(MakePlanTest, RefusesOptionsOutOfRange) {
  const absl::Status status =
      TryPlan(RandomWindow({}), {.min_rows = 0,
                                 .row_multiple = (1u << 24) + 1,
                                 .time_limit = absl::Seconds(-1)})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> fields;
  for (const FieldViolation& violation : ViolationsOf(status)) {
    fields.push_back(violation.field);
  }
  EXPECT_THAT(fields, ElementsAre("header.options.min_rows",
                                  "header.options.row_multiple",
                                  "header.options.time_limit"));
}

TEST(MakePlanTest, RefusesACurrentPlacementOfOtherSizes) {
  const Window window = RandomWindow({});
  absl::Status status =
      MakePlan(window, IdentityPlacement(2, 12, 4), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("header.current_placement"));

  Placement twice = Identity(window);
  twice.slot_of_expert[3] = 0;
  status = MakePlan(window, twice, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("header.current_placement"));
}

TEST(MakePlanTest, AnnouncesThePlacementFirstThenEveryStage) {
  const Window window = RandomWindow({});
  Recorder recorder;
  const Plan plan = ValueOrDie(TryPlan(window, {}, {}, &recorder));
  // Packing is announced after every temperature and when it has ended.
  std::vector<PlanProgress> ends;
  for (const PlanProgress& progress : recorder.all) {
    if (!ends.empty() && ends.back().stage == progress.stage) {
      EXPECT_EQ(progress.stage, "packing");
      EXPECT_LE(ends.back().fraction, progress.fraction);
      ends.pop_back();
    }
    ends.push_back(progress);
  }
  std::vector<std::string> events = recorder.events;
  events.erase(std::unique(events.begin(), events.end()), events.end());
  EXPECT_THAT(events,
              ElementsAre("placed", "placement", "rows", "bounds", "baseline",
                          "demand", "packing", "validation"));
  EXPECT_EQ(recorder.announced, plan.placement);
  EXPECT_EQ(recorder.announced_change.experts_to_other_slot,
            plan.movement.change.experts_to_other_slot);

  ASSERT_EQ(ends.size(), plan.timings.size());
  for (size_t k = 0; k < plan.timings.size(); ++k) {
    EXPECT_EQ(plan.timings[k].stage, ends[k].stage);
    if (k > 0) {
      EXPECT_LT(ends[k - 1].fraction, ends[k].fraction);
    }
  }
  EXPECT_EQ(ends[0].rows, 0u);
  EXPECT_EQ(ends[1].rows, plan.layout.rows);
  EXPECT_EQ(ends.back().fraction, 1);
  EXPECT_EQ(ends.back().joint, plan.routepack.joint);
  EXPECT_NEAR(
      ends.back().joint / ends.back().bound - 1,
      Gap(plan.routepack.score.slowest_shard, plan.bounds.for_placement),
      1e-12);
}

TEST(MakePlanTest, CanBeCancelledAtEveryStage) {
  const Window window = RandomWindow({});
  for (const char* stage : {"placed", "placement", "rows", "bounds", "baseline",
                            "demand", "packing", "validation"}) {
    SCOPED_TRACE(stage);
    Recorder recorder;
    recorder.stop_at = stage;
    const absl::Status status =
        TryPlan(window, {}, {.stop = recorder.source.get_token()}, &recorder)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    // The stage it was stopped in is the last.
    if (recorder.stop_at != "placed") {
      EXPECT_EQ(recorder.events.back(), stage);
    }
  }
}

TEST(MakePlanTest, WithoutTimeForALayoutTheDeadlineIsExceeded) {
  const Window window = RandomWindow({});
  EXPECT_EQ(
      TryPlan(window, {}, {.deadline = absl::InfinitePast()}).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      TryPlan(window, {.time_limit = absl::ZeroDuration()}).status().code(),
      absl::StatusCode::kDeadlineExceeded);
}

// Waits, once rows are known, until the deadline has passed.
struct Sleeper : PlanObserver {
  explicit Sleeper(absl::Time until) : until(until) {}
  void OnProgress(const PlanProgress& progress) override {
    if (progress.stage == "rows") {
      absl::SleepFor(until - absl::Now() + absl::Milliseconds(1));
    }
  }
  absl::Time until;
};

TEST(MakePlanTest, OnceTimeIsUpReturnsTheLayoutItHas) {
  const Window window = RandomWindow({});
  absl::StatusOr<Plan> plan = absl::DeadlineExceededError("");
  // A busy machine may need longer for the rows.
  for (absl::Duration limit = absl::Milliseconds(50);
       absl::IsDeadlineExceeded(plan.status()); limit *= 2) {
    const absl::Time deadline = absl::Now() + limit;
    Sleeper sleeper(deadline);
    plan = TryPlan(window, {}, {.deadline = deadline}, &sleeper);
  }
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->truncated);
  EXPECT_EQ(plan->routepack.score, plan->reorder.score);
  EXPECT_THAT(plan->warnings, Contains(HasSubstr("time ran out")));
  EXPECT_EQ(ValidatePlan(window, *plan), absl::OkStatus());
}

TEST(MakePlanTest, SaysNothingWhenThereIsNothingToSay) {
  const Plan plan = ValueOrDie(
      TryPlan(RandomWindow({.num_experts = 32, .top_k = 4, .num_ranks = 2})));
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_FALSE(plan.truncated);
}

TEST(MakePlanTest, WarnsOfFreeAttentionAndUnknownCounts) {
  const Plan plan = ValueOrDie(TryPlan(RandomWindow(
      {.attention = {}, .counts_origin = CountsOrigin::kUnspecified})));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("no attention stages")));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("origin of the counts")));
}

TEST(MakePlanTest, WarnsOfImputedCountsAndHotExperts) {
  WindowBuilder builder = ValueOrDie(WindowBuilder::Create(
      {.num_samples = 3,
       .num_layers = 1,
       .num_experts = 4,
       .top_k = 1,
       .token_cap = 10,
       .topology = ValueOrDie(Topology::FromShards(1, 4, {})),
       .missing_counts = MissingCounts::kWindowMean}));
  builder.AddSample({.id = 1, .tokens = 8}, std::vector<uint32_t>{8, 0, 0, 0});
  builder.AddSample({.id = 2, .tokens = 8}, std::vector<uint32_t>{8, 0, 0, 0});
  builder.AddSample({.id = 3, .tokens = 8}, std::nullopt);
  const Window window = ValueOrDie(std::move(builder).Seal());
  const Plan plan = ValueOrDie(TryPlan(window));
  EXPECT_THAT(plan.warnings,
              Contains(HasSubstr("1 of 3 samples had no counts")));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("in 1 of 1 layers")));
}

}  // namespace
}  // namespace routepack
