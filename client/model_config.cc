#include "client/model_config.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace routepack {
namespace {

using ::google::protobuf::Struct;
using ::google::protobuf::Value;

// The keys of a config. Model families name the same size differently, so a
// size is looked up under several keys; null counts as absent, as in
// transformers. The first error is kept.
class Keys {
 public:
  explicit Keys(const Struct& config) : config_(config) {}

  const Value* Find(const std::string& key) const {
    const auto it = config_.fields().find(key);
    if (it == config_.fields().end() || it->second.has_null_value()) {
      return nullptr;
    }
    return &it->second;
  }
  bool Has(const std::string& key) const { return Find(key) != nullptr; }

  // The first key that is there, as an integer of 32 bits, else `otherwise`.
  uint32_t Get(std::initializer_list<const char*> keys, uint32_t otherwise) {
    return Lookup(keys).value_or(otherwise);
  }
  // The same, an error if none is there or it is zero.
  uint32_t Require(std::initializer_list<const char*> keys) {
    const std::optional<uint32_t> value = Lookup(keys);
    if (value.value_or(0) == 0) {
      Fail(absl::StrCat(absl::StrJoin(keys, " or "),
                        value.has_value() ? " is 0" : " is missing"));
    }
    return value.value_or(0);
  }
  std::string Text(const std::string& key) const {
    const Value* value = Find(key);
    return value == nullptr ? "" : value->string_value();
  }
  bool Flag(const std::string& key, bool otherwise) const {
    const Value* value = Find(key);
    return value == nullptr ? otherwise : value->bool_value();
  }
  // A list of integers; empty if absent.
  std::vector<uint32_t> Integers(const std::string& key) {
    std::vector<uint32_t> result;
    const Value* value = Find(key);
    if (value == nullptr) return result;
    if (!value->has_list_value()) Fail(absl::StrCat(key, " is not a list"));
    for (const Value& item : value->list_value().values()) {
      result.push_back(ToInteger(key, item).value_or(0));
    }
    return result;
  }
  std::vector<std::string> Texts(const std::string& key) const {
    std::vector<std::string> result;
    const Value* value = Find(key);
    if (value == nullptr) return result;
    for (const Value& item : value->list_value().values()) {
      result.push_back(item.string_value());
    }
    return result;
  }

  void Fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  const std::string& error() const { return error_; }

 private:
  std::optional<uint32_t> Lookup(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (const Value* value = Find(key)) return ToInteger(key, *value);
    }
    return std::nullopt;
  }
  std::optional<uint32_t> ToInteger(const std::string& key,
                                    const Value& value) {
    const double number = value.number_value();
    if (!value.has_number_value() || !(number >= 0) ||
        number > std::numeric_limits<uint32_t>::max() ||
        number != static_cast<uint32_t>(number)) {
      Fail(absl::StrCat(key, " is not a whole number in 32 bits"));
      return std::nullopt;
    }
    return static_cast<uint32_t>(number);
  }

  const Struct& config_;
  std::string error_;
};

enum class LayerType { kFull, kLinear, kSliding };

// Where a decoder layer has its type from, most specific first: layer_types
// (transformers), linear_attn_config (Kimi Linear, counted from 1),
// layer_group_size (Bailing: the last of each group is full, and so are layers
// beyond the last whole group), full_attention_interval (Qwen3-Next),
// use_sliding_window (Qwen).
std::vector<LayerType> LayerTypes(Keys& keys, uint32_t layers) {
  std::vector<LayerType> types(layers, LayerType::kFull);
  if (keys.Has("layer_types")) {
    const std::vector<std::string> names = keys.Texts("layer_types");
    if (names.size() != layers) {
      keys.Fail(absl::StrCat("layer_types has ", names.size(), " entries for ",
                             layers, " layers"));
      return types;
    }
    for (uint32_t i = 0; i < layers; ++i) {
      if (names[i] == "linear_attention") {
        types[i] = LayerType::kLinear;
      } else if (names[i] == "sliding_attention") {
        types[i] = LayerType::kSliding;
      } else if (names[i] != "full_attention") {
        keys.Fail(absl::StrCat("layer_types has the unknown type \"", names[i],
                               "\""));
      }
    }
    return types;
  }
  if (const Value* linear = keys.Find("linear_attn_config")) {
    Keys inner(linear->struct_value());
    for (const uint32_t layer : inner.Integers("kda_layers")) {
      if (layer < 1 || layer > layers) {
        keys.Fail(absl::StrCat("linear_attn_config.kda_layers names layer ",
                               layer, " of ", layers));
        return types;
      }
      types[layer - 1] = LayerType::kLinear;
    }
    if (!inner.error().empty()) keys.Fail(inner.error());
    return types;
  }
  if (const uint32_t group = keys.Get({"layer_group_size"}, 0); group > 0) {
    for (uint32_t i = 0; i < layers / group * group; ++i) {
      if ((i + 1) % group != 0) types[i] = LayerType::kLinear;
    }
    return types;
  }
  const uint32_t interval = keys.Get({"full_attention_interval"}, 0);
  for (uint32_t i = 0; interval > 0 && i < layers; ++i) {
    if ((i + 1) % interval != 0) types[i] = LayerType::kLinear;
  }
  if (keys.Flag("use_sliding_window", false)) {
    const uint32_t full = keys.Get({"max_window_layers"}, 0);
    for (uint32_t i = full; i < layers; ++i) types[i] = LayerType::kSliding;
  }
  return types;
}

