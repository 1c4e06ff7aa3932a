#include "planner/row_aware.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "oneapi/tbb/parallel_for.h"
#include "planner/anneal.h"
#include "planner/counter_random.h"
#include "planner/demand.h"
#include "planner/multiversion.h"
#include "planner/proposal.h"

namespace routepack {
namespace {

constexpr uint32_t kLanes = 8;

using Lanes = uint32_t __attribute__((vector_size(4 * kLanes)));
using HalfLanes = uint32_t __attribute__((vector_size(2 * kLanes)));
using WideLanes = uint64_t __attribute__((vector_size(4 * kLanes)));

[[gnu::always_inline]] inline Lanes Load(const uint32_t* from) {
  Lanes value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
[[gnu::always_inline]] inline Lanes Max(const Lanes& a, const Lanes& b) {
  return a > b ? a : b;
}

// sum_k max(others_k, a_k - out_k + in_k, b_k - in_k + out_k), over row-shards:
// the peaks when rank a gives an expert's loads `out` for rank b's `in`.
ROUTEPACK_MULTIVERSION
int64_t PeaksAfter(const uint32_t* others, const uint32_t* a, const uint32_t* b,
                   const uint32_t* out, const uint32_t* in, size_t size) {
  WideLanes sum{};
  for (size_t k = 0; k < size; k += kLanes) {
    const Lanes gain = Load(in + k) - Load(out + k);
    const Lanes peaks =
        Max(Load(others + k), Max(Load(a + k) + gain, Load(b + k) - gain));
    HalfLanes halves[2];
    std::memcpy(halves, &peaks, sizeof(peaks));
    sum += __builtin_convertvector(halves[0], WideLanes) +
           __builtin_convertvector(halves[1], WideLanes);
  }
  return static_cast<int64_t>(sum[0] + sum[1] + sum[2] + sum[3]);
}

// into[k] = max(into[k], from[k]).
ROUTEPACK_MULTIVERSION
void RaiseTo(const uint32_t* from, size_t size, uint32_t* into) {
  for (size_t k = 0; k < size; k += kLanes) {
    const Lanes higher = Max(Load(from + k), Load(into + k));
    std::memcpy(into + k, &higher, sizeof(higher));
  }
}

constexpr uint64_t kExchangeStream = 0x30;
constexpr uint32_t kLevels = 16;
constexpr double kFirstTemperature = 0.3;  // over the typical growth
constexpr int kCalibrationDraws = 200;
constexpr double kLeastGain = 1e-6;  // assignments, of a single exchange

// The window's loads by row-shard; [.] is a row of `size` values, padded with
// zeros.
class LayerRefiner {
 public:
  LayerRefiner(const Window& window, const std::vector<uint32_t>& row_shard_of,
               uint32_t row_shards, uint32_t layer, const SlotPrice& price,
               std::span<uint32_t> expert_of_slot)
      : layer_(layer),
        num_experts_(window.num_experts()),
        num_ranks_(window.spec().topology.num_ranks()),
        slots_per_rank_(num_experts_ / num_ranks_),
        size_(size_t{(row_shards + kLanes - 1) / kLanes} * kLanes),
        price_(price),
        expert_of_slot_(expert_of_slot),
        expert_loads_(num_experts_ * size_),
        rank_loads_(num_ranks_ * size_),
        others_(size_) {
    for (uint32_t i = 0; i < window.num_samples(); ++i) {
      window.VisitCounts(i, [&](auto counts) {
        const auto* count = counts.data() + size_t{layer} * num_experts_;
        uint32_t* loads = expert_loads_.data() + row_shard_of[i];
        for (uint32_t e = 0; e < num_experts_; ++e) {
          loads[e * size_] += count[e];
        }
      });
    }
    AddRankLoads();
    peaks_ = Peaks();
  }

  // Makes exchanges that pay until there are none.
  void Exchange(const Budget& budget) {
    uint32_t idle = 0;  // pairs of ranks in a row without an exchange
    const uint32_t pairs = num_ranks_ * (num_ranks_ - 1) / 2;
    while (idle < pairs) {
      for (uint32_t a = 0; a < num_ranks_ && idle < pairs; ++a) {
        if (budget.Exhausted()) return;
        for (uint32_t b = a + 1; b < num_ranks_ && idle < pairs; ++b) {
          idle = ImprovePair(a, b) ? 0 : idle + 1;
        }
      }
    }
  }

  // `steps` Metropolis proposals, at falling temperatures; ends in the best
  // state on the way. A pair of ranks keeps its turn for as many proposals as
  // it has slots.
  void Anneal(uint64_t steps, const CounterRandom& random,
              const Budget& budget) {
    DrawStream draws(random);
    cost_ = 0;
    best_cost_ = 0;
    best_.assign(expert_of_slot_.begin(), expert_of_slot_.end());
    const std::vector<double> temperatures =
        TemperatureSchedule(kFirstTemperature * TypicalGrowth(draws), kLevels);
    for (double temperature : temperatures) {
      for (uint64_t k = 0; k < steps;
           k += uint64_t{kLevels} * slots_per_rank_) {
        if (budget.Exhausted()) break;
        AnnealPair(temperature, draws);
      }
    }
    if (best_cost_ == cost_) return;
    std::copy(best_.begin(), best_.end(), expert_of_slot_.begin());
    AddRankLoads();
    peaks_ = Peaks();
  }

  // Experts that end in the rank where they began get their slot back, unless
  // that costs more.
  void KeepSlots(std::span<const uint32_t> before) {
    for (uint32_t p = 0; p < num_ranks_; ++p) {
      const size_t begin = size_t{p} * slots_per_rank_;
      const auto now = expert_of_slot_.subspan(begin, slots_per_rank_);
      const auto old = before.subspan(begin, slots_per_rank_);
      std::vector<uint32_t> kept(now.begin(), now.end());
      // Those that came take the slots of those that left.
      std::vector<uint32_t> came;
      for (uint32_t e : now) {
        if (std::find(old.begin(), old.end(), e) == old.end()) {
          came.push_back(e);
        }
      }
      auto next = came.begin();
      for (uint32_t h = 0; h < slots_per_rank_; ++h) {
        const bool stays =
            std::find(now.begin(), now.end(), old[h]) != now.end();
        kept[h] = stays ? old[h] : *next++;
      }
      if (SlotPriceOf(begin, kept) <= SlotPriceOf(begin, now)) {
        std::copy(kept.begin(), kept.end(), now.begin());
      }
    }
  }

  // sum_{r,g} max_p W.
  int64_t peaks() const { return peaks_; }

  // Whether the peaks are those of single experts in every row-shard.
  bool AtFloor() const {
    int64_t sum = 0;
    for (size_t k = 0; k < size_; ++k) {
      uint32_t peak = 0;
      for (uint32_t e = 0; e < num_experts_; ++e) {
        peak = std::max(peak, expert_loads_[e * size_ + k]);
      }
      sum += peak;
    }
    return peaks_ == sum;
  }

 private:
  uint32_t* expert(uint32_t e) { return expert_loads_.data() + e * size_; }
  uint32_t* rank(uint32_t p) { return rank_loads_.data() + p * size_; }

  std::pair<uint32_t, uint32_t> DrawRanks(DrawStream& draws) const {
    const auto [a, b] = draws.Below(num_ranks_, num_ranks_ - 1);
    return {a, b < a ? b : b + 1};
  }
  // A slot of either rank.
  std::pair<uint32_t, uint32_t> DrawSlots(uint32_t a, uint32_t b,
                                          DrawStream& draws) const {
    const auto [u, v] = draws.Below(slots_per_rank_, slots_per_rank_);
    return {a * slots_per_rank_ + u, b * slots_per_rank_ + v};
  }

  void AddRankLoads() {
    std::fill(rank_loads_.begin(), rank_loads_.end(), 0);
    for (uint32_t v = 0; v < num_experts_; ++v) {
      AddLoads(expert(expert_of_slot_[v]), size_, rank(v / slots_per_rank_));
    }
  }

  int64_t Peaks() {
    std::fill(others_.begin(), others_.end(), 0);
    for (uint32_t p = 0; p < num_ranks_; ++p) {
      RaiseTo(rank(p), size_, others_.data());
    }
    return std::accumulate(others_.begin(), others_.end(), int64_t{0});
  }

  // The peaks after an exchange; others_ must be those of the two ranks.
  int64_t PeaksWith(uint32_t u, uint32_t v) {
    return PeaksAfter(others_.data(), rank(u / slots_per_rank_),
                      rank(v / slots_per_rank_), expert(expert_of_slot_[u]),
                      expert(expert_of_slot_[v]), size_);
  }

  // The mean growth of exchanges that make it worse.
  double TypicalGrowth(DrawStream& draws) {
    double sum = 0;
    int count = 0;
    for (int k = 0; k < kCalibrationDraws; ++k) {
      const auto [a, b] = DrawRanks(draws);
      FindOthers(a, b);
      const auto [u, v] = DrawSlots(a, b, draws);
      const double growth =
          static_cast<double>(PeaksWith(u, v) - peaks_) + PriceOf(u, v);
      sum += growth > 0 ? growth : 0;
      count += growth > 0 ? 1 : 0;
    }
    return count == 0 ? 0 : sum / count;
  }

  void AnnealPair(double temperature, DrawStream& draws) {
    const auto [a, b] = DrawRanks(draws);
    FindOthers(a, b);
    for (uint32_t k = 0; k < slots_per_rank_; ++k) {
      const auto [u, v] = DrawSlots(a, b, draws);
      const int64_t peaks = PeaksWith(u, v);
      const double growth = static_cast<double>(peaks - peaks_) + PriceOf(u, v);
      if (growth > temperature * draws.Exponential()) continue;
      Swap(u, v);
      peaks_ = peaks;
      cost_ += growth;
      if (cost_ < best_cost_) {
        best_cost_ = cost_;
        best_.assign(expert_of_slot_.begin(), expert_of_slot_.end());
      }
    }
  }

  // Of each row-shard, the peak of the ranks but a and b.
  void FindOthers(uint32_t a, uint32_t b) {
    std::fill(others_.begin(), others_.end(), 0);
    for (uint32_t p = 0; p < num_ranks_; ++p) {
      if (p != a && p != b) RaiseTo(rank(p), size_, others_.data());
    }
  }

  bool ImprovePair(uint32_t a, uint32_t b) {
    FindOthers(a, b);
    // Where others are as high, neither rank matters.
    bool matters = false;
    for (size_t k = 0; k < size_; ++k) {
      matters |= std::max(rank(a)[k], rank(b)[k]) > others_[k];
    }
    if (!matters) return false;
    bool improved = false;
    while (ExchangeBest(a, b)) improved = true;
    return improved;
  }

  bool ExchangeBest(uint32_t a, uint32_t b) {
    double best = 0;
    int64_t best_peaks = 0;
    uint32_t best_u = 0;
    uint32_t best_v = 0;
    for (uint32_t u = a * slots_per_rank_; u < (a + 1) * slots_per_rank_; ++u) {
      for (uint32_t v = b * slots_per_rank_; v < (b + 1) * slots_per_rank_;
           ++v) {
        const int64_t peaks = PeaksWith(u, v);
        const double growth =
            static_cast<double>(peaks - peaks_) + PriceOf(u, v);
        if (growth < best) {
          best = growth;
          best_peaks = peaks;
          best_u = u;
          best_v = v;
        }
      }
    }
    // A rounding error is no reason.
    if (best > -kLeastGain) return false;
    Swap(best_u, best_v);
    peaks_ = best_peaks;
    return true;
  }

  // What an exchange adds to the prices.
  double PriceOf(uint32_t u, uint32_t v) const {
    if (!price_) return 0;
    const uint32_t e = expert_of_slot_[u];
    const uint32_t f = expert_of_slot_[v];
    return price_(layer_, e, v) + price_(layer_, f, u) - price_(layer_, e, u) -
           price_(layer_, f, v);
  }

  // Of experts in consecutive slots.
  double SlotPriceOf(size_t first, std::span<const uint32_t> experts) const {
    if (!price_) return 0;
    double sum = 0;
    for (size_t k = 0; k < experts.size(); ++k) {
      sum += price_(layer_, experts[k], static_cast<uint32_t>(first + k));
    }
    return sum;
  }

  void Swap(uint32_t u, uint32_t v) {
    const uint32_t* out = expert(expert_of_slot_[u]);
    const uint32_t* in = expert(expert_of_slot_[v]);
    uint32_t* a = rank(u / slots_per_rank_);
    uint32_t* b = rank(v / slots_per_rank_);
    for (size_t k = 0; k < size_; ++k) {
      a[k] += in[k] - out[k];
      b[k] += out[k] - in[k];
    }
    std::swap(expert_of_slot_[u], expert_of_slot_[v]);
  }

  const uint32_t layer_;
  const uint32_t num_experts_;
  const uint32_t num_ranks_;
  const uint32_t slots_per_rank_;
  const size_t size_;
  const SlotPrice& price_;
  std::span<uint32_t> expert_of_slot_;    // [v]
  AlignedVector<uint32_t> expert_loads_;  // [e][r g]
  AlignedVector<uint32_t> rank_loads_;    // [p][r g]
  AlignedVector<uint32_t> others_;        // [r g]
  int64_t peaks_ = 0;
  double cost_ = 0;       // while annealing: what peaks and prices have gained
  double best_cost_ = 0;  // the lowest so far
  std::vector<uint32_t> best_;  // expert_of_slot then
};

}  // namespace

RowAwareResult RefinePlacement(const Window& window, const Layout& layout,
                               const Placement& placement,
                               const RowAwareOptions& options,
                               const Budget& budget) {
  const Topology& topology = window.spec().topology;
  std::vector<uint32_t> row_shard_of(layout.items.size());
  for (uint32_t r = 0; r < layout.rows; ++r) {
    for (uint32_t d = 0; d < layout.slots; ++d) {
      for (uint32_t i : layout.cell(r, d)) {
        row_shard_of[i] = r * topology.num_shards() + topology.shard_of_slot(d);
      }
    }
  }
  RowAwareResult result{.placement = placement};
  std::atomic<int64_t> gain = 0;
  std::atomic<uint32_t> floor_layers = 0;
  tbb::parallel_for(uint32_t{0}, window.num_layers(), [&](uint32_t l) {
    const size_t begin = size_t{l} * window.num_experts();
    const auto expert_of_slot = std::span(result.placement.expert_of_slot)
                                    .subspan(begin, window.num_experts());
    LayerRefiner refiner(window, row_shard_of,
                         layout.rows * topology.num_shards(), l, options.price,
                         expert_of_slot);
    gain += refiner.peaks();
    if (topology.num_ranks() > 1) {
      refiner.Anneal(options.proposals_per_expert * window.num_experts(),
                     CounterRandom(options.seed, kExchangeStream, l), budget);
    }
    refiner.Exchange(budget);
    refiner.KeepSlots(std::span(placement.expert_of_slot)
                          .subspan(begin, window.num_experts()));
    gain -= refiner.peaks();
    floor_layers += refiner.AtFloor() ? 1 : 0;
    for (uint32_t v = 0; v < window.num_experts(); ++v) {
      result.placement.slot_of_expert[begin + expert_of_slot[v]] = v;
    }
  });
  result.gain = gain;
  result.floor_layers = floor_layers;
  return result;
}

}  // namespace routepack
