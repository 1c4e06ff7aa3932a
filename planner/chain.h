// One layout that changes move by move, with its exact score (spec 1.4): the
// state of one annealing chain.
//
// A move takes an item from one cell to another and, in a swap, one the other
// way. Only two cells and at most two row-shards change; their costs are
// computed anew from integer sums, so the score equals that of EvaluateLayout
// bit for bit. A proposal costs O(L P + R G + S D / G) at most, an accepted one
// as much again; no memory is allocated after construction but where a cell
// outgrows every earlier one. Not thread-safe; copies are independent.
//
//   Chain chain(space, layout);
//   Move move = {.item = i, .from = chain.cell_of(i), .to = c,
//                .back = chain.nothing()};
//   if (chain.Fits(move)) chain.Try(move, 0);   // keeps it when it is better

#ifndef ROUTEPACK_PLANNER_CHAIN_H_
#define ROUTEPACK_PLANNER_CHAIN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/layout.h"
#include "planner/load_lanes.h"
#include "planner/search_space.h"

namespace routepack {

struct Move {
  uint32_t item = 0;  // goes from cell `from` to cell `to`
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t back = 0;  // goes the other way; Chain::nothing(): relocation
};

class Chain {
 public:
  enum class Verdict {
    kStopped,   // rejected before its score was known
    kRejected,  // evaluated and rejected
    kAccepted,
  };

  // `layout` must be valid, and `space` outlive the chain.
  Chain(const SearchSpace& space, const Layout& layout);

  const Score& score() const { return score_; }
  double energy() const { return EnergyOf(score_); }
  double EnergyOf(const Score& score) const;
  // In the order of cells; items of a cell ascending.
  Layout layout() const { return LayoutOf(cell_of_); }

  uint32_t nothing() const { return space_->demand.nothing(); }
  uint32_t cell_of(uint32_t item) const { return cell_of_[item]; }
  std::span<const uint32_t> items_of(uint32_t cell) const {
    return items_[cell];
  }
  uint32_t occupancy(uint32_t cell) const { return occupancy_[cell]; }
  int64_t attention(uint32_t row_shard) const { return attention_[row_shard]; }
  // J[r,g] in score units.
  int64_t row_cost(uint32_t row_shard) const {
    return attention_[row_shard] + kScoreScale * expert_[row_shard];
  }
  // The cell with the largest cost of a stage.
  uint32_t slowest_cell(uint32_t row_shard, size_t stage) const {
    return slowest_cell_[row_shard * space_->num_stages() + stage];
  }

  // Its cost, in score units.
  int64_t stage_cost(uint32_t row_shard, size_t stage) const {
    return cost_[slowest_cell(row_shard, stage) * space_->num_stages() + stage];
  }

  // Both cells differ, stay within the cap and are not left empty.
  bool Fits(const Move& move) const;
  // The score after a move that fits.
  Score ScoreAfter(const Move& move);
  // Does the move (which fits) when its score is better or its energy grows by
  // at most `tolerance` >= 0.
  Verdict Try(const Move& move, double tolerance);

  // From here on the best state is remembered, beginning with this one.
  void StartTrajectory();
  const Score& best_score() const { return best_score_; }
  Layout BestLayout() const {
    return LayoutOf(at_best_ ? cell_of_ : best_cell_of_);
  }

 private:
  // What a move makes of the two cells and row-shards it touches.
  struct Sums {
    uint64_t tokens = 0;   // sum t
    uint64_t tokens2 = 0;  // sum t^2
  };
  struct Outcome {
    Sums from;
    Sums to;
    int64_t attention[2] = {};  // of the row-shards of from and to
    int64_t expert[2] = {};
    Score score;
  };

  bool Evaluate(const Move& move, double tolerance, Outcome& outcome);
  void EvaluateCells(const Move& move, Outcome& outcome);
  double MostGrowth(uint32_t shard_a, uint32_t shard_b, double tolerance) const;
  Score ScoreWith(uint32_t a, uint32_t b, const Outcome& outcome) const;
  int64_t AttentionWith(uint32_t row_shard, const Move& move) const;
  void FindSlowestCells(uint32_t row_shard);
  void CellCosts(const Sums& sums, int64_t* costs) const;
  void Apply(const Move& move, const Outcome& outcome);
  void MoveItems(const Move& move);
  void MoveLoads(const Move& move, uint32_t a, uint32_t b);
  Layout LayoutOf(const std::vector<uint32_t>& cell_of) const;

  uint32_t* loads(uint32_t row_shard) {
    return loads_.data() + row_shard * space_->demand.item_size();
  }
  uint64_t* rest(uint32_t row_shard) {
    return rest_.data() + size_t{row_shard} * (space_->demand.num_blocks() + 1);
  }

  const SearchSpace* space_;
  std::vector<uint32_t> cell_of_;             // [items]
  std::vector<uint32_t> position_;            // [items] in items_[cell]
  std::vector<std::vector<uint32_t>> items_;  // [R D]
  std::vector<uint32_t> occupancy_;           // [R D]
  std::vector<Sums> sums_;                    // [R D]
  std::vector<int64_t> cost_;                 // [R D][s] score units
  std::vector<uint32_t> slowest_cell_;        // [R G][s]
  std::vector<int64_t> attention_;            // [R G] score units
  std::vector<int64_t> expert_;               // [R G] assignments
  std::vector<int64_t> shard_cost_;           // [G] U, score units
  AlignedVector<uint32_t> loads_;             // [R G][block][p][8]
  std::vector<uint64_t> rest_;                // [R G][blocks + 1] load of
                                              // blocks from k on
  std::vector<int64_t> from_cost_;            // [s] after the last evaluation
  std::vector<int64_t> to_cost_;              // [s]
  Score score_;
  Score best_score_;
  bool at_best_ = true;                 // the best state is this one
  std::vector<uint32_t> best_cell_of_;  // else it is that
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_CHAIN_H_
