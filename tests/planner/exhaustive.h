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

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/layout.h"

namespace routepack {

class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const PackingProblem& problem, uint32_t rows);

  // The least score of any feasible layout, if it is less than `upper`, else
  // `upper`.
  Score Optimum(const Score& upper);
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
  void FindFloors();

  int64_t Demanded(uint32_t i, uint32_t l, uint32_t p) const {
    return problem_.demand.item(i)[size_t{l} * problem_.demand.stride + p];
  }

  uint32_t ShardOf(uint32_t cell) const {
    return problem_.topology.shard_of_slot(cell % slots_);
  }
  size_t ShardSize(uint32_t g) const {
    return problem_.topology.slots_of_shard(g).size();
  }

  void Place(size_t k);

  // Is there an empty cell before this one that leads to the same layouts?
  bool HasTwinBefore(uint32_t cell) const;

  uint32_t RowShardOf(uint32_t cell) const {
    return cell / slots_ * shards_ + ShardOf(cell);
  }

  void Add(uint32_t item, uint32_t c);

  void Remove(uint32_t c, const Cell& cell, const RowShard& row_shard);

  // Costs only grow as items are added, and the sums have floors; the largest
  // shard and the largest row-shard are at least the mean.
  Score LowerBound() const;

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

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_EXHAUSTIVE_H_
