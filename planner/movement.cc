#include "planner/movement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "oneapi/tbb/parallel_for.h"
#include "planner/errors.h"
#include "planner/pipeline.h"

namespace routepack {
namespace {

constexpr double kMaxInterNodeCost = 1024;
constexpr double kMaxTotalCost = 0x1.0p61;
constexpr uint64_t kMaxGpus = uint64_t{1} << 22;
// Entries of a table: beyond it, values are computed when asked for.
constexpr uint64_t kMaxTable = uint64_t{1} << 22;

uint64_t Elements(const MovementSpec& spec) {
  uint64_t elements = 0;
  for (const ExpertParameter& parameter : spec.buffer.parameters) {
    elements += parameter.elements;
  }
  return elements;
}

void CheckKinds(const MovementSpec& spec, const std::string& field,
                Violations& bad) {
  const uint64_t elements = Elements(spec);
  for (size_t j = 0; j < spec.kinds.size(); ++j) {
    const StateKind& kind = spec.kinds[j];
    const std::string path = absl::StrCat(field, ".kinds[", j, "].bytes");
    if (kind.bytes == 0 || kind.bytes > LaneLayout::kMaxElements * 16) {
      bad.Add(path,
              absl::StrCat("must be in [1, ", LaneLayout::kMaxElements * 16,
                           "], is ", kind.bytes));
    } else if (kind.lane_owned &&
               (elements == 0 || kind.bytes % elements != 0)) {
      bad.Add(path, absl::StrCat("is owned by EDP lanes and must be a multiple "
                                 "of the expert's ",
                                 elements, " elements, is ", kind.bytes));
    }
  }
}

void CheckSizes(const MovementSpec& spec, const std::string& field,
                Violations& bad) {
  const auto check = [&](const char* name, uint32_t value, uint32_t max) {
    if (value >= 1 && value <= max) return;
    bad.Add(absl::StrCat(field, ".", name),
            absl::StrCat("must be in [1, ", max, "], is ", value));
  };
  check("num_layers", spec.num_layers, 1u << 12);
  check("num_shards", spec.num_shards, 1u << 16);
  check("num_ranks", spec.num_ranks, 1u << 14);
  check("slots_per_rank", spec.slots_per_rank, 1u << 16);
  check("gpus_per_rank", spec.gpus_per_rank, 1u << 16);
  const auto check_length = [&](const char* name, size_t length, size_t want) {
    if (length == 0 || length == want) return;
    bad.Add(absl::StrCat(field, ".", name),
            absl::StrCat("must have ", want, " entries or none, has ", length));
  };
  check_length("stage_of_layer", spec.stage_of_layer.size(), spec.num_layers);
  check_length("node_of_rank", spec.node_of_rank.size(),
               size_t{spec.num_shards} * spec.num_ranks);
  const uint32_t last_stage =
      spec.stage_of_layer.empty()
          ? 0
          : *std::ranges::max_element(spec.stage_of_layer);
  if (last_stage >= kMaxStages) {
    bad.Add(absl::StrCat(field, ".stage_of_layer"),
            absl::StrCat("stages must be below ", kMaxStages, ", one is ",
                         last_stage));
  } else if (uint64_t{spec.num_shards} * spec.num_ranks >
             kMaxGpus / (last_stage + 1)) {
    bad.Add(absl::StrCat(field, ".num_shards"),
            absl::StrCat("there must be at most ", kMaxGpus, " GPUs; ",
                         spec.num_shards, " shards of ", spec.num_ranks,
                         " EP ranks in ", last_stage + 1, " stages are more"));
  }
}

void CheckRates(const MovementSpec& spec, const std::string& field,
                Violations& bad) {
  const auto check = [&](const char* name, double value, double max) {
    if (value >= 0 && value <= max) return;  // not for NaN
    bad.Add(absl::StrCat(field, ".", name),
            absl::StrCat("must be in [0, ", max, "], is ", value));
  };
  check("inter_node_cost", spec.inter_node_cost, kMaxInterNodeCost);
  check("intra_node_bandwidth", spec.intra_node_bandwidth, 1e18);
  check("inter_node_bandwidth", spec.inter_node_bandwidth, 1e18);
  check("node_bandwidth", spec.node_bandwidth, 1e18);
  check("seconds_per_assignment", spec.seconds_per_assignment, 1e3);
}

void CheckTotal(const MovementSpec& spec, const std::string& field,
                Violations& bad) {
  double bytes = 0;
  for (const StateKind& kind : spec.kinds) {
    bytes += static_cast<double>(kind.bytes) *
             (kind.lane_owned ? 2.0 : spec.num_shards);  // two steps
  }
  const double experts = static_cast<double>(spec.num_layers) * spec.num_ranks *
                         spec.slots_per_rank;
  const double total = bytes * experts * spec.gpus_per_rank *
                       MovementModel::kCostUnit *
                       std::max(1.0, spec.inter_node_cost);
  if (total < kMaxTotalCost) return;
  bad.Add(absl::StrCat(field, ".kinds"),
          absl::StrCat("moving all ", experts, " experts would cost ", total,
                       " sixteenths of a weighted byte; at most 2^61 can be "
                       "counted"));
}

// Chunks count within a pipeline stage; afterwards within the model.
void NumberChunks(MovementSpec& spec) {
  std::vector<uint32_t>& chunks = spec.buffer.chunk_of_layer;
  if (spec.stage_of_layer.empty()) return;
  if (chunks.empty()) chunks.assign(spec.num_layers, 0);
  if (chunks.size() != spec.stage_of_layer.size()) return;  // refused later
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
  for (size_t l = 0; l < chunks.size(); ++l) {
    chunks[l] = numbers
                    .try_emplace({spec.stage_of_layer[l], chunks[l]},
                                 static_cast<uint32_t>(numbers.size()))
                    .first->second;
  }
}

}  // namespace

MovementSpec DescribeExperts(uint64_t parameters, double flop_per_second) {
  MovementSpec spec;
  const uint64_t fc2 = parameters / 3;
  spec.buffer.parameters.push_back({.elements = parameters - fc2});
  if (fc2 > 0) spec.buffer.parameters.push_back({.elements = fc2});
  spec.kinds = {{.name = "weights", .bytes = 2 * parameters},
                {.name = "master", .bytes = 4 * parameters, .lane_owned = true},
                {"exp_avg", 4 * parameters, true},
                {"exp_avg_sq", 4 * parameters, true}};
  spec.seconds_per_assignment =
      6.0 * static_cast<double>(parameters) / flop_per_second;
  return spec;
}

std::vector<uint32_t> NodesOfConsecutiveRanks(uint32_t num_shards,
                                              uint32_t num_ranks,
                                              uint32_t gpus_per_rank,
                                              uint32_t ranks_per_node) {
  std::vector<uint32_t> nodes;
  nodes.reserve(size_t{num_shards} * num_ranks);
  for (uint64_t j = 0; j < uint64_t{num_shards} * num_ranks; ++j) {
    nodes.push_back(static_cast<uint32_t>(j * gpus_per_rank / ranks_per_node));
  }
  return nodes;
}

absl::StatusOr<MovementModel> MovementModel::Create(MovementSpec spec,
                                                    std::string_view prefix) {
  const std::string field(prefix);
  if (spec.kinds.empty()) spec.kinds = {{.name = "expert", .bytes = 1}};
  Violations bad;
  CheckSizes(spec, field, bad);
  CheckKinds(spec, field, bad);
  CheckRates(spec, field, bad);
  if (bad.empty()) CheckTotal(spec, field, bad);
  if (!bad.empty()) return bad.ToStatus();
  if (spec.node_of_rank.empty() && spec.ranks_per_node > 0) {
    spec.node_of_rank =
        NodesOfConsecutiveRanks(spec.num_shards, spec.num_ranks,
                                spec.gpus_per_rank, spec.ranks_per_node);
  }

  const auto owned =
      std::any_of(spec.kinds.begin(), spec.kinds.end(),
                  [](const StateKind& kind) { return kind.lane_owned; });
  MovementModel model(std::move(spec));
  if (owned) {
    MovementSpec& own = model.spec_;
    NumberChunks(own);
    absl::StatusOr<LaneLayout> lanes =
        own.lane_ranges.empty()
            ? LaneLayout::FromBuffer(own.buffer, own.num_layers,
                                     own.slots_per_rank, own.num_shards,
                                     absl::StrCat(field, ".buffer"))
            : LaneLayout::FromRanges(own.lane_ranges, Elements(own),
                                     own.num_layers, own.slots_per_rank,
                                     own.num_shards,
                                     absl::StrCat(field, ".lane_ranges"));
    if (!lanes.ok()) return lanes.status();
    model.lanes_ = *std::move(lanes);
  }
  model.Prepare();
  return model;
}

void MovementModel::Prepare() {
  const uint32_t num_shards = spec_.num_shards;
  const uint32_t num_ranks = spec_.num_ranks;
  inter_cost_ =
      std::llround(static_cast<double>(kCostUnit) * spec_.inter_node_cost);
  for (const uint32_t stage : spec_.stage_of_layer) {
    num_stages_ = std::max(num_stages_, stage + 1);
  }
  for (const StateKind& kind : spec_.kinds) {
    const uint64_t bytes = kind.lane_owned ? kind.bytes / Elements(spec_) : 0;
    element_bytes_.push_back(bytes);
    owned_bytes_ += bytes;
    if (!kind.lane_owned) replicated_bytes_ += kind.bytes;
  }
  nodes_.assign(size_t{num_ranks} * num_shards, 0);
  for (size_t j = 0; j < spec_.node_of_rank.size(); ++j) {
    nodes_[j % num_ranks * num_shards + j / num_ranks] = spec_.node_of_rank[j];
  }
  if (uint64_t{num_ranks} * num_ranks <= kMaxTable) {
    same_node_.resize(size_t{num_ranks} * num_ranks);
    tbb::parallel_for(uint32_t{0}, num_ranks, [&](uint32_t p) {
      for (uint32_t q = 0; q < num_ranks; ++q) {
        same_node_[size_t{p} * num_ranks + q] = CountSameNode(p, q);
      }
    });
  }
  PrepareClasses();
}

void MovementModel::PrepareClasses() {
  const uint32_t slots = spec_.slots_per_rank;
  std::map<std::vector<uint32_t>, uint32_t> classes;
  for (uint32_t p = 0; p < spec_.num_ranks; ++p) {
    // Nodes by order of appearance.
    std::map<uint32_t, uint32_t> index;
    std::vector<uint32_t> pattern;
    for (uint32_t g = 0; g < spec_.num_shards; ++g) {
      const auto next = static_cast<uint32_t>(index.size());
      pattern.push_back(index.try_emplace(node(g, p), next).first->second);
    }
    const auto next = static_cast<uint32_t>(classes.size());
    const auto [found, added] = classes.try_emplace(std::move(pattern), next);
    if (added) class_member_.push_back(p);
    class_of_rank_.push_back(found->second);
  }
  slots_differ_.assign(spec_.num_layers, 0);
  if (owned_bytes_ == 0) return;
  for (uint32_t l = 0; l < spec_.num_layers; ++l) {
    for (uint32_t h = 1; h < slots && !slots_differ_[l]; ++h) {
      slots_differ_[l] =
          !std::ranges::equal(lanes_.pieces(l, 0), lanes_.pieces(l, h));
    }
  }
  const uint64_t num_classes = class_member_.size();
  const uint64_t rows = spec_.num_layers * num_classes;
  if (rows * slots > kMaxTable / slots) return;
  repartition_.resize(rows * slots * slots);
  tbb::parallel_for(uint64_t{0}, rows, [&](uint64_t row) {
    const auto l = static_cast<uint32_t>(row / num_classes);
    if (!slots_differ_[l]) return;
    int64_t* cost = repartition_.data() + row * slots * slots;
    for (uint32_t h = 0; h < slots; ++h) {
      for (uint32_t to = 0; to < slots; ++to) {
        *cost++ =
            ComputeRepartition(l, class_member_[row % num_classes], h, to);
      }
    }
  });
}

uint32_t MovementModel::CountSameNode(uint32_t p, uint32_t q) const {
  const uint32_t* a = nodes_.data() + size_t{p} * spec_.num_shards;
  const uint32_t* b = nodes_.data() + size_t{q} * spec_.num_shards;
  uint32_t count = 0;
  for (uint32_t g = 0; g < spec_.num_shards; ++g) count += a[g] == b[g];
  return count;
}

uint32_t MovementModel::SameNodeLanes(uint32_t p, uint32_t q) const {
  if (same_node_.empty()) return CountSameNode(p, q);
  return same_node_[size_t{p} * spec_.num_ranks + q];
}

int64_t MovementModel::ComputeRepartition(uint32_t l, uint32_t p,
                                          uint32_t from_h,
                                          uint32_t to_h) const {
  int64_t weighted = 0;
  lanes_.ForEachCrossing(
      l, from_h, to_h, [&](uint32_t a, uint32_t b, uint64_t elements) {
        const int64_t unit = node(a, p) == node(b, p) ? kCostUnit : inter_cost_;
        weighted += unit * static_cast<int64_t>(elements);
      });
  return weighted * static_cast<int64_t>(owned_bytes_) * spec_.gpus_per_rank;
}

int64_t MovementModel::RepartitionCost(uint32_t l, uint32_t p, uint32_t from_h,
                                       uint32_t to_h) const {
  if (!slots_differ_[l] || from_h == to_h) return 0;
  if (repartition_.empty()) return ComputeRepartition(l, p, from_h, to_h);
  const size_t slots = spec_.slots_per_rank;
  const size_t row = size_t{l} * class_member_.size() + class_of_rank_[p];
  return repartition_[(row * slots + from_h) * slots + to_h];
}

int64_t MovementModel::SendCost(uint32_t l, uint32_t from_slot,
                                uint32_t to_rank) const {
  const uint32_t p = from_slot / spec_.slots_per_rank;
  if (p == to_rank) return 0;
  const auto same = static_cast<int64_t>(SameNodeLanes(p, to_rank));
  const int64_t other = spec_.num_shards - same;
  int64_t weighted = (same * kCostUnit + other * inter_cost_) *
                     static_cast<int64_t>(replicated_bytes_);
  if (owned_bytes_ != 0) {
    int64_t elements = 0;
    for (const LaneLayout::Share& share :
         lanes_.shares(l, from_slot % spec_.slots_per_rank)) {
      elements +=
          (node(share.lane, p) == node(share.lane, to_rank) ? kCostUnit
                                                            : inter_cost_) *
          static_cast<int64_t>(share.elements);
    }
    weighted += elements * static_cast<int64_t>(owned_bytes_);
  }
  return weighted * spec_.gpus_per_rank;
}

int64_t MovementModel::MoveCost(uint32_t l, uint32_t from_slot,
                                uint32_t to_slot) const {
  if (from_slot == to_slot) return 0;
  const uint32_t slots = spec_.slots_per_rank;
  const uint32_t q = to_slot / slots;
  return SendCost(l, from_slot, q) +
         RepartitionCost(l, q, from_slot % slots, to_slot % slots);
}

}  // namespace routepack
