#include "proto/codec/plan_codec.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/codec/window_codec.h"
#include "tests/clear_timings.h"
#include "tests/codec/test_messages.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::PlanKey Key() {
  v1::PlanKey key;
  key.set_job_id("job");
  key.set_run_id("run");
  key.set_step(12);
  key.set_minibatch(3);
  return key;
}

struct Planned {
  Window window;
  PlanOptions options;
  Plan plan;
  v1::Plan message;
};

Planned MakePlanned(Window window, const PlanOptions& options,
                    const PlanContext& context) {
  const Placement current =
      IdentityPlacement(window.num_layers(), window.num_experts(),
                        window.spec().topology.num_ranks());
  Plan plan = ValueOrDie(MakePlan(window, current, options));
  v1::Plan message = EncodePlan(window, plan, options, context);
  return {std::move(window), options, std::move(plan), std::move(message)};
}

Planned PlanTiny() {
  const v1::Window message = TinyWindow();
  return MakePlanned(
      ValueOrDie(DecodeWindow(message)),
      ValueOrDie(DecodeOptions(message.header().options())),
      {.key = message.header().key(), .options = message.header().options()});
}

// A random window whose plan has fillers now and then.
Planned PlanRandom(uint64_t seed) {
  TestRandom random(seed);
  RandomWindowOptions options{.seed = seed,
                              .num_samples = random.Between(4, 40),
                              .num_slots = random.Between(1, 6),
                              .num_shards = 1,
                              .length_multiple = random.Between(1, 8),
                              .num_stages = random.Below(3)};
  options.num_shards = random.Between(1, options.num_slots);
  PlanOptions plan_options;
  plan_options.allow_filler = true;
  plan_options.min_rows = random.Between(1, 8);
  if (random.Below(2) == 0) plan_options.row_order = RowOrder::kLightEnds;
  plan_options.search = {.effort = static_cast<Effort>(random.Below(3)),
                         .steps = random.Between(1, 2000),
                         .levels = random.Between(2, 8)};
  return MakePlanned(RandomWindow(options), plan_options, {.key = Key()});
}

std::string Differences(const v1::Plan& a, const v1::Plan& b) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(a, b);
  return report;
}

std::string ToJson(const v1::Plan& plan) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(plan, &json, options);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return json;
}

// ROUTEPACK_UPDATE_GOLDEN=1 rewrites the file instead of comparing.
TEST(PlanCodec, TinyPlanIsTheGoldenOne) {
  v1::Plan plan = PlanTiny().message;
  ClearTimings(plan);
  const std::string name = "tiny_plan.golden.json";
  if (std::getenv("ROUTEPACK_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(std::string(ROUTEPACK_TEST_DATA) + "/" + name)
        << ToJson(plan);
  }
  v1::Plan golden;
  const auto status =
      google::protobuf::util::JsonStringToMessage(ReadTestData(name), &golden);
  ASSERT_TRUE(status.ok()) << status.ToString();
  // Printed by this protobuf on both sides, so that only values count.
  EXPECT_EQ(ToJson(golden), ToJson(plan))
      << "If the change is meant: ROUTEPACK_UPDATE_GOLDEN=1 plan_codec_test";
}

TEST(PlanCodec, GoldenPlanIsValid) {
  const Planned tiny = PlanTiny();
  v1::Plan golden;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  ReadTestData("tiny_plan.golden.json"), &golden)
                  .ok());
  const absl::StatusOr<Plan> plan = DecodePlan(tiny.window, golden);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(ValidatePlan(tiny.window, *plan).ok())
      << ValidatePlan(tiny.window, *plan);
}

