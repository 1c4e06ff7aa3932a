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
  double energy() const { return energy_; }
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
  // The largest cost of a stage among the row-shard's cells, in score units,
  // and a cell that has it.
  int64_t stage_cost(uint32_t row_shard, size_t stage) const {
    return slowest(row_shard)[stage].cost[0];
  }
  uint32_t slowest_cell(uint32_t row_shard, size_t stage) const {
    return slowest(row_shard)[stage].cell[0];
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
    int64_t attention[2];  // of the row-shards of from and to
    int64_t expert[2];
    int64_t row_cost[2];
    Score score;
  };
  // The costliest cells of a row-shard and stage: of three, one is not touched
  // by a move. Cells that are missing cost nothing.
  struct Slowest {
    int64_t cost[3] = {};
    uint32_t cell[3] = {};
  };

  bool Evaluate(const Move& move, double tolerance, Outcome& outcome);
  void FindCellCosts(const Move& move, Outcome& outcome);
  int64_t AttentionAfter(uint32_t row_shard, const Move& move) const;
  double MostGrowth(uint32_t shard_a, uint32_t shard_b, double tolerance) const;
  void ScoreShards(uint32_t a, uint32_t b, Outcome& outcome) const;
  int64_t WorstRow(uint32_t a, uint32_t b, const Outcome& outcome) const;
  bool CannotAccept(const Score& score, double tolerance) const;
  void SetCosts(const Move& move);
  void FindSlowest(uint32_t row_shard, size_t stage);
  const Slowest* slowest(uint32_t row_shard) const {
    return slowest_.data() + row_shard * space_->num_stages();
  }
  void Apply(const Move& move, const Outcome& outcome);
  void MoveItems(const Move& move);
  Layout LayoutOf(const std::vector<uint32_t>& cell_of) const;

  const SearchSpace* space_;
  std::vector<uint32_t> cell_of_;             // [items]
  std::vector<uint32_t> position_;            // [items] in items_[cell]
  std::vector<std::vector<uint32_t>> items_;  // [R D]
  std::vector<uint32_t> occupancy_;           // [R D]
  std::vector<Sums> sums_;                    // [R D]
  std::vector<int64_t> cost_;                 // [R D][s] score units
  std::vector<int64_t> new_cost_;             // [from, to][s] after the move
                                              // evaluated last
  std::vector<Slowest> slowest_;              // [R G][s]
  std::vector<int64_t> attention_;            // [R G] score units
  std::vector<int64_t> expert_;               // [R G] assignments
  std::vector<int64_t> shard_cost_;           // [G] U, score units
  LaneLoads loads_;
  Score score_;
  double energy_ = 0;
  Score best_score_;
  bool at_best_ = true;                 // the best state is this one
  std::vector<uint32_t> best_cell_of_;  // else it is that
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_CHAIN_H_
