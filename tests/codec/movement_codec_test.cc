#include "proto/codec/movement_codec.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/planner.h"
#include "proto/codec/plan_codec.h"
#include "proto/codec/window_codec.h"
#include "tests/codec/test_messages.h"
#include "tests/planner/random_movement.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PlanOptions Decoded(const v1::PlanOptions& message) {
  return ValueOrDie(DecodeOptions(message));
}

TEST(MovementOptions, SayNothingByDefault) {
  const PlanOptions options = Decoded({});
  EXPECT_EQ(options.placement, PlacementPolicy::kIncremental);
  EXPECT_TRUE(options.movement.kinds.empty());
  EXPECT_EQ(options.movement.seconds_per_assignment, 0);
  EXPECT_TRUE(options.incremental.break_even);
  EXPECT_EQ(options.incremental.target_imbalance, 0.003);
  EXPECT_EQ(options.incremental.movement_budget,
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(options.transfer.experts_per_round, 1u);
  EXPECT_FALSE(options.refine_after_announce);
}

TEST(MovementOptions, ParametersStandForMixedPrecisionTraining) {
  v1::PlanOptions message;
  v1::MovementOptions& movement = *message.mutable_movement();
  movement.set_parameters_per_expert(3000);
  movement.set_flop_per_second(1e6);
  const MovementSpec spec = Decoded(message).movement;
  ASSERT_EQ(spec.kinds.size(), 4u);
  EXPECT_EQ(spec.kinds[0].bytes, 6000u);
  EXPECT_FALSE(spec.kinds[0].lane_owned);
  EXPECT_EQ(spec.kinds[3].bytes, 12000u);
  EXPECT_TRUE(spec.kinds[3].lane_owned);
  EXPECT_DOUBLE_EQ(spec.seconds_per_assignment, 6 * 3000 / 1e6);
  movement.set_seconds_per_assignment(0.5);
  EXPECT_EQ(Decoded(message).movement.seconds_per_assignment, 0.5);
}

TEST(MovementOptions, EveryFieldArrives) {
  v1::PlanOptions message;
  v1::MovementOptions& movement = *message.mutable_movement();
  v1::StateKind& kind = *movement.add_kinds();
  kind.set_name("exp_avg");
  kind.set_bytes(40);
  kind.set_lane_owned(true);
  v1::GradientBuffer& buffer = *movement.mutable_buffer();
  v1::ExpertParameter& parameter = *buffer.add_parameters();
  parameter.set_elements(10);
  parameter.set_buffer(1);
  buffer.set_slot_by_slot(true);
  buffer.set_ascending(true);
  buffer.set_start_alignment(2);
  buffer.set_end_multiple(3);
  buffer.set_bucket_elements(4);
  buffer.add_chunk_of_layer(5);
  v1::LaneRange& range = *movement.add_lane_ranges();
  range.set_layer(1);
  range.set_slot(2);
  range.set_lane(3);
  range.set_begin(4);
  range.set_end(10);
  movement.add_node_of_rank(7);
  movement.set_gpus_per_rank(2);
  movement.set_inter_node_cost(0);
  movement.set_intra_node_bandwidth(1);
  movement.set_inter_node_bandwidth(2);
  movement.set_node_bandwidth(3);
  movement.set_seconds_per_assignment(4);
  v1::IncrementalOptions& incremental = *message.mutable_incremental();
  incremental.set_target_imbalance(0);
  incremental.set_movement_budget(5);
  incremental.set_break_even(false);
  incremental.set_horizon_steps(6);
  v1::TransferOptions& transfer = *message.mutable_transfer();
  transfer.set_experts_per_round(2);
  transfer.set_max_staging(3);
  transfer.set_max_uplink(4);
  message.set_refine_after_announce(true);

  const PlanOptions options = Decoded(message);
  const MovementSpec& spec = options.movement;
  ASSERT_EQ(spec.kinds.size(), 1u);
  EXPECT_EQ(spec.kinds[0].name, "exp_avg");
  EXPECT_EQ(spec.kinds[0].bytes, 40u);
  EXPECT_TRUE(spec.kinds[0].lane_owned);
  ASSERT_EQ(spec.buffer.parameters.size(), 1u);
  EXPECT_EQ(spec.buffer.parameters[0].elements, 10u);
  EXPECT_EQ(spec.buffer.parameters[0].buffer, 1u);
  EXPECT_FALSE(spec.buffer.grouped);
  EXPECT_FALSE(spec.buffer.reversed);
  EXPECT_EQ(spec.buffer.start_alignment, 2u);
  EXPECT_EQ(spec.buffer.end_multiple, 3u);
  EXPECT_EQ(spec.buffer.bucket_elements, 4u);
  EXPECT_THAT(spec.buffer.chunk_of_layer, ElementsAre(5));
  ASSERT_EQ(spec.lane_ranges.size(), 1u);
  EXPECT_EQ(spec.lane_ranges[0].layer, 1u);
  EXPECT_EQ(spec.lane_ranges[0].slot, 2u);
  EXPECT_EQ(spec.lane_ranges[0].lane, 3u);
  EXPECT_EQ(spec.lane_ranges[0].begin, 4u);
  EXPECT_EQ(spec.lane_ranges[0].end, 10u);
  EXPECT_THAT(spec.node_of_rank, ElementsAre(7));
  EXPECT_EQ(spec.gpus_per_rank, 2u);
  EXPECT_EQ(spec.inter_node_cost, 0);
  EXPECT_EQ(spec.intra_node_bandwidth, 1);
  EXPECT_EQ(spec.inter_node_bandwidth, 2);
  EXPECT_EQ(spec.node_bandwidth, 3);
  EXPECT_EQ(spec.seconds_per_assignment, 4);
  EXPECT_EQ(options.incremental.target_imbalance, 0);
  EXPECT_EQ(options.incremental.movement_budget, 5);
  EXPECT_FALSE(options.incremental.break_even);
  EXPECT_EQ(options.incremental.horizon_steps, 6);
  EXPECT_EQ(options.transfer.experts_per_round, 2u);
  EXPECT_EQ(options.transfer.max_staging, 3u);
  EXPECT_EQ(options.transfer.max_uplink, 4u);
  EXPECT_TRUE(options.refine_after_announce);

  // And what a plan states of them says the same again.
  v1::PlanOptions stated;
  EncodePlacementOptions(options, &stated);
  EXPECT_EQ(stated.incremental().SerializeAsString(),
            message.incremental().SerializeAsString());
  EXPECT_EQ(stated.transfer().SerializeAsString(),
            message.transfer().SerializeAsString());
  EXPECT_TRUE(stated.refine_after_announce());
}

// Options that are refused for a window of 2 layers, 8 experts, 4 EP ranks and
// one shard, and the fields that are named.
struct BadOption {
  const char* name;
  std::function<void(v1::PlanOptions&)> spoil;
  std::vector<std::string> fields;
};

const std::vector<BadOption>& BadOptions() {
  using O = v1::PlanOptions;
  static const auto* options = new std::vector<BadOption>{
      {"TwoDescriptions",
       [](O& o) {
         o.mutable_movement()->set_parameters_per_expert(9);
         o.mutable_movement()->add_kinds()->set_bytes(1);
       },
       {"movement.parameters_per_expert"}},
      {"TwoKindsOfNodes",
       [](O& o) {
         o.mutable_movement()->set_ranks_per_node(2);
         for (int p = 0; p < 4; ++p) o.mutable_movement()->add_node_of_rank(0);
       },
       {"movement.node_of_rank"}},
      {"TooLarge",
       [](O& o) {
         o.mutable_movement()->set_parameters_per_expert(uint64_t{1} << 41);
       },
       {"movement.parameters_per_expert"}},
      {"NoSpeed",
       [](O& o) { o.mutable_movement()->set_flop_per_second(-1); },
       {"movement.flop_per_second"}},
      {"NoBytes",
       [](O& o) { o.mutable_movement()->add_kinds()->set_name("weights"); },
       {"movement.kinds[0].bytes"}},
      {"OwnedWithoutElements",
       [](O& o) {
         v1::StateKind& kind = *o.mutable_movement()->add_kinds();
         kind.set_bytes(8);
         kind.set_lane_owned(true);
       },
       {"movement.kinds[0].bytes"}},
      {"FewNodes",
       [](O& o) { o.mutable_movement()->add_node_of_rank(1); },
       {"movement.node_of_rank"}},
      {"Lambda",
       [](O& o) { o.mutable_movement()->set_inter_node_cost(1025); },
       {"movement.inter_node_cost"}},
      {"Bandwidths",
       [](O& o) {
         o.mutable_movement()->set_intra_node_bandwidth(-1);
         o.mutable_movement()->set_inter_node_bandwidth(kNan);
       },
       {"movement.intra_node_bandwidth", "movement.inter_node_bandwidth"}},
      {"Chunks",
       [](O& o) {
         v1::MovementOptions& movement = *o.mutable_movement();
         v1::StateKind& kind = *movement.add_kinds();
         kind.set_bytes(8);
         kind.set_lane_owned(true);
         movement.mutable_buffer()->add_parameters()->set_elements(4);
         movement.mutable_buffer()->add_chunk_of_layer(0);
       },
       {"movement.buffer.chunk_of_layer"}},
      {"Ranges",
       [](O& o) {
         v1::MovementOptions& movement = *o.mutable_movement();
         v1::StateKind& kind = *movement.add_kinds();
         kind.set_bytes(8);
         kind.set_lane_owned(true);
         movement.mutable_buffer()->add_parameters()->set_elements(4);
         movement.add_lane_ranges()->set_layer(2);
       },
       {"movement.lane_ranges[0].layer", "movement.lane_ranges[0].end"}},
      {"Target",
       [](O& o) { o.mutable_incremental()->set_target_imbalance(kNan); },
       {"incremental.target_imbalance"}},
      {"Budget",
       [](O& o) { o.mutable_incremental()->set_movement_budget(-1); },
       {"incremental.movement_budget"}},
      {"Horizon",
       [](O& o) { o.mutable_incremental()->set_horizon_steps(-1); },
       {"incremental.horizon_steps"}},
      {"NothingToRefine",
       [](O& o) {
         o.set_placement(v1::PLACEMENT_POLICY_KEEP);
         o.set_refine_after_announce(true);
       },
       {"refine_after_announce"}},
      {"RefinedBeyondTheBudget",
       [](O& o) {
         o.mutable_incremental()->set_movement_budget(1);
         o.set_refine_after_announce(true);
       },
       {"refine_after_announce"}}};
  return *options;
}

TEST(MovementOptions, EveryValueOutOfRangeIsNamed) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  for (const BadOption& bad : BadOptions()) {
    SCOPED_TRACE(bad.name);
    v1::PlanOptions message;
    bad.spoil(message);
    const absl::StatusOr<PlanOptions> options = DecodeOptions(message);
    const absl::Status status = options.ok()
                                    ? ValidateOptions(window.spec(), *options)
                                    : options.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    std::vector<std::string> expected;
    for (const std::string& field : bad.fields) {
      expected.push_back("header.options." + field);
    }
    EXPECT_EQ(Fields(status), expected) << status;
  }
}

