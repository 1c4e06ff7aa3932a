#include "planner/chain.h"

#include <algorithm>
#include <utility>

namespace routepack {
namespace {

// Larger than any score, so that everything is evaluated to the end.
constexpr double kAnything = 0x1p60;

// No two row-shards' peaks add up to this (window.h bounds loads and layers).
constexpr double kMostPeaks = 0x1p46;

}  // namespace

Chain::Chain(const SearchSpace& space, const Layout& layout)
    : space_(&space),
      cell_of_(space.problem.num_items()),
      position_(space.problem.num_items()),
      items_(space.cells),
      occupancy_(space.cells),
      sums_(space.cells),
      cost_(space.cells * space.num_stages()),
      slowest_cell_(space.row_shards * space.num_stages()),
      attention_(space.row_shards),
      expert_(space.row_shards),
      shard_cost_(space.shards),
      loads_(space.row_shards * space.demand.item_size()),
      rest_(size_t{space.row_shards} * (space.demand.num_blocks() + 1)),
      from_cost_(space.num_stages()),
      to_cost_(space.num_stages()) {
  const PackingProblem& problem = space.problem;
  for (uint32_t c = 0; c < space.cells; ++c) {
    const uint32_t row_shard = space.row_shard_of_cell[c];
    for (uint32_t i : layout.cell(c / space.slots, c % space.slots)) {
      cell_of_[i] = c;
      position_[i] = static_cast<uint32_t>(items_[c].size());
      items_[c].push_back(i);
      occupancy_[c] += problem.occupancy[i];
      const uint64_t tokens = problem.tokens[i];
      sums_[c].tokens += tokens;
      sums_[c].tokens2 += tokens * tokens;
      space.demand.Add(i, loads(row_shard));
      for (uint32_t k = 0; k < space.demand.num_blocks(); ++k) {
        rest(row_shard)[k] += space.demand.totals(i)[k];
      }
    }
    CellCosts(sums_[c], cost_.data() + c * space.num_stages());
  }
  for (uint32_t rg = 0; rg < space.row_shards; ++rg) {
    for (uint32_t k = space.demand.num_blocks(); k-- > 0;) {
      rest(rg)[k] += rest(rg)[k + 1];
    }
    FindSlowestCells(rg);
    for (size_t s = 0; s < space.num_stages(); ++s) {
      attention_[rg] += stage_cost(rg, s);
    }
    expert_[rg] = static_cast<int64_t>(space.demand.Peaks(loads(rg)));
    shard_cost_[rg % space.shards] += row_cost(rg);
    score_.worst_row = std::max(score_.worst_row, row_cost(rg));
  }
  for (int64_t cost : shard_cost_) {
    score_.slowest_shard = std::max(score_.slowest_shard, cost);
    score_.total += cost;
  }
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
  if (!(outcome.score < score_)) {
    // Differences first: the weights would drown in rounding errors of sums.
    const double growth = EnergyOf(
        {.slowest_shard = outcome.score.slowest_shard - score_.slowest_shard,
         .total = outcome.score.total - score_.total,
         .worst_row = outcome.score.worst_row - score_.worst_row});
    if (!(growth <= tolerance)) return Verdict::kRejected;
  }
  Apply(move, outcome);
  return Verdict::kAccepted;
}

void Chain::StartTrajectory() {
  best_score_ = score_;
  at_best_ = true;
}

// False when it stopped because the move cannot be accepted.
bool Chain::Evaluate(const Move& move, double tolerance, Outcome& outcome) {
  EvaluateCells(move, outcome);
  const uint32_t a = space_->row_shard_of_cell[move.from];
  const uint32_t b = space_->row_shard_of_cell[move.to];
  outcome.attention[0] = AttentionWith(a, move);
  outcome.attention[1] = a == b ? outcome.attention[0] : AttentionWith(b, move);
  outcome.expert[0] = expert_[a];
  outcome.expert[1] = expert_[b];
  if (a != b) {
    const double growth =
        MostGrowth(a % space_->shards, b % space_->shards, tolerance);
    const double most =
        static_cast<double>(row_cost(a) + row_cost(b)) + growth -
        static_cast<double>(outcome.attention[0] + outcome.attention[1]);
    // The score is exact; one assignment more makes up for rounding here.
    const double peaks = std::min(most / kScoreScale + 1, kMostPeaks);
    if (!(peaks >= 0)) return false;
    const ExchangePeaks after = space_->demand.PeaksAfter(
        move.item, move.back, loads(a), loads(b), rest(a), rest(b),
        static_cast<uint64_t>(peaks));
    if (!after.complete) return false;
    outcome.expert[0] = static_cast<int64_t>(after.a);
    outcome.expert[1] = static_cast<int64_t>(after.b);
  }
  outcome.score = ScoreWith(a, b, outcome);
  return true;
}

void Chain::EvaluateCells(const Move& move, Outcome& outcome) {
  const std::vector<uint32_t>& tokens = space_->problem.tokens;
  const uint64_t leaves = tokens[move.item];
  const uint64_t comes = move.back == nothing() ? 0 : tokens[move.back];
  outcome.from = {sums_[move.from].tokens - leaves + comes,
                  sums_[move.from].tokens2 - leaves * leaves + comes * comes};
  outcome.to = {sums_[move.to].tokens + leaves - comes,
                sums_[move.to].tokens2 + leaves * leaves - comes * comes};
  CellCosts(outcome.from, from_cost_.data());
  CellCosts(outcome.to, to_cost_.data());
}

// At most this much may the two row-shards' costs grow, together, in a move
// that is accepted. The total s1 grows by exactly that, x, and s0 becomes at
// least the larger of the other shards and, in one shard, U + x, or in two, the
// mean (U_a + U_b + x) / 2.
double Chain::MostGrowth(uint32_t shard_a, uint32_t shard_b,
                         double tolerance) const {
  int64_t others = 0;
  for (uint32_t g = 0; g < space_->shards; ++g) {
    if (g != shard_a && g != shard_b) others = std::max(others, shard_cost_[g]);
  }
  const double share = shard_a == shard_b ? 1 : 0.5;
  const double room =
      static_cast<double>(score_.slowest_shard) -
      static_cast<double>(shard_cost_[shard_a] + shard_cost_[shard_b]) / 2;
  const double other_room = static_cast<double>(score_.slowest_shard - others);
  // s2 can fall to 0 at most.
  const double slack = tolerance + space_->weights.worst_row *
                                       static_cast<double>(score_.worst_row);
  const double by_energy =
      std::min((slack + room) / (share + space_->weights.total),
               (slack + other_room) / space_->weights.total);
  // A better score: s0 falls, or s0 stays and s1 does not grow.
  const double by_score = other_room > 0 ? room / share : 0;
  return std::max(by_energy, by_score);
}

Score Chain::ScoreWith(uint32_t a, uint32_t b, const Outcome& outcome) const {
  const int64_t cost_a = outcome.attention[0] + kScoreScale * outcome.expert[0];
  const int64_t cost_b = outcome.attention[1] + kScoreScale * outcome.expert[1];
  const int64_t growth_a = cost_a - row_cost(a);
  const int64_t growth_b = a == b ? 0 : cost_b - row_cost(b);
  Score score = {.total = score_.total + growth_a + growth_b};
  for (uint32_t g = 0; g < space_->shards; ++g) {
    int64_t cost = shard_cost_[g];
    if (g == a % space_->shards) cost += growth_a;
    if (g == b % space_->shards) cost += growth_b;
    score.slowest_shard = std::max(score.slowest_shard, cost);
  }
  for (uint32_t rg = 0; rg < space_->row_shards; ++rg) {
    const int64_t cost = rg == a ? cost_a : rg == b ? cost_b : row_cost(rg);
    score.worst_row = std::max(score.worst_row, cost);
  }
  return score;
}

// A[r,g] with the costs of the move's cells as last evaluated.
int64_t Chain::AttentionWith(uint32_t row_shard, const Move& move) const {
  const size_t num_stages = space_->num_stages();
  const bool has_from = space_->row_shard_of_cell[move.from] == row_shard;
  const bool has_to = space_->row_shard_of_cell[move.to] == row_shard;
  int64_t attention = 0;
  for (size_t s = 0; s < num_stages; ++s) {
    int64_t slowest = 0;
    if (has_from) slowest = std::max(slowest, from_cost_[s]);
    if (has_to) slowest = std::max(slowest, to_cost_[s]);
    const uint32_t cell = slowest_cell(row_shard, s);
    if (cell != move.from && cell != move.to) {
      slowest = std::max(slowest, cost_[cell * num_stages + s]);
    } else {
      for (uint32_t c : space_->cells_of_row_shard[row_shard]) {
        if (c == move.from || c == move.to) continue;
        slowest = std::max(slowest, cost_[c * num_stages + s]);
      }
    }
    attention += slowest;
  }
  return attention;
}

void Chain::FindSlowestCells(uint32_t row_shard) {
  const size_t num_stages = space_->num_stages();
  const std::vector<uint32_t>& cells = space_->cells_of_row_shard[row_shard];
  for (size_t s = 0; s < num_stages; ++s) {
    slowest_cell_[row_shard * num_stages + s] = *std::max_element(
        cells.begin(), cells.end(), [&](uint32_t a, uint32_t b) {
          return cost_[a * num_stages + s] < cost_[b * num_stages + s];
        });
  }
}

void Chain::CellCosts(const Sums& sums, int64_t* costs) const {
  for (const AttentionStage& stage : space_->problem.attention) {
    *costs++ =
        CellCost(stage, sums.tokens, sums.tokens2, space_->problem.token_cap);
  }
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
  const size_t num_stages = space_->num_stages();
  std::copy(from_cost_.begin(), from_cost_.end(),
            cost_.begin() + move.from * num_stages);
  std::copy(to_cost_.begin(), to_cost_.end(),
            cost_.begin() + move.to * num_stages);
  FindSlowestCells(a);
  if (a != b) {
    FindSlowestCells(b);
    MoveLoads(move, a, b);
  }
  shard_cost_[a % space_->shards] -= row_cost(a);
  attention_[a] = outcome.attention[0];
  expert_[a] = outcome.expert[0];
  shard_cost_[a % space_->shards] += row_cost(a);
  shard_cost_[b % space_->shards] -= row_cost(b);
  attention_[b] = outcome.attention[1];
  expert_[b] = outcome.expert[1];
  shard_cost_[b % space_->shards] += row_cost(b);
  score_ = outcome.score;
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

void Chain::MoveLoads(const Move& move, uint32_t a, uint32_t b) {
  space_->demand.Exchange(move.item, move.back, loads(a), loads(b));
  const uint64_t* leaves = space_->demand.totals(move.item);
  const uint64_t* comes = space_->demand.totals(move.back);
  uint64_t gain = 0;
  for (uint32_t k = space_->demand.num_blocks(); k-- > 0;) {
    gain += comes[k] - leaves[k];
    rest(a)[k] += gain;
    rest(b)[k] -= gain;
  }
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
