#include "planner/load_lanes.h"

#include <algorithm>
#include <cstring>

#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/parallel_reduce.h"
#include "planner/multiversion.h"

namespace routepack {
namespace {

constexpr uint32_t kLanes = 8;
constexpr size_t kPairLanes = 16;

// A rank's eight layers, or two ranks' in 16 bits.
using Lanes = uint32_t __attribute__((vector_size(4 * kLanes)));
using SignedLanes = int32_t __attribute__((vector_size(4 * kLanes)));
using NarrowLanes = int16_t __attribute__((vector_size(2 * kLanes)));
using NarrowPair = int16_t __attribute__((vector_size(4 * kLanes)));
using HalfLanes = uint32_t __attribute__((vector_size(2 * kLanes)));
using WideSignedLanes = int64_t __attribute__((vector_size(8 * kLanes)));
using WideLanes = uint64_t __attribute__((vector_size(4 * kLanes)));

template <typename V, typename T>
[[gnu::always_inline]] inline V LoadAs(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename V>
[[gnu::always_inline]] inline V Max(const V& a, const V& b) {
  return a > b ? a : b;
}

// Sums of pairs of lanes that are four apart, in 64 bits.
[[gnu::always_inline]] inline WideLanes Widen(const Lanes& lanes) {
  HalfLanes halves[2];
  std::memcpy(halves, &lanes, sizeof(lanes));
  return __builtin_convertvector(halves[0], WideLanes) +
         __builtin_convertvector(halves[1], WideLanes);
}

[[gnu::always_inline]] inline uint64_t Sum(const WideLanes& lanes) {
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

// The larger of both ranks, in 32 bits.
[[gnu::always_inline]] inline SignedLanes Fold(const NarrowPair& pair) {
  NarrowLanes halves[2];
  std::memcpy(halves, &pair, sizeof(pair));
  return __builtin_convertvector(Max(halves[0], halves[1]), SignedLanes);
}

[[gnu::always_inline]] inline int64_t Sum(const SignedLanes& lanes) {
  int32_t values[kLanes];
  std::memcpy(values, &lanes, sizeof(lanes));
  int32_t sum = 0;
  for (int32_t value : values) sum += value;
  return sum;
}

// What PeaksAfter reads: values of two items, loads and tails of two
// row-shards.
template <typename T>
struct Operands {
  const T* out;
  const T* in;
  const T* a;
  const T* b;
  const int64_t* tail_a;
  const int64_t* tail_b;
};

ROUTEPACK_MULTIVERSION
ExchangePeaks NarrowPeaksAfter(const Operands<int16_t>& of, uint32_t num_blocks,
                               size_t block_size, int64_t num_ranks,
                               int64_t limit) {
  SignedLanes sum_a{};
  SignedLanes sum_b{};
  size_t at = 0;
  size_t next_look = LaneLoads::kValuesBetweenLooks;
  for (uint32_t k = 1; k <= num_blocks; ++k) {
    NarrowPair peak_a = NarrowPair{} + INT16_MIN;
    NarrowPair peak_b = peak_a;
    for (const size_t end = k * block_size; at < end; at += kPairLanes) {
      const NarrowPair gain =
          LoadAs<NarrowPair>(of.in + at) - LoadAs<NarrowPair>(of.out + at);
      peak_a = Max(peak_a, LoadAs<NarrowPair>(of.a + at) + gain);
      peak_b = Max(peak_b, LoadAs<NarrowPair>(of.b + at) - gain);
    }
    sum_a += Fold(peak_a);
    sum_b += Fold(peak_b);
    if (at < next_look) continue;
    next_look = at + LaneLoads::kValuesBetweenLooks;
    if (Sum(sum_a + sum_b) * num_ranks + of.tail_a[k] + of.tail_b[k] > limit) {
      if (k < num_blocks) return {};
    }
  }
  return {static_cast<uint64_t>(Sum(sum_a) + of.tail_a[num_blocks] / num_ranks),
          static_cast<uint64_t>(Sum(sum_b) + of.tail_b[num_blocks] / num_ranks),
          true};
}

ROUTEPACK_MULTIVERSION
ExchangePeaks WidePeaksAfter(const Operands<uint32_t>& of, uint32_t num_blocks,
                             size_t block_size, int64_t num_ranks,
                             int64_t limit) {
  WideLanes sum_a{};
  WideLanes sum_b{};
  size_t at = 0;
  for (uint32_t k = 1; k <= num_blocks; ++k) {
    Lanes peak_a{};
    Lanes peak_b{};
    for (const size_t end = k * block_size; at < end; at += kLanes) {
      const Lanes gain = LoadAs<Lanes>(of.in + at) - LoadAs<Lanes>(of.out + at);
      peak_a = Max(peak_a, LoadAs<Lanes>(of.a + at) + gain);
      peak_b = Max(peak_b, LoadAs<Lanes>(of.b + at) - gain);
    }
    sum_a += Widen(peak_a);
    sum_b += Widen(peak_b);
    if (static_cast<int64_t>(Sum(sum_a + sum_b)) * num_ranks + of.tail_a[k] +
            of.tail_b[k] >
        limit) {
      if (k < num_blocks) return {};
    }
  }
  return {Sum(sum_a), Sum(sum_b), true};
}

[[gnu::always_inline]] inline SignedLanes Gain(const int16_t* in,
                                               const int16_t* out) {
  return __builtin_convertvector(LoadAs<NarrowLanes>(in), SignedLanes) -
         __builtin_convertvector(LoadAs<NarrowLanes>(out), SignedLanes);
}
[[gnu::always_inline]] inline WideSignedLanes Gain(const uint32_t* in,
                                                   const uint32_t* out) {
  return __builtin_convertvector(LoadAs<Lanes>(in), WideSignedLanes) -
         __builtin_convertvector(LoadAs<Lanes>(out), WideSignedLanes);
}

// One row-shard's part of LaneLoads.
struct RowShardLoads {
  uint32_t* wide;
  int16_t* narrow;  // null: none
  int64_t* totals;
  int64_t* tails;
};

// After a change of block k: its peaks and what its total load gained. Leaves
// in tails[k + 1] what it differs by from tails[k].
[[gnu::always_inline]] inline void Settle(const RowShardLoads& loads,
                                          uint32_t k, size_t block_size,
                                          int64_t num_ranks, const Lanes& peaks,
                                          int64_t gain) {
  loads.totals[k] += gain;
  loads.tails[0] += gain;
  loads.tails[k + 1] = -loads.totals[k];
  if (loads.narrow == nullptr) return;
  loads.tails[k + 1] += num_ranks * (static_cast<int64_t>(Sum(Widen(peaks))) -
                                     int64_t{kLanes} * LaneLoads::kNarrowPeak);
  constexpr uint32_t kFarthest =
      LaneLoads::kNarrowPeak - LaneLoads::kNarrowFloor;
  for (size_t at = k * block_size; at < (k + 1) * block_size; at += kLanes) {
    const Lanes below = peaks - LoadAs<Lanes>(loads.wide + at);
    const Lanes kept = below < kFarthest ? below : Lanes{} + kFarthest;
    const NarrowLanes narrow =
        __builtin_convertvector(LaneLoads::kNarrowPeak - kept, NarrowLanes);
    std::memcpy(loads.narrow + at, &narrow, sizeof(narrow));
  }
}

// Moves item `out` from a to b and `in` from b to a.
template <typename T>
[[gnu::always_inline]] inline void ExchangeBody(
    const T* out, const T* in, const RowShardLoads& a, const RowShardLoads& b,
    uint32_t num_blocks, size_t block_size, int64_t num_ranks) {
  for (uint32_t k = 0; k < num_blocks; ++k) {
    Lanes peaks_a{};
    Lanes peaks_b{};
    // Over ranks: at most 2^16 times less than 2^14, or 2^32.
    decltype(Gain(in, out)) sum{};
    for (size_t at = k * block_size; at < (k + 1) * block_size; at += kLanes) {
      const auto wide_gain = Gain(in + at, out + at);
      const Lanes gain = __builtin_convertvector(wide_gain, Lanes);
      const Lanes load_a = LoadAs<Lanes>(a.wide + at) + gain;
      std::memcpy(a.wide + at, &load_a, sizeof(load_a));
      const Lanes load_b = LoadAs<Lanes>(b.wide + at) - gain;
      std::memcpy(b.wide + at, &load_b, sizeof(load_b));
      peaks_a = Max(peaks_a, load_a);
      peaks_b = Max(peaks_b, load_b);
      sum += wide_gain;
    }
    int64_t gain = 0;
    for (uint32_t j = 0; j < kLanes; ++j) gain += sum[j];
    Settle(a, k, block_size, num_ranks, peaks_a, gain);
    Settle(b, k, block_size, num_ranks, peaks_b, -gain);
  }
  for (uint32_t k = 0; k < num_blocks; ++k) {
    a.tails[k + 1] += a.tails[k];
    // The same row-shard twice: settled once.
    if (a.tails != b.tails) b.tails[k + 1] += b.tails[k];
  }
}

ROUTEPACK_MULTIVERSION
void ExchangeOf(const int16_t* out, const int16_t* in, const RowShardLoads& a,
                const RowShardLoads& b, uint32_t num_blocks, size_t block_size,
                int64_t num_ranks) {
  ExchangeBody(out, in, a, b, num_blocks, block_size, num_ranks);
}
ROUTEPACK_MULTIVERSION
void ExchangeOf(const uint32_t* out, const uint32_t* in, const RowShardLoads& a,
                const RowShardLoads& b, uint32_t num_blocks, size_t block_size,
                int64_t num_ranks) {
  ExchangeBody(out, in, a, b, num_blocks, block_size, num_ranks);
}

ROUTEPACK_MULTIVERSION
uint64_t PeaksOf(const uint32_t* loads, uint32_t num_blocks,
                 size_t block_size) {
  WideLanes sum{};
  for (uint32_t k = 0; k < num_blocks; ++k) {
    Lanes peaks{};
    for (size_t at = 0; at < block_size; at += kLanes) {
      peaks = Max(peaks, LoadAs<Lanes>(loads + at));
    }
    sum += Widen(peaks);
    loads += block_size;
  }
  return Sum(sum);
}

}  // namespace

LaneDemand::LaneDemand(const Demand& demand)
    : num_ranks_(demand.num_ranks),
      ranks_((demand.num_ranks + 1) / 2 * 2),
      num_blocks_((demand.num_layers + kLanes - 1) / kLanes),
      nothing_(demand.num_items) {
  const uint32_t largest = tbb::parallel_reduce(
      tbb::blocked_range<uint32_t>(0, demand.num_items), uint32_t{0},
      [&](const tbb::blocked_range<uint32_t>& items, uint32_t most) {
        for (size_t k = items.begin() * demand.item_size();
             k < items.end() * demand.item_size(); ++k) {
          most = std::max(most, demand.values[k]);
        }
        return most;
      },
      [](uint32_t a, uint32_t b) { return std::max(a, b); });
  if (largest <= kMostNarrow) {
    Fill<int16_t>(demand);
  } else {
    Fill<uint32_t>(demand);
  }
}

template <typename T>
void LaneDemand::Fill(const Demand& demand) {
  auto& values = values_.emplace<AlignedVector<T>>(
      (size_t{demand.num_items} + 1) * item_size());
  tbb::parallel_for(uint32_t{0}, demand.num_items, [&](uint32_t i) {
    const uint32_t* from = demand.item(i);
    T* to = values.data() + i * item_size();
    for (uint32_t l = 0; l < demand.num_layers; ++l) {
      T* block = to + l / kLanes * block_size() + l % kLanes;
      for (uint32_t p = 0; p < num_ranks_; ++p) {
        block[size_t{p} * kLanes] = static_cast<T>(from[p]);
      }
      from += demand.stride;
    }
  });
}

LaneLoads::LaneLoads(const LaneDemand& demand, uint32_t row_shards,
                     std::span<const uint32_t> row_shard_of)
    : demand_(&demand),
      wide_(row_shards * demand.item_size()),
      narrow_(demand.narrow() ? wide_.size() : 0),
      totals_(row_shards * size_t{demand.num_blocks()}),
      tails_(row_shards * (size_t{demand.num_blocks()} + 1)) {
  const size_t size = demand.item_size();
  for (uint32_t i = 0; i < row_shard_of.size(); ++i) {
    uint32_t* loads = wide_.data() + row_shard_of[i] * size;
    demand.Visit([&](const auto* items) {
      for (size_t k = 0; k < size; ++k) loads[k] += items[i * size + k];
    });
  }
  for (uint32_t rg = 0; rg < row_shards; ++rg) {
    const size_t tails = rg * (size_t{demand.num_blocks()} + 1);
    for (size_t k = 0; k < size; ++k) {
      const uint32_t load = wide_[rg * size + k];
      totals_[size_t{rg} * demand.num_blocks() + k / demand.block_size()] +=
          load;
      tails_[tails] += load;
    }
    Exchange(demand.nothing(), demand.nothing(), rg, rg);  // settles the rest
  }
}

uint64_t LaneLoads::Peaks(uint32_t row_shard) const {
  return PeaksOf(wide_.data() + row_shard * demand_->item_size(),
                 demand_->num_blocks(), demand_->block_size());
}

void LaneLoads::Exchange(uint32_t out, uint32_t in, uint32_t a, uint32_t b) {
  const size_t size = demand_->item_size();
  const auto loads = [&](uint32_t rg) {
    return RowShardLoads{
        .wide = wide_.data() + rg * size,
        .narrow = narrow_.empty() ? nullptr : narrow_.data() + rg * size,
        .totals = totals_.data() + rg * size_t{demand_->num_blocks()},
        .tails = tails_.data() + rg * (size_t{demand_->num_blocks()} + 1)};
  };
  demand_->Visit([&](const auto* items) {
    ExchangeOf(items + out * size, items + in * size, loads(a), loads(b),
               demand_->num_blocks(), demand_->block_size(),
               demand_->num_ranks());
  });
}

ExchangePeaks LaneLoads::PeaksAfter(uint32_t out, uint32_t in, uint32_t a,
                                    uint32_t b, uint64_t limit) const {
  const size_t size = demand_->item_size();
  const size_t tails = size_t{demand_->num_blocks()} + 1;
  const auto of = [&]<typename T>(const AlignedVector<T>& loads) {
    const T* items = demand_->items<T>();
    return Operands<T>{.out = items + out * size,
                       .in = items + in * size,
                       .a = loads.data() + a * size,
                       .b = loads.data() + b * size,
                       .tail_a = tails_.data() + a * tails,
                       .tail_b = tails_.data() + b * tails};
  };
  const int64_t num_ranks = demand_->num_ranks();
  const int64_t most = static_cast<int64_t>(limit) * num_ranks;
  return demand_->narrow()
             ? NarrowPeaksAfter(of(narrow_), demand_->num_blocks(),
                                demand_->block_size(), num_ranks, most)
             : WidePeaksAfter(of(wide_), demand_->num_blocks(),
                              demand_->block_size(), num_ranks, most);
}

}  // namespace routepack