TEST(PlanCodec, StatesTheInputs) {
  const Planned tiny = PlanTiny();
  const v1::Plan& plan = tiny.message;
  EXPECT_EQ(plan.key().job_id(), "tiny");
  EXPECT_EQ(plan.window_digest(), tiny.window.digest());
  EXPECT_EQ(plan.placement_digest(), PlacementDigest(tiny.plan.placement));
  EXPECT_EQ(plan.placement_version(),
            "tiny/demo/1.0@" + plan.placement_digest().substr(0, 12));
  EXPECT_EQ(plan.topology().dp_slots(), 4u);
  EXPECT_EQ(plan.topology().ep_ranks(), 4u);
  ASSERT_EQ(plan.topology().shards_size(), 1);
  EXPECT_THAT(plan.topology().shards(0).slots(), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(plan.attention_size(), 2);
  EXPECT_EQ(plan.attention(1).name(), "kda");
  EXPECT_EQ(plan.attention(1).alpha(), 0.75);
  EXPECT_EQ(plan.options().placement(), v1::PLACEMENT_POLICY_INCREMENTAL);
  EXPECT_EQ(plan.options().min_rows(), 1u);
  EXPECT_EQ(plan.options().row_multiple(), 1u);
  EXPECT_EQ(plan.options().row_order(), v1::ROW_ORDER_AS_PLANNED);
  EXPECT_EQ(plan.options().seed(), 7u);
  EXPECT_GT(plan.options().row_search_nodes(), 0u);
  EXPECT_FALSE(plan.options().has_time_limit());
  EXPECT_EQ(plan.counts_origin(), v1::COUNTS_ORIGIN_REPLAYED);
  EXPECT_EQ(plan.backend(), "cpu");
  EXPECT_EQ(plan.algorithm_version(), kAlgorithmVersion);
  EXPECT_EQ(plan.layout().window_tokens(), 249u);
  EXPECT_GT(plan.timings_size(), 0);
}

TEST(PlanCodec, OptionsComeBackAsTheyWereUsed) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  PlanOptions used;
  used.placement = PlacementPolicy::kKeep;
  used.row_order = RowOrder::kLightEnds;
  used.min_rows = 4;
  used.row_multiple = 2;
  used.time_limit = absl::Seconds(2.5);
  PlanContext context;
  context.options.set_best_effort_at_deadline(true);
  const v1::PlanOptions options =
      MakePlanned(window, used, context).message.options();
  EXPECT_TRUE(options.best_effort_at_deadline());
  const PlanOptions back = ValueOrDie(DecodeOptions(options));
  EXPECT_EQ(back.placement, PlacementPolicy::kKeep);
  EXPECT_EQ(back.row_order, RowOrder::kLightEnds);
  EXPECT_EQ(back.min_rows, 4u);
  EXPECT_EQ(back.row_multiple, 2u);
  EXPECT_EQ(back.time_limit, absl::Seconds(2.5));
}

TEST(PlanCodec, ListsThePeaksOfStages) {
  v1::Window message = TinyWindow();
  v1::Topology& topology = *message.mutable_header()->mutable_topology();
  topology.mutable_mesh()->set_pp(3);
  for (const uint32_t layers : {1, 0, 1}) {
    topology.add_moe_layers_per_stage(layers);
  }
  const Planned planned =
      MakePlanned(ValueOrDie(DecodeWindow(message)), {}, {});
  const Metrics& metrics = planned.plan.routepack;
  const auto& stages = planned.message.routepack().stages();
  ASSERT_EQ(stages.size(), 3);
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(stages[s].num_layers(), s == 1 ? 0u : 1u);
    EXPECT_EQ(stages[s].ep_peak_sum(), metrics.stages[s].ep_peak_sum);
    EXPECT_EQ(stages[s].tail_peak(), metrics.stages[s].tail_peak);
  }
  EXPECT_GT(stages[2].tail_peak(), 0u);
}

TEST(PlanCodec, ListsImputedSamplesById) {
  v1::Window message = TinyWindow();
  message.mutable_header()->mutable_counts()->set_missing(
      v1::MISSING_COUNTS_WINDOW_MEAN);
  message.mutable_samples(6)->clear_counts();
  message.mutable_samples(9)->clear_counts();
  const Planned planned =
      MakePlanned(ValueOrDie(DecodeWindow(message)), {}, {});
  EXPECT_THAT(planned.message.imputed_sample_ids(), ElementsAre(106, 109));
}

TEST(PlanCodec, VersionsLeaveOutEmptyPartsOfTheKey) {
  const std::string digest = "0123456789abcdef0123456789abcdef";
  v1::PlanKey key;
  EXPECT_EQ(PlacementVersion(key, digest), "0.0@0123456789ab");
  key.set_job_id("job");
  key.set_step(18446744073709551615u);
  EXPECT_EQ(PlacementVersion(key, digest),
            "job/18446744073709551615.0@0123456789ab");
  EXPECT_EQ(PlacementVersion(Key(), digest), "job/run/12.3@0123456789ab");
}

