// Which pipeline stage runs each MoE layer. Packing and score do not depend on
// it (spec 1.4: J sums all layers); stages are different GPUs, and so are the
// buffers and rounds in which their experts move.
//
//   // Two stages of a model whose first layers are dense.
//   absl::StatusOr<Pipeline> pipeline = MakePipeline(7, 2, {{3, 4}});

#ifndef ROUTEPACK_PLANNER_PIPELINE_H_
#define ROUTEPACK_PLANNER_PIPELINE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace routepack {

struct Pipeline {
  uint32_t num_stages = 0;               // S; 0: one, or not known
  std::vector<uint32_t> stage_of_layer;  // [L] in [0, S); empty if S is 0

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

inline constexpr uint32_t kMaxStages = 4096;

// From counts of consecutive MoE layers. Count j belongs to stage j mod S, so
// that more than S counts describe an interleaved schedule (Megatron's virtual
// pipeline: model chunk v of stage s comes as v S + s). Dense layers are not
// counted; a count may be 0. `num_stages` 0 is for callers who know the counts
// only: one a stage.
// Without counts: layers are split evenly where that is possible, else nothing
// is known. A single stage needs no Pipeline and gets an empty one.
// INVALID_ARGUMENT, at header.topology.moe_layers_per_stage: more than
// kMaxStages counts, not a multiple of num_stages, or another sum than
// num_layers. O(num_layers), which the caller has found in range.
absl::StatusOr<Pipeline> MakePipeline(uint32_t num_layers, uint32_t num_stages,
                                      std::span<const uint32_t> layer_counts);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_PIPELINE_H_
