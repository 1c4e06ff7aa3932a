#include "proto/codec/plan_codec.h"

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/codec/duration.h"
#include "proto/codec/movement_codec.h"
#include "proto/codec/score_units.h"
#include "proto/codec/search_codec.h"

namespace routepack {
namespace {

constexpr size_t kVersionDigits = 12;

v1::RowOutcome EncodeOutcome(RowOutcome outcome) {
  switch (outcome) {
    case RowOutcome::kCertified:
      return v1::ROW_OUTCOME_CERTIFIED;
    case RowOutcome::kBestKnown:
      return v1::ROW_OUTCOME_BEST_KNOWN;
    case RowOutcome::kInfeasible:
    case RowOutcome::kNotFound:
      break;  // errors, never part of a plan
  }
  return v1::ROW_OUTCOME_UNSPECIFIED;
}

void EncodeRows(const RowResult& rows, v1::RowCertificate* message) {
  message->set_outcome(EncodeOutcome(rows.outcome));
  message->set_rows(rows.rows);
  message->set_rows_lower_bound(rows.rows_lower_bound);
  message->set_bins_lower_bound(rows.bins_lower_bound);
  message->set_bins_upper_bound(rows.bins_upper_bound);
  message->set_proof(rows.proof);
  message->set_nodes(rows.nodes);
}

// Tokens and occupancy of an item; fillers have no tokens.
struct ItemSize {
  uint64_t tokens;
  uint64_t occupancy;
};
ItemSize SizeOf(const Window& window, uint32_t item) {
  if (item >= window.num_samples()) {
    return {0, window.spec().length_multiple};
  }
  return {window.tokens(item), window.occupancy(item)};
}

void EncodeCell(const Window& window, const Plan& plan,
                std::span<const uint32_t> items, v1::Cell* message) {
  const uint32_t n = window.num_samples();
  uint64_t tokens = 0;
  uint64_t occupancy = 0;
  for (const uint32_t item : items) {
    message->add_sample_ids(item < n ? window.samples()[item].id
                                     : plan.filler_ids[item - n]);
    const ItemSize size = SizeOf(window, item);
    tokens += size.tokens;
    occupancy += size.occupancy;
  }
  message->set_tokens(tokens);
  message->set_occupancy(occupancy);
}

void EncodeLayout(const Window& window, const Plan& plan, v1::Layout* message) {
  const uint32_t shards = window.spec().topology.num_shards();
  const double units = UnitsPerCap(window);
  const bool costs =
      plan.evaluation.attention.size() == size_t{plan.layout.rows} * shards;
  for (uint32_t r = 0; r < plan.layout.rows; ++r) {
    v1::Row* row = message->add_rows();
    uint64_t tokens = 0;
    for (uint32_t d = 0; d < plan.layout.slots; ++d) {
      v1::Cell* cell = row->add_cells();
      EncodeCell(window, plan, plan.layout.cell(r, d), cell);
      tokens += cell->tokens();
    }
    row->set_tokens(tokens);
    for (uint32_t g = 0; costs && g < shards; ++g) {
      const int64_t cost = plan.evaluation.row_cost(size_t{r} * shards + g);
      row->add_shard_cost(static_cast<double>(cost) / units);
    }
  }
  message->mutable_filler_sample_ids()->Add(plan.filler_ids.begin(),
                                            plan.filler_ids.end());
  message->set_window_tokens(window.total_tokens());
}

void EncodeBounds(const ScoreBounds& bounds, int64_t slowest_shard,
                  double units, v1::Bounds* message) {
  message->set_joint_for_placement(static_cast<double>(bounds.for_placement) /
                                   units);
  message->set_joint_for_any_placement(
      static_cast<double>(bounds.for_any_placement) / units);
  message->set_gap_for_placement(Gap(slowest_shard, bounds.for_placement));
  message->set_gap_for_any_placement(
      Gap(slowest_shard, bounds.for_any_placement));
  message->mutable_hot_expert_layers()->Add(bounds.hot_expert_layers.begin(),
                                            bounds.hot_expert_layers.end());
}

void EncodeTopology(const Topology& topology, v1::ExplicitShards* message) {
  message->set_dp_slots(topology.num_slots());
  message->set_ep_ranks(topology.num_ranks());
  for (uint32_t g = 0; g < topology.num_shards(); ++g) {
    const std::span<const uint32_t> slots = topology.slots_of_shard(g);
    message->add_shards()->mutable_slots()->Add(slots.begin(), slots.end());
  }
}

v1::PlacementPolicy EncodePolicy(PlacementPolicy policy) {
  switch (policy) {
    case PlacementPolicy::kIncremental:
      return v1::PLACEMENT_POLICY_INCREMENTAL;
    case PlacementPolicy::kLptRelabel:
      return v1::PLACEMENT_POLICY_LPT_RELABEL;
    case PlacementPolicy::kIdentity:
      return v1::PLACEMENT_POLICY_IDENTITY;
    case PlacementPolicy::kLpt:
      return v1::PLACEMENT_POLICY_LPT;
    case PlacementPolicy::kKeep:
      return v1::PLACEMENT_POLICY_KEEP;
  }
  return v1::PLACEMENT_POLICY_UNSPECIFIED;
}

void EncodeOptions(const PlanOptions& used, uint32_t num_items,
                   v1::PlanOptions* message) {
  message->set_placement(EncodePolicy(used.placement));
  message->set_min_rows(used.min_rows);
  message->set_row_multiple(used.row_multiple);
  message->set_allow_filler(used.allow_filler);
  message->set_row_order(used.row_order == RowOrder::kLightEnds
                             ? v1::ROW_ORDER_LIGHT_ENDS
                             : v1::ROW_ORDER_AS_PLANNED);
  message->set_seed(used.seed);
  message->set_row_search_nodes(used.row_search_nodes);
  if (used.time_limit == absl::InfiniteDuration()) {
    message->clear_time_limit();
  } else {
    *message->mutable_time_limit() = EncodeDuration(used.time_limit);
  }
  EncodeSearchOptions(ResolveSearch(used.search, num_items),
                      message->mutable_search());
  EncodePlacementOptions(used, message);
}

v1::CountsOrigin EncodeOrigin(CountsOrigin origin) {
  switch (origin) {
    case CountsOrigin::kUnspecified:
      return v1::COUNTS_ORIGIN_UNSPECIFIED;
    case CountsOrigin::kReplayed:
      return v1::COUNTS_ORIGIN_REPLAYED;
    case CountsOrigin::kPredicted:
      return v1::COUNTS_ORIGIN_PREDICTED;
  }
  return v1::COUNTS_ORIGIN_UNSPECIFIED;
}

// The window's side of a plan: what was planned, and how to read it.
void EncodeInput(const Window& window, v1::Plan* message) {
  message->set_window_digest(window.digest());
  EncodeTopology(window.spec().topology, message->mutable_topology());
  for (const AttentionStage& stage : window.spec().attention) {
    v1::AttentionStage* out = message->add_attention();
    out->set_name(stage.name);
    out->set_alpha(stage.alpha);
    out->set_beta(stage.beta);
  }
  message->set_counts_origin(EncodeOrigin(window.spec().counts_origin));
  for (const uint32_t i : window.imputed()) {
    message->add_imputed_sample_ids(window.samples()[i].id);
  }
}

}  // namespace

std::string PlacementVersion(const v1::PlanKey& key,
                             std::string_view placement_digest) {
  std::string version;
  for (const std::string* name : {&key.job_id(), &key.run_id()}) {
    if (!name->empty()) absl::StrAppend(&version, *name, "/");
  }
  absl::StrAppend(&version, key.step(), ".", key.minibatch(), "@");
  return version.append(placement_digest.substr(0, kVersionDigits));
}

void EncodePlacement(const Placement& placement, v1::Placement* message) {
  message->clear_layers();
  const size_t experts = placement.num_experts;
  for (uint32_t l = 0; l < placement.num_layers; ++l) {
    v1::LayerPlacement* layer = message->add_layers();
    layer->set_layer(l);
    const auto slots = placement.slot_of_expert.begin() + l * experts;
    layer->mutable_slot_of_expert()->Add(slots, slots + experts);
    const auto inverse = placement.expert_of_slot.begin() + l * experts;
    layer->mutable_expert_of_slot()->Add(inverse, inverse + experts);
  }
}

void EncodeChange(const PlacementChange& change, v1::PlacementChange* message) {
  message->set_experts_to_other_rank(change.experts_to_other_rank);
  message->set_experts_to_other_slot(change.experts_to_other_slot);
  message->set_experts_total(change.experts_total);
}

void EncodeMetrics(const Metrics& metrics, v1::Metrics* message) {
  message->set_cv_global(metrics.cv_global);
  message->set_ep_peak_sum(metrics.ep_peak_sum);
  message->set_tail_peak(metrics.tail_peak);
  message->set_balance_efficiency(metrics.balance_efficiency);
  message->set_attention(metrics.attention);
  message->set_joint(metrics.joint);
  EncodeScore(metrics.score, message->mutable_score());
  message->clear_stages();
  for (const StageMetrics& stage : metrics.stages) {
    v1::StageMetrics* out = message->add_stages();
    out->set_num_layers(stage.num_layers);
    out->set_ep_peak_sum(stage.ep_peak_sum);
    out->set_tail_peak(stage.tail_peak);
  }
}

v1::Progress EncodeProgress(const PlanProgress& progress) {
  v1::Progress message;
  message.set_stage(std::string(progress.stage));
  message.set_fraction(progress.fraction);
  message.set_rows(progress.rows);
  message.set_joint(progress.joint);
  message.set_bound(progress.bound);
  message.set_gap(progress.gap);
  message.set_acceptance_rate(progress.acceptance_rate);
  message.set_proposals_per_second(progress.proposals_per_second);
  *message.mutable_elapsed() = EncodeDuration(progress.elapsed);
  return message;
}

v1::Plan EncodePlan(const Window& window, const Plan& plan,
                    const PlanOptions& used, const PlanContext& context) {
  v1::Plan message;
  *message.mutable_key() = context.key;
  EncodeInput(window, &message);
  const std::string digest = PlacementDigest(plan.placement);
  message.set_placement_version(PlacementVersion(context.key, digest));
  message.set_placement_digest(digest);
  EncodePlacement(plan.placement, message.mutable_placement());
  EncodeChange(plan.movement.change, message.mutable_placement_change());
  EncodeRows(plan.rows, message.mutable_rows());
  EncodeLayout(window, plan, message.mutable_layout());
  EncodeMetrics(plan.baseline, message.mutable_baseline());
  EncodeMetrics(plan.reorder, message.mutable_reorder());
  EncodeMetrics(plan.routepack, message.mutable_routepack());
  EncodeBounds(plan.bounds, plan.routepack.score.slowest_shard,
               UnitsPerCap(window), message.mutable_bounds());
  for (const StageTiming& timing : plan.timings) {
    v1::StageTiming* out = message.add_timings();
    out->set_stage(timing.stage);
    *out->mutable_duration() = EncodeDuration(timing.duration);
  }
  *message.mutable_options() = context.options;
  EncodeOptions(used, window.num_samples() + plan.num_fillers,
                message.mutable_options());
  message.set_backend(context.backend);
  message.set_algorithm_version(std::string(kAlgorithmVersion));
  message.set_truncated(plan.truncated);
  message.mutable_warnings()->Add(plan.warnings.begin(), plan.warnings.end());
  EncodeMovement(plan.movement, message.mutable_movement());
  EncodeTransfer(plan.transfer, message.mutable_transfer());
  if (used.placement == PlacementPolicy::kIncremental) {
    message.set_incremental_stop(EncodeStop(plan.incremental_stop));
  }
  if (plan.refinement.has_value()) {
    v1::PlacementRefinement* refinement = message.mutable_refinement();
    refinement->set_announced_digest(plan.refinement->announced_digest);
    EncodeChange(plan.refinement->change, refinement->mutable_change());
    refinement->set_floor_layers(plan.refinement->floor_layers);
  }
  if (!plan.search.stages.empty()) {
    EncodeSearchReport(window, plan.search, message.mutable_search_report());
  }
  return message;
}

}  // namespace routepack
