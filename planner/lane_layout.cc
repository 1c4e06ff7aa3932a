#include "planner/lane_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/errors.h"

namespace routepack {
namespace {

using Piece = LaneLayout::Piece;

constexpr uint64_t kMaxAlignment = uint64_t{1} << 24;
// Of all slots and layers; some hundred megabytes.
constexpr uint64_t kMaxPieces = uint64_t{1} << 24;

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A parameter of the expert in a slot.
struct BufferEntry {
  size_t slot = 0;      // l H + h
  uint64_t offset = 0;  // of its first element in the expert
  uint64_t elements = 0;
  uint64_t begin = 0;  // in the buffer
};

// At most, for each dtype and chunk.
uint64_t NumBuffers(const GradientBuffer& buffer) {
  std::set<uint32_t> dtypes;
  for (const ExpertParameter& parameter : buffer.parameters) {
    dtypes.insert(parameter.buffer);
  }
  const std::set<uint32_t> chunks(buffer.chunk_of_layer.begin(),
                                  buffer.chunk_of_layer.end());
  return dtypes.size() * std::max<size_t>(1, chunks.size());
}

void CheckBuffer(const GradientBuffer& buffer, uint32_t num_layers,
                 uint32_t slots_per_rank, uint32_t num_lanes,
                 const std::string& field, Violations& bad) {
  uint64_t elements = 0;
  for (size_t j = 0; j < buffer.parameters.size(); ++j) {
    const uint64_t size = buffer.parameters[j].elements;
    if (size == 0 || size > LaneLayout::kMaxElements) {
      bad.Add(absl::StrCat(field, ".parameters[", j, "].elements"),
              absl::StrCat("must be in [1, ", LaneLayout::kMaxElements,
                           "], is ", size));
      return;
    }
    elements = std::min(elements + size, LaneLayout::kMaxElements + 1);
  }
  // Buffer positions stay far below 2^63.
  if (elements > LaneLayout::kMaxElements / slots_per_rank / num_layers) {
    bad.Add(absl::StrCat(field, ".parameters"),
            absl::StrCat("a rank's experts must have at most ",
                         LaneLayout::kMaxElements, " elements together"));
  }
  // Every lane has a part of every bucket.
  const uint64_t entries =
      buffer.parameters.size() * num_layers * slots_per_rank;
  const bool whole = buffer.bucket_elements == 0;
  const uint64_t buckets = whole ? NumBuffers(buffer) : entries;
  if (entries > kMaxPieces || buckets > kMaxPieces / num_lanes) {
    bad.Add(absl::StrCat(field, whole ? ".parameters" : ".bucket_elements"),
            absl::StrCat("makes ", entries, " parts in up to ", buckets,
                         " buckets of ", num_lanes,
                         " ranges, together more than ", kMaxPieces));
  }
  const auto check = [&](const char* name, uint64_t value) {
    if (value >= 1 && value <= kMaxAlignment) return;
    bad.Add(absl::StrCat(field, ".", name),
            absl::StrCat("must be in [1, ", kMaxAlignment, "], is ", value));
  };
  check("start_alignment", buffer.start_alignment);
  check("end_multiple", buffer.end_multiple);
  if (!buffer.chunk_of_layer.empty() &&
      buffer.chunk_of_layer.size() != num_layers) {
    bad.Add(absl::StrCat(field, ".chunk_of_layer"),
            absl::StrCat("must have an entry for each of ", num_layers,
                         " layers, has ", buffer.chunk_of_layer.size()));
  }
}

// The parameters of each buffer (chunk, dtype), in model order.
std::vector<std::vector<BufferEntry>> ModelOrder(const GradientBuffer& buffer,
                                                 uint32_t num_layers,
                                                 uint32_t slots_per_rank) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<BufferEntry>> buffers;
  const size_t num_parameters = buffer.parameters.size();
  std::vector<uint64_t> offset(num_parameters, 0);
  for (size_t j = 1; j < num_parameters; ++j) {
    offset[j] = offset[j - 1] + buffer.parameters[j - 1].elements;
  }
  for (uint32_t l = 0; l < num_layers; ++l) {
    const uint32_t chunk =
        buffer.chunk_of_layer.empty() ? 0 : buffer.chunk_of_layer[l];
    for (size_t k = 0; k < num_parameters * slots_per_rank; ++k) {
      const size_t j = buffer.grouped ? k / slots_per_rank : k % num_parameters;
      const size_t h = buffer.grouped ? k % slots_per_rank : k / num_parameters;
      const ExpertParameter& parameter = buffer.parameters[j];
      buffers[{chunk, parameter.buffer}].push_back(
          {size_t{l} * slots_per_rank + h, offset[j], parameter.elements});
    }
  }
  std::vector<std::vector<BufferEntry>> result;
  result.reserve(buffers.size());
  for (auto& [key, entries] : buffers) result.push_back(std::move(entries));
  return result;
}

// Cuts a bucket's range [begin, end) evenly between the lanes.
void ShareBucket(std::span<const BufferEntry> entries, uint64_t begin,
                 uint64_t end, uint32_t num_lanes,
                 std::vector<std::vector<Piece>>& pieces) {
  const uint64_t width = (end - begin) / num_lanes;
  for (const BufferEntry& entry : entries) {
    const uint64_t stop = entry.begin + entry.elements;
    for (uint64_t at = entry.begin; at < stop;) {
      const uint64_t lane = (at - begin) / width;
      const uint64_t next = std::min(stop, begin + (lane + 1) * width);
      pieces[entry.slot].push_back({entry.offset + at - entry.begin,
                                    entry.offset + next - entry.begin,
                                    static_cast<uint32_t>(lane)});
      at = next;
    }
  }
}

void ShareBuffer(std::vector<BufferEntry> entries, const GradientBuffer& buffer,
                 uint32_t num_lanes, std::vector<std::vector<Piece>>& pieces) {
  if (buffer.reversed) std::reverse(entries.begin(), entries.end());
  const uint64_t multiple = std::lcm(uint64_t{num_lanes}, buffer.end_multiple);
  uint64_t bucket_begin = 0;
  uint64_t at = 0;
  size_t first = 0;
  for (size_t k = 0; k < entries.size(); ++k) {
    entries[k].begin = RoundUp(at, buffer.start_alignment);
    at = entries[k].begin + entries[k].elements;
    const bool full = buffer.bucket_elements != 0 &&
                      at - bucket_begin >= buffer.bucket_elements;
    if (!full && k + 1 < entries.size()) continue;
    at = RoundUp(at, multiple);
    ShareBucket(std::span(entries).subspan(first, k + 1 - first), bucket_begin,
                at, num_lanes, pieces);
    bucket_begin = at;
    first = k + 1;
  }
}

}  // namespace

