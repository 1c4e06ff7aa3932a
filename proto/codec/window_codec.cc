#include "proto/codec/window_codec.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/attention.h"
#include "planner/errors.h"
#include "planner/topology.h"
#include "proto/codec/duration.h"
#include "proto/codec/movement_codec.h"
#include "proto/codec/search_codec.h"

namespace routepack {
namespace {

constexpr size_t kMaxNameCharacters = 128;

// The size, where 0 stands for 1.
uint32_t OrOne(uint32_t size) { return size == 0 ? 1 : size; }

// No control characters, and no longer than lists can show.
void CheckName(std::string_view name, std::string_view field,
               size_t min_characters, Violations& bad) {
  size_t characters = 0;
  bool control = false;
  for (size_t i = 0; i < name.size(); ++i) {
    const unsigned char c = name[i];
    if ((c & 0xC0) != 0x80) ++characters;
    // C0, DEL, and C1 (U+0080 to U+009F, in UTF-8 C2 80 to C2 9F).
    control |= c < 0x20 || c == 0x7F;
    if (c == 0xC2 && i + 1 < name.size()) {
      control |= static_cast<unsigned char>(name[i + 1]) < 0xA0;
    }
  }
  if (characters < min_characters) bad.Add(field, "must not be empty");
  if (characters > kMaxNameCharacters) {
    bad.Add(field, absl::StrCat("has ", characters, " characters, at most ",
                                kMaxNameCharacters, " are allowed"));
  }
  if (control) bad.Add(field, "must not contain control characters");
}

MeshSizes DecodeMesh(const v1::MeshSizes& mesh) {
  return {.tp = OrOne(mesh.tp()),
          .cp = OrOne(mesh.cp()),
          .pp = OrOne(mesh.pp()),
          .ep = OrOne(mesh.ep()),
          .etp = OrOne(mesh.etp()),
          .dp = OrOne(mesh.dp())};
}

absl::StatusOr<Topology> DecodeTopology(const v1::Topology& topology) {
  switch (topology.kind_case()) {
    case v1::Topology::kMesh:
      return Topology::FromMesh(DecodeMesh(topology.mesh()));
    case v1::Topology::kShards: {
      std::vector<std::vector<uint32_t>> shards;
      for (const v1::EdpShard& shard : topology.shards().shards()) {
        shards.emplace_back(shard.slots().begin(), shard.slots().end());
      }
      return Topology::FromShards(topology.shards().dp_slots(),
                                  topology.shards().ep_ranks(), shards,
                                  "header.topology.shards");
    }
    case v1::Topology::KIND_NOT_SET:
      break;
  }
  Violations bad;
  bad.Add("header.topology", "missing: give either mesh or shards");
  return bad.ToStatus();
}

Pipeline DecodePipeline(const v1::WindowHeader& header, Violations& bad) {
  // A number of layers out of range is refused by itself.
  if (header.num_layers() == 0 || header.num_layers() > kMaxLayers) return {};
  const v1::Topology& topology = header.topology();
  const auto& counts = topology.moe_layers_per_stage();
  absl::StatusOr<Pipeline> pipeline =
      MakePipeline(header.num_layers(),
                   topology.has_mesh() ? DecodeMesh(topology.mesh()).pp : 0,
                   {counts.data(), static_cast<size_t>(counts.size())});
  if (pipeline.ok()) return *std::move(pipeline);
  bad.Merge(pipeline.status(), "header.topology.moe_layers_per_stage");
  return {};
}

std::optional<AttentionKind> DecodeKind(v1::AttentionKind kind) {
  switch (kind) {
    case v1::ATTENTION_KIND_FULL:
      return AttentionKind::kFull;
    case v1::ATTENTION_KIND_MLA:
      return AttentionKind::kMla;
    case v1::ATTENTION_KIND_LINEAR:
      return AttentionKind::kLinear;
    case v1::ATTENTION_KIND_SLIDING_WINDOW:
      return AttentionKind::kSlidingWindow;
    default:
      return std::nullopt;
  }
}

AttentionLayers DecodeLayers(const v1::AttentionLayers& layers,
                             AttentionKind kind) {
  return {.name = layers.name(),
          .kind = kind,
          .layers = layers.layers(),
          .num_heads = layers.num_heads(),
          .num_kv_heads = layers.num_kv_heads(),
          .qk_head_dim = layers.qk_head_dim(),
          .v_head_dim = layers.v_head_dim(),
          .qk_rope_head_dim = layers.qk_rope_head_dim(),
          .q_lora_rank = layers.q_lora_rank(),
          .kv_lora_rank = layers.kv_lora_rank(),
          .window = layers.window()};
}

ModelShape DecodeModel(const v1::WindowHeader& header, Violations& bad) {
  const v1::ModelShape& model = header.attention().model();
  const MeshSizes mesh = DecodeMesh(header.topology().mesh());
  ModelShape shape{.hidden_size = model.hidden_size(),
                   .moe_intermediate_size = model.moe_intermediate_size(),
                   .shared_expert_intermediate_size =
                       model.shared_expert_intermediate_size(),
                   .num_dense_layers = model.num_dense_layers(),
                   .dense_intermediate_size = model.dense_intermediate_size(),
                   .num_moe_layers = model.num_moe_layers() != 0
                                         ? model.num_moe_layers()
                                         : header.num_layers(),
                   .tp = model.tp() != 0 ? model.tp() : mesh.tp,
                   .cp = model.cp() != 0 ? model.cp() : mesh.cp,
                   .etp = model.etp() != 0 ? model.etp() : mesh.etp};
  for (int i = 0; i < model.attention_size(); ++i) {
    const v1::AttentionLayers& layers = model.attention(i);
    const std::optional<AttentionKind> kind = DecodeKind(layers.kind());
    if (!kind.has_value()) {
      bad.Add(absl::StrCat("header.attention.model.attention[", i, "].kind"),
              absl::StrCat("must be one of FULL, MLA, LINEAR and "
                           "SLIDING_WINDOW, is ",
                           static_cast<int>(layers.kind())));
    }
    shape.attention.push_back(
        DecodeLayers(layers, kind.value_or(AttentionKind::kFull)));
  }
  return shape;
}

std::vector<AttentionStage> DecodeAttention(const v1::WindowHeader& header,
                                            Violations& bad) {
  const v1::AttentionModel& attention = header.attention();
  std::vector<AttentionStage> stages;
  for (const v1::AttentionStage& stage : attention.stages()) {
    stages.push_back(
        {.name = stage.name(), .alpha = stage.alpha(), .beta = stage.beta()});
  }
  if (!attention.has_model()) return stages;
  if (!stages.empty()) {
    bad.Add("header.attention", "stages and model are both given: give one");
  }
  const ModelShape shape = DecodeModel(header, bad);
  absl::StatusOr<std::vector<AttentionStage>> derived =
      DeriveAttention(shape, OrOne(header.token_cap()));
  if (!derived.ok()) {
    bad.Merge(derived.status(), "header.attention.model");
    return {};
  }
  return *std::move(derived);
}

CountsOrigin DecodeOrigin(v1::CountsOrigin origin, Violations& bad) {
  switch (origin) {
    case v1::COUNTS_ORIGIN_UNSPECIFIED:
      return CountsOrigin::kUnspecified;
    case v1::COUNTS_ORIGIN_REPLAYED:
      return CountsOrigin::kReplayed;
    case v1::COUNTS_ORIGIN_PREDICTED:
      return CountsOrigin::kPredicted;
    default:
      bad.Add("header.counts.origin",
              absl::StrCat("unknown value ", static_cast<int>(origin)));
      return CountsOrigin::kUnspecified;
  }
}

MissingCounts DecodeMissing(v1::MissingCounts missing, Violations& bad) {
  switch (missing) {
    case v1::MISSING_COUNTS_UNSPECIFIED:
    case v1::MISSING_COUNTS_ERROR:
      return MissingCounts::kError;
    case v1::MISSING_COUNTS_WINDOW_MEAN:
      return MissingCounts::kWindowMean;
    default:
      bad.Add("header.counts.missing",
              absl::StrCat("unknown value ", static_cast<int>(missing)));
      return MissingCounts::kError;
  }
}

// The violations that WindowBuilder would find, so that all of a header's come
// back at once. Probes with one sample: how many there are to be matters only
// when it is out of range, and storage is not wanted here.
void CheckSizes(WindowSpec spec, Violations& bad) {
  if (spec.num_samples <= kMaxSamples) spec.num_samples = 1;
  const absl::Status status = WindowBuilder::Create(std::move(spec)).status();
  bad.Merge(status, "header");
}

PlacementPolicy DecodePolicy(v1::PlacementPolicy policy, Violations& bad) {
  switch (policy) {
    case v1::PLACEMENT_POLICY_UNSPECIFIED:
    case v1::PLACEMENT_POLICY_INCREMENTAL:
      return PlacementPolicy::kIncremental;
    case v1::PLACEMENT_POLICY_LPT_RELABEL:
      return PlacementPolicy::kLptRelabel;
    case v1::PLACEMENT_POLICY_LPT:
      return PlacementPolicy::kLpt;
    case v1::PLACEMENT_POLICY_IDENTITY:
      return PlacementPolicy::kIdentity;
    case v1::PLACEMENT_POLICY_KEEP:
      return PlacementPolicy::kKeep;
    default:
      bad.Add("header.options.placement",
              absl::StrCat("unknown value ", static_cast<int>(policy)));
      return PlacementPolicy::kIncremental;
  }
}

RowOrder DecodeRowOrder(v1::RowOrder order, Violations& bad) {
  switch (order) {
    case v1::ROW_ORDER_UNSPECIFIED:
    case v1::ROW_ORDER_AS_PLANNED:
      return RowOrder::kAsPlanned;
    case v1::ROW_ORDER_LIGHT_ENDS:
      return RowOrder::kLightEnds;
    default:
      bad.Add("header.options.row_order",
              absl::StrCat("unknown value ", static_cast<int>(order)));
      return RowOrder::kAsPlanned;
  }
}

// One layer of a placement into placement[l]; both directions.
void DecodeLayerPlacement(const v1::LayerPlacement& layer, uint32_t l,
                          const std::string& field, Placement& placement,
                          Violations& bad) {
  const uint32_t experts = placement.num_experts;
  if (layer.layer() != l) {
    bad.Add(absl::StrCat(field, ".layer"),
            absl::StrCat("is ", layer.layer(), " at position ", l));
  }
  if (static_cast<uint32_t>(layer.slot_of_expert_size()) != experts) {
    bad.Add(absl::StrCat(field, ".slot_of_expert"),
            absl::StrCat("has ", layer.slot_of_expert_size(),
                         " entries, expected E = ", experts));
    return;
  }
  uint32_t* slots = placement.slot_of_expert.data() + size_t{l} * experts;
  uint32_t* inverse = placement.expert_of_slot.data() + size_t{l} * experts;
  std::vector<bool> taken(experts);
  for (uint32_t e = 0; e < experts; ++e) {
    const uint32_t slot = layer.slot_of_expert(e);
    if (slot >= experts || taken[slot]) {
      bad.Add(
          absl::StrCat(field, ".slot_of_expert[", e, "]"),
          slot >= experts
              ? absl::StrCat("slot ", slot, " is outside [0, ", experts, ")")
              : absl::StrCat("slot ", slot, " already holds expert ",
                             inverse[slot]));
      continue;
    }
    taken[slot] = true;
    slots[e] = slot;
    inverse[slot] = e;
  }
  if (layer.expert_of_slot_size() == 0) return;
  if (static_cast<uint32_t>(layer.expert_of_slot_size()) != experts) {
    bad.Add(absl::StrCat(field, ".expert_of_slot"),
            absl::StrCat("has ", layer.expert_of_slot_size(),
                         " entries, expected E = ", experts, " or none"));
    return;
  }
  for (uint32_t v = 0; v < experts; ++v) {
    if (taken[v] && layer.expert_of_slot(v) != inverse[v]) {
      bad.Add(absl::StrCat(field, ".expert_of_slot[", v, "]"),
              absl::StrCat("is ", layer.expert_of_slot(v),
                           ", but slot_of_expert puts expert ", inverse[v],
                           " there"));
    }
  }
}

}  // namespace

absl::Status ValidateKey(const v1::PlanKey& key, std::string_view field) {
  Violations bad;
  const std::string path(field);
  CheckName(key.job_id(), path + ".job_id", 1, bad);
  CheckName(key.run_id(), path + ".run_id", 0, bad);
  return bad.ToStatus();
}

absl::StatusOr<WindowSpec> DecodeSpec(const v1::WindowHeader& header) {
  Violations bad;
  absl::StatusOr<Topology> topology = DecodeTopology(header.topology());
  const absl::Status topology_status = topology.status();
  if (!topology.ok()) {
    if (!absl::IsUnimplemented(topology_status)) {
      bad.Merge(topology_status, "header.topology");
    }
    topology = Topology::FromMesh({});
    if (!topology.ok()) return topology.status();
  }
  WindowSpec spec{
      .num_samples = header.num_samples(),
      .num_layers = header.num_layers(),
      .num_experts = header.num_experts(),
      .top_k = header.top_k(),
      .token_cap = header.token_cap(),
      .length_multiple = OrOne(header.length_multiple()),
      .topology = *std::move(topology),
      .pipeline = DecodePipeline(header, bad),
      .attention = DecodeAttention(header, bad),
      .counts_origin = DecodeOrigin(header.counts().origin(), bad),
      .partial_counts = header.counts().partial_counts(),
      .missing_counts = DecodeMissing(header.counts().missing(), bad)};
  CheckSizes(spec, bad);
  if (!bad.empty()) return bad.ToStatus();
  if (!topology_status.ok()) return topology_status;
  return spec;
}

absl::StatusOr<PlanOptions> DecodeOptions(const v1::PlanOptions& options) {
  Violations bad;
  PlanOptions result;
  result.placement = DecodePolicy(options.placement(), bad);
  result.min_rows = OrOne(options.min_rows());
  result.row_multiple = OrOne(options.row_multiple());
  result.allow_filler = options.allow_filler();
  result.row_order = DecodeRowOrder(options.row_order(), bad);
  result.seed = options.seed();
  if (options.row_search_nodes() != 0) {
    result.row_search_nodes = options.row_search_nodes();
  }
  if (options.has_time_limit()) {
    const std::optional<absl::Duration> limit =
        DecodeDuration(options.time_limit());
    if (limit.has_value() && *limit > absl::ZeroDuration()) {
      result.time_limit = *limit;
    } else {
      bad.Add("header.options.time_limit", "must be a positive duration");
    }
  }
  result.search = DecodeSearchOptions(options.search(), bad);
  DecodePlacementOptions(options, result, bad);
  if (!bad.empty()) return bad.ToStatus();
  if (options.keep_groups_together()) {
    return absl::UnimplementedError(
        "header.options.keep_groups_together: samples of one group sharing a "
        "DP slot is not available in this version");
  }
  if (options.replica_slots() != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "header.options.replica_slots: guest replicas are not available in "
        "this version, asked for ",
        options.replica_slots()));
  }
  return result;
}

