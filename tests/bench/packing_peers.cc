#include "tests/bench/packing_peers.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "planner/anneal.h"
#include "planner/bin_packing.h"
#include "planner/chain.h"
#include "planner/counter_random.h"
#include "planner/proposal.h"
#include "planner/rows.h"

namespace routepack {
namespace {

using Cells = std::vector<std::vector<uint32_t>>;

std::vector<uint64_t> Occupancies(const PackingProblem& problem,
                                  const Cells& cells) {
  std::vector<uint64_t> sums;
  for (const std::vector<uint32_t>& cell : cells) {
    uint64_t sum = 0;
    for (uint32_t i : cell) sum += problem.occupancy[i];
    sums.push_back(sum);
  }
  return sums;
}

// Moves samples between cells until the cap is met.
class CapRepair {
 public:
  CapRepair(const PackingProblem& problem, Cells& cells)
      : problem_(problem),
        cells_(cells),
        sums_(Occupancies(problem, cells)),
        random_(1) {}

  bool Run() {
    for (int round = 0; round < kRounds; ++round) {
      while (Improve()) {
      }
      if (Excess() == 0) return true;
      for (int k = 0; k < kKicks; ++k) Kick();
    }
    return false;
  }

 private:
  static constexpr int kRounds = 2000;
  static constexpr int kKicks = 20;

  // An item of `from`, and one of `to` that takes its place or none.
  struct Exchange {
    size_t from = 0;
    size_t to = 0;
    size_t item = 0;
    std::optional<size_t> back;
  };

  uint64_t Over(uint64_t sum) const {
    return sum > problem_.token_cap ? sum - problem_.token_cap : 0;
  }
  uint64_t Excess() const {
    uint64_t excess = 0;
    for (uint64_t sum : sums_) excess += Over(sum);
    return excess;
  }

  // Tokens over the cap that an exchange removes; negative: adds.
  int64_t Gain(const Exchange& x) const {
    const uint64_t leaves = problem_.occupancy[cells_[x.from][x.item]];
    const uint64_t comes =
        x.back ? problem_.occupancy[cells_[x.to][*x.back]] : 0;
    const uint64_t before = Over(sums_[x.from]) + Over(sums_[x.to]);
    const uint64_t after = Over(sums_[x.from] - leaves + comes) +
                           Over(sums_[x.to] + leaves - comes);
    return static_cast<int64_t>(before) - static_cast<int64_t>(after);
  }

  void Do(const Exchange& x) {
    std::vector<uint32_t>& from = cells_[x.from];
    std::vector<uint32_t>& to = cells_[x.to];
    const uint32_t leaves = problem_.occupancy[from[x.item]];
    sums_[x.from] -= leaves;
    sums_[x.to] += leaves;
    if (x.back) {
      const uint32_t comes = problem_.occupancy[to[*x.back]];
      sums_[x.from] += comes;
      sums_[x.to] -= comes;
      std::swap(from[x.item], to[*x.back]);
    } else {
      to.push_back(from[x.item]);
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(x.item));
    }
  }

  // The best exchange of the fullest cell; false when none helps.
  bool Improve() {
    const auto fullest = static_cast<size_t>(
        std::max_element(sums_.begin(), sums_.end()) - sums_.begin());
    if (Over(sums_[fullest]) == 0) return false;
    int64_t most = 0;
    Exchange best;
    const auto consider = [&](const Exchange& x) {
      const int64_t gain = Gain(x);
      if (gain > most) {
        most = gain;
        best = x;
      }
    };
    for (size_t item = 0; item < cells_[fullest].size(); ++item) {
      for (size_t to = 0; to < cells_.size(); ++to) {
        if (to == fullest) continue;
        if (cells_[fullest].size() > 1) {
          consider({.from = fullest, .to = to, .item = item});
        }
        for (size_t back = 0; back < cells_[to].size(); ++back) {
          consider({fullest, to, item, back});
        }
      }
    }
    if (most > 0) Do(best);
    return most > 0;
  }

  // A random swap that adds nothing to the excess.
  void Kick() {
    Exchange x;
    x.from = Below(cells_.size());
    x.to = Below(cells_.size());
    if (x.from == x.to) return;
    x.item = Below(cells_[x.from].size());
    x.back = Below(cells_[x.to].size());
    if (Gain(x) >= 0) Do(x);
  }

  size_t Below(size_t bound) { return random_.BelowAt(next_++, bound); }

  const PackingProblem& problem_;
  Cells& cells_;
  std::vector<uint64_t> sums_;
  const CounterRandom random_;
  uint64_t next_ = 0;
};

PeerLayout Repaired(const PackingProblem& problem, const Layout& length,
                    Cells cells) {
  PeerLayout out;
  const std::vector<uint64_t> sums = Occupancies(problem, cells);
  out.repaired =
      *std::max_element(sums.begin(), sums.end()) > problem.token_cap;
  out.failed = !RepairCap(problem, cells);
  out.layout =
      out.failed ? length : LayoutFromCells(length.rows, length.slots, cells);
  return out;
}

double Workload(const PackingProblem& problem, uint32_t item) {
  double alpha = 0;
  double beta = 0;
  for (const AttentionStage& stage : problem.attention) {
    alpha += stage.alpha;
    beta += stage.beta;
  }
  const uint32_t* demand = problem.demand.item(item);
  const double routed = static_cast<double>(std::accumulate(
      demand, demand + problem.demand.item_size(), uint64_t{0}));
  const double tokens = problem.tokens[item];
  return alpha * tokens + beta * tokens * tokens / problem.token_cap + routed;
}

// A partial solution: sets by decreasing sum.
struct Partition {
  struct Set {
    double sum = 0;
    std::vector<uint32_t> items;
  };
  std::vector<Set> sets;
  double spread() const { return sets.front().sum - sets.back().sum; }
};

// Largest sets of one with the smallest of the other.
Partition Combined(Partition a, const Partition& b) {
  const size_t k = a.sets.size();
  for (size_t j = 0; j < k; ++j) {
    const Partition::Set& other = b.sets[k - 1 - j];
    a.sets[j].sum += other.sum;
    a.sets[j].items.insert(a.sets[j].items.end(), other.items.begin(),
                           other.items.end());
  }
  std::stable_sort(a.sets.begin(), a.sets.end(),
                   [](const auto& x, const auto& y) { return x.sum > y.sum; });
  return a;
}

// One chain and its uniform proposals.
class PlainChain {
 public:
  PlainChain(const SearchSpace& space, const Layout& layout, int draws,
             uint64_t seed)
      : space_(space),
        chain_(space, layout),
        most_draws_(draws),
        draws_(CounterRandom(seed, 77)) {}

