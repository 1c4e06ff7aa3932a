#include "planner/pipeline.h"

#include "absl/strings/str_cat.h"
#include "planner/errors.h"

namespace routepack {
namespace {

void CheckCounts(uint32_t num_layers, uint32_t num_stages,
                 std::span<const uint32_t> layer_counts, Violations& bad) {
  constexpr char kField[] = "header.topology.moe_layers_per_stage";
  const size_t size = layer_counts.size();
  if (size > kMaxStages) {
    bad.Add(kField, absl::StrCat("has ", size, " entries, at most ", kMaxStages,
                                 " are allowed"));
    return;
  }
  if (num_stages == 1 && size != 1) {
    bad.Add(kField, absl::StrCat("has ", size,
                                 " entries for one pipeline stage: state "
                                 "header.topology.mesh.pp"));
  } else if (num_stages > 1 && size % num_stages != 0) {
    bad.Add(kField, absl::StrCat("must have one entry a pipeline stage, or a "
                                 "multiple of the ",
                                 num_stages, " stages, has ", size));
  }
  uint64_t sum = 0;
  for (uint32_t count : layer_counts) sum += count;
  if (sum != num_layers) {
    bad.Add(kField, absl::StrCat("must add up to num_layers = ", num_layers,
                                 ", is ", sum));
  }
}

}  // namespace

absl::StatusOr<Pipeline> MakePipeline(uint32_t num_layers, uint32_t num_stages,
                                      std::span<const uint32_t> layer_counts) {
  std::vector<uint32_t> counts(layer_counts.begin(), layer_counts.end());
  if (counts.empty()) {
    if (num_stages <= 1 || num_stages > kMaxStages ||
        num_layers % num_stages != 0) {
      return Pipeline{};
    }
    counts.assign(num_stages, num_layers / num_stages);
  }
  Violations bad;
  CheckCounts(num_layers, num_stages, counts, bad);
  if (!bad.empty()) return bad.ToStatus();

  if (num_stages == 0) num_stages = static_cast<uint32_t>(counts.size());
  if (num_stages == 1) return Pipeline{};
  Pipeline pipeline{.num_stages = num_stages};
  pipeline.stage_of_layer.reserve(num_layers);
  for (size_t j = 0; j < counts.size(); ++j) {
    pipeline.stage_of_layer.insert(pipeline.stage_of_layer.end(), counts[j],
                                   static_cast<uint32_t>(j % num_stages));
  }
  return pipeline;
}

}  // namespace routepack
