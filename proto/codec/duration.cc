#include "proto/codec/duration.h"

#include <algorithm>
#include <cstdint>

namespace routepack {
namespace {

// google/protobuf/duration.proto: 60 s/min 60 min/h 24 h/d 365.25 d/y 10^4 y.
constexpr int64_t kMaxSeconds = 315'576'000'000;
constexpr int32_t kMaxNanos = 999'999'999;

}  // namespace

google::protobuf::Duration EncodeDuration(absl::Duration duration) {
  const absl::Duration limit = absl::Seconds(kMaxSeconds);
  duration = std::clamp(duration, -limit, limit);
  google::protobuf::Duration message;
  message.set_seconds(
      absl::IDivDuration(duration, absl::Seconds(1), &duration));
  message.set_nanos(static_cast<int32_t>(
      absl::IDivDuration(duration, absl::Nanoseconds(1), &duration)));
  return message;
}

std::optional<absl::Duration> DecodeDuration(
    const google::protobuf::Duration& message) {
  const int64_t seconds = message.seconds();
  const int32_t nanos = message.nanos();
  if (seconds < -kMaxSeconds || seconds > kMaxSeconds) return std::nullopt;
  if (nanos < -kMaxNanos || nanos > kMaxNanos) return std::nullopt;
  if ((seconds < 0 && nanos > 0) || (seconds > 0 && nanos < 0)) {
    return std::nullopt;
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

}  // namespace routepack