void FillFull(Keys& keys, v1::AttentionLayers& out) {
  const uint32_t heads = keys.Require({"num_attention_heads"});
  out.set_num_heads(heads);
  if (keys.Has("kv_lora_rank")) {
    out.set_name("mla");
    out.set_kind(v1::ATTENTION_KIND_MLA);
    out.set_kv_lora_rank(keys.Require({"kv_lora_rank"}));
    out.set_q_lora_rank(keys.Get({"q_lora_rank"}, 0));
    out.set_qk_head_dim(keys.Require({"qk_nope_head_dim"}));
    out.set_qk_rope_head_dim(keys.Get({"qk_rope_head_dim"}, 0));
    out.set_v_head_dim(keys.Require({"v_head_dim"}));
    return;
  }
  out.set_name("full");
  out.set_kind(v1::ATTENTION_KIND_FULL);
  out.set_num_kv_heads(keys.Get({"num_key_value_heads"}, heads));
  const uint32_t hidden = keys.Require({"hidden_size"});
  out.set_qk_head_dim(keys.Get({"head_dim"}, heads == 0 ? 0 : hidden / heads));
}

void FillSliding(Keys& keys, v1::AttentionLayers& out) {
  FillFull(keys, out);
  if (out.kind() != v1::ATTENTION_KIND_FULL) {
    keys.Fail("sliding-window layers with kv_lora_rank are not known");
    return;
  }
  out.set_name("sliding");
  out.set_kind(v1::ATTENTION_KIND_SLIDING_WINDOW);
  out.set_window(keys.Require({"sliding_window"}));
}

void FillLinear(Keys& keys, v1::AttentionLayers& out) {
  out.set_name("linear");
  out.set_kind(v1::ATTENTION_KIND_LINEAR);
  if (const Value* kda = keys.Find("linear_attn_config")) {
    Keys inner(kda->struct_value());
    out.set_num_heads(inner.Require({"num_heads"}));
    out.set_qk_head_dim(inner.Require({"head_dim"}));
    if (!inner.error().empty()) {
      keys.Fail(absl::StrCat("linear_attn_config.", inner.error()));
    }
    return;
  }
  if (keys.Has("linear_num_value_heads")) {
    // Gated DeltaNet: query and key heads are shared by several value heads,
    // and there is an output gate as wide as the values. With half as many
    // key heads as value heads (Qwen3-Next), queries and keys together are as
    // wide as the values, so "queries, keys, values" of value-head count stand
    // for queries plus keys, gate, values: the same work.
    out.set_num_heads(keys.Require({"linear_num_value_heads"}));
    out.set_qk_head_dim(keys.Require({"linear_key_head_dim"}));
    out.set_v_head_dim(keys.Require({"linear_value_head_dim"}));
    return;
  }
  // Lightning attention: every head has its own keys and values.
  const uint32_t heads = keys.Require({"num_attention_heads"});
  out.set_num_heads(heads);
  out.set_qk_head_dim(keys.Get(
      {"head_dim"}, heads == 0 ? 0 : keys.Require({"hidden_size"}) / heads));
}

