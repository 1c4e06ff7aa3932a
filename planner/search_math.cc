#include "planner/search_math.h"

#include <array>
#include <bit>
#include <cstdint>

namespace routepack {
namespace {

// ln 2 in two parts: multiples of the first by small integers are exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr int kFractionBits = 52;
constexpr int kBias = 1023;

// ln x near 1 by its series: 2 artanh((x - 1) / (x + 1)).
constexpr double LogSeries(double x) {
  const double s = (x - 1) / (x + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 35; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2 * s * sum;
}

// [1, 2) in equal parts, those from kFirstHalved on halved, so that x is near
// 1. Every part has a centre c; those next to 1 have c = 1, exactly, for the
// sake of the relative error there.
constexpr int kPartBits = 7;
constexpr int kParts = 1 << kPartBits;
constexpr int kFirstHalved = 53;  // sqrt(2)

struct LogPart {
  double inverse = 1;  // 1 / c
  double log = 0;      // ln c
};

constexpr std::array<LogPart, kParts> MakeLogParts() {
  std::array<LogPart, kParts> parts;
  for (int j = 1; j + 1 < kParts; ++j) {
    const double centre =
        (1 + (j + 0.5) / kParts) * (j >= kFirstHalved ? 0.5 : 1);
    parts[j].inverse = 1 / centre;
    // Of the rounded inverse.
    parts[j].log = -LogSeries(parts[j].inverse);
  }
  return parts;
}
constexpr std::array<LogPart, kParts> kLogParts = MakeLogParts();

}  // namespace

double Log(double x) {
  // x = m 2^e, ln x = e ln 2 + ln c + ln(1 + r) with |r| < 2^-7.
  constexpr uint64_t kFraction = (uint64_t{1} << kFractionBits) - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const auto j =
      static_cast<int>((bits & kFraction) >> (kFractionBits - kPartBits));
  const int halved = j >= kFirstHalved ? 1 : 0;
  const int exponent = static_cast<int>(bits >> kFractionBits) - kBias + halved;
  const double m = std::bit_cast<double>(
      (bits & kFraction) |
      (static_cast<uint64_t>(kBias - halved) << kFractionBits));
  const LogPart& part = kLogParts[j];
  const double r = m * part.inverse - 1;
  // The first term left out is below 2^-49 r.
  double sum = 1.0 / 7;
  for (int k = 6; k >= 1; --k) sum = 1.0 / k - sum * r;
  return exponent * kLn2High + (exponent * kLn2Low + part.log + r * sum);
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
