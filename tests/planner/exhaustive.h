// The best score that a tiny problem allows, by depth-first branch and bound:
// what the search is held against.
//
// Items go, longest first, into every cell with room. Rows are exchangeable,
// and so are the slots of a row-shard and shards of one size: of those that are
// still empty only the first is tried. A branch ends when no completion can
// beat the best score so far; the caller gives one to begin with, and a good
// one makes all the difference. Up to about 12 items in 6 cells.
//
// Loads are summed and scores added up here in the plainest way; only the cost
// of a cell is the planner's.
//
//   const Score found = SearchLayout(...).score;
//   const bool optimal = ExhaustiveSearch(problem, rows).Optimum(found) ==
//   found;

#ifndef ROUTEPACK_TESTS_PLANNER_EXHAUSTIVE_H_
#define ROUTEPACK_TESTS_PLANNER_EXHAUSTIVE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "planner/layout.h"
#include "tests/planner/search_problems.h"

namespace routepack {

class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const PackingProblem& problem, uint32_t rows)
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

  // The least score of any feasible layout, if it is less than `upper`, else
  // `upper`.
  Score Optimum(const Score& upper) {
    best_ = upper;
    nodes_ = 0;
    Place(0);
    return best_;
  }
  uint64_t nodes() const { return nodes_; }

 private:
  struct Cell {
    uint32_t items = 0;
    uint32_t occupancy = 0;
    uint64_t tokens = 0;
    uint64_t tokens2 = 0;
  };
  struct RowShard {
    std::vector<int64_t> loads;    // [l][p]
    std::vector<int64_t> peaks;    // [l]
    std::vector<int64_t> slowest;  // [s]
    int64_t cost = 0;              // J, score units
  };

  // What the samples of the whole window cost at least, in any layout.
  void FindFloors() {
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

  int64_t Demanded(uint32_t i, uint32_t l, uint32_t p) const {
    return problem_.demand.item(i)[size_t{l} * problem_.demand.stride + p];
  }

  uint32_t ShardOf(uint32_t cell) const {
    return problem_.topology.shard_of_slot(cell % slots_);
  }
  size_t ShardSize(uint32_t g) const {
    return problem_.topology.slots_of_shard(g).size();
  }

  void Place(size_t k) {
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

  // Is there an empty cell before this one that leads to the same layouts?
  bool HasTwinBefore(uint32_t cell) const {
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

  uint32_t RowShardOf(uint32_t cell) const {
    return cell / slots_ * shards_ + ShardOf(cell);
  }

  void Add(uint32_t item, uint32_t c) {
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

  void Remove(uint32_t c, const Cell& cell, const RowShard& row_shard) {
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

  // Costs only grow as items are added, and the sums have floors; the largest
  // shard and the largest row-shard are at least the mean.
  Score LowerBound() const {
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

  const PackingProblem& problem_;
  const uint32_t slots_;
  const uint32_t shards_;
  const uint32_t layers_;
  const size_t stages_;
  std::vector<uint32_t> order_;           // items, longest first
  std::vector<Cell> cells_;               // [R D]
  std::vector<uint32_t> items_in_row_;    // [r]
  std::vector<uint32_t> items_in_shard_;  // [g]
  std::vector<RowShard> row_shards_;      // [r][g]
  std::vector<int64_t> peaks_;            // [l] sum over r, g of max_p
  std::vector<int64_t> floors_;           // [l] max_p of the window
  std::vector<int64_t> slowest_;          // [s] sum over r, g of max_d
  std::vector<int64_t> slowest_floors_;   // [s]
  size_t empty_cells_;
  Score best_;
  uint64_t nodes_ = 0;
};

// 9 to 12 samples in 4 to 6 cells of at least two rows, 4 to 6 layers, one or
// two shards, no fillers.
inline SearchCase SmallSearchCase(uint64_t seed) {
  TestRandom random(seed * 104'729 + 5);
  while (true) {
    RandomWindowOptions options{.seed = random.Below(1u << 30)};
    options.num_samples = random.Between(9, 12);
    options.num_layers = random.Between(4, 6);
    options.num_ranks = random.Between(2, 4);
    options.num_experts = options.num_ranks * random.Between(2, 3);
    options.num_slots = random.Between(1, 3);
    options.num_shards = random.Between(1, std::min(2u, options.num_slots));
    options.token_cap = random.Between(75, 140);
    options.min_tokens = 5;
    SearchCase out = MakeSearchCase(options);
    const uint32_t cells = out.length.num_cells();
    if (cells >= 4 && cells <= 6 && out.length.rows >= 2 &&
        out.problem.num_items() == out.problem.num_samples) {
      return out;
    }
  }
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_EXHAUSTIVE_H_
