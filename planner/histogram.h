// Counting recorded routing: [T, L, k] expert ids of one sample to [L, E]
// counts (RoutePack paper, equation 1; Figure 2).
//
// Reads every id once; memory traffic is the floor. Long samples are split
// over the threads of the current TBB arena.

#ifndef ROUTEPACK_PLANNER_HISTOGRAM_H_
#define ROUTEPACK_PLANNER_HISTOGRAM_H_

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace routepack {

// Ids as rollout engines emit them.
using ExpertIds =
    std::variant<std::span<const uint8_t>, std::span<const uint16_t>,
                 std::span<const int32_t>>;

struct RoutingShape {
  uint32_t num_layers = 0;   // L
  uint32_t num_experts = 0;  // E
  uint32_t top_k = 0;        // k
};

// Adds the ids [T, L, k] of one sample to `counts` [L, E]; the caller clears
// counts. T is ids.size() / (L k).
// INVALID_ARGUMENT: the shape is beyond a window's limits, the size is no
// multiple of L k, or an id is outside [0, E) (the message names token, layer
// and id); counts are then unspecified. RESOURCE_EXHAUSTED: no memory.
absl::Status CountRoutedExperts(ExpertIds ids, const RoutingShape& shape,
                                std::span<uint32_t> counts);

// Counts a batch: the ids of all samples one after another, with `rows[i]`
// token rows for sample i. Returns [N, L, E]. Samples in parallel. Errors as
// above, the message names the sample.
absl::StatusOr<std::vector<uint32_t>> CountRoutedExperts(
    ExpertIds ids, std::span<const uint32_t> rows, const RoutingShape& shape);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_HISTOGRAM_H_
