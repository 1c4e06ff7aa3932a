#include "planner/layer_swaps.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

namespace routepack {
namespace {

// Ranks that the exchange of two for two is tried with.
constexpr uint32_t kPairRanks = 4;
// Experts of a rank that it looks at, the heaviest and lightest.
constexpr size_t kPairExperts = 32;

using Wide = __int128;

// What moving a difference of d from the hot to the cold rank does: `need` is
// the hot rank's load above the target, `room` the cold one's below.
struct Exchange {
  int64_t need;
  int64_t room;
  int64_t best;  // the difference to aim at

  Exchange(int64_t hot_load, int64_t cold_load, int64_t target)
      : need(hot_load - target), room(target - cold_load) {
    // Both end below the target, equally far; or else the cold rank is full.
    best = need <= room ? (need + room) / 2 : room;
  }

  // Load above the target that goes away.
  int64_t Relief(int64_t d) const {
    return std::min(need, d) - std::max<int64_t>(0, d - room);
  }
};

class Leveller {
 public:
  Leveller(const MovementModel& model, uint32_t l,
           std::span<const uint64_t> loads,
           std::span<const uint32_t> expert_of_slot, uint64_t target)
      : model_(model),
        layer_(l),
        target_(static_cast<int64_t>(target)),
        ranks_(model.spec().num_ranks),
        size_(model.spec().slots_per_rank),
        load_(loads.size()),
        home_(loads.size()),
        sorted_(loads.size()),
        rank_load_(ranks_, 0) {
    for (uint32_t v = 0; v < loads.size(); ++v) {
      load_[v] = static_cast<int64_t>(loads[expert_of_slot[v]]);
      home_[v] = v;
      rank_load_[v / size_] += load_[v];
    }
    std::iota(sorted_.begin(), sorted_.end(), 0);
    for (uint32_t p = 0; p < ranks_; ++p) Sort(p);
  }

  std::vector<SlotSwap> Run() {
    std::vector<SlotSwap> swaps;
    while (swaps.size() < load_.size()) {
      const uint32_t hot = Hottest();
      if (rank_load_[hot] <= target_) break;
      if (const std::optional<Swap> swap = BestSwap(hot)) {
        Apply(*swap, swaps);
        continue;
      }
      const auto pair = BestPair(hot);
      if (!pair) break;
      Apply(pair->first, swaps);
      Apply(pair->second, swaps);
    }
    return swaps;
  }

 private:
  struct Swap {
    uint32_t hot_slot = 0;
    uint32_t cold_slot = 0;
    int64_t relief = 0;
    int64_t miss = 0;  // distance from the difference aimed at
    int64_t cost = 0;
  };

  std::span<uint32_t> Slots(uint32_t p) {
    return std::span(sorted_).subspan(size_t{p} * size_, size_);
  }

  // Slots of a rank by load, then number.
  void Sort(uint32_t p) {
    std::sort(Slots(p).begin(), Slots(p).end(), [&](uint32_t a, uint32_t b) {
      return load_[a] != load_[b] ? load_[a] < load_[b] : a < b;
    });
  }

  uint32_t Hottest() const {
    return static_cast<uint32_t>(std::ranges::max_element(rank_load_) -
                                 rank_load_.begin());
  }

  int64_t CostOf(uint32_t u, uint32_t v) const {
    const uint32_t a = home_[u];
    const uint32_t b = home_[v];
    return model_.MoveCost(layer_, a, v) - model_.MoveCost(layer_, a, u) +
           model_.MoveCost(layer_, b, u) - model_.MoveCost(layer_, b, v);
  }

  // More relief per cost; then more relief; then nearer to the aim.
  static bool Better(const Swap& x, const Swap& y) {
    // What costs nothing, or earns, comes first.
    const bool x_free = x.cost <= 0;
    const bool y_free = y.cost <= 0;
    if (x_free != y_free) return x_free;
    if (!x_free) {
      const Wide left = Wide{x.relief} * y.cost;
      const Wide right = Wide{y.relief} * x.cost;
      if (left != right) return left > right;
    }
    if (x.relief != y.relief) return x.relief > y.relief;
    if (x.cost != y.cost) return x.cost < y.cost;
    return x.miss < y.miss;
  }

  std::optional<Swap> BestSwap(uint32_t hot) {
    std::optional<Swap> best;
    for (uint32_t cold = 0; cold < ranks_; ++cold) {
      const Exchange exchange(rank_load_[hot], rank_load_[cold], target_);
      if (exchange.room <= 0) continue;
      ConsiderRank(hot, cold, exchange, best);
    }
    return best;
  }

