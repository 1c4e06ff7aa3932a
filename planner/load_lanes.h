// Loads and demand as the search reads them (spec 1.4): layers in blocks of
// eight, [block][p][8], so that the maximum over ranks of eight layers is one
// vector operation a rank, and a proposal reads four runs of memory.
//
// Ranks are padded to an even number and layers to whole blocks, with zeros,
// which change neither maxima nor sums. Demand is held in 16 bits where every
// value fits, else in 32; loads are 32 bits (window.h bounds them).

#ifndef ROUTEPACK_PLANNER_LOAD_LANES_H_
#define ROUTEPACK_PLANNER_LOAD_LANES_H_

#include <cstdint>
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

class LaneDemand {
 public:
  // O(N L P), items in parallel. One item without demand, `nothing()`, follows
  // the demand's own.
  explicit LaneDemand(const Demand& demand);

  uint32_t num_blocks() const { return num_blocks_; }
  // Values of one item or of the loads of one row-shard.
  size_t item_size() const { return size_t{num_blocks_} * 8 * ranks_; }
  uint32_t nothing() const { return nothing_; }
  // Bytes of one item.
  size_t item_bytes() const;

  // Demand of item i of a block of layers, over ranks: [blocks].
  const uint64_t* totals(uint32_t i) const {
    return totals_.data() + size_t{i} * num_blocks_;
  }

  // loads += item.
  void Add(uint32_t item, uint32_t* loads) const;
  // Moves `out` from a to b and `in` from b to a.
  void Exchange(uint32_t out, uint32_t in, uint32_t* a, uint32_t* b) const;

  // The peaks after such an exchange, without doing it. `rest_a` and `rest_b`
  // [blocks + 1] are the loads of the blocks from k on, of all ranks; their
  // sum over P is the least that these blocks' peaks can add, and the
  // evaluation stops when a + b must exceed `limit`.
  ExchangePeaks PeaksAfter(uint32_t out, uint32_t in, const uint32_t* a,
                           const uint32_t* b, const uint64_t* rest_a,
                           const uint64_t* rest_b, uint64_t limit) const;
  // sum_l max_p of loads.
  uint64_t Peaks(const uint32_t* loads) const;

 private:
  template <typename T>
  void Fill(const Demand& demand);

  uint32_t num_ranks_;   // P
  uint32_t ranks_;       // P rounded up to even
  uint32_t num_blocks_;  // L / 8 rounded up
  uint32_t nothing_;
  // [items + 1][block][p][8]
  std::variant<AlignedVector<uint16_t>, AlignedVector<uint32_t>> values_;
  std::vector<uint64_t> totals_;  // [items + 1][block]
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_LOAD_LANES_H_
