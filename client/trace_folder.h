// Recorded routing in a folder of raw little-endian arrays, C order
// (tests/data/TRACES.md describes the format):
//
//   meta.json           name, samples, layers, experts, top_k, tokens
//   lengths.u32         [N] tokens of each sample
//   groups.u32          [N] prompt group; may be absent
//   counts.u16          [N, L, E] routed-token counts
//   routed_experts.u8   [sum of T, L, k] expert ids, samples one after
//                       another; also .u16 (unsigned) and .i32
//
// At least one of counts and ids must be there. T is the sample's length, or
// one less if the folder's total says that last tokens were not recorded.
// Everything is read into memory: a folder is one window's trace.

#ifndef ROUTEPACK_CLIENT_TRACE_FOLDER_H_
#define ROUTEPACK_CLIENT_TRACE_FOLDER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/count_encoding.h"
#include "client/window_file.h"
#include "planner/histogram.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// Which file the counts come from.
enum class TraceCounts {
  kAuto,  // counts if there, else ids; compared where both are there
  kFile,  // counts.u16
  kIds,   // counted from the ids
};

struct Trace {
  std::string name;
  uint32_t num_samples = 0;       // N
  RoutingShape shape;             // L, E, k
  std::vector<uint32_t> lengths;  // [N]
  std::vector<uint32_t> groups;   // [N]
  std::vector<uint32_t> counts;   // [N, L, E]
  bool compared = false;          // counts and ids were, and agree

  std::span<const uint32_t> counts_of(uint32_t i) const {
    const size_t size = size_t{shape.num_layers} * shape.num_experts;
    return std::span(counts).subspan(i * size, size);
  }
  // Fills in the header's shape: num_samples, num_layers, num_experts, top_k.
  void FillHeader(v1::WindowHeader& header) const;
  // The samples in order, ids 0, 1, 2, ... The trace must outlive it.
  SampleSource Source(CountsEncoding encoding = CountsEncoding::kCompact) const;
};

// NOT_FOUND: the folder or a needed file is missing. INVALID_ARGUMENT: a file
// has another size than meta.json says, an id is out of range, or counts and
// ids differ (the message names sample, layer and expert).
absl::StatusOr<Trace> ReadTraceFolder(const std::string& path,
                                      TraceCounts counts = TraceCounts::kAuto);

// A file of little-endian integers, `width` bytes each (1, 2 or 4), widened.
// INVALID_ARGUMENT: its size is no multiple of the width.
absl::StatusOr<std::vector<uint32_t>> ReadIntegers(const std::string& path,
                                                   size_t width);
// A whole file.
absl::StatusOr<std::string> ReadBytes(const std::string& path);

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_TRACE_FOLDER_H_