  void ConsiderRank(uint32_t hot, uint32_t cold, const Exchange& exchange,
                    std::optional<Swap>& best) {
    const auto consider = [&](Swap swap) {
      swap.cost = CostOf(swap.hot_slot, swap.cold_slot);
      if (!best || Better(swap, *best)) best = swap;
    };
    // The difference grows with u and falls with v, so that the v whose
    // difference is nearest to the aim only moves up as u does.
    const std::span<const uint32_t> targets = Slots(cold);
    std::optional<Swap> nearest;
    size_t k = 0;
    for (const uint32_t u : Slots(hot)) {
      const auto miss = [&](size_t at) {
        return std::abs(load_[u] - load_[targets[at]] - exchange.best);
      };
      while (k + 1 < targets.size() && miss(k + 1) <= miss(k)) ++k;
      const uint32_t v = targets[k];
      const Swap swap = {u, v, exchange.Relief(load_[u] - load_[v]), miss(k)};
      if (swap.relief <= 0) continue;
      if (home_[u] != u || home_[v] != v) consider(swap);
      if (!nearest || swap.relief > nearest->relief ||
          (swap.relief == nearest->relief && swap.miss < nearest->miss)) {
        nearest = swap;
      }
    }
    if (nearest) consider(*nearest);
  }

  struct SlotPair {
    int64_t load;
    uint32_t first, second;
  };

  // Pairs of slots of a rank, by load.
  std::vector<SlotPair> Pairs(uint32_t p) {
    const std::span<const uint32_t> all = Slots(p);
    std::vector<uint32_t> slots(all.begin(), all.end());
    if (slots.size() > kPairExperts) {
      const auto half = static_cast<std::ptrdiff_t>(kPairExperts / 2);
      slots.erase(slots.begin() + half, slots.end() - half);
    }
    std::vector<SlotPair> pairs;
    for (size_t i = 0; i < slots.size(); ++i) {
      for (size_t j = i + 1; j < slots.size(); ++j) {
        pairs.push_back(
            {load_[slots[i]] + load_[slots[j]], slots[i], slots[j]});
      }
    }
    std::ranges::stable_sort(pairs, {}, &SlotPair::load);
    return pairs;
  }

  std::optional<std::pair<Swap, Swap>> BestPair(uint32_t hot) {
    std::vector<uint32_t> cold(ranks_);
    std::iota(cold.begin(), cold.end(), 0);
    std::ranges::stable_sort(cold, {},
                             [&](uint32_t p) { return rank_load_[p]; });
    cold.resize(std::min(ranks_, kPairRanks));
    const std::vector<SlotPair> sources = Pairs(hot);
    std::optional<std::pair<Swap, Swap>> best;
    Swap best_sum;
    for (const uint32_t p : cold) {
      const Exchange exchange(rank_load_[hot], rank_load_[p], target_);
      if (exchange.room <= 0) continue;
      const std::vector<SlotPair> targets = Pairs(p);
      size_t k = 0;
      for (const SlotPair& u : sources) {
        const auto miss = [&](size_t at) {
          return std::abs(u.load - targets[at].load - exchange.best);
        };
        while (k + 1 < targets.size() && miss(k + 1) <= miss(k)) ++k;
        if (targets.empty()) break;
        const SlotPair& v = targets[k];
        Swap sum = {.relief = exchange.Relief(u.load - v.load),
                    .miss = miss(k)};
        if (sum.relief <= 0) continue;
        sum.cost = CostOf(u.first, v.first) + CostOf(u.second, v.second);
        if (best && !Better(sum, best_sum)) continue;
        best_sum = sum;
        best = {{u.first, v.first}, {u.second, v.second}};
      }
    }
    return best;
  }

  void Apply(const Swap& swap, std::vector<SlotSwap>& swaps) {
    const uint32_t u = swap.hot_slot;
    const uint32_t v = swap.cold_slot;
    const int64_t cost = CostOf(u, v);
    const int64_t d = load_[u] - load_[v];
    rank_load_[u / size_] -= d;
    rank_load_[v / size_] += d;
    std::swap(load_[u], load_[v]);
    std::swap(home_[u], home_[v]);
    Sort(u / size_);
    Sort(v / size_);
    swaps.push_back({u, v, static_cast<uint64_t>(rank_load_[Hottest()]), cost});
  }

  const MovementModel& model_;
  uint32_t layer_;
  int64_t target_;
  uint32_t ranks_;
  uint32_t size_;
  std::vector<int64_t> load_;       // [v]
  std::vector<uint32_t> home_;      // [v] slot its expert came from
  std::vector<uint32_t> sorted_;    // [p][k] slots by load
  std::vector<int64_t> rank_load_;  // [p]
};

}  // namespace

LoadFloor FloorOf(std::span<const uint64_t> loads, uint32_t num_ranks) {
  const size_t size = loads.size() / num_ranks;
  const uint64_t total =
      std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  const uint64_t mean = (total + num_ranks - 1) / num_ranks;
  std::vector<uint64_t> lightest(loads.begin(), loads.end());
  const auto beside = lightest.begin() + static_cast<std::ptrdiff_t>(size - 1);
  const uint64_t hottest = *std::ranges::max_element(loads);
  std::nth_element(lightest.begin(), beside, lightest.end());
  const uint64_t hot = std::accumulate(lightest.begin(), beside, hottest);
  if (hot > mean) return {hot, true};
  return {mean, false};
}

std::vector<SlotSwap> LevelLayer(const MovementModel& model, uint32_t l,
                                 std::span<const uint64_t> loads,
                                 std::span<const uint32_t> expert_of_slot,
                                 uint64_t target) {
  return Leveller(model, l, loads, expert_of_slot, target).Run();
}

}  // namespace routepack
