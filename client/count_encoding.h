// Counts to messages, in whichever encoding is smallest.

#ifndef ROUTEPACK_CLIENT_COUNT_ENCODING_H_
#define ROUTEPACK_CLIENT_COUNT_ENCODING_H_

#include <cstdint>
#include <span>

#include "routepack/v1/window.pb.h"

namespace routepack {

enum class CountsEncoding {
  // The smallest of dense varints, u8, u16, u32 and sparse pairs: for files.
  kCompact,
  // The narrowest of u8, u16 and u32 that holds the largest count: fastest to
  // read, for uploads.
  kFixedWidth,
};

// Encodes the counts [L, E] of one sample. O(L E).
void EncodeCounts(std::span<const uint32_t> counts, uint32_t num_layers,
                  CountsEncoding encoding, v1::Counts* message);

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_COUNT_ENCODING_H_
