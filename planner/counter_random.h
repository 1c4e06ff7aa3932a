// Random numbers that are functions of their place: value n of stream
// (seed, stream, a, b) is computed directly, so samples can be generated in
// any order and by any number of threads with the same result.
//
// The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014). Integer
// arithmetic only: the same on every compiler. Not for cryptography.

#ifndef ROUTEPACK_PLANNER_COUNTER_RANDOM_H_
#define ROUTEPACK_PLANNER_COUNTER_RANDOM_H_

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace routepack {

class CounterRandom {
 public:
  explicit CounterRandom(uint64_t seed, uint64_t stream = 0, uint64_t a = 0,
                         uint64_t b = 0)
      : key_(Mix(Mix(Mix(Mix(seed) + stream * kGolden) + a * kGolden) +
                 b * kGolden)) {}

  uint64_t At(uint64_t n) const { return Mix(key_ + n * kGolden); }
  // In [0, 1), a multiple of 2^-53.
  double UniformAt(uint64_t n) const { return (At(n) >> 11) * 0x1.0p-53; }
  // In [0, bound) without bias that could be noticed (multiply-shift of 32
  // bits); bound at most 2^32.
  uint64_t BelowAt(uint64_t n, uint64_t bound) const {
    return ((At(n) >> 32) * bound) >> 32;
  }
  // Sum of 12 uniforms less 6 (Irwin-Hall): mean 0, variance 1, inside +-6.
  double NormalAt(uint64_t n) const {
    int64_t sum = 0;
    for (uint64_t word = 0; word < 3; ++word) sum += LaneSum(At(3 * n + word));
    return sum * 0x1.0p-16 - 6 + 6 * 0x1.0p-16;
  }
  // The four 16-bit lanes of a word, added.
  static int64_t LaneSum(uint64_t word) {
    return static_cast<int64_t>((word & 0xffff) + ((word >> 16) & 0xffff) +
                                ((word >> 32) & 0xffff) + (word >> 48));
  }
  // 0 .. size-1 in random order (Fisher and Yates).
  std::vector<uint32_t> Permutation(uint32_t size) const {
    std::vector<uint32_t> order(size);
    std::iota(order.begin(), order.end(), 0u);
    for (uint32_t i = size; i > 1; --i) {
      std::swap(order[i - 1], order[BelowAt(i, i)]);
    }
    return order;
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

  static uint64_t Mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    x ^= x >> 31;
    return x;
  }

  uint64_t key_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_COUNTER_RANDOM_H_