LaneLayout::LaneLayout(std::vector<std::vector<Piece>> pieces,
                       uint32_t slots_per_rank)
    : slots_per_rank_(slots_per_rank), piece_begin_{0}, share_begin_{0} {
  piece_begin_.reserve(pieces.size() + 1);
  share_begin_.reserve(pieces.size() + 1);
  for (std::vector<Piece>& row : pieces) {
    std::sort(row.begin(), row.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::map<uint32_t, uint64_t> elements_of_lane;
    for (const Piece& piece : row) {
      elements_of_lane[piece.lane] += piece.end - piece.begin;
      if (pieces_.size() > piece_begin_.back() &&
          pieces_.back().lane == piece.lane) {
        pieces_.back().end = piece.end;
      } else {
        pieces_.push_back(piece);
      }
    }
    piece_begin_.push_back(pieces_.size());
    for (const auto& [lane, elements] : elements_of_lane) {
      shares_.push_back({lane, elements});
    }
    share_begin_.push_back(shares_.size());
  }
}

absl::StatusOr<LaneLayout> LaneLayout::FromBuffer(const GradientBuffer& buffer,
                                                  uint32_t num_layers,
                                                  uint32_t slots_per_rank,
                                                  uint32_t num_lanes,
                                                  std::string_view field) {
  Violations bad;
  CheckBuffer(buffer, num_layers, slots_per_rank, num_lanes, std::string(field),
              bad);
  if (!bad.empty()) return bad.ToStatus();
  std::vector<std::vector<Piece>> pieces(size_t{num_layers} * slots_per_rank);
  for (std::vector<BufferEntry>& entries :
       ModelOrder(buffer, num_layers, slots_per_rank)) {
    ShareBuffer(std::move(entries), buffer, num_lanes, pieces);
  }
  return LaneLayout(std::move(pieces), slots_per_rank);
}

absl::StatusOr<LaneLayout> LaneLayout::FromRanges(
    std::span<const LaneRange> ranges, uint64_t elements, uint32_t num_layers,
    uint32_t slots_per_rank, uint32_t num_lanes, std::string_view prefix) {
  const std::string field(prefix);
  Violations bad;
  std::vector<std::vector<Piece>> pieces(size_t{num_layers} * slots_per_rank);
  for (size_t j = 0; j < ranges.size(); ++j) {
    const LaneRange& range = ranges[j];
    const auto path = [&](const char* name) {
      return absl::StrCat(field, "[", j, "].", name);
    };
    const size_t before = bad.total();
    const auto check = [&](const char* name, uint64_t value, uint64_t size) {
      if (value < size) return;
      bad.Add(path(name), absl::StrCat("must be below ", size, ", is ", value));
    };
    check("layer", range.layer, num_layers);
    check("slot", range.slot, slots_per_rank);
    check("lane", range.lane, num_lanes);
    if (range.begin >= range.end || range.end > elements) {
      bad.Add(path("end"),
              absl::StrCat("elements [", range.begin, ", ", range.end,
                           ") are empty or beyond ", elements));
    } else if (bad.total() == before) {
      pieces[size_t{range.layer} * slots_per_rank + range.slot].push_back(
          {range.begin, range.end, range.lane});
    }
  }
  if (!bad.empty()) return bad.ToStatus();
  for (size_t row = 0; row < pieces.size(); ++row) {
    std::sort(pieces[row].begin(), pieces[row].end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    uint64_t at = 0;
    bool gapless = true;
    for (const Piece& piece : pieces[row]) {
      gapless = piece.begin == at;
      if (!gapless) break;
      at = piece.end;
    }
    if (gapless && at == elements) continue;
    bad.Add(field,
            absl::StrCat("the ranges of layer ", row / slots_per_rank,
                         ", slot ", row % slots_per_rank, " do not cover its ",
                         elements, " elements exactly once: see element ", at));
  }
  if (!bad.empty()) return bad.ToStatus();
  return LaneLayout(std::move(pieces), slots_per_rank);
}

}  // namespace routepack
