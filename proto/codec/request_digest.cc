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