// Sums of a message recomputed the slow way from the window alone.
void CheckSums(const Planned& planned) {
  const Window& window = planned.window;
  const v1::Layout& layout = planned.message.layout();
  const auto is_filler = [&](uint64_t id) {
    return std::count(layout.filler_sample_ids().begin(),
                      layout.filler_sample_ids().end(), id) > 0;
  };
  uint64_t window_tokens = 0;
  uint32_t samples = 0;
  double slowest = 0;
  std::vector<double> shard_costs(planned.message.topology().shards_size());
  for (const v1::Row& row : layout.rows()) {
    uint64_t row_tokens = 0;
    for (const v1::Cell& cell : row.cells()) {
      uint64_t tokens = 0;
      uint64_t occupancy = 0;
      for (const uint64_t id : cell.sample_ids()) {
        if (is_filler(id)) {
          occupancy += window.spec().length_multiple;
          continue;
        }
        const auto it =
            std::find_if(window.samples().begin(), window.samples().end(),
                         [&](const SampleInfo& s) { return s.id == id; });
        ASSERT_NE(it, window.samples().end());
        tokens += it->tokens;
        occupancy += window.occupancy(it - window.samples().begin());
        ++samples;
      }
      EXPECT_GT(cell.sample_ids_size(), 0);
      EXPECT_EQ(cell.tokens(), tokens);
      EXPECT_EQ(cell.occupancy(), occupancy);
      EXPECT_LE(occupancy, window.spec().token_cap);
      row_tokens += tokens;
    }
    EXPECT_EQ(row.tokens(), row_tokens);
    window_tokens += row_tokens;
    ASSERT_EQ(row.shard_cost_size(), static_cast<int>(shard_costs.size()));
    for (size_t g = 0; g < shard_costs.size(); ++g) {
      shard_costs[g] += row.shard_cost(g);
    }
  }
  for (const double cost : shard_costs) slowest = std::max(slowest, cost);
  EXPECT_EQ(layout.window_tokens(), window_tokens);
  EXPECT_EQ(samples, window.num_samples());
  EXPECT_NEAR(planned.message.routepack().joint(), slowest, 1e-9 * slowest);
}

TEST(PlanCodec, RandomPlansRoundTrip) {
  uint32_t with_fillers = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Planned planned = PlanRandom(seed);
    CheckSums(planned);
    if (planned.plan.num_fillers > 0) ++with_fillers;

    // Through the wire, as a client would see it.
    v1::Plan received;
    ASSERT_TRUE(received.ParseFromString(planned.message.SerializeAsString()));
    const absl::StatusOr<Plan> back = DecodePlan(planned.window, received);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->placement, planned.plan.placement);
    EXPECT_EQ(back->layout, planned.plan.layout);
    EXPECT_EQ(back->filler_ids, planned.plan.filler_ids);
    EXPECT_EQ(back->bounds.for_placement, planned.plan.bounds.for_placement);
    EXPECT_EQ(back->bounds.for_any_placement,
              planned.plan.bounds.for_any_placement);
    EXPECT_TRUE(ValidatePlan(planned.window, *back).ok())
        << ValidatePlan(planned.window, *back);

    // Nothing is lost but the costs of rows, which are recomputed.
    v1::Plan expected = planned.message;
    for (v1::Row& row : *expected.mutable_layout()->mutable_rows()) {
      row.clear_shard_cost();
    }
    const v1::Plan again =
        EncodePlan(planned.window, *back, planned.options, {.key = Key()});
    EXPECT_EQ(Differences(expected, again), "");
  }
  EXPECT_GT(with_fillers, 5u);
  EXPECT_LT(with_fillers, 55u);
}

struct BadPlan {
  const char* name;
  std::function<void(v1::Plan*)> spoil;
  const char* field;
};

class TamperedPlan : public testing::TestWithParam<BadPlan> {};

