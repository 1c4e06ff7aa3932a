// Names for values: XXH3-128 over a little-endian serialisation, as 32 hex
// digits. The same on every machine. Tells values apart, protects nothing.
// Runs at memory speed and holds no copy. For .cc files only: installed headers
// do not include it.
//
//   Digest digest;
//   digest.AddU32(n);
//   digest.AddArray(std::span(values));
//   std::string name = digest.Hex();

#ifndef ROUTEPACK_PLANNER_DIGEST_H_
#define ROUTEPACK_PLANNER_DIGEST_H_

#include <xxhash.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/escaping.h"

namespace routepack {

class Digest {
 public:
  Digest() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }

  void AddU32(uint32_t value) { Add(&value, sizeof(value)); }
  void AddU64(uint64_t value) { Add(&value, sizeof(value)); }
  // Its bits: 0.0 and -0.0 differ.
  void AddDouble(double value) { AddU64(std::bit_cast<uint64_t>(value)); }
  // Length, then bytes, so that neighbours cannot run into each other.
  void AddString(std::string_view value) {
    AddU64(value.size());
    Add(value.data(), value.size());
  }
  // Length, then elements.
  template <typename T>
  void AddArray(std::span<T> values) {
    static_assert(std::is_integral_v<T>);
    AddU64(values.size());
    Add(values.data(), values.size_bytes());
  }

  std::string Hex() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    return absl::BytesToHexString(
        std::string(reinterpret_cast<const char*>(canonical.digest),
                    sizeof(canonical.digest)));
  }

 private:
  static_assert(std::endian::native == std::endian::little,
                "a big-endian machine must swap bytes before hashing");

  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  void Add(const void* data, size_t size) {
    if (size > 0) XXH3_128bits_update(state_.get(), data, size);
  }

  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_DIGEST_H_
