#include "planner/load_lanes.h"

#include <algorithm>
#include <cstring>

#include "oneapi/tbb/parallel_for.h"
#include "planner/multiversion.h"

namespace routepack {
namespace {

constexpr uint32_t kLanes = 8;

using Lanes = uint32_t __attribute__((vector_size(4 * kLanes)));
using NarrowLanes = uint16_t __attribute__((vector_size(2 * kLanes)));
using HalfLanes = uint32_t __attribute__((vector_size(2 * kLanes)));
using WideLanes = uint64_t __attribute__((vector_size(4 * kLanes)));

template <typename V, typename T>
[[gnu::always_inline]] inline V LoadAs(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

[[gnu::always_inline]] inline Lanes LoadLanes(const uint16_t* from) {
  return __builtin_convertvector(LoadAs<NarrowLanes>(from), Lanes);
}
[[gnu::always_inline]] inline Lanes LoadLanes(const uint32_t* from) {
  return LoadAs<Lanes>(from);
}
[[gnu::always_inline]] inline Lanes Max(const Lanes& a, const Lanes& b) {
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

template <typename T>
[[gnu::always_inline]] inline ExchangePeaks PeaksAfterBody(
    const T* out, const T* in, const uint32_t* a, const uint32_t* b,
    uint32_t num_blocks, uint32_t ranks, uint64_t num_ranks,
    const uint64_t* rest_a, const uint64_t* rest_b, uint64_t limit) {
  WideLanes sum_a{};
  WideLanes sum_b{};
  limit *= num_ranks;
  for (uint32_t k = 1; k <= num_blocks; ++k) {
    Lanes peak_a[2] = {};
    Lanes peak_b[2] = {};
    for (uint32_t p = 0; p < ranks; p += 2) {
      for (uint32_t h = 0; h < 2; ++h) {
        const Lanes gain = LoadLanes(in) - LoadLanes(out);
        peak_a[h] = Max(peak_a[h], LoadLanes(a) + gain);
        peak_b[h] = Max(peak_b[h], LoadLanes(b) - gain);
        a += kLanes;
        b += kLanes;
        in += kLanes;
        out += kLanes;
      }
    }
    sum_a += Widen(Max(peak_a[0], peak_a[1]));
    sum_b += Widen(Max(peak_b[0], peak_b[1]));
    if (Sum(sum_a + sum_b) * num_ranks + rest_a[k] + rest_b[k] > limit) {
      return {Sum(sum_a), Sum(sum_b), k == num_blocks};
    }
  }
  return {Sum(sum_a), Sum(sum_b), true};
}

ROUTEPACK_MULTIVERSION
ExchangePeaks PeaksAfterOf(const uint16_t* out, const uint16_t* in,
                           const uint32_t* a, const uint32_t* b,
                           uint32_t num_blocks, uint32_t ranks,
                           uint64_t num_ranks, const uint64_t* rest_a,
                           const uint64_t* rest_b, uint64_t limit) {
  return PeaksAfterBody(out, in, a, b, num_blocks, ranks, num_ranks, rest_a,
                        rest_b, limit);
}
ROUTEPACK_MULTIVERSION
ExchangePeaks PeaksAfterOf(const uint32_t* out, const uint32_t* in,
                           const uint32_t* a, const uint32_t* b,
                           uint32_t num_blocks, uint32_t ranks,
                           uint64_t num_ranks, const uint64_t* rest_a,
                           const uint64_t* rest_b, uint64_t limit) {
  return PeaksAfterBody(out, in, a, b, num_blocks, ranks, num_ranks, rest_a,
                        rest_b, limit);
}

ROUTEPACK_MULTIVERSION
uint64_t PeaksOf(const uint32_t* loads, uint32_t num_blocks, uint32_t ranks) {
  WideLanes sum{};
  for (uint32_t k = 0; k < num_blocks; ++k) {
    Lanes peak{};
    for (uint32_t p = 0; p < ranks; ++p) {
      peak = Max(peak, LoadLanes(loads));
      loads += kLanes;
    }
    sum += Widen(peak);
  }
  return Sum(sum);
}

}  // namespace

LaneDemand::LaneDemand(const Demand& demand)
    : num_ranks_(demand.num_ranks),
      ranks_((demand.num_ranks + 1) / 2 * 2),
      num_blocks_((demand.num_layers + kLanes - 1) / kLanes),
      nothing_(demand.num_items),
      totals_((size_t{demand.num_items} + 1) * num_blocks_) {
  uint32_t largest = 0;
  for (uint32_t value : demand.values) largest = std::max(largest, value);
  if (largest <= UINT16_MAX) {
    Fill<uint16_t>(demand);
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
    uint64_t* totals = totals_.data() + size_t{i} * num_blocks_;
    for (uint32_t l = 0; l < demand.num_layers; ++l) {
      T* block = to + size_t{l / kLanes} * kLanes * ranks_ + l % kLanes;
      for (uint32_t p = 0; p < num_ranks_; ++p) {
        block[size_t{p} * kLanes] = static_cast<T>(from[p]);
        totals[l / kLanes] += from[p];
      }
      from += demand.stride;
    }
  });
}

size_t LaneDemand::item_bytes() const {
  return item_size() *
         (values_.index() == 0 ? sizeof(uint16_t) : sizeof(uint32_t));
}

void LaneDemand::Add(uint32_t item, uint32_t* loads) const {
  std::visit(
      [&](const auto& values) {
        const auto* from = values.data() + item * item_size();
        for (size_t k = 0; k < item_size(); ++k) loads[k] += from[k];
      },
      values_);
}

void LaneDemand::Exchange(uint32_t out, uint32_t in, uint32_t* a,
                          uint32_t* b) const {
  std::visit(
      [&](const auto& values) {
        const auto* leaves = values.data() + out * item_size();
        const auto* comes = values.data() + in * item_size();
        for (size_t k = 0; k < item_size(); ++k) {
          const uint32_t gain = uint32_t{comes[k]} - uint32_t{leaves[k]};
          a[k] += gain;
          b[k] -= gain;
        }
      },
      values_);
}

ExchangePeaks LaneDemand::PeaksAfter(uint32_t out, uint32_t in,
                                     const uint32_t* a, const uint32_t* b,
                                     const uint64_t* rest_a,
                                     const uint64_t* rest_b,
                                     uint64_t limit) const {
  return std::visit(
      [&](const auto& values) {
        return PeaksAfterOf(values.data() + out * item_size(),
                            values.data() + in * item_size(), a, b, num_blocks_,
                            ranks_, num_ranks_, rest_a, rest_b, limit);
      },
      values_);
}

uint64_t LaneDemand::Peaks(const uint32_t* loads) const {
  return PeaksOf(loads, num_blocks_, ranks_);
}

}  // namespace routepack
