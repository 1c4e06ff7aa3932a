#include "planner/chain.h"

#include <algorithm>
#include <utility>

namespace routepack {
namespace {

// Larger than any score, so that everything is evaluated to the end.
constexpr double kAnything = 0x1p60;

// No two row-shards' peaks add up to this (window.h bounds loads and layers).
constexpr double kMostPeaks = 0x1p46;

// [items]
std::vector<uint32_t> RowShards(const SearchSpace& space,
                                const Layout& layout) {
  std::vector<uint32_t> row_shards(space.problem.num_items());
  for (uint32_t c = 0; c < space.cells; ++c) {
    for (uint32_t i : layout.cell(c / space.slots, c % space.slots)) {
      row_shards[i] = space.row_shard_of_cell[c];
    }
  }
  return row_shards;
}

}  // namespace

Chain::Chain(const SearchSpace& space, const Layout& layout)
    : space_(&space),
      cell_of_(space.problem.num_items()),
      position_(space.problem.num_items()),
      items_(space.cells),
      occupancy_(space.cells),
      sums_(space.cells),
      cost_(space.cells * space.num_stages()),
      new_cost_(2 * space.num_stages()),
      slowest_(space.row_shards * space.num_stages()),
      attention_(space.row_shards),
      expert_(space.row_shards),
      shard_cost_(space.shards),
      loads_(space.demand, space.row_shards, RowShards(space, layout)) {
  const PackingProblem& problem = space.problem;
  for (uint32_t c = 0; c < space.cells; ++c) {
    for (uint32_t i : layout.cell(c / space.slots, c % space.slots)) {
      cell_of_[i] = c;
      position_[i] = static_cast<uint32_t>(items_[c].size());
      items_[c].push_back(i);
      occupancy_[c] += problem.occupancy[i];
      const uint64_t tokens = problem.tokens[i];
      sums_[c].tokens += tokens;
      sums_[c].tokens2 += tokens * tokens;
    }
    CellCosts(problem.attention, sums_[c].tokens, sums_[c].tokens2,
              problem.token_cap, cost_.data() + c * space.num_stages());
  }
  for (uint32_t rg = 0; rg < space.row_shards; ++rg) {
    for (size_t stage = 0; stage < space.num_stages(); ++stage) {
      FindSlowest(rg, stage);
      attention_[rg] += stage_cost(rg, stage);
    }
    expert_[rg] = static_cast<int64_t>(loads_.Peaks(rg));
    shard_cost_[rg % space.shards] += row_cost(rg);
    score_.worst_row = std::max(score_.worst_row, row_cost(rg));
  }
  for (int64_t cost : shard_cost_) {
    score_.slowest_shard = std::max(score_.slowest_shard, cost);
    score_.total += cost;
  }
  energy_ = EnergyOf(score_);
  StartTrajectory();
}

double Chain::EnergyOf(const Score& score) const {
  return static_cast<double>(score.slowest_shard) +
         space_->weights.total * static_cast<double>(score.total) +
         space_->weights.worst_row * static_cast<double>(score.worst_row);
}

bool Chain::Fits(const Move& move) const {
  if (move.from == move.to) return false;
  const std::vector<uint32_t>& occupancy = space_->problem.occupancy;
  const uint64_t leaves = occupancy[move.item];
  if (move.back == nothing()) {
    return items_[move.from].size() > 1 &&
           occupancy_[move.to] + leaves <= space_->problem.token_cap;
  }
  const uint64_t comes = occupancy[move.back];
  return occupancy_[move.from] - leaves + comes <= space_->problem.token_cap &&
         occupancy_[move.to] - comes + leaves <= space_->problem.token_cap;
}

Score Chain::ScoreAfter(const Move& move) {
  Outcome outcome;
  Evaluate(move, kAnything, outcome);
  return outcome.score;
}

Chain::Verdict Chain::Try(const Move& move, double tolerance) {
  Outcome outcome;
  if (!Evaluate(move, tolerance, outcome)) return Verdict::kStopped;
  if (CannotAccept(outcome.score, tolerance)) return Verdict::kRejected;
  Apply(move, outcome);
  return Verdict::kAccepted;
}

// Neither better nor within the tolerance.
bool Chain::CannotAccept(const Score& score, double tolerance) const {
  if (score < score_) return false;
  // Differences first: the weights would drown in rounding errors of sums.
  const double growth =
      EnergyOf({.slowest_shard = score.slowest_shard - score_.slowest_shard,
                .total = score.total - score_.total,
                .worst_row = score.worst_row - score_.worst_row});
  return !(growth <= tolerance);
}

void Chain::StartTrajectory() {
  best_score_ = score_;
  at_best_ = true;
}

// False when it stopped because the move cannot be accepted.
bool Chain::Evaluate(const Move& move, double tolerance, Outcome& outcome) {
  FindCellCosts(move, outcome);
  const uint32_t a = space_->row_shard_of_cell[move.from];
  const uint32_t b = space_->row_shard_of_cell[move.to];
  outcome.attention[0] = AttentionAfter(a, move);
  outcome.attention[1] = AttentionAfter(b, move);
  outcome.expert[0] = expert_[a];
  outcome.expert[1] = expert_[b];
  if (a != b) {
    const double growth =
        MostGrowth(space_->shard_of(a), space_->shard_of(b), tolerance);
    const double most =
        static_cast<double>(row_cost(a) + row_cost(b)) + growth -
        static_cast<double>(outcome.attention[0] + outcome.attention[1]);
    // The score is exact; one assignment more makes up for rounding here.
    const double peaks = std::min(most / kScoreScale + 1, kMostPeaks);
    if (!(peaks >= 0)) return false;
    const ExchangePeaks after = loads_.PeaksAfter(move.item, move.back, a, b,
                                                  static_cast<uint64_t>(peaks));
    if (!after.complete) return false;
    outcome.expert[0] = static_cast<int64_t>(after.a);
    outcome.expert[1] = static_cast<int64_t>(after.b);
  }
  outcome.row_cost[0] = outcome.attention[0] + kScoreScale * outcome.expert[0];
  outcome.row_cost[1] = outcome.attention[1] + kScoreScale * outcome.expert[1];
  ScoreShards(a, b, outcome);
  outcome.score.worst_row = WorstRow(a, b, outcome);
  return true;
}

void Chain::FindCellCosts(const Move& move, Outcome& outcome) {
  const PackingProblem& problem = space_->problem;
  const uint64_t leaves = problem.tokens[move.item];
  const uint64_t comes = move.back == nothing() ? 0 : problem.tokens[move.back];
  const uint64_t leaves2 = leaves * leaves;
  const uint64_t comes2 = comes * comes;
  outcome.from = {sums_[move.from].tokens - leaves + comes,
                  sums_[move.from].tokens2 - leaves2 + comes2};
  outcome.to = {sums_[move.to].tokens + leaves - comes,
                sums_[move.to].tokens2 + leaves2 - comes2};
  CellCosts(problem.attention, outcome.from.tokens, outcome.from.tokens2,
            problem.token_cap, new_cost_.data());
  CellCosts(problem.attention, outcome.to.tokens, outcome.to.tokens2,
            problem.token_cap, new_cost_.data() + space_->num_stages());
}

// A[r,g] after the move, whose cells have new_cost_.
int64_t Chain::AttentionAfter(uint32_t row_shard, const Move& move) const {
  const size_t num_stages = space_->num_stages();
  const int64_t* from_cost = new_cost_.data();
  const int64_t* to_cost = from_cost + num_stages;
  const bool has_from = space_->row_shard_of_cell[move.from] == row_shard;
  const bool has_to = space_->row_shard_of_cell[move.to] == row_shard;
  const Slowest* stages = slowest(row_shard);
  int64_t attention = 0;
  for (size_t s = 0; s < num_stages; ++s) {
    const Slowest& now = stages[s];
    const auto touched = [&](int k) {
      return (now.cell[k] == move.from) | (now.cell[k] == move.to);
    };
    int64_t cost = touched(1) ? now.cost[2] : now.cost[1];
    cost = touched(0) ? cost : now.cost[0];
    cost = std::max(cost, has_from ? from_cost[s] : 0);
    cost = std::max(cost, has_to ? to_cost[s] : 0);
    attention += cost;
  }
  return attention;
}

// At most this much may the two row-shards' costs grow, together, in a move
// that is accepted. The total s1 grows by exactly that, x, and s0 becomes at
// least the larger of the other shards and, in one shard, U + x, or in two, the
// mean (U_a + U_b + x) / 2.
double Chain::MostGrowth(uint32_t shard_a, uint32_t shard_b,
                         double tolerance) const {
  int64_t others = 0;
  for (uint32_t g = 0; g < space_->shards; ++g) {
    const bool other = (g != shard_a) & (g != shard_b);
    others = std::max(others, other ? shard_cost_[g] : 0);
  }
  const double shares = shard_a == shard_b ? 1 : 2;  // 1 over the share
  const double room =
      static_cast<double>(score_.slowest_shard) -
      static_cast<double>(shard_cost_[shard_a] + shard_cost_[shard_b]) * 0.5;
  const double other_room = static_cast<double>(score_.slowest_shard - others);
  // s2 can fall to 0 at most.
  const double slack = tolerance + space_->weights.worst_row *
                                       static_cast<double>(score_.worst_row);
  const double total = space_->weights.total;
  const double by_energy = std::min((slack + room) / (1 / shares + total),
                                    (slack + other_room) / total);
  // A better score: s0 falls, or s0 stays and s1 does not grow.
  const double by_score = other_room > 0 ? room * shares : 0;
  return std::max(by_energy, by_score);
}

// s0 and s1.
void Chain::ScoreShards(uint32_t a, uint32_t b, Outcome& outcome) const {
  const int64_t growth_a = outcome.row_cost[0] - row_cost(a);
  const int64_t growth_b = a == b ? 0 : outcome.row_cost[1] - row_cost(b);
  outcome.score.total = score_.total + growth_a + growth_b;
  outcome.score.slowest_shard = 0;
  for (uint32_t g = 0; g < space_->shards; ++g) {
    const int64_t cost = shard_cost_[g] +
                         (g == space_->shard_of(a) ? growth_a : 0) +
                         (g == space_->shard_of(b) ? growth_b : 0);
    outcome.score.slowest_shard = std::max(outcome.score.slowest_shard, cost);
  }
}

// s2.
int64_t Chain::WorstRow(uint32_t a, uint32_t b, const Outcome& outcome) const {
  int64_t worst = std::max(outcome.row_cost[0], outcome.row_cost[1]);
  for (uint32_t rg = 0; rg < space_->row_shards; ++rg) {
    worst = std::max(worst, rg == a || rg == b ? 0 : row_cost(rg));
  }
  return worst;
}

// Gives the cells of the move new_cost_.
void Chain::SetCosts(const Move& move) {
  const size_t num_stages = space_->num_stages();
  const int64_t* cost = new_cost_.data();
  for (uint32_t cell : {move.from, move.to}) {
    const uint32_t row_shard = space_->row_shard_of_cell[cell];
    for (size_t s = 0; s < num_stages; ++s) {
      const Slowest& now = slowest(row_shard)[s];
      cost_[cell * num_stages + s] = *cost;
      if (*cost > now.cost[2] || cell == now.cell[0] || cell == now.cell[1] ||
          cell == now.cell[2]) {
        FindSlowest(row_shard, s);
      }
      ++cost;
    }
  }
}

void Chain::FindSlowest(uint32_t row_shard, size_t stage) {
  const size_t num_stages = space_->num_stages();
  Slowest found;
  found.cell[0] = space_->cells_of(row_shard).front();
  for (uint32_t cell : space_->cells_of(row_shard)) {
    const int64_t cost = cost_[cell * num_stages + stage];
    if (cost <= found.cost[2]) continue;
    found.cost[2] = cost;
    found.cell[2] = cell;
    for (int k = 2; k > 0 && found.cost[k] > found.cost[k - 1]; --k) {
      std::swap(found.cost[k], found.cost[k - 1]);
      std::swap(found.cell[k], found.cell[k - 1]);
    }
  }
  slowest_[row_shard * num_stages + stage] = found;
}

void Chain::Apply(const Move& move, const Outcome& outcome) {
  if (at_best_ && !(outcome.score < score_)) {
    best_cell_of_ = cell_of_;
    at_best_ = false;
  }
  const uint32_t a = space_->row_shard_of_cell[move.from];
  const uint32_t b = space_->row_shard_of_cell[move.to];
  MoveItems(move);
  sums_[move.from] = outcome.from;
  sums_[move.to] = outcome.to;
  SetCosts(move);
  if (a != b) loads_.Exchange(move.item, move.back, a, b);
  shard_cost_[space_->shard_of(a)] -= row_cost(a);
  attention_[a] = outcome.attention[0];
  expert_[a] = outcome.expert[0];
  shard_cost_[space_->shard_of(a)] += row_cost(a);
  shard_cost_[space_->shard_of(b)] -= row_cost(b);
  attention_[b] = outcome.attention[1];
  expert_[b] = outcome.expert[1];
  shard_cost_[space_->shard_of(b)] += row_cost(b);
  score_ = outcome.score;
  energy_ = EnergyOf(score_);
  if (score_ < best_score_) {
    best_score_ = score_;
    at_best_ = true;
  }
}

void Chain::MoveItems(const Move& move) {
  const std::vector<uint32_t>& occupancy = space_->problem.occupancy;
  occupancy_[move.from] -= occupancy[move.item];
  occupancy_[move.to] += occupancy[move.item];
  cell_of_[move.item] = move.to;
  std::vector<uint32_t>& from = items_[move.from];
  std::vector<uint32_t>& to = items_[move.to];
  if (move.back == nothing()) {
    const uint32_t last = from.back();
    from[position_[move.item]] = last;
    position_[last] = position_[move.item];
    from.pop_back();
    position_[move.item] = static_cast<uint32_t>(to.size());
    to.push_back(move.item);
    return;
  }
  occupancy_[move.from] += occupancy[move.back];
  occupancy_[move.to] -= occupancy[move.back];
  cell_of_[move.back] = move.from;
  from[position_[move.item]] = move.back;
  to[position_[move.back]] = move.item;
  std::swap(position_[move.item], position_[move.back]);
}

Layout Chain::LayoutOf(const std::vector<uint32_t>& cell_of) const {
  Layout layout = {.rows = space_->rows, .slots = space_->slots};
  layout.cell_begin.assign(space_->cells + 1, 0);
  for (uint32_t cell : cell_of) ++layout.cell_begin[cell + 1];
  for (uint32_t c = 0; c < space_->cells; ++c) {
    layout.cell_begin[c + 1] += layout.cell_begin[c];
  }
  layout.items.resize(cell_of.size());
  std::vector<uint32_t> next = layout.cell_begin;
  for (uint32_t i = 0; i < cell_of.size(); ++i) {
    layout.items[next[cell_of[i]]++] = i;
  }
  return layout;
}

}  // namespace routepack