TEST_P(TamperedPlan, IsNamedExactly) {
  Planned tiny = PlanTiny();
  GetParam().spoil(&tiny.message);
  const absl::Status status = DecodePlan(tiny.window, tiny.message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_FALSE(Fields(status).empty()) << status;
  EXPECT_EQ(Fields(status)[0], GetParam().field) << status;
}

v1::Cell* FirstCell(v1::Plan* plan) {
  return plan->mutable_layout()->mutable_rows(0)->mutable_cells(0);
}

INSTANTIATE_TEST_SUITE_P(
    All, TamperedPlan,
    testing::Values(
        BadPlan{"OtherWindow", [](v1::Plan* p) { p->set_window_digest("00"); },
                "window_digest"},
        BadPlan{"NoPlacement", [](v1::Plan* p) { p->clear_placement(); },
                "placement.layers"},
        BadPlan{"ExpertTwice",
                [](v1::Plan* p) {
                  v1::LayerPlacement* layer =
                      p->mutable_placement()->mutable_layers(1);
                  layer->set_slot_of_expert(3, layer->slot_of_expert(2));
                },
                "placement.layers[1].slot_of_expert[3]"},
        BadPlan{"OtherPlacement",
                [](v1::Plan* p) { p->set_placement_digest("x"); },
                "placement_digest"},
        BadPlan{"UnknownSample",
                [](v1::Plan* p) { FirstCell(p)->set_sample_ids(0, 999); },
                "layout.rows[0].cells[0].sample_ids[0]"},
        BadPlan{"SampleTwice",
                [](v1::Plan* p) {
                  const uint64_t id = FirstCell(p)->sample_ids(0);
                  FirstCell(p)->clear_sample_ids();
                  FirstCell(p)->add_sample_ids(id);
                  FirstCell(p)->add_sample_ids(id);
                },
                "layout.rows[0].cells[0].sample_ids[1]"},
        BadPlan{"CellMissing",
                [](v1::Plan* p) {
                  p->mutable_layout()
                      ->mutable_rows(1)
                      ->mutable_cells()
                      ->RemoveLast();
                },
                "layout.rows[1].cells"},
        BadPlan{"CellEmpty",
                [](v1::Plan* p) { FirstCell(p)->clear_sample_ids(); },
                "layout.rows[0].cells[0]"},
        BadPlan{"CellTokens", [](v1::Plan* p) { FirstCell(p)->set_tokens(1); },
                "layout.rows[0].cells[0].tokens"},
        BadPlan{"CellOccupancy",
                [](v1::Plan* p) { FirstCell(p)->set_occupancy(1); },
                "layout.rows[0].cells[0].occupancy"},
        BadPlan{"RowTokens",
                [](v1::Plan* p) {
                  p->mutable_layout()->mutable_rows(1)->set_tokens(0);
                },
                "layout.rows[1].tokens"},
        BadPlan{
            "WindowTokens",
            [](v1::Plan* p) { p->mutable_layout()->set_window_tokens(250); },
            "layout.window_tokens"},
        BadPlan{"NoRows",
                [](v1::Plan* p) { p->mutable_layout()->clear_rows(); },
                "layout.rows"},
        BadPlan{"FillerIsSample",
                [](v1::Plan* p) {
                  p->mutable_layout()->add_filler_sample_ids(103);
                },
                "layout.filler_sample_ids[0]"},
        BadPlan{
            "FillerInNoCell",
            [](v1::Plan* p) { p->mutable_layout()->add_filler_sample_ids(7); },
            "layout.rows"},
        BadPlan{"OutcomeUnknown",
                [](v1::Plan* p) {
                  p->mutable_rows()->set_outcome(v1::ROW_OUTCOME_UNSPECIFIED);
                },
                "rows.outcome"},
        BadPlan{"RowsOther",
                [](v1::Plan* p) { p->mutable_rows()->set_rows(3); },
                "rows.rows"},
        BadPlan{"SearchEndUnknown",
                [](v1::Plan* p) { p->mutable_search_report()->clear_end(); },
                "search_report.end"},
        BadPlan{"BoundNegative",
                [](v1::Plan* p) {
                  p->mutable_bounds()->set_joint_for_placement(-1);
                },
                "bounds.joint_for_placement"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PlanCodec, AValidLookingScoreIsCaughtByValidation) {
  Planned tiny = PlanTiny();
  v1::ExactScore* score = tiny.message.mutable_routepack()->mutable_score();
  score->set_slowest_shard(score->slowest_shard() - 1);
  const absl::StatusOr<Plan> plan = DecodePlan(tiny.window, tiny.message);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(ValidatePlan(tiny.window, *plan).ok());
}

TEST(EncodeProgress, StatesEveryField) {
  const v1::Progress message = EncodeProgress({.stage = "packing",
                                               .fraction = 0.5,
                                               .rows = 3,
                                               .joint = 12,
                                               .bound = 10,
                                               .gap = 0.2,
                                               .acceptance_rate = 0.125,
                                               .proposals_per_second = 2e6,
                                               .elapsed = absl::Seconds(2)});
  EXPECT_EQ(message.stage(), "packing");
  EXPECT_EQ(message.fraction(), 0.5);
  EXPECT_EQ(message.rows(), 3u);
  EXPECT_EQ(message.joint(), 12);
  EXPECT_EQ(message.bound(), 10);
  EXPECT_EQ(message.gap(), 0.2);
  EXPECT_EQ(message.acceptance_rate(), 0.125);
  EXPECT_EQ(message.proposals_per_second(), 2e6);
  EXPECT_EQ(message.elapsed().seconds(), 2);
}

}  // namespace
}  // namespace routepack
