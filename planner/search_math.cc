#include "planner/search_math.h"

#include <bit>
#include <cstdint>

namespace routepack {
namespace {

// ln 2 in two parts: multiples of the first by small integers are exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr int kFractionBits = 52;
constexpr int kBias = 1023;

}  // namespace

double Log(double x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  constexpr double kSqrt2 = 0x1.6a09e667f3bcdp0;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> kFractionBits) - kBias;
  double m =
      std::bit_cast<double>((bits & ((uint64_t{1} << kFractionBits) - 1)) |
                            (uint64_t{kBias} << kFractionBits));
  if (m >= kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh(s), |s| < 0.172: the first term left out is below 1e-17.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return exponent * kLn2High + (2 * s * sum + exponent * kLn2Low);
}

double ExpOfNegative(double x) {
  if (!(x > -700)) return 0;
  // x = n ln 2 + r with |r| <= ln(2) / 2.
  const int n = static_cast<int>(x / (kLn2High + kLn2Low) - 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1;
  for (int k = 14; k >= 1; --k) sum = 1 + sum * r / k;
  return sum * std::bit_cast<double>(static_cast<uint64_t>(n + kBias)
                                     << kFractionBits);
}

}  // namespace routepack
