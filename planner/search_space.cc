#include "planner/search_space.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace routepack {
namespace {

// Few items share a bucket, and the table stays in the first cache.
constexpr uint32_t kBuckets = 1024;

}  // namespace

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
      first_cell(row_shards + 1),
      by_occupancy(problem.num_items()),
      place(problem.num_items()),
      num_stages_(problem.attention.size()) {
  for (uint32_t c = 0; c < cells; ++c) {
    row_shard_of_cell[c] =
        c / slots * shards + problem.topology.shard_of_slot(c % slots);
  }
  cells_by_row_shard.reserve(cells);
  for (uint32_t rg = 0; rg < row_shards; ++rg) {
    shard_of_row_shard.push_back(rg % shards);
    for (uint32_t d : problem.topology.slots_of_shard(rg % shards)) {
      cells_by_row_shard.push_back(rg / shards * slots + d);
    }
    first_cell[rg + 1] = static_cast<uint32_t>(cells_by_row_shard.size());
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
  bucket_shift_ =
      std::max(0, static_cast<int>(std::bit_width(problem.token_cap)) -
                      static_cast<int>(std::bit_width(kBuckets - 1)));
  const uint32_t buckets = (problem.token_cap >> bucket_shift_) + 2;
  for (uint64_t b = 0; b < buckets; ++b) {
    items_below_.push_back(static_cast<uint32_t>(
        std::lower_bound(occupancies.begin(), occupancies.end(),
                         b << bucket_shift_) -
        occupancies.begin()));
  }
}

uint32_t SearchSpace::ItemsUpTo(uint64_t most) const {
  const uint64_t bucket = most >> bucket_shift_;
  if (bucket + 1 >= items_below_.size()) {
    return static_cast<uint32_t>(occupancies.size());
  }
  // Without branches, which would be mispredicted half of the time.
  const uint32_t* first = occupancies.data() + items_below_[bucket];
  uint32_t size = items_below_[bucket + 1] - items_below_[bucket];
  while (size > 0) {
    const uint32_t half = (size + 1) / 2;
    first += first[half - 1] <= most ? half : 0;
    size -= half;
  }
  return static_cast<uint32_t>(first - occupancies.data());
}

}  // namespace routepack