void ExpectSame(const StageSchedule& a, const StageSchedule& b) {
  EXPECT_EQ(a.sends, b.sends);
  EXPECT_EQ(a.send_begin, b.send_begin);
  EXPECT_EQ(a.copies, b.copies);
  EXPECT_EQ(a.copy_begin, b.copy_begin);
  EXPECT_EQ(a.min_rounds, b.min_rounds);
  EXPECT_EQ(a.peak_staging, b.peak_staging);
}

TEST(MovementCodec, SchedulesComeBackAsTheyWere) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    TestRandom random(seed);
    const Placement from = RandomPlacement(random, 6, 12, 4);
    const Placement to = RandomPlacement(random, 6, 12, 4);
    const std::vector<StageSchedule> stages =
        ScheduleTransfer(from, to, std::vector<uint32_t>{0, 0, 1, 1, 2, 2}, {});
    ASSERT_EQ(stages.size(), 3u);
    google::protobuf::RepeatedPtrField<v1::StageTransfer> message;
    EncodeTransfer(stages, &message);
    const std::vector<StageSchedule> back = DecodeTransfer(message);
    ASSERT_EQ(back.size(), 3u);
    for (size_t s = 0; s < 3; ++s) ExpectSame(back[s], stages[s]);
  }
}

TEST(MovementCodec, PlansTellWhatTheyMove) {
  v1::Window message = TinyWindow();
  v1::PlanOptions& options = *message.mutable_header()->mutable_options();
  options.set_placement(v1::PLACEMENT_POLICY_INCREMENTAL);
  options.mutable_movement()->set_parameters_per_expert(30);
  options.mutable_movement()->set_ranks_per_node(2);
  options.mutable_incremental()->set_break_even(false);
  options.set_refine_after_announce(true);
  const Window window = ValueOrDie(DecodeWindow(message));
  const PlanOptions used = Decoded(options);
  const Plan plan =
      ValueOrDie(MakePlan(window, IdentityPlacement(2, 8, 4), used));
  const v1::Plan encoded = EncodePlan(window, plan, used, {.options = options});
  ASSERT_GT(plan.movement.change.experts_to_other_rank, 0u);
  EXPECT_EQ(encoded.movement().kind_bytes_size(), 4);
  EXPECT_EQ(encoded.movement().kind_bytes(0),
            60u * plan.movement.change.experts_to_other_rank);
  EXPECT_GT(encoded.movement().transfer_seconds(), 0);
  EXPECT_EQ(encoded.options().movement().parameters_per_expert(), 30u);
  EXPECT_NE(encoded.incremental_stop(), v1::INCREMENTAL_STOP_UNSPECIFIED);
  ASSERT_TRUE(encoded.has_refinement());

  const Plan back = ValueOrDie(DecodePlan(window, encoded));
  EXPECT_EQ(back.movement.kind_bytes, plan.movement.kind_bytes);
  EXPECT_EQ(back.movement.intra_node_bytes, plan.movement.intra_node_bytes);
  EXPECT_EQ(back.movement.inter_node_bytes, plan.movement.inter_node_bytes);
  EXPECT_EQ(back.movement.weighted_bytes, plan.movement.weighted_bytes);
  EXPECT_EQ(back.movement.peak_sum_before, plan.movement.peak_sum_before);
  EXPECT_EQ(back.movement.peak_sum_after, plan.movement.peak_sum_after);
  EXPECT_EQ(back.movement.transfer_seconds, plan.movement.transfer_seconds);
  EXPECT_EQ(back.movement.saved_seconds, plan.movement.saved_seconds);
  EXPECT_EQ(back.movement.break_even_steps, plan.movement.break_even_steps);
  EXPECT_EQ(back.incremental_stop, plan.incremental_stop);
  EXPECT_EQ(back.refinement->announced_digest,
            plan.refinement->announced_digest);
  EXPECT_EQ(back.refinement->change.experts_to_other_slot,
            plan.refinement->change.experts_to_other_slot);
  ASSERT_EQ(back.transfer.size(), plan.transfer.size());
  ExpectSame(back.transfer[0], plan.transfer[0]);
  EXPECT_TRUE(ValidatePlan(window, back).ok());
}

TEST(MovementCodec, EveryReasonToStopHasAName) {
  for (const IncrementalStop stop :
       {IncrementalStop::kTarget, IncrementalStop::kStalled,
        IncrementalStop::kBudget, IncrementalStop::kBreakEven}) {
    EXPECT_NE(EncodeStop(stop), v1::INCREMENTAL_STOP_UNSPECIFIED);
    EXPECT_EQ(DecodeStop(EncodeStop(stop)), stop);
  }
}

}  // namespace
}  // namespace routepack
