#include "client/count_encoding.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>

namespace routepack {
namespace {

size_t VarintBytes(uint32_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Bytes of a length-delimited field with a one-byte tag; 0 if empty, as packed
// fields leave it out.
size_t FieldBytes(size_t payload) {
  return payload == 0
             ? 0
             : 1 + VarintBytes(static_cast<uint32_t>(payload)) + payload;
}

size_t SparseBytes(std::span<const uint32_t> counts, size_t num_experts) {
  size_t bytes = 0;
  for (size_t begin = 0; begin < counts.size(); begin += num_experts) {
    size_t ids = 0;
    size_t values = 0;
    for (size_t e = 0; e < num_experts; ++e) {
      const uint32_t count = counts[begin + e];
      if (count == 0) continue;
      ids += VarintBytes(static_cast<uint32_t>(e));
      values += VarintBytes(count);
    }
    const size_t layer = FieldBytes(ids) + FieldBytes(values);
    bytes += 1 + VarintBytes(static_cast<uint32_t>(layer)) + layer;
  }
  return bytes;
}

void EncodeSparse(std::span<const uint32_t> counts, size_t num_experts,
                  v1::SparseCounts* sparse) {
  for (size_t begin = 0; begin < counts.size(); begin += num_experts) {
    v1::SparseLayer* layer = sparse->add_layers();
    for (size_t e = 0; e < num_experts; ++e) {
      const uint32_t count = counts[begin + e];
      if (count == 0) continue;
      layer->add_experts(static_cast<uint32_t>(e));
      layer->add_counts(count);
    }
  }
}

std::string LittleEndian(std::span<const uint32_t> counts, size_t width) {
  std::string bytes(counts.size() * width, '\0');
  char* out = bytes.data();
  for (const uint32_t count : counts) {
    for (size_t b = 0; b < width; ++b) {
      *out++ = static_cast<char>(count >> (8 * b));
    }
  }
  return bytes;
}

void EncodeFixedWidth(std::span<const uint32_t> counts, size_t width,
                      v1::Counts* message) {
  switch (width) {
    case 1:
      message->set_u8(LittleEndian(counts, 1));
      break;
    case 2:
      message->set_u16(LittleEndian(counts, 2));
      break;
    default:
      message->set_u32(LittleEndian(counts, 4));
  }
}

}  // namespace

void EncodeCounts(std::span<const uint32_t> counts, uint32_t num_layers,
                  CountsEncoding encoding, v1::Counts* message) {
  const size_t num_experts = num_layers == 0 ? 0 : counts.size() / num_layers;
  uint32_t largest = 0;
  size_t dense = 0;
  for (const uint32_t count : counts) {
    largest = std::max(largest, count);
    dense += VarintBytes(count);
  }
  const size_t width = largest <= 0xff ? 1 : largest <= 0xffff ? 2 : 4;
  const size_t fixed = width * counts.size();
  if (encoding == CountsEncoding::kFixedWidth || num_experts == 0) {
    EncodeFixedWidth(counts, width, message);
    return;
  }
  const size_t sparse = SparseBytes(counts, num_experts);
  if (fixed <= std::min(dense, sparse)) {
    EncodeFixedWidth(counts, width, message);
  } else if (dense <= sparse) {
    message->mutable_dense()->mutable_values()->Add(counts.begin(),
                                                    counts.end());
  } else {
    EncodeSparse(counts, num_experts, message->mutable_sparse());
  }
}

}  // namespace routepack
