#include "proto/codec/rank_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "planner/errors.h"

namespace routepack {
namespace {

std::string OutsideOf(uint32_t value, uint32_t size) {
  return absl::StrCat("is ", value, ", outside [0, ", size, ")");
}

absl::Status CheckRequest(const v1::Plan& plan,
                          const v1::GetRankPlanRequest& request) {
  Violations bad;
  const auto num_layers = static_cast<uint32_t>(plan.placement().layers_size());
  if (request.dp_slot() >= plan.topology().dp_slots()) {
    bad.Add("dp_slot",
            OutsideOf(request.dp_slot(), plan.topology().dp_slots()));
  }
  if (request.ep_rank() >= plan.topology().ep_ranks()) {
    bad.Add("ep_rank",
            OutsideOf(request.ep_rank(), plan.topology().ep_ranks()));
  }
  absl::flat_hash_set<uint32_t> seen;
  for (int j = 0; j < request.layers_size(); ++j) {
    const uint32_t layer = request.layers(j);
    const std::string field = absl::StrCat("layers[", j, "]");
    if (layer >= num_layers) {
      bad.Add(field, OutsideOf(layer, num_layers));
    } else if (!seen.insert(layer).second) {
      bad.Add(field, absl::StrCat("layer ", layer, " is listed twice"));
    }
  }
  return bad.ToStatus();
}

// The plan is whole, and `current` is a placement of its sizes.
absl::Status CheckPlan(const v1::Plan& plan, const v1::Placement& current) {
  for (const v1::Row& row : plan.layout().rows()) {
    if (static_cast<uint32_t>(row.cells_size()) != plan.topology().dp_slots()) {
      return absl::InternalError("a row of the plan has not D cells");
    }
  }
  const v1::Placement& planned = plan.placement();
  bool same = planned.layers_size() == current.layers_size();
  for (int l = 0; same && l < planned.layers_size(); ++l) {
    same = planned.layers(l).slot_of_expert_size() ==
           current.layers(l).slot_of_expert_size();
  }
  if (same) return absl::OkStatus();
  return absl::InternalError(
      "the current placement has other sizes than the plan's");
}

void AddRows(const v1::Plan& plan, uint32_t slot, v1::RankPlan& result) {
  const v1::Layout& layout = plan.layout();
  const absl::flat_hash_set<uint64_t> fillers(
      layout.filler_sample_ids().begin(), layout.filler_sample_ids().end());
  for (const v1::Row& row : layout.rows()) {
    const v1::Cell& cell = row.cells(static_cast<int>(slot));
    v1::RankRow* out = result.add_rows();
    *out->mutable_sample_ids() = cell.sample_ids();
    out->set_tokens(cell.tokens());
    out->set_row_tokens(row.tokens());
    const auto is_filler = [&](uint64_t id) { return fillers.contains(id); };
    if (std::any_of(cell.sample_ids().begin(), cell.sample_ids().end(),
                    is_filler)) {
      for (const uint64_t id : cell.sample_ids()) {
        out->add_filler(is_filler(id));
      }
    }
  }
}

// Moves of one layer to and from the slots [begin, end) of the rank.
void AddMoves(const v1::LayerPlacement& planned,
              const v1::LayerPlacement& current, uint32_t begin, uint32_t end,
              v1::RankPlan& result) {
  const auto here = [&](uint32_t slot) { return begin <= slot && slot < end; };
  std::vector<v1::ExpertMove> in;
  std::vector<v1::ExpertMove> out;
  for (int e = 0; e < planned.slot_of_expert_size(); ++e) {
    v1::ExpertMove move;
    move.set_layer(planned.layer());
    move.set_expert(static_cast<uint32_t>(e));
    move.set_from_slot(current.slot_of_expert(e));
    move.set_to_slot(planned.slot_of_expert(e));
    if (move.from_slot() == move.to_slot()) continue;
    if (here(move.to_slot())) in.push_back(move);
    if (here(move.from_slot()) && !here(move.to_slot())) out.push_back(move);
  }
  std::sort(in.begin(), in.end(), [](const auto& a, const auto& b) {
    return a.to_slot() < b.to_slot();
  });
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.from_slot() < b.from_slot();
  });
  result.mutable_incoming()->Add(in.begin(), in.end());
  result.mutable_outgoing()->Add(out.begin(), out.end());
}

// Of the stages' rounds, what this rank does in these layers.
class RankRounds {
 public:
  RankRounds(uint32_t begin, uint32_t end, const std::vector<uint32_t>& layers)
      : begin_(begin), end_(end), layers_(layers.begin(), layers.end()) {}

  void Add(const v1::StageTransfer& stage, v1::RankPlan& result) const {
    for (int j = 0; j < stage.rounds_size(); ++j) {
      if (j == result.rounds_size()) result.add_rounds();
      v1::TransferRound& out = *result.mutable_rounds(j);
      AddMine(stage.rounds(j).sends(), out.mutable_sends());
      AddMine(stage.rounds(j).copies(), out.mutable_copies());
    }
    AddMine(stage.final_copies(), result.mutable_final_copies());
    result.set_staging_experts(
        std::max(result.staging_experts(), stage.peak_staging()));
  }

 private:
  using Moves = google::protobuf::RepeatedPtrField<v1::SlotMove>;

  bool Here(uint32_t slot) const { return begin_ <= slot && slot < end_; }
  void AddMine(const Moves& moves, Moves* out) const {
    for (const v1::SlotMove& move : moves) {
      const bool mine = (move.has_from_slot() && Here(move.from_slot())) ||
                        (move.has_to_slot() && Here(move.to_slot()));
      if (mine && layers_.contains(move.layer())) *out->Add() = move;
    }
  }

  const uint32_t begin_;
  const uint32_t end_;
  const absl::flat_hash_set<uint32_t> layers_;
};

// The layers asked for, ascending.
std::vector<uint32_t> LayersOf(const v1::Plan& plan,
                               const v1::GetRankPlanRequest& request) {
  std::vector<uint32_t> layers(request.layers().begin(),
                               request.layers().end());
  if (layers.empty()) {
    layers.resize(plan.placement().layers_size());
    std::iota(layers.begin(), layers.end(), 0);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

}  // namespace

absl::StatusOr<v1::RankPlan> MakeRankPlan(
    const v1::Plan& plan, const v1::Placement& current,
    const v1::GetRankPlanRequest& request) {
  absl::Status status = CheckRequest(plan, request);
  if (status.ok()) status = CheckPlan(plan, current);
  if (!status.ok()) return status;

  v1::RankPlan result;
  *result.mutable_key() = plan.key();
  result.set_placement_version(plan.placement_version());
  result.set_placement_digest(plan.placement_digest());
  result.set_window_tokens(plan.layout().window_tokens());
  AddRows(plan, request.dp_slot(), result);
  const std::vector<uint32_t> layers = LayersOf(plan, request);
  const uint32_t rank_slots =
      static_cast<uint32_t>(plan.placement().layers(0).slot_of_expert_size()) /
      plan.topology().ep_ranks();  // H
  const uint32_t begin = request.ep_rank() * rank_slots;
  const RankRounds rounds(begin, begin + rank_slots, layers);
  for (const v1::StageTransfer& stage : plan.transfer()) {
    rounds.Add(stage, result);
  }
  for (const uint32_t l : layers) {
    const v1::LayerPlacement& layer = plan.placement().layers(l);
    *result.add_layers() = layer;
    AddMoves(layer, current.layers(l), begin, begin + rank_slots, result);
  }
  return result;
}

}  // namespace routepack
