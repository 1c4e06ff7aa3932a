#include "planner/attention.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/errors.h"

namespace routepack {
namespace {

constexpr char kModelField[] = "header.attention.model";

void CheckPositive(const std::string& field, uint32_t value, Violations& bad) {
  if (value == 0) bad.Add(field, "must be at least 1, is 0");
}

void CheckLayers(const AttentionLayers& group, size_t index, Violations& bad) {
  const auto check = [&](const char* name, uint32_t value) {
    CheckPositive(absl::StrCat(kModelField, ".attention[", index, "].", name),
                  value, bad);
  };
  check("layers", group.layers);
  check("num_heads", group.num_heads);
  check("qk_head_dim", group.qk_head_dim);
  if (group.kind == AttentionKind::kMla) {
    check("kv_lora_rank", group.kv_lora_rank);
  }
  if (group.kind == AttentionKind::kSlidingWindow) {
    check("window", group.window);
  }
}

Violations CheckShape(const ModelShape& shape, uint32_t token_cap) {
  Violations bad;
  const auto check = [&](const char* name, uint32_t value) {
    CheckPositive(absl::StrCat(kModelField, ".", name), value, bad);
  };
  check("hidden_size", shape.hidden_size);
  check("moe_intermediate_size", shape.moe_intermediate_size);
  for (size_t j = 0; j < shape.attention.size(); ++j) {
    CheckLayers(shape.attention[j], j, bad);
  }
  if (shape.shared_expert_intermediate_size > 0) {
    check("num_moe_layers", shape.num_moe_layers);
  }
  if (shape.num_dense_layers > 0) {
    check("dense_intermediate_size", shape.dense_intermediate_size);
  }
  check("tp", shape.tp);
  check("cp", shape.cp);
  check("etp", shape.etp);
  CheckPositive("header.token_cap", token_cap, bad);
  return bad;
}

// Multiply-accumulates of one layer on all GPUs of a DP slot.
struct LayerMacs {
  double per_token = 0;
  double per_pair = 0;  // of t^2
};

LayerMacs MacsOf(const AttentionLayers& group, double hidden) {
  const double heads = group.num_heads;
  const double kv_heads =
      group.num_kv_heads > 0 ? group.num_kv_heads : group.num_heads;
  const double qk = group.qk_head_dim;
  const double v = group.v_head_dim > 0 ? group.v_head_dim : group.qk_head_dim;
  const double out = heads * v * hidden;
  if (group.kind == AttentionKind::kMla) {
    const double rope = group.qk_rope_head_dim;
    const double q_rank = group.q_lora_rank;
    const double kv_rank = group.kv_lora_rank;
    const double q = q_rank > 0 ? (hidden + heads * (qk + rope)) * q_rank
                                : hidden * heads * (qk + rope);
    const double kv = hidden * (kv_rank + rope) + kv_rank * heads * (qk + v);
    return {q + kv + out, heads * (qk + rope + v) / 2};
  }
  const double projections = hidden * (heads * qk + kv_heads * (qk + v)) + out;
  switch (group.kind) {
    case AttentionKind::kLinear:
      return {projections + 2 * heads * qk * v, 0};
    case AttentionKind::kSlidingWindow:
      return {projections + heads * (qk + v) * group.window, 0};
    default:
      return {projections, heads * (qk + v) / 2};
  }
}

}  // namespace

absl::StatusOr<std::vector<AttentionStage>> DeriveAttention(
    const ModelShape& shape, uint32_t token_cap) {
  const Violations bad = CheckShape(shape, token_cap);
  if (!bad.empty()) return bad.ToStatus();

  const double hidden = shape.hidden_size;
  const double assignment =
      3 * hidden * shape.moe_intermediate_size / shape.etp;
  // Cost units of one multiply-accumulate per slot, shared by its GPUs.
  const double unit =
      1 / (assignment * static_cast<double>(shape.tp) * shape.cp);
  std::vector<AttentionStage> stages;
  for (const AttentionLayers& group : shape.attention) {
    const LayerMacs macs = MacsOf(group, hidden);
    stages.push_back({group.name, group.layers * macs.per_token * unit,
                      group.layers * macs.per_pair * unit * token_cap});
  }
  const double dense_width =
      static_cast<double>(shape.shared_expert_intermediate_size) *
          shape.num_moe_layers +
      static_cast<double>(shape.dense_intermediate_size) *
          shape.num_dense_layers;
  if (dense_width > 0) {
    stages.push_back({"dense", 3 * hidden * dense_width * unit, 0});
  }
  return stages;
}

}  // namespace routepack
