#include "planner/seed.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/partitioner.h"
#include "oneapi/tbb/task_arena.h"
#include "planner/diversity.h"

namespace routepack {
namespace {

// Fewer loads than this are not worth a task: about 10 microseconds of work.
constexpr size_t kLoadsPerTask = size_t{1} << 17;

// What random numbers are for; their streams are (seed, stream, trial).
constexpr uint64_t kBinsStream = 0x62696e73;
constexpr uint64_t kPairStream = 0x70616972;

using Loads = AlignedVector<uint32_t>;

// A place in 0 .. size-1, the k-th with weight size - k.
size_t DrawDecaying(const CounterRandom& random, uint64_t n, uint64_t size) {
  uint64_t drawn = random.BelowAt(n, size * (size + 1) / 2);
  size_t k = 0;
  while (drawn >= size - k) drawn -= size - k++;
  return k;
}

// Places cells one by one; remembers the loads of every row-shard and how many
// of its slots are taken. A shard's slots are taken in ascending order.
class Pairing {
 public:
  Pairing(const PackingProblem& problem, const Layout& layout)
      : problem_(problem),
        layout_(layout),
        num_layers_(problem.demand.num_layers),
        stride_(problem.demand.stride),
        num_shards_(problem.topology.num_shards()),
        loads_(size_t{layout.rows} * num_shards_ * item_size()),
        peaks_(size_t{layout.rows} * num_shards_),
        taken_(peaks_.size()),
        candidates_(peaks_.size()),
        cells_(layout.num_cells()) {
    SumCells();
  }

  // Cells in decreasing routed-token peak.
  std::vector<uint32_t> Order() const {
    std::vector<uint32_t> order(layout_.num_cells());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return cell_peaks_[a].sum > cell_peaks_[b].sum;
    });
    return order;
  }

  // Draws from the `width` best places; random number n decides.
  void Place(uint32_t cell, uint32_t width, const CounterRandom& random,
             uint64_t n) {
    const uint32_t* loads = cell_loads_.data() + cell * item_size();
    if (cell_peaks_[cell].sum == 0) {
      candidates_ = peaks_;
    } else {
      Evaluate(cell, loads);
    }
    RankOpen(width);
    const size_t rg = ranking_[DrawDecaying(
        random, n, std::min<size_t>(width, ranking_.size()))];
    const size_t slot = rg / num_shards_ * layout_.slots + EmptySlot(rg);
    const std::span<const uint32_t> items =
        layout_.cell(cell / layout_.slots, cell % layout_.slots);
    cells_[slot].assign(items.begin(), items.end());
    ++taken_[rg];
    peaks_[rg] = candidates_[rg];
    AddLoads(loads, item_size(), loads_.data() + rg * item_size());
  }

  Layout Result() const {
    return LayoutFromCells(layout_.rows, layout_.slots, cells_);
  }

 private:
  size_t item_size() const { return problem_.demand.item_size(); }

  // The peaks of every row-shard with this cell in it.
  void Evaluate(uint32_t cell, const uint32_t* loads) {
    const size_t per_task = std::max<size_t>(1, kLoadsPerTask / item_size());
    tbb::parallel_for(
        tbb::blocked_range<size_t>(0, candidates_.size(), per_task),
        [&](const tbb::blocked_range<size_t>& range) {
          for (size_t rg = range.begin(); rg < range.end(); ++rg) {
            if (IsFull(rg)) continue;
            candidates_[rg] = taken_[rg] == 0
                                  ? cell_peaks_[cell]
                                  : PeaksOfSum(loads_.data() + rg * item_size(),
                                               loads, num_layers_, stride_);
          }
        },
        tbb::simple_partitioner());
  }

  void SumCells() {
    const uint32_t num_cells = layout_.num_cells();
    const Loads nothing(item_size());
    cell_loads_.resize(num_cells * item_size());
    cell_peaks_.resize(num_cells);
    tbb::parallel_for(uint32_t{0}, num_cells, [&](uint32_t c) {
      uint32_t* loads = cell_loads_.data() + c * item_size();
      for (uint32_t i : layout_.cell(c / layout_.slots, c % layout_.slots)) {
        AddLoads(problem_.demand.item(i), item_size(), loads);
      }
      cell_peaks_[c] = PeaksOfSum(loads, nothing.data(), num_layers_, stride_);
    });
  }

