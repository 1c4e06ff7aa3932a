// Demand of samples on ranks: q[i,l,p] = sum of a[i,l,e] over the experts e
// that rank p owns (RoutePack paper, equation 5).
//
// Laid out for vector code: each (i, l) row of P values is padded with zeros
// to `stride`, a multiple of 8, and starts on a 32-byte boundary.
// O(N L E), samples in parallel.

#ifndef ROUTEPACK_PLANNER_DEMAND_H_
#define ROUTEPACK_PLANNER_DEMAND_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "oneapi/tbb/cache_aligned_allocator.h"
#include "planner/placement.h"
#include "planner/window.h"

namespace routepack {

// Starts on a cache line, so that vector loads are aligned.
template <typename T>
using AlignedVector = std::vector<T, tbb::cache_aligned_allocator<T>>;

// P rounded up to whole vectors of 8.
constexpr uint32_t DemandStride(uint32_t num_ranks) {
  return (num_ranks + 7) / 8 * 8;
}

struct Demand {
  uint32_t num_items = 0;   // N, plus fillers
  uint32_t num_layers = 0;  // L
  uint32_t num_ranks = 0;   // P
  uint32_t stride = 0;      // DemandStride(P)
  // [i][l][stride]
  AlignedVector<uint32_t> values;

  size_t item_size() const { return size_t{num_layers} * stride; }
  const uint32_t* item(uint32_t i) const {
    return values.data() + i * item_size();
  }
};

// `num_fillers` items without demand follow the window's samples.
Demand ProjectDemand(const Window& window, const Placement& placement,
                     uint32_t num_fillers = 0);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_DEMAND_H_
