// What all chains of one search share; immutable.

#ifndef ROUTEPACK_PLANNER_SEARCH_SPACE_H_
#define ROUTEPACK_PLANNER_SEARCH_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/layout.h"
#include "planner/load_lanes.h"

namespace routepack {

// The scalar that annealing lowers: s0 + total s1 + worst s2 (spec 1.4). The
// paper's weights are 1e-6 and 1e-9. With a weight as small as that on the sum
// of the shards, all but the slowest shard wander as at infinite temperature,
// so here the mean shard counts as much as the slowest (choice, measured on
// `flash`: 90 % of the excess over the bound closed instead of 87 %). With one
// shard the two are the same.
struct EnergyWeights {
  double total = 0;
  double worst_row = 1e-9;

  static EnergyWeights MeanShard(uint32_t num_shards) {
    return {.total = 1.0 / num_shards};
  }
  static EnergyWeights Paper() { return {.total = 1e-6}; }
};

class SearchSpace {
 public:
  // O(N L P). `problem` must outlive the space.
  SearchSpace(const PackingProblem& packing_problem, uint32_t num_rows);

  size_t num_stages() const { return num_stages_; }
  std::span<const uint32_t> cells_of(uint32_t row_shard) const {
    return std::span(cells_by_row_shard)
        .subspan(first_cell[row_shard],
                 first_cell[row_shard + 1] - first_cell[row_shard]);
  }
  // g of r G + g.
  uint32_t shard_of(uint32_t row_shard) const {
    return shard_of_row_shard[row_shard];
  }
  // Items whose occupancy is at most `most`: the first so many by_occupancy.
  uint32_t ItemsUpTo(uint64_t most) const;

  const PackingProblem& problem;
  uint32_t rows;
  uint32_t slots;
  uint32_t cells;       // R D
  uint32_t shards;      // G
  uint32_t row_shards;  // R G
  LaneDemand demand;
  EnergyWeights weights;
  std::vector<uint32_t> row_shard_of_cell;   // [R D] r G + g
  std::vector<uint32_t> shard_of_row_shard;  // [R G]
  std::vector<uint32_t> cells_by_row_shard;  // [R D]
  std::vector<uint32_t> first_cell;          // [R G + 1] index in it
  std::vector<uint32_t> by_occupancy;  // items, ascending; ties: lower item
  std::vector<uint32_t> occupancies;   // of by_occupancy
  std::vector<uint32_t> place;         // [items] index in by_occupancy

 private:
  size_t num_stages_;
  // [buckets + 1] items whose occupancy is below b << bucket_shift_.
  std::vector<uint32_t> items_below_;
  int bucket_shift_ = 0;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_SEARCH_SPACE_H_
