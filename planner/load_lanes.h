// Loads and demand as the search reads them (spec 1.4): layers in blocks of
// eight, [block][p][8], so that the maxima over ranks of eight layers are one
// vector, and a proposal reads four runs of memory.
//
// What a proposal reads is 16 bits wide where no demand exceeds kMostNarrow:
// beside the 32-bit loads (window.h bounds them) there are narrow ones, less a
// base that puts the peak of each layer at kNarrowPeak. Loads too far below the
// peak are raised to kNarrowFloor. Maxima stay exact: an exchange changes a
// load by at most kMostNarrow, so nothing overflows and no raised load can
// become a peak. With larger demand all is 32 bits wide.
//
// Ranks are padded to an even number and layers to whole blocks, with zeros,
// which change neither maxima nor sums. Not thread-safe but for const members.

#ifndef ROUTEPACK_PLANNER_LOAD_LANES_H_
#define ROUTEPACK_PLANNER_LOAD_LANES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "planner/demand.h"

namespace routepack {

// Sums over layers of the peaks of two row-shards.
struct ExchangePeaks {
  uint64_t a = 0;         // sum_l max_p of the first
  uint64_t b = 0;         // of the second
  bool complete = false;  // false: stopped, both are partial
};

// Demand of items; immutable.
class LaneDemand {
 public:
  static constexpr uint32_t kMostNarrow = (1 << 14) - 1;

  // O(N L P), items in parallel. One item without demand, `nothing()`, follows
  // the demand's own.
  explicit LaneDemand(const Demand& demand);

  uint32_t num_ranks() const { return num_ranks_; }
  uint32_t num_blocks() const { return num_blocks_; }
  // Values of one item or of the loads of one row-shard.
  size_t item_size() const { return size_t{num_blocks_} * block_size(); }
  size_t block_size() const { return size_t{8} * ranks_; }
  uint32_t nothing() const { return nothing_; }
  bool narrow() const { return values_.index() == 0; }
  // Bytes of a value, as proposals read it.
  size_t value_bytes() const { return narrow() ? 2 : 4; }

  // [items + 1][block][p][8], T = int16_t when narrow, else uint32_t.
  template <typename T>
  const T* items() const {
    return std::get<AlignedVector<T>>(values_).data();
  }
  // Calls f with items() of the right type.
  template <typename F>
  decltype(auto) Visit(F&& f) const {
    return narrow() ? f(items<int16_t>()) : f(items<uint32_t>());
  }

 private:
  template <typename T>
  void Fill(const Demand& demand);

  uint32_t num_ranks_;   // P
  uint32_t ranks_;       // P rounded up to even
  uint32_t num_blocks_;  // L / 8 rounded up
  uint32_t nothing_;
  // [items + 1][block][p][8]
  std::variant<AlignedVector<int16_t>, AlignedVector<uint32_t>> values_;
};

// Loads of all row-shards of one layout.
class LaneLoads {
 public:
  // `row_shard_of` [items] below `row_shards`. `demand` must outlive the loads.
  LaneLoads(const LaneDemand& demand, uint32_t row_shards,
            std::span<const uint32_t> row_shard_of);

  // sum_l max_p of a row-shard's loads.
  uint64_t Peaks(uint32_t row_shard) const;
  // Moves item `out` from row-shard a to b and `in` from b to a.
  void Exchange(uint32_t out, uint32_t in, uint32_t a, uint32_t b);
  // The peaks after such an exchange, without doing it. Stops when a + b must
  // exceed `limit`: layers not looked at add at least their mean loads. Narrow
  // ones are compared after at least kValuesBetweenLooks: a branch that cannot
  // be predicted costs as much as to read them.
  ExchangePeaks PeaksAfter(uint32_t out, uint32_t in, uint32_t a, uint32_t b,
                           uint64_t limit) const;

  static constexpr size_t kValuesBetweenLooks = 256;
  static constexpr int32_t kNarrowPeak = LaneDemand::kMostNarrow + 1;
  static constexpr int32_t kNarrowFloor = -kNarrowPeak - 1;

 private:
  const LaneDemand* demand_;
  AlignedVector<uint32_t> wide_;   // [R G][block][p][8]
  AlignedVector<int16_t> narrow_;  // the same less bases, or empty
  std::vector<int64_t> totals_;    // [R G][block] load of all ranks
  // [R G][blocks + 1] P times the bases of the blocks before k, plus the loads
  // of those from k on, of all ranks.
  std::vector<int64_t> tails_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_LOAD_LANES_H_
