#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "planner/digest.h"
#include "proto/codec/window_codec.h"

namespace routepack {
namespace {

// The effort's own steps depend on the fillers, which are not known yet: they
// are hashed as not given. All else has its default filled in.
void AddSearch(const SearchOptions& given, Digest& digest) {
  const SearchOptions options = ResolveSearch(given, 0);
  digest.AddU32(static_cast<uint32_t>(options.effort));
  digest.AddU64(given.steps);
  digest.AddU32(options.levels);
  digest.AddU32(options.population);
  digest.AddU32(options.candidates);
  digest.AddU32(options.choice_width);
  digest.AddU32(options.projections);
  digest.AddDouble(*options.diversity_penalty);
  digest.AddDouble(*options.guided_probability);
  digest.AddDouble(*options.relocation_probability);
}

void AddMovement(const MovementSpec& movement, Digest& digest) {
  digest.AddU32(movement.gpus_per_rank);
  digest.AddU32(movement.ranks_per_node);
  digest.AddArray(std::span(movement.node_of_rank));
  digest.AddU64(movement.kinds.size());
  for (const StateKind& kind : movement.kinds) {
    digest.AddString(kind.name);
    digest.AddU64(kind.bytes);
    digest.AddU32(kind.lane_owned ? 1 : 0);
  }
  const GradientBuffer& buffer = movement.buffer;
  digest.AddU64(buffer.parameters.size());
  for (const ExpertParameter& parameter : buffer.parameters) {
    digest.AddU64(parameter.elements);
    digest.AddU32(parameter.buffer);
  }
  digest.AddU32(buffer.grouped ? 1 : 0);
  digest.AddU32(buffer.reversed ? 1 : 0);
  digest.AddU64(buffer.start_alignment);
  digest.AddU64(buffer.end_multiple);
  digest.AddU64(buffer.bucket_elements);
  digest.AddArray(std::span(buffer.chunk_of_layer));
  digest.AddU64(movement.lane_ranges.size());
  for (const LaneRange& range : movement.lane_ranges) {
    digest.AddU32(range.layer);
    digest.AddU32(range.slot);
    digest.AddU32(range.lane);
    digest.AddU64(range.begin);
    digest.AddU64(range.end);
  }
  digest.AddDouble(movement.inter_node_cost);
  digest.AddDouble(movement.intra_node_bandwidth);
  digest.AddDouble(movement.inter_node_bandwidth);
  digest.AddDouble(movement.node_bandwidth);
  digest.AddDouble(movement.seconds_per_assignment);
}

void AddOptions(const v1::PlanOptions& message, Digest& digest) {
  const PlanOptions options = DecodeOptions(message).value_or(PlanOptions{});
  digest.AddU32(static_cast<uint32_t>(options.placement));
  digest.AddU32(options.min_rows);
  digest.AddU32(options.row_multiple);
  digest.AddU32(options.allow_filler ? 1 : 0);
  digest.AddU32(static_cast<uint32_t>(options.row_order));
  digest.AddU64(options.seed);
  digest.AddU64(options.row_search_nodes);
  digest.AddU64(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(options.time_limit)));
  AddSearch(options.search, digest);
  AddMovement(options.movement, digest);
  digest.AddDouble(options.incremental.target_imbalance);
  digest.AddDouble(options.incremental.movement_budget);
  digest.AddU32(options.incremental.break_even ? 1 : 0);
  digest.AddDouble(options.incremental.horizon_steps);
  digest.AddU32(options.transfer.experts_per_round);
  digest.AddU32(options.transfer.max_staging);
  digest.AddU32(options.transfer.max_uplink);
  digest.AddU32(options.refine_after_announce ? 1 : 0);
}

void AddLayer(uint32_t l, std::span<const uint32_t> slot_of_expert,
              Digest& digest) {
  digest.AddU32(l);
  digest.AddArray(slot_of_expert);
}

// Identity is hashed as the map it stands for. A map is hashed as it is sent,
// whatever its sizes.
void AddCurrentPlacement(const v1::CurrentPlacement& current,
                         const Window& window, Digest& digest) {
  digest.AddString(current.committed_version());
  if (current.has_committed_version()) return;
  if (current.has_map()) {
    for (const v1::LayerPlacement& layer : current.map().layers()) {
      AddLayer(layer.layer(),
               {layer.slot_of_expert().data(),
                static_cast<size_t>(layer.slot_of_expert_size())},
               digest);
    }
    return;
  }
  std::vector<uint32_t> slots(window.num_experts());
  std::iota(slots.begin(), slots.end(), 0);
  for (uint32_t l = 0; l < window.num_layers(); ++l) {
    AddLayer(l, slots, digest);
  }
}

}  // namespace

std::string RequestDigest(const Window& window,
                          const v1::WindowHeader& header) {
  Digest digest;
  digest.AddString(window.digest());
  AddOptions(header.options(), digest);
  AddCurrentPlacement(header.current_placement(), window, digest);
  std::vector<uint32_t> ranks(header.participant_ranks().begin(),
                              header.participant_ranks().end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  digest.AddArray(std::span(ranks));
  return digest.Hex();
}

}  // namespace routepack
