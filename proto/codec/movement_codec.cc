#include "proto/codec/movement_codec.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

namespace routepack {
namespace {

double OrElse(double value, double otherwise) {
  return value == 0 ? otherwise : value;
}

GradientBuffer DecodeBuffer(const v1::GradientBuffer& message) {
  GradientBuffer buffer;
  for (const v1::ExpertParameter& parameter : message.parameters()) {
    buffer.parameters.push_back({parameter.elements(), parameter.buffer()});
  }
  buffer.grouped = !message.slot_by_slot();
  buffer.reversed = !message.ascending();
  if (message.start_alignment() != 0) {
    buffer.start_alignment = message.start_alignment();
  }
  if (message.end_multiple() != 0) {
    buffer.end_multiple = message.end_multiple();
  }
  buffer.bucket_elements = message.bucket_elements();
  buffer.chunk_of_layer.assign(message.chunk_of_layer().begin(),
                               message.chunk_of_layer().end());
  return buffer;
}

// What an expert consists of, by its parameters or kind by kind.
MovementSpec DecodeExpert(const v1::MovementOptions& message, Violations& bad) {
  constexpr char kField[] = "header.options.movement.";
  const uint64_t parameters = message.parameters_per_expert();
  if (parameters > LaneLayout::kMaxElements) {
    bad.Add(absl::StrCat(kField, "parameters_per_expert"),
            absl::StrCat("must be at most ", LaneLayout::kMaxElements, ", is ",
                         parameters));
    return {};
  }
  const double flop_per_second =
      OrElse(message.flop_per_second(), kFlopPerSecond);
  if (!(flop_per_second > 0 && std::isfinite(flop_per_second))) {
    bad.Add(absl::StrCat(kField, "flop_per_second"),
            absl::StrCat("must be positive, is ", flop_per_second));
    return {};
  }
  if (parameters != 0) {
    if (message.kinds_size() != 0 || message.has_buffer() ||
        message.lane_ranges_size() != 0) {
      bad.Add(absl::StrCat(kField, "parameters_per_expert"),
              "give either this or kinds, buffer and lane_ranges");
    }
    return DescribeExperts(parameters, flop_per_second);
  }
  MovementSpec spec;
  for (const v1::StateKind& kind : message.kinds()) {
    spec.kinds.push_back({kind.name(), kind.bytes(), kind.lane_owned()});
  }
  spec.buffer = DecodeBuffer(message.buffer());
  for (const v1::LaneRange& range : message.lane_ranges()) {
    spec.lane_ranges.push_back({range.layer(), range.slot(), range.lane(),
                                range.begin(), range.end()});
  }
  return spec;
}

MovementSpec DecodeMovementSpec(const v1::MovementOptions& message,
                                Violations& bad) {
  if (message.ranks_per_node() != 0 && message.node_of_rank_size() != 0) {
    bad.Add("header.options.movement.node_of_rank",
            "give either this or ranks_per_node");
  }
  MovementSpec spec = DecodeExpert(message, bad);
  spec.ranks_per_node = message.ranks_per_node();
  spec.node_of_rank.assign(message.node_of_rank().begin(),
                           message.node_of_rank().end());
  if (message.gpus_per_rank() != 0) {
    spec.gpus_per_rank = message.gpus_per_rank();
  }
  if (message.has_inter_node_cost()) {
    spec.inter_node_cost = message.inter_node_cost();
  }
  spec.intra_node_bandwidth =
      OrElse(message.intra_node_bandwidth(), spec.intra_node_bandwidth);
  spec.inter_node_bandwidth =
      OrElse(message.inter_node_bandwidth(), spec.inter_node_bandwidth);
  spec.node_bandwidth = message.node_bandwidth();
  spec.seconds_per_assignment =
      OrElse(message.seconds_per_assignment(), spec.seconds_per_assignment);
  return spec;
}

void EncodeMove(const SlotMove& move, v1::SlotMove* message) {
  message->set_layer(move.layer);
  message->set_expert(move.expert);
  if (move.from_slot != kStagingSlot) message->set_from_slot(move.from_slot);
  if (move.to_slot != kStagingSlot) message->set_to_slot(move.to_slot);
}

SlotMove DecodeMove(const v1::SlotMove& message) {
  return {
      .layer = message.layer(),
      .expert = message.expert(),
      .from_slot = message.has_from_slot() ? message.from_slot() : kStagingSlot,
      .to_slot = message.has_to_slot() ? message.to_slot() : kStagingSlot};
}

}  // namespace

void DecodePlacementOptions(const v1::PlanOptions& message,
                            PlanOptions& options, Violations& bad) {
  if (message.has_movement()) {
    options.movement = DecodeMovementSpec(message.movement(), bad);
  }
  const v1::IncrementalOptions& incremental = message.incremental();
  if (incremental.has_target_imbalance()) {
    options.incremental.target_imbalance = incremental.target_imbalance();
  }
  if (incremental.has_movement_budget()) {
    options.incremental.movement_budget = incremental.movement_budget();
  }
  if (incremental.has_break_even()) {
    options.incremental.break_even = incremental.break_even();
  }
  options.incremental.horizon_steps =
      OrElse(incremental.horizon_steps(), options.incremental.horizon_steps);
  const v1::TransferOptions& transfer = message.transfer();
  if (transfer.experts_per_round() != 0) {
    options.transfer.experts_per_round = transfer.experts_per_round();
  }
  if (transfer.max_staging() != 0) {
    options.transfer.max_staging = transfer.max_staging();
  }
  options.transfer.max_uplink = transfer.max_uplink();
  options.refine_after_announce = message.refine_after_announce();
}

void EncodePlacementOptions(const PlanOptions& options,
                            v1::PlanOptions* message) {
  // What the movement says stays as it was said: it is a description.
  v1::IncrementalOptions* incremental = message->mutable_incremental();
  incremental->set_target_imbalance(options.incremental.target_imbalance);
  if (options.incremental.movement_budget <
      std::numeric_limits<double>::infinity()) {
    incremental->set_movement_budget(options.incremental.movement_budget);
  }
  incremental->set_break_even(options.incremental.break_even);
  incremental->set_horizon_steps(options.incremental.horizon_steps);
  v1::TransferOptions* transfer = message->mutable_transfer();
  transfer->set_experts_per_round(options.transfer.experts_per_round);
  transfer->set_max_staging(options.transfer.max_staging);
  transfer->set_max_uplink(options.transfer.max_uplink);
  message->set_refine_after_announce(options.refine_after_announce);
}

void EncodeMovement(const MovementReport& report, v1::MovementReport* message) {
  message->mutable_kind_bytes()->Add(report.kind_bytes.begin(),
                                     report.kind_bytes.end());
  message->set_intra_node_bytes(report.intra_node_bytes);
  message->set_inter_node_bytes(report.inter_node_bytes);
  message->set_weighted_bytes(report.weighted_bytes);
  message->set_peak_sum_before(report.peak_sum_before);
  message->set_peak_sum_after(report.peak_sum_after);
  message->set_transfer_seconds(report.transfer_seconds);
  message->set_saved_seconds(report.saved_seconds);
  message->set_break_even_steps(report.break_even_steps);
}

MovementReport DecodeMovement(const v1::MovementReport& message) {
  return {
      .kind_bytes = {message.kind_bytes().begin(), message.kind_bytes().end()},
      .intra_node_bytes = message.intra_node_bytes(),
      .inter_node_bytes = message.inter_node_bytes(),
      .weighted_bytes = message.weighted_bytes(),
      .peak_sum_before = message.peak_sum_before(),
      .peak_sum_after = message.peak_sum_after(),
      .transfer_seconds = message.transfer_seconds(),
      .saved_seconds = message.saved_seconds(),
      .break_even_steps = message.break_even_steps()};
}

void EncodeTransfer(
    std::span<const StageSchedule> stages,
    google::protobuf::RepeatedPtrField<v1::StageTransfer>* message) {
  for (const StageSchedule& stage : stages) {
    v1::StageTransfer* out = message->Add();
    for (uint32_t round = 0; round < stage.rounds(); ++round) {
      v1::TransferRound* round_out = out->add_rounds();
      for (const SlotMove& send : stage.SendsOf(round)) {
        v1::SlotMove* move = round_out->add_sends();
        EncodeMove(send, move);
        move->set_staged(!send.direct);
      }
      for (const SlotMove& copy : stage.CopiesAfter(round)) {
        EncodeMove(copy, round_out->add_copies());
      }
    }
    for (const SlotMove& copy : stage.CopiesAfter(stage.rounds())) {
      EncodeMove(copy, out->add_final_copies());
    }
    out->set_min_rounds(stage.min_rounds);
    out->set_peak_staging(stage.peak_staging);
  }
}

std::vector<StageSchedule> DecodeTransfer(
    const google::protobuf::RepeatedPtrField<v1::StageTransfer>& message) {
  std::vector<StageSchedule> stages;
  for (const v1::StageTransfer& stage : message) {
    StageSchedule& out = stages.emplace_back();
    out.send_begin.push_back(0);
    out.copy_begin.push_back(0);
    for (const v1::TransferRound& round : stage.rounds()) {
      for (const v1::SlotMove& send : round.sends()) {
        out.sends.push_back(DecodeMove(send));
        out.sends.back().direct = !send.staged();
      }
      for (const v1::SlotMove& copy : round.copies()) {
        out.copies.push_back(DecodeMove(copy));
      }
      out.send_begin.push_back(out.sends.size());
      out.copy_begin.push_back(out.copies.size());
    }
    for (const v1::SlotMove& copy : stage.final_copies()) {
      out.copies.push_back(DecodeMove(copy));
    }
    out.copy_begin.push_back(out.copies.size());
    out.min_rounds = stage.min_rounds();
    out.peak_staging = stage.peak_staging();
  }
  return stages;
}

v1::IncrementalStop EncodeStop(IncrementalStop stop) {
  switch (stop) {
    case IncrementalStop::kTarget:
      return v1::INCREMENTAL_STOP_TARGET;
    case IncrementalStop::kStalled:
      return v1::INCREMENTAL_STOP_STALLED;
    case IncrementalStop::kBudget:
      return v1::INCREMENTAL_STOP_BUDGET;
    case IncrementalStop::kBreakEven:
      return v1::INCREMENTAL_STOP_BREAK_EVEN;
  }
  return v1::INCREMENTAL_STOP_UNSPECIFIED;
}

IncrementalStop DecodeStop(v1::IncrementalStop stop) {
  switch (stop) {
    case v1::INCREMENTAL_STOP_STALLED:
      return IncrementalStop::kStalled;
    case v1::INCREMENTAL_STOP_BUDGET:
      return IncrementalStop::kBudget;
    case v1::INCREMENTAL_STOP_BREAK_EVEN:
      return IncrementalStop::kBreakEven;
    default:
      return IncrementalStop::kTarget;
  }
}

}  // namespace routepack
