#include "planner/seed.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"

namespace routepack {
namespace {

// Fewer loads than this are not worth a task: about 10 microseconds of work.
constexpr size_t kLoadsPerTask = size_t{1} << 17;

using Loads = std::vector<uint32_t, tbb::cache_aligned_allocator<uint32_t>>;

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

  void Place(uint32_t cell) {
    const uint32_t* loads = cell_loads_.data() + cell * item_size();
    if (cell_peaks_[cell].sum == 0) {
      candidates_ = peaks_;
    } else {
      Evaluate(cell, loads);
    }
    const size_t best = Best();
    const size_t slot = best / num_shards_ * layout_.slots + EmptySlot(best);
    const std::span<const uint32_t> items =
        layout_.cell(cell / layout_.slots, cell % layout_.slots);
    cells_[slot].assign(items.begin(), items.end());
    ++taken_[best];
    peaks_[best] = candidates_[best];
    AddLoads(loads, item_size(), loads_.data() + best * item_size());
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

  size_t Best() const {
    size_t best = candidates_.size();
    std::tuple<int64_t, uint32_t, size_t, uint32_t> best_key;
    for (size_t rg = 0; rg < candidates_.size(); ++rg) {
      if (IsFull(rg)) continue;
      const std::tuple key(candidates_[rg].sum - peaks_[rg].sum,
                           candidates_[rg].largest, rg / num_shards_,
                           EmptySlot(rg));
      if (best == candidates_.size() || key < best_key) {
        best = rg;
        best_key = key;
      }
    }
    return best;
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
  std::vector<std::vector<uint32_t>> cells_;  // [r][d] result
};

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
  if (budget.Exhausted()) return layout;
  Pairing pairing(problem, layout);
  for (uint32_t cell : pairing.Order()) {
    if (budget.Exhausted()) return layout;
    pairing.Place(cell);
  }
  return pairing.Result();
}

}  // namespace routepack
