#include "planner/demand.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>

#include "oneapi/tbb/parallel_for.h"

namespace routepack {
namespace {

// One row: gathers each rank's experts slot by slot, so that sums stay in a
// register and ranks are independent of each other.
template <typename Count>
void ProjectRow(const Count* counts, const uint32_t* expert_of_slot,
                uint32_t num_ranks, uint32_t slots_per_rank, uint32_t* row) {
  for (uint32_t p = 0; p < num_ranks; ++p) {
    uint32_t sum = 0;
    for (uint32_t h = 0; h < slots_per_rank; ++h) {
      sum += counts[*expert_of_slot++];
    }
    row[p] = sum;
  }
}

}  // namespace

Demand ProjectDemand(const Window& window, const Placement& placement,
                     uint32_t num_fillers) {
  assert(placement.num_layers == window.num_layers());
  assert(placement.num_experts == window.num_experts());
  const size_t num_experts = placement.num_experts;
  Demand demand;
  demand.num_items = window.num_samples() + num_fillers;
  demand.num_layers = placement.num_layers;
  demand.num_ranks = placement.num_ranks;
  demand.stride = DemandStride(placement.num_ranks);
  demand.values.resize(demand.num_items * demand.item_size());
  tbb::parallel_for(uint32_t{0}, window.num_samples(), [&](uint32_t i) {
    uint32_t* item = demand.values.data() + i * demand.item_size();
    window.VisitCounts(i, [&](auto counts) {
      for (size_t l = 0; l < demand.num_layers; ++l) {
        ProjectRow(counts.data() + l * num_experts,
                   placement.expert_of_slot.data() + l * num_experts,
                   demand.num_ranks, placement.slots_per_rank(),
                   item + l * demand.stride);
      }
    });
  });
  return demand;
}

}  // namespace routepack
