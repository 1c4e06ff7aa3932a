#include "planner/movement_report.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>
#include <map>

namespace routepack {
namespace {

uint64_t PeakSum(const Placement& placement,
                 std::span<const uint64_t> expert_loads) {
  const std::vector<uint64_t> loads = RankLoads(placement, expert_loads);
  uint64_t sum = 0;
  for (uint32_t l = 0; l < placement.num_layers; ++l) {
    const auto begin = loads.begin() + size_t{l} * placement.num_ranks;
    sum += *std::max_element(begin, begin + placement.num_ranks);
  }
  return sum;
}

double BreakEvenSteps(const MovementReport& report) {
  if (report.transfer_seconds <= 0) return 0;
  if (report.saved_seconds <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return report.transfer_seconds / report.saved_seconds;
}

}  // namespace

bool KnowsTimes(const MovementModel& model) {
  const MovementSpec& spec = model.spec();
  return spec.seconds_per_assignment > 0 && spec.intra_node_bandwidth > 0 &&
         spec.inter_node_bandwidth > 0;
}

double SavedSeconds(const MovementModel& model, int64_t load) {
  const MovementSpec& spec = model.spec();
  return static_cast<double>(load) * spec.seconds_per_assignment /
         spec.num_shards;
}

MovementReport ReportMovement(const MovementModel& model, const Placement& from,
                              const Placement& to,
                              std::span<const uint64_t> expert_loads) {
  assert(from.num_experts == model.num_experts());
  MovementReport report;
  report.change = ComparePlacements(from, to);
  LinkLoads links(model);
  int64_t cost = 0;
  for (size_t j = 0; j < to.slot_of_expert.size(); ++j) {
    const auto l = static_cast<uint32_t>(j / to.num_experts);
    const uint32_t old_slot = from.slot_of_expert[j];
    const uint32_t new_slot = to.slot_of_expert[j];
    if (old_slot == new_slot) continue;
    links.Add(l, old_slot, new_slot);
    cost += model.MoveCost(l, old_slot, new_slot);
  }
  report.kind_bytes.assign(links.kind_bytes().begin(),
                           links.kind_bytes().end());
  report.intra_node_bytes = links.intra_node_bytes();
  report.inter_node_bytes = links.inter_node_bytes();
  report.weighted_bytes = static_cast<double>(cost) / MovementModel::kCostUnit;
  report.peak_sum_before = PeakSum(from, expert_loads);
  report.peak_sum_after = PeakSum(to, expert_loads);
  if (KnowsTimes(model)) {
    report.transfer_seconds = links.Seconds();
    report.saved_seconds = SavedSeconds(
        model,
        static_cast<int64_t>(report.peak_sum_before - report.peak_sum_after));
    report.break_even_steps = BreakEvenSteps(report);
  }
  return report;
}

LinkLoads::LinkLoads(const MovementModel& model)
    : model_(model), kind_bytes_(model.spec().kinds.size(), 0) {
  const MovementSpec& spec = model.spec();
  std::map<uint32_t, uint32_t> index;
  node_index_.reserve(size_t{spec.num_shards} * spec.num_ranks);
  for (uint32_t g = 0; g < spec.num_shards; ++g) {
    for (uint32_t p = 0; p < spec.num_ranks; ++p) {
      const auto next = static_cast<uint32_t>(index.size());
      node_index_.push_back(
          index.try_emplace(model.node(g, p), next).first->second);
    }
  }
  num_nodes_ = static_cast<uint32_t>(index.size());
  const size_t gpus = size_t{model.num_stages()} * node_index_.size();
  bytes_[kIntra].assign(2 * gpus, 0);
  bytes_[kInter].assign(2 * gpus, 0);
  bytes_[kNode].assign(2 * size_t{model.num_stages()} * num_nodes_, 0);
}

void LinkLoads::Add(uint32_t l, uint32_t from_slot, uint32_t to_slot) {
  Change(l, from_slot, to_slot, true);
}

void LinkLoads::Remove(uint32_t l, uint32_t from_slot, uint32_t to_slot) {
  Change(l, from_slot, to_slot, false);
}

void LinkLoads::Put(Tier tier, size_t link, bool in, uint64_t bytes, bool add) {
  uint64_t& load = bytes_[tier][2 * link + (in ? 1 : 0)];
  if (add) {
    load += bytes;
    busiest_[tier] = std::max(busiest_[tier], load);
  } else {
    stale_[tier] = stale_[tier] || load == busiest_[tier];
    load -= bytes;
  }
}

void LinkLoads::Change(uint32_t l, uint32_t from_slot, uint32_t to_slot,
                       bool add) {
  const uint64_t num_ranks = model_.spec().num_ranks;
  const uint64_t copies = model_.spec().gpus_per_rank;
  const size_t stage = model_.stage_of_layer(l);
  const auto account = [add](uint64_t& sum, uint64_t bytes) {
    sum = add ? sum + bytes : sum - bytes;
  };
  model_.ForEachFlow(l, from_slot, to_slot, [&](const Flow& flow) {
    const size_t from = flow.from_shard * num_ranks + flow.from_rank;
    const size_t to = flow.to_shard * num_ranks + flow.to_rank;
    const bool inside = node_index_[from] == node_index_[to];
    account(kind_bytes_[flow.kind], flow.bytes * copies);
    account(inside ? intra_node_bytes_ : inter_node_bytes_,
            flow.bytes * copies);
    const size_t first_gpu = stage * node_index_.size();
    const Tier tier = inside ? kIntra : kInter;
    Put(tier, first_gpu + from, false, flow.bytes, add);
    Put(tier, first_gpu + to, true, flow.bytes, add);
    if (inside) return;
    const size_t first_node = stage * num_nodes_;
    Put(kNode, first_node + node_index_[from], false, flow.bytes * copies, add);
    Put(kNode, first_node + node_index_[to], true, flow.bytes * copies, add);
  });
}

double LinkLoads::Seconds() {
  const MovementSpec& spec = model_.spec();
  const std::array<double, 3> bandwidth = {spec.intra_node_bandwidth,
                                           spec.inter_node_bandwidth,
                                           spec.node_bandwidth};
  double seconds = 0;
  for (const Tier tier : {kIntra, kInter, kNode}) {
    if (bandwidth[tier] <= 0) continue;
    if (stale_[tier]) {
      busiest_[tier] = *std::ranges::max_element(bytes_[tier]);
      stale_[tier] = false;
    }
    seconds = std::max(seconds,
                       static_cast<double>(busiest_[tier]) / bandwidth[tier]);
  }
  return seconds;
}

}  // namespace routepack