  std::span<const uint32_t> SlotsOf(size_t row_shard) const {
    return problem_.topology.slots_of_shard(
        static_cast<uint32_t>(row_shard % num_shards_));
  }
  bool IsFull(size_t row_shard) const {
    return taken_[row_shard] == SlotsOf(row_shard).size();
  }
  uint32_t EmptySlot(size_t row_shard) const {
    return SlotsOf(row_shard)[taken_[row_shard]];
  }

  // The row-shards with an empty slot; the first `width` are the best, sorted.
  void RankOpen(uint32_t width) {
    ranking_.clear();
    for (uint32_t rg = 0; rg < candidates_.size(); ++rg) {
      if (!IsFull(rg)) ranking_.push_back(rg);
    }
    const auto key = [&](uint32_t rg) {
      return std::tuple(candidates_[rg].sum - peaks_[rg].sum,
                        candidates_[rg].largest, rg / num_shards_,
                        EmptySlot(rg));
    };
    std::partial_sort(
        ranking_.begin(),
        ranking_.begin() + std::min<size_t>(width, ranking_.size()),
        ranking_.end(),
        [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  }

  const PackingProblem& problem_;
  const Layout& layout_;
  const uint32_t num_layers_;
  const uint32_t stride_;
  const uint32_t num_shards_;
  Loads cell_loads_;                          // [cell][l][stride]
  std::vector<LoadPeaks> cell_peaks_;         // [cell]
  Loads loads_;                               // [r][g][l][stride]
  std::vector<LoadPeaks> peaks_;              // [r][g] of loads_
  std::vector<uint32_t> taken_;               // [r][g] slots
  std::vector<LoadPeaks> candidates_;         // [r][g] with the cell at hand
  std::vector<uint32_t> ranking_;             // row-shards, see RankOpen
  std::vector<std::vector<uint32_t>> cells_;  // [r][d] result
};

// Draws again and again from the first `width` that remain.
void WindowShuffle(uint32_t width, const CounterRandom& random,
                   std::vector<uint32_t>& order) {
  for (size_t k = 0; k < order.size(); ++k) {
    const auto next = order.begin() + k;
    const auto drawn =
        next + random.BelowAt(k, std::min<size_t>(width, order.size() - k));
    std::rotate(next, drawn, drawn + 1);
  }
}

// A layout to choose from, in canonical form.
struct Candidate {
  bool tried = false;
  Layout layout;  // no rows: not feasible
  Score score;
};

Candidate Scored(const PackingProblem& problem, const Layout& layout) {
  Layout canonical = Canonicalize(problem, layout);
  const Score score = EvaluateLayout(problem, canonical).score;
  return {.tried = true, .layout = std::move(canonical), .score = score};
}

Candidate Trial(const PackingProblem& problem, const Layout& length,
                uint32_t width, uint64_t seed, uint32_t trial,
                const Budget& budget) {
  const Bins bins = RandomizedBins(problem, length.num_cells(), width,
                                   CounterRandom(seed, kBinsStream, trial));
  if (bins.empty()) return {.tried = true};
  return Scored(problem,
                RandomizedEdpAwarePair(
                    problem, LayoutFromCells(length.rows, length.slots, bins),
                    width, CounterRandom(seed, kPairStream, trial), budget));
}

// Number 0 is x_length, 1 its pairing, the others are trials. No more at once
// than have the loads that pairing holds in as many bytes as the demand.
std::vector<Candidate> MakeCandidates(const PackingProblem& problem,
                                      const Layout& length,
                                      const SeedOptions& options, uint64_t seed,
                                      const Budget& budget) {
  std::vector<Candidate> candidates(std::max(options.candidates, 2u));
  const auto make = [&](uint32_t k) -> Candidate {
    if (k == 0) return Scored(problem, length);
    if (k == 1) return Scored(problem, EdpAwarePair(problem, length, budget));
    if (budget.Exhausted()) return {};
    return Trial(problem, length, options.choice_width, seed, k - 2, budget);
  };
  const auto count = static_cast<uint32_t>(candidates.size());
  const uint32_t pairing =
      length.num_cells() + length.rows * problem.topology.num_shards();
  const uint32_t at_once = std::max(problem.num_items() / pairing, 1u);
  for (uint32_t first = 0; first < count; first += at_once) {
    // Isolated, so that a thread that waits inside one candidate for others
    // does not begin another, which takes memory.
    tbb::parallel_for(
        tbb::blocked_range<uint32_t>(first, std::min(first + at_once, count),
                                     1),
        [&](const tbb::blocked_range<uint32_t>& range) {
          for (uint32_t k = range.begin(); k < range.end(); ++k) {
            tbb::this_task_arena::isolate([&] { candidates[k] = make(k); });
          }
        },
        tbb::simple_partitioner());
  }
  return candidates;
}

}  // namespace

Layout LengthLayout(const PackingProblem& problem, uint32_t rows, Bins bins) {
  const uint32_t slots = problem.topology.num_slots();
  const uint64_t num_cells = uint64_t{rows} * slots;
  const uint32_t num_fillers = problem.num_items() - problem.num_samples;
  if (bins.size() + num_fillers > num_cells ||
      num_cells > problem.num_items()) {
    std::fprintf(stderr,
                 "LengthLayout: %zu bins and %u fillers do not make %llu cells "
                 "of %u items\n",
                 bins.size(), num_fillers,
                 static_cast<unsigned long long>(num_cells),
                 problem.num_items());
    std::abort();
  }
  SplitToCells(std::span(problem.occupancy).first(problem.num_samples),
               static_cast<uint32_t>(num_cells - num_fillers), bins);
  for (uint32_t i = problem.num_samples; i < problem.num_items(); ++i) {
    bins.push_back({i});
  }
  return LayoutFromCells(rows, slots, bins);
}

Layout EdpAwarePair(const PackingProblem& problem, const Layout& layout,
                    const Budget& budget) {
  return RandomizedEdpAwarePair(problem, layout, 1, CounterRandom(0), budget);
}

Layout RandomizedEdpAwarePair(const PackingProblem& problem,
                              const Layout& layout, uint32_t width,
                              const CounterRandom& random,
                              const Budget& budget) {
  if (budget.Exhausted()) return layout;
  Pairing pairing(problem, layout);
  uint64_t n = 0;
  for (uint32_t cell : pairing.Order()) {
    if (budget.Exhausted()) return layout;
    pairing.Place(cell, width, random, n++);
  }
  return pairing.Result();
}

Bins RandomizedBins(const PackingProblem& problem, uint32_t num_cells,
                    uint32_t width, const CounterRandom& random) {
  std::vector<uint32_t> order = DecreasingOrder(problem.occupancy);
  WindowShuffle(width, random, order);

  Bins bins(num_cells);
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>>
      cells;  // room, items, cell
  for (uint32_t c = 0; c < num_cells; ++c) {
    bins[c].push_back(order[c]);
    cells.emplace(problem.token_cap - problem.occupancy[order[c]], 1, c);
  }
  for (size_t k = num_cells; k < order.size(); ++k) {
    const uint32_t size = problem.occupancy[order[k]];
    auto chosen = cells.lower_bound({size, 0, 0});
    uint64_t fitting = 0;
    for (auto it = chosen; it != cells.end() && fitting < width; ++it) {
      ++fitting;
    }
    if (fitting == 0) return {};
    // Numbers before belong to the shuffle.
    std::advance(chosen, random.BelowAt(order.size() + k, fitting));
    auto node = cells.extract(chosen);
    auto& [room, count, cell] = node.value();
    bins[cell].push_back(order[k]);
    room -= size;
    ++count;
    cells.insert(std::move(node));
  }
  return bins;
}

size_t SeedPool::best() const {
  return std::min_element(scores.begin(), scores.end()) - scores.begin();
}

SeedPool MakeSeeds(const PackingProblem& problem, const Layout& length,
                   const SeedOptions& options, uint64_t seed,
                   const Budget& budget) {
  std::vector<Candidate> candidates =
      MakeCandidates(problem, length, options, seed, budget);
  SeedPool pool{.length_score = candidates[0].score,
                .paired_score = candidates[1].score};
  const auto before = [&](size_t a, size_t b) {
    const Candidate& x = candidates[a];
    const Candidate& y = candidates[b];
    return std::tie(x.score, x.layout.cell_begin, x.layout.items) <
           std::tie(y.score, y.layout.cell_begin, y.layout.items);
  };
  std::set<size_t, decltype(before)> distinct(before);
  std::vector<size_t> kept;
  for (size_t k = 0; k < candidates.size(); ++k) {
    const Candidate& candidate = candidates[k];
    if (k >= 2) {
      pool.trials += candidate.tried;
      pool.aborted += candidate.tried && candidate.layout.rows == 0;
    }
    if (candidate.layout.rows == 0) continue;
    if (k == 1 && pool.length_score < pool.paired_score) continue;
    if (distinct.insert(k).second) kept.push_back(k);
  }
  for (size_t k : kept) {
    pool.layouts.push_back(std::move(candidates[k].layout));
    pool.scores.push_back(candidates[k].score);
  }
  return pool;
}

}  // namespace routepack
