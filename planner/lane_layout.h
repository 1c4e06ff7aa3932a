// Which EDP lane owns which part of an expert's optimizer state (spec 1.8).
//
// A distributed optimizer lays the gradients of a rank's local parameters out
// in one contiguous buffer per dtype (and per model chunk of a pipeline), cuts
// it into buckets and each bucket evenly into G ranges. Lane g, the member g of
// the rank's EDP group, owns range g of every bucket: master weights and
// moments of the elements in it. Ranges know nothing of experts, so that an
// expert may lie in several lanes, and slots of a layer in different ones.
// Buffers are alike on all EP ranks.
//
// FromBuffer follows Megatron-Core (distributed/param_and_grad_buffer.py,
// distrib_optimizer.py): parameters in reverse order, each starting at a
// multiple of 64 elements; a bucket is closed by the parameter that fills it
// and ends at a multiple of lcm(G, 128). Grouped experts come parameter by
// parameter (fc1 of all slots, then fc2 of all slots), sequential ones slot by
// slot.
//
// Immutable, safe to share. Building costs O(L H (parameters + pieces)).

#ifndef ROUTEPACK_PLANNER_LANE_LAYOUT_H_
#define ROUTEPACK_PLANNER_LANE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace routepack {

struct ExpertParameter {
  uint64_t elements = 0;
  uint32_t buffer = 0;  // parameters of another dtype are in another buffer
};

struct GradientBuffer {
  std::vector<ExpertParameter> parameters;  // of an expert, in model order
  bool grouped = true;            // parameter by parameter, else slot by slot
  bool reversed = true;           // last layer and parameter first
  uint64_t start_alignment = 64;  // elements, of a parameter
  uint64_t end_multiple = 128;    // elements, of a bucket, besides G
  uint64_t bucket_elements = 0;   // 0: one bucket a buffer
  // Model chunk of each layer, [L]; none: all in one. Layers of a chunk share
  // buffers, in ascending order.
  std::vector<uint32_t> chunk_of_layer;
};

// Lane `lane` owns elements [begin, end) of the expert in slot `slot` (of a
// rank, in [0, H)); elements count through all its parameters.
struct LaneRange {
  uint32_t layer = 0;
  uint32_t slot = 0;
  uint32_t lane = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

class LaneLayout {
 public:
  struct Piece {
    uint64_t begin = 0;  // elements of the expert
    uint64_t end = 0;
    uint32_t lane = 0;

    friend bool operator==(const Piece&, const Piece&) = default;
  };
  struct Share {
    uint32_t lane = 0;
    uint64_t elements = 0;
  };

  static constexpr uint64_t kMaxElements = uint64_t{1} << 40;

  // One lane owns everything.
  LaneLayout() = default;

  // INVALID_ARGUMENT names `field`.chunk_of_layer, .parameters, ... .
  static absl::StatusOr<LaneLayout> FromBuffer(const GradientBuffer& buffer,
                                               uint32_t num_layers,
                                               uint32_t slots_per_rank,
                                               uint32_t num_lanes,
                                               std::string_view field);
  // INVALID_ARGUMENT names `field`[j]: out of range, or the ranges of a slot
  // do not cover [0, elements) exactly once.
  static absl::StatusOr<LaneLayout> FromRanges(
      std::span<const LaneRange> ranges, uint64_t elements, uint32_t num_layers,
      uint32_t slots_per_rank, uint32_t num_lanes, std::string_view field);

  // Ascending, without gaps; neighbours belong to different lanes.
  std::span<const Piece> pieces(uint32_t layer, uint32_t slot) const {
    return Row(pieces_, piece_begin_, layer, slot);
  }
  // What each lane owns of the expert in this slot, lanes ascending.
  std::span<const Share> shares(uint32_t layer, uint32_t slot) const {
    return Row(shares_, share_begin_, layer, slot);
  }

  // Elements that change lanes when an expert goes from slot `from` to slot
  // `to` of its layer: f(from_lane, to_lane, elements), piece by piece.
  template <typename F>
  void ForEachCrossing(uint32_t layer, uint32_t from, uint32_t to, F f) const {
    const std::span<const Piece> source = pieces(layer, from);
    const std::span<const Piece> target = pieces(layer, to);
    for (size_t i = 0, j = 0; i < source.size() && j < target.size();) {
      const Piece& a = source[i];
      const Piece& b = target[j];
      const uint64_t begin = a.begin > b.begin ? a.begin : b.begin;
      const uint64_t end = a.end < b.end ? a.end : b.end;
      if (a.lane != b.lane) f(a.lane, b.lane, end - begin);
      if (a.end == end) ++i;
      if (b.end == end) ++j;
    }
  }

 private:
  // `pieces` [L H]: in any order.
  LaneLayout(std::vector<std::vector<Piece>> pieces, uint32_t slots_per_rank);

  template <typename T>
  std::span<const T> Row(const std::vector<T>& all,
                         const std::vector<size_t>& begin, uint32_t layer,
                         uint32_t slot) const {
    if (begin.empty()) return {};
    const size_t row = size_t{layer} * slots_per_rank_ + slot;
    return std::span(all).subspan(begin[row], begin[row + 1] - begin[row]);
  }

  uint32_t slots_per_rank_ = 0;
  std::vector<Piece> pieces_;
  std::vector<size_t> piece_begin_;  // [L H + 1]
  std::vector<Share> shares_;
  std::vector<size_t> share_begin_;  // [L H + 1]
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_LANE_LAYOUT_H_
