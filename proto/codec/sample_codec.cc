// The six encodings of a sample's counts.

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/histogram.h"
#include "proto/codec/window_codec.h"

namespace routepack {
namespace {

// Counts and ids are little-endian on the wire and read in place.
static_assert(std::endian::native == std::endian::little);

// What is wrong with a sample's counts, with the path below the sample.
struct BadCounts {
  std::string field;
  std::string description;
};
using Problem = std::optional<BadCounts>;

struct CountsShape {
  uint32_t num_layers;   // L
  uint32_t num_experts;  // E
  size_t size() const { return size_t{num_layers} * num_experts; }
};

std::string DescribeShape(const CountsShape& shape) {
  return absl::StrCat("[L, E] = [", shape.num_layers, ", ", shape.num_experts,
                      "]");
}

// Widens little-endian T to uint32_t. The bytes need not be aligned.
template <typename T>
void Widen(const char* bytes, std::span<uint32_t> out) {
  for (size_t j = 0; j < out.size(); ++j) {
    T value;
    std::memcpy(&value, bytes + j * sizeof(T), sizeof(T));
    out[j] = value;
  }
}

template <typename T>
Problem DecodeBytes(const std::string& bytes, const CountsShape& shape,
                    const char* field, std::vector<uint32_t>& counts) {
  const size_t expected = shape.size() * sizeof(T);
  if (bytes.size() != expected) {
    return BadCounts{
        field, absl::StrCat("has ", bytes.size(), " bytes, expected ", expected,
                            " for ", DescribeShape(shape), " of ", sizeof(T),
                            " bytes each")};
  }
  counts.resize(shape.size());
  Widen<T>(bytes.data(), counts);
  return std::nullopt;
}

Problem DecodeDense(const v1::DenseCounts& dense, const CountsShape& shape,
                    std::vector<uint32_t>& counts) {
  if (static_cast<size_t>(dense.values_size()) != shape.size()) {
    return BadCounts{
        ".counts.dense.values",
        absl::StrCat("has ", dense.values_size(), " values, expected ",
                     shape.size(), " for ", DescribeShape(shape))};
  }
  counts.assign(dense.values().begin(), dense.values().end());
  return std::nullopt;
}

// Adds one layer's pairs to `counts` [E], which are zero. `seen` [E] is the
// last layer + 1 in which an expert was listed.
Problem DecodeSparseLayer(const v1::SparseLayer& layer, uint32_t l,
                          std::span<uint32_t> counts,
                          std::vector<uint32_t>& seen) {
  const std::string field = absl::StrCat(".counts.sparse.layers[", l, "]");
  if (layer.experts_size() != layer.counts_size()) {
    return BadCounts{
        field, absl::StrCat("has ", layer.experts_size(), " experts and ",
                            layer.counts_size(), " counts, expected as many")};
  }
  for (int j = 0; j < layer.experts_size(); ++j) {
    const uint32_t expert = layer.experts(j);
    if (expert >= counts.size()) {
      return BadCounts{absl::StrCat(field, ".experts[", j, "]"),
                       absl::StrCat("expert ", expert, " is outside [0, ",
                                    counts.size(), ")")};
    }
    if (seen[expert] == l + 1) {
      return BadCounts{absl::StrCat(field, ".experts[", j, "]"),
                       absl::StrCat("expert ", expert, " is listed twice")};
    }
    seen[expert] = l + 1;
    counts[expert] = layer.counts(j);
  }
  return std::nullopt;
}

Problem DecodeSparse(const v1::SparseCounts& sparse, const CountsShape& shape,
                     std::vector<uint32_t>& counts) {
  if (static_cast<uint32_t>(sparse.layers_size()) != shape.num_layers) {
    return BadCounts{".counts.sparse.layers",
                     absl::StrCat("has ", sparse.layers_size(),
                                  " layers, expected L = ", shape.num_layers)};
  }
  counts.assign(shape.size(), 0);
  std::vector<uint32_t> seen(shape.num_experts, 0);
  for (uint32_t l = 0; l < shape.num_layers; ++l) {
    const auto layer = std::span(counts).subspan(size_t{l} * shape.num_experts,
                                                 shape.num_experts);
    Problem problem = DecodeSparseLayer(sparse.layers(l), l, layer, seen);
    if (problem.has_value()) return problem;
  }
  return std::nullopt;
}

// Ids of one width, copied so that they are aligned.
template <typename T>
Problem CountIds(const std::string& bytes, const char* field,
                 const RoutingShape& shape, uint32_t tokens,
                 std::vector<uint32_t>& counts) {
  const size_t row = size_t{shape.num_layers} * shape.top_k * sizeof(T);
  const size_t whole = row * tokens;
  if (bytes.size() != whole && (tokens == 0 || bytes.size() != whole - row)) {
    return BadCounts{
        field,
        absl::StrCat("has ", bytes.size(), " bytes, expected ", whole,
                     tokens == 0 ? "" : absl::StrCat(" or ", whole - row),
                     " for [t or t - 1, L, k] = [", tokens, " or ",
                     tokens == 0 ? 0 : tokens - 1, ", ", shape.num_layers, ", ",
                     shape.top_k, "] of ", sizeof(T), " bytes each")};
  }
  std::vector<T> ids(bytes.size() / sizeof(T));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  counts.assign(size_t{shape.num_layers} * shape.num_experts, 0);
  const absl::Status status =
      CountRoutedExperts(std::span<const T>(ids), shape, counts);
  if (status.ok()) return std::nullopt;
  return BadCounts{field, std::string(status.message())};
}

Problem DecodeRouted(const v1::RoutedExperts& routed, const RoutingShape& shape,
                     uint32_t tokens, std::vector<uint32_t>& counts) {
  switch (routed.ids_case()) {
    case v1::RoutedExperts::kU8:
      return CountIds<uint8_t>(routed.u8(), ".counts.routed_experts.u8", shape,
                               tokens, counts);
    case v1::RoutedExperts::kU16:
      return CountIds<uint16_t>(routed.u16(), ".counts.routed_experts.u16",
                                shape, tokens, counts);
    case v1::RoutedExperts::kI32:
      return CountIds<int32_t>(routed.i32(), ".counts.routed_experts.i32",
                               shape, tokens, counts);
    case v1::RoutedExperts::IDS_NOT_SET:
      break;
  }
  return BadCounts{".counts.routed_experts", "no ids: give u8, u16 or i32"};
}

Problem DecodeCounts(const v1::Counts& message, const WindowSpec& spec,
                     uint32_t tokens, std::vector<uint32_t>& counts) {
  const CountsShape shape{spec.num_layers, spec.num_experts};
  switch (message.encoding_case()) {
    case v1::Counts::kDense:
      return DecodeDense(message.dense(), shape, counts);
    case v1::Counts::kU8:
      return DecodeBytes<uint8_t>(message.u8(), shape, ".counts.u8", counts);
    case v1::Counts::kU16:
      return DecodeBytes<uint16_t>(message.u16(), shape, ".counts.u16", counts);
    case v1::Counts::kU32:
      return DecodeBytes<uint32_t>(message.u32(), shape, ".counts.u32", counts);
    case v1::Counts::kSparse:
      return DecodeSparse(message.sparse(), shape, counts);
    case v1::Counts::kRoutedExperts:
      return DecodeRouted(message.routed_experts(),
                          {.num_layers = spec.num_layers,
                           .num_experts = spec.num_experts,
                           .top_k = spec.top_k},
                          tokens, counts);
    case v1::Counts::ENCODING_NOT_SET:
      break;
  }
  return BadCounts{".counts", "no encoding: leave counts out if they are lost"};
}

}  // namespace

void DecodeSample(const v1::Sample& sample, WindowBuilder& builder,
                  std::vector<uint32_t>& scratch) {
  const SampleInfo info{
      .id = sample.id(), .tokens = sample.tokens(), .group = sample.group()};
  if (!sample.has_counts()) {
    builder.AddSample(info, std::nullopt);
    return;
  }
  const Problem problem =
      DecodeCounts(sample.counts(), builder.spec(), info.tokens, scratch);
  if (problem.has_value()) {
    builder.AddBadSample(info, problem->field, problem->description);
  } else {
    builder.AddSample(info, std::span<const uint32_t>(scratch));
  }
}

}  // namespace routepack
