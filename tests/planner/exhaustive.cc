#include "tests/planner/exhaustive.h"

#include <algorithm>
#include <numeric>

namespace routepack {

ExhaustiveSearch::ExhaustiveSearch(const PackingProblem& problem, uint32_t rows)
    : problem_(problem),
      slots_(problem.topology.num_slots()),
      shards_(problem.topology.num_shards()),
      layers_(problem.demand.num_layers),
      stages_(problem.attention.size()),
      order_(problem.num_items()),
      cells_(rows * slots_),
      items_in_row_(rows),
      items_in_shard_(shards_),
      row_shards_(rows * shards_),
      peaks_(layers_),
      floors_(layers_),
      slowest_(stages_),
      slowest_floors_(stages_),
      empty_cells_(rows * slots_) {
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return problem.occupancy[a] > problem.occupancy[b];
  });
  for (RowShard& row_shard : row_shards_) {
    row_shard.loads.resize(size_t{layers_} * problem.demand.num_ranks);
    row_shard.peaks.resize(layers_);
    row_shard.slowest.resize(stages_);
  }
  FindFloors();
}

Score ExhaustiveSearch::Optimum(const Score& upper) {
  best_ = upper;
  nodes_ = 0;
  Place(0);
  return best_;
}

void ExhaustiveSearch::FindFloors() {
  for (uint32_t l = 0; l < layers_; ++l) {
    for (uint32_t p = 0; p < problem_.demand.num_ranks; ++p) {
      int64_t load = 0;
      for (uint32_t i : order_) load += Demanded(i, l, p);
      floors_[l] = std::max(floors_[l], load);
    }
  }
  size_t largest = 0;
  for (uint32_t g = 0; g < shards_; ++g) {
    largest = std::max(largest, problem_.topology.slots_of_shard(g).size());
  }
  uint64_t tokens = 0;
  uint64_t tokens2 = 0;
  for (uint64_t t : problem_.tokens) {
    tokens += t;
    tokens2 += t * t;
  }
  // Each cell may be rounded down by a half.
  const auto slack = static_cast<int64_t>(cells_.size());
  for (size_t s = 0; s < stages_; ++s) {
    const int64_t all =
        CellCost(problem_.attention[s], tokens, tokens2, problem_.token_cap);
    slowest_floors_[s] =
        std::max<int64_t>(0, (all - slack) / static_cast<int64_t>(largest));
  }
}

void ExhaustiveSearch::Place(size_t k) {
  ++nodes_;
  // At a leaf the bound is the score.
  const Score bound = LowerBound();
  if (!(bound < best_) || order_.size() - k < empty_cells_) return;
  if (k == order_.size()) {
    best_ = bound;
    return;
  }
  for (uint32_t c = 0; c < cells_.size(); ++c) {
    if (cells_[c].occupancy + problem_.occupancy[order_[k]] >
            problem_.token_cap ||
        HasTwinBefore(c)) {
      continue;
    }
    const Cell cell = cells_[c];
    const RowShard row_shard = row_shards_[RowShardOf(c)];
    Add(order_[k], c);
    Place(k + 1);
    Remove(c, cell, row_shard);
  }
}

bool ExhaustiveSearch::HasTwinBefore(uint32_t cell) const {
  if (cells_[cell].items > 0) return false;
  const uint32_t row = cell / slots_;
  const uint32_t shard = ShardOf(cell);
  for (uint32_t c = row * slots_; c < cell; ++c) {
    if (ShardOf(c) == shard && cells_[c].items == 0) return true;
  }
  for (uint32_t r = 0; r < row; ++r) {
    if (items_in_row_[row] == 0 && items_in_row_[r] == 0) return true;
  }
  for (uint32_t g = 0; g < shard; ++g) {
    if (items_in_shard_[shard] == 0 && items_in_shard_[g] == 0 &&
        ShardSize(g) == ShardSize(shard)) {
      return true;
    }
  }
  return false;
}

void ExhaustiveSearch::Add(uint32_t item, uint32_t c) {
  Cell& cell = cells_[c];
  if (cell.items == 0) --empty_cells_;
  ++items_in_row_[c / slots_];
  ++items_in_shard_[ShardOf(c)];
  const uint64_t tokens = problem_.tokens[item];
  cell = {cell.items + 1, cell.occupancy + problem_.occupancy[item],
          cell.tokens + tokens, cell.tokens2 + tokens * tokens};
  RowShard& row_shard = row_shards_[RowShardOf(c)];
  for (size_t s = 0; s < stages_; ++s) {
    const int64_t cost = CellCost(problem_.attention[s], cell.tokens,
                                  cell.tokens2, problem_.token_cap);
    const int64_t growth = std::max<int64_t>(0, cost - row_shard.slowest[s]);
    row_shard.slowest[s] += growth;
    row_shard.cost += growth;
    slowest_[s] += growth;
  }
  for (uint32_t l = 0; l < layers_; ++l) {
    int64_t peak = 0;
    for (uint32_t p = 0; p < problem_.demand.num_ranks; ++p) {
      int64_t& load =
          row_shard.loads[size_t{l} * problem_.demand.num_ranks + p];
      load += Demanded(item, l, p);
      peak = std::max(peak, load);
    }
    const int64_t growth = peak - row_shard.peaks[l];
    row_shard.peaks[l] = peak;
    row_shard.cost += kScoreScale * growth;
    peaks_[l] += growth;
  }
}

void ExhaustiveSearch::Remove(uint32_t c, const Cell& cell,
                              const RowShard& row_shard) {
  cells_[c] = cell;
  if (cell.items == 0) ++empty_cells_;
  --items_in_row_[c / slots_];
  --items_in_shard_[ShardOf(c)];
  RowShard& now = row_shards_[RowShardOf(c)];
  for (size_t s = 0; s < stages_; ++s) {
    slowest_[s] -= now.slowest[s] - row_shard.slowest[s];
  }
  for (uint32_t l = 0; l < layers_; ++l) {
    peaks_[l] -= now.peaks[l] - row_shard.peaks[l];
  }
  now = row_shard;
}

Score ExhaustiveSearch::LowerBound() const {
  Score bound;
  for (uint32_t l = 0; l < layers_; ++l) {
    bound.total += kScoreScale * std::max(peaks_[l], floors_[l]);
  }
  for (size_t s = 0; s < stages_; ++s) {
    bound.total += std::max(slowest_[s], slowest_floors_[s]);
  }
  const auto mean = [&](size_t count) {
    const auto parts = static_cast<int64_t>(count);
    return (bound.total + parts - 1) / parts;
  };
  bound.slowest_shard = mean(shards_);
  bound.worst_row = mean(row_shards_.size());
  for (uint32_t g = 0; g < shards_; ++g) {
    int64_t cost = 0;
    for (size_t rg = g; rg < row_shards_.size(); rg += shards_) {
      cost += row_shards_[rg].cost;
      bound.worst_row = std::max(bound.worst_row, row_shards_[rg].cost);
    }
    bound.slowest_shard = std::max(bound.slowest_shard, cost);
  }
  return bound;
}

}  // namespace routepack
