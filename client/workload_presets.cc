// Presets and names. The sizes of each window (samples, lengths, layers,
// experts, ranks, cap) are assumptions about typical jobs; the models behind
// the attention coefficients are assumed too and described below.

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/workload.h"

namespace routepack {
namespace {

constexpr std::array<std::string_view, 4> kPresetNames = {"tiny", "flash",
                                                          "long", "xl"};
// In the order of the enumerations.
constexpr std::array<std::string_view, 9> kImbalanceNames = {
    "topics",         "balanced", "hot-experts",      "hot-rank", "spread-hot",
    "ragged-sources", "empty",    "rotating-hotspot", "bursts"};
constexpr std::array<std::string_view, 4> kLengthKindNames = {
    "constant", "lognormal", "bimodal", "long-tail"};

template <typename Enum, size_t n>
absl::StatusOr<Enum> Parse(std::string_view name, std::string_view what,
                           const std::array<std::string_view, n>& names) {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown ", std::string(what), " \"", std::string(name), "\"; there are ",
      absl::StrJoin(names, ", ", [](std::string* out, std::string_view s) {
        out->append(s);
      })));
}

void AddMla(v1::ModelShape& model, uint32_t layers, uint32_t heads,
            uint32_t q_lora_rank, uint32_t qk_head_dim, uint32_t v_head_dim) {
  v1::AttentionLayers* mla = model.add_attention();
  mla->set_name("mla");
  mla->set_kind(v1::ATTENTION_KIND_MLA);
  mla->set_layers(layers);
  mla->set_num_heads(heads);
  mla->set_q_lora_rank(q_lora_rank);
  mla->set_kv_lora_rank(512);
  mla->set_qk_head_dim(qk_head_dim);
  mla->set_qk_rope_head_dim(64);
  mla->set_v_head_dim(v_head_dim);
}

void AddLinear(v1::ModelShape& model, uint32_t layers, uint32_t heads) {
  v1::AttentionLayers* linear = model.add_attention();
  linear->set_name("linear");
  linear->set_kind(v1::ATTENTION_KIND_LINEAR);
  linear->set_layers(layers);
  linear->set_num_heads(heads);
  linear->set_qk_head_dim(128);
}

v1::ModelShape Experts(uint32_t hidden, uint32_t width, uint32_t moe_layers) {
  v1::ModelShape model;
  model.set_hidden_size(hidden);
  model.set_moe_intermediate_size(width);
  model.set_shared_expert_intermediate_size(width);  // one shared expert
  model.set_num_moe_layers(moe_layers);
  return model;
}

void AddDense(v1::ModelShape& model, uint32_t layers, uint32_t width) {
  model.set_num_dense_layers(layers);
  model.set_dense_intermediate_size(width);
}

// A small hybrid: three linear attention layers to one MLA layer, hidden 2048,
// 16 heads, experts of 512.
WorkloadSpec Tiny() {
  WorkloadSpec spec;
  spec.model = Experts(2048, 512, 20);
  AddLinear(spec.model, 15, 16);
  AddMla(spec.model, 5, 16, 0, 128, 128);
  return spec;
}

// A 100-billion-parameter hybrid: hidden 4096, 32 heads, experts of 1024,
// three linear layers to one MLA layer, one dense layer of 9216.
WorkloadSpec Flash() {
  WorkloadSpec spec;
  spec.num_layers = 40;
  spec.num_experts = 256;
  // 2 EDP shards of 8 slots: ep / tp = 8.
  spec.mesh = {.tp = 2, .ep = 16, .dp = 16};
  spec.model = Experts(4096, 1024, 40);
  AddLinear(spec.model, 31, 32);
  AddMla(spec.model, 10, 32, 0, 128, 128);
  AddDense(spec.model, 1, 9216);
  return spec;
}

// Long chains of thought on a 30-billion-parameter MLA model: hidden 2048, 20
// heads of 192 + 64 and 256, experts of 1536.
WorkloadSpec Long() {
  WorkloadSpec spec;
  spec.num_samples = 1536;
  spec.num_layers = 47;
  spec.num_experts = 64;
  spec.top_k = 4;
  spec.token_cap = 65536;
  spec.lengths.mean = 32000;
  spec.lengths.sigma = 0.4;
  spec.lengths.min_tokens = 256;
  spec.model = Experts(2048, 1536, 47);
  AddMla(spec.model, 47, 20, 768, 192, 256);
  return spec;
}

// A trillion-parameter MLA model: hidden 7168, 64 heads, experts of 2048, one
// dense layer of 18432.
WorkloadSpec Xl() {
  WorkloadSpec spec;
  spec.num_samples = 4096;
  spec.num_layers = 60;
  spec.num_experts = 384;
  spec.token_cap = 16384;
  // 4 EDP shards of 16 slots: ep / tp = 16.
  spec.mesh = {.tp = 4, .ep = 64, .dp = 64};
  spec.lengths.mean = 4000;
  spec.model = Experts(7168, 2048, 60);
  AddMla(spec.model, 61, 64, 1536, 128, 128);
  AddDense(spec.model, 1, 18432);
  return spec;
}

}  // namespace

absl::StatusOr<WorkloadSpec> WorkloadPreset(std::string_view name) {
  enum class Preset { kTiny, kFlash, kLong, kXl };
  absl::StatusOr<Preset> preset = Parse<Preset>(name, "preset", kPresetNames);
  if (!preset.ok()) return preset.status();
  WorkloadSpec spec = *preset == Preset::kTiny    ? Tiny()
                      : *preset == Preset::kFlash ? Flash()
                      : *preset == Preset::kLong  ? Long()
                                                  : Xl();
  spec.name = std::string(name);
  return spec;
}

std::span<const std::string_view> WorkloadPresetNames() { return kPresetNames; }

absl::StatusOr<Imbalance> ParseImbalance(std::string_view name) {
  return Parse<Imbalance>(name, "shape", kImbalanceNames);
}

absl::StatusOr<LengthKind> ParseLengthKind(std::string_view name) {
  return Parse<LengthKind>(name, "length distribution", kLengthKindNames);
}

std::span<const std::string_view> ImbalanceNames() { return kImbalanceNames; }

std::span<const std::string_view> LengthKindNames() { return kLengthKindNames; }

}  // namespace routepack