absl::StatusOr<Placement> DecodePlacement(const v1::Placement& placement,
                                          uint32_t num_layers,
                                          uint32_t num_experts,
                                          uint32_t num_ranks,
                                          std::string_view field) {
  Violations bad;
  const std::string path(field);
  if (static_cast<uint32_t>(placement.layers_size()) != num_layers) {
    bad.Add(path + ".layers",
            absl::StrCat("has ", placement.layers_size(),
                         " entries, expected L = ", num_layers));
    return bad.ToStatus();
  }
  const size_t size = size_t{num_layers} * num_experts;
  Placement result{.num_layers = num_layers,
                   .num_experts = num_experts,
                   .num_ranks = num_ranks,
                   .slot_of_expert = std::vector<uint32_t>(size),
                   .expert_of_slot = std::vector<uint32_t>(size)};
  for (uint32_t l = 0; l < num_layers; ++l) {
    DecodeLayerPlacement(placement.layers(l), l,
                         absl::StrCat(path, ".layers[", l, "]"), result, bad);
  }
  if (!bad.empty()) return bad.ToStatus();
  return result;
}

absl::StatusOr<Window> DecodeWindow(const v1::Window& message) {
  absl::StatusOr<WindowSpec> spec = DecodeSpec(message.header());
  if (!spec.ok()) return spec.status();
  Violations bad;
  const auto listed = static_cast<uint32_t>(message.samples_size());
  if (spec->num_samples != 0 && spec->num_samples != listed) {
    bad.Add("header.num_samples",
            absl::StrCat("is ", spec->num_samples, ", but ", listed,
                         " samples are listed"));
  }
  spec->num_samples = listed;
  absl::StatusOr<WindowBuilder> builder =
      WindowBuilder::Create(*std::move(spec));
  if (!builder.ok()) return builder.status();
  std::vector<uint32_t> scratch;
  for (const v1::Sample& sample : message.samples()) {
    DecodeSample(sample, *builder, scratch);
  }
  absl::StatusOr<Window> window = std::move(*builder).Seal();
  if (bad.empty()) return window;
  bad.Merge(window.status(), "samples");
  return bad.ToStatus();
}

}  // namespace routepack
