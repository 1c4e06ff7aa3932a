#include "planner/search_space.h"

#include <algorithm>
#include <numeric>

namespace routepack {

SearchSpace::SearchSpace(const PackingProblem& packing_problem,
                         uint32_t num_rows)
    : problem(packing_problem),
      rows(num_rows),
      slots(problem.topology.num_slots()),
      cells(rows * slots),
      shards(problem.topology.num_shards()),
      row_shards(rows * shards),
      demand(problem.demand),
      weights(EnergyWeights::MeanShard(shards)),
      row_shard_of_cell(cells),
      cells_of_row_shard(row_shards),
      by_occupancy(problem.num_items()),
      place(problem.num_items()) {
  for (uint32_t c = 0; c < cells; ++c) {
    row_shard_of_cell[c] =
        c / slots * shards + problem.topology.shard_of_slot(c % slots);
    cells_of_row_shard[row_shard_of_cell[c]].push_back(c);
  }
  std::iota(by_occupancy.begin(), by_occupancy.end(), 0);
  std::stable_sort(by_occupancy.begin(), by_occupancy.end(),
                   [&](uint32_t a, uint32_t b) {
                     return problem.occupancy[a] < problem.occupancy[b];
                   });
  occupancies.reserve(by_occupancy.size());
  for (uint32_t i : by_occupancy) {
    place[i] = static_cast<uint32_t>(occupancies.size());
    occupancies.push_back(problem.occupancy[i]);
  }
}

}  // namespace routepack