  void Run(uint64_t steps, double temperature) {
    Move move;
    for (uint64_t k = 0; k < steps; ++k) {
      if (!Draw(&move)) continue;
      const double tolerance =
          temperature * std::max(chain_.energy(), 1.0) * draws_.Exponential();
      chain_.Try(move, tolerance);
    }
  }

  // Calibrated as the population is.
  double FirstTemperature() {
    std::vector<double> growths;
    Move move;
    for (int k = 0; k < 2000; ++k) {
      if (!Draw(&move)) continue;
      const double growth =
          chain_.EnergyOf(chain_.ScoreAfter(move)) - chain_.energy();
      if (growth > 0) growths.push_back(growth / chain_.energy());
    }
    return routepack::FirstTemperature(growths);
  }

  Layout Best() const { return chain_.BestLayout(); }

 private:
  // False when nothing that fits was drawn.
  bool Draw(Move* move) {
    for (int k = 0; k < most_draws_; ++k) {
      move->item = draws_.Below(space_.problem.num_items());
      move->from = chain_.cell_of(move->item);
      if (draws_.Below(5) == 0) {
        move->back = chain_.nothing();
        move->to = draws_.Below(space_.cells);
      } else {
        move->back = draws_.Below(space_.problem.num_items());
        move->to = chain_.cell_of(move->back);
      }
      if (chain_.Fits(*move)) return true;
    }
    return false;
  }

  const SearchSpace& space_;
  Chain chain_;
  const int most_draws_;
  DrawStream draws_;
};

}  // namespace

bool RepairCap(const PackingProblem& problem, Cells& cells) {
  return CapRepair(problem, cells).Run();
}

PeerLayout FewestSamplesDecreasing(const PackingProblem& problem,
                                   const Layout& length) {
  Cells cells;
  std::vector<uint64_t> sums;
  for (uint32_t i : DecreasingOrder(problem.occupancy)) {
    if (cells.size() < length.num_cells()) {
      cells.push_back({i});
      sums.push_back(problem.occupancy[i]);
      continue;
    }
    size_t to = 0;
    bool fits = false;
    for (size_t c = 0; c < cells.size(); ++c) {
      if (sums[c] + problem.occupancy[i] > problem.token_cap) continue;
      if (!fits || std::pair(cells[c].size(), sums[c]) <
                       std::pair(cells[to].size(), sums[to])) {
        to = c;
        fits = true;
      }
    }
    if (!fits) {
      to = static_cast<size_t>(std::min_element(sums.begin(), sums.end()) -
                               sums.begin());
    }
    cells[to].push_back(i);
    sums[to] += problem.occupancy[i];
  }
  return Repaired(problem, length, std::move(cells));
}

PeerLayout LargestDifferencing(const PackingProblem& problem,
                               const Layout& length) {
  std::vector<Partition> partitions;
  using Entry = std::tuple<double, int64_t, size_t>;  // spread, -age, index
  std::priority_queue<Entry> queue;
  const auto push = [&](Partition partition) {
    const size_t index = partitions.size();
    queue.emplace(partition.spread(), -static_cast<int64_t>(index), index);
    partitions.push_back(std::move(partition));
  };
  for (uint32_t i = 0; i < problem.num_items(); ++i) {
    Partition partition{std::vector<Partition::Set>(length.num_cells())};
    partition.sets[0] = {Workload(problem, i), {i}};
    push(std::move(partition));
  }
  while (queue.size() > 1) {
    const size_t a = std::get<2>(queue.top());
    queue.pop();
    const size_t b = std::get<2>(queue.top());
    queue.pop();
    push(Combined(std::exchange(partitions[a], {}),
                  std::exchange(partitions[b], {})));
  }
  Cells cells;
  for (Partition::Set& set : partitions.back().sets) {
    if (!set.items.empty()) cells.push_back(std::move(set.items));
  }
  SplitToCells(problem.occupancy, length.num_cells(), cells);
  return Repaired(problem, length, std::move(cells));
}

Layout PlainAnnealing(const SearchSpace& space, const Layout& length,
                      const PlainOptions& options, uint64_t seed) {
  PlainChain plain(space, length, options.draws, seed);
  const uint64_t share = options.steps / options.levels;
  // Like the population's first level, without temperature.
  plain.Run(options.steps - share * (options.levels - 1), 0);
  const std::vector<double> temperatures = TemperatureSchedule(
      plain.FirstTemperature() * options.scale, options.levels);
  for (uint32_t level = 1; level < options.levels; ++level) {
    plain.Run(share, temperatures[level]);
  }
  return plain.Best();
}

}  // namespace routepack