// Which decoder layers have experts: mlp_layer_types (transformers),
// first_k_dense_replace with moe_layer_freq (DeepSeek, Bailing, Kimi; some list
// a 0 or 1 per layer), decoder_sparse_step with mlp_only_layers (Qwen).
uint32_t CountMoeLayers(Keys& keys, uint32_t layers) {
  if (keys.Has("mlp_layer_types")) {
    const std::vector<std::string> types = keys.Texts("mlp_layer_types");
    if (types.size() != layers) {
      keys.Fail(absl::StrCat("mlp_layer_types has ", types.size(),
                             " entries for ", layers, " layers"));
    }
    return static_cast<uint32_t>(
        std::count(types.begin(), types.end(), "sparse"));
  }
  if (const Value* each = keys.Find("moe_layer_freq");
      each != nullptr && each->has_list_value()) {
    const std::vector<uint32_t> listed = keys.Integers("moe_layer_freq");
    return static_cast<uint32_t>(listed.size() -
                                 std::count(listed.begin(), listed.end(), 0u));
  }
  const uint32_t dense = keys.Get({"first_k_dense_replace"}, 0);
  const uint32_t frequency = std::max(keys.Get({"moe_layer_freq"}, 1), 1u);
  const uint32_t step = std::max(keys.Get({"decoder_sparse_step"}, 1), 1u);
  const std::vector<uint32_t> only_dense = keys.Integers("mlp_only_layers");
  uint32_t moe = 0;
  for (uint32_t i = dense; i < layers; ++i) {
    const bool listed =
        std::find(only_dense.begin(), only_dense.end(), i) != only_dense.end();
    moe += i % frequency == 0 && (i + 1) % step == 0 && !listed;
  }
  return moe;
}

// Sum of the inner widths of the shared experts. Qwen gives it whole, others
// the number of experts, of the routed experts' width unless said otherwise.
uint32_t SharedWidth(Keys& keys, uint32_t expert_width) {
  if (keys.Has("shared_expert_intermediate_size")) {
    return keys.Get({"shared_expert_intermediate_size"}, 0);
  }
  const uint64_t experts =
      keys.Get({"n_shared_experts", "num_shared_experts"}, 0);
  const uint64_t width =
      experts * keys.Get({"moe_shared_expert_intermediate_size"}, expert_width);
  if (width > std::numeric_limits<uint32_t>::max()) {
    keys.Fail("the shared experts are too wide");
    return 0;
  }
  return static_cast<uint32_t>(width);
}

void FillAttention(Keys& keys, uint32_t layers, v1::ModelShape& shape) {
  std::map<LayerType, uint32_t> numbers;
  for (const LayerType type : LayerTypes(keys, layers)) ++numbers[type];
  for (const auto& [type, number] : numbers) {
    v1::AttentionLayers* out = shape.add_attention();
    out->set_layers(number);
    switch (type) {
      case LayerType::kFull:
        FillFull(keys, *out);
        break;
      case LayerType::kLinear:
        FillLinear(keys, *out);
        break;
      case LayerType::kSliding:
        FillSliding(keys, *out);
        break;
    }
  }
}

ModelConfig Parse(Keys& keys) {
  ModelConfig config;
  // Guards the loops over layers, and the window's own limit.
  constexpr uint32_t kMostLayers = 4096;
  const uint32_t layers = keys.Require({"num_hidden_layers"});
  if (layers > kMostLayers) {
    keys.Fail(
        absl::StrCat("num_hidden_layers ", layers, " is above ", kMostLayers));
    return config;
  }
  config.num_experts =
      keys.Require({"num_experts", "n_routed_experts", "num_local_experts"});
  config.top_k = keys.Require({"num_experts_per_tok", "num_experts_per_token"});
  config.num_layers = CountMoeLayers(keys, layers);
  if (config.num_layers == 0) keys.Fail("no layer has experts");

  v1::ModelShape& shape = config.shape;
  shape.set_hidden_size(keys.Require({"hidden_size"}));
  const uint32_t width =
      keys.Require({"moe_intermediate_size", "intermediate_size"});
  shape.set_moe_intermediate_size(width);
  shape.set_shared_expert_intermediate_size(SharedWidth(keys, width));
  shape.set_num_moe_layers(config.num_layers);
  const uint32_t dense = layers - std::min(layers, config.num_layers);
  if (dense > 0) {
    shape.set_num_dense_layers(dense);
    shape.set_dense_intermediate_size(keys.Require({"intermediate_size"}));
  }
  FillAttention(keys, layers, shape);
  if (config.top_k > config.num_experts) {
    keys.Fail(absl::StrCat("num_experts_per_tok ", config.top_k,
                           " is above the number of experts ",
                           config.num_experts));
  }
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json) {
  Struct root;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(std::string(json), &root);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model config: not a JSON object: ", std::string(parsed.message())));
  }
  // Models that also see images nest the language model.
  const Keys outer(root);
  const Value* text = outer.Find("text_config");
  Keys keys(text != nullptr && text->has_struct_value() ? text->struct_value()
                                                        : root);
  ModelConfig config = Parse(keys);
  if (!keys.error().empty()) {
    const std::string type = keys.Text("model_type");
    return absl::InvalidArgumentError(
        absl::StrCat("model config (model_type ",
                     type.empty() ? "not given" : type, "): ", keys.error()));
  }
  return config;
}

}  // namespace routepack
