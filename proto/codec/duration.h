// google.protobuf.Duration to absl::Duration and back.

#ifndef ROUTEPACK_PROTO_CODEC_DURATION_H_
#define ROUTEPACK_PROTO_CODEC_DURATION_H_

#include <optional>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"

namespace routepack {

// Truncates to whole nanoseconds; clamps to the message's range of 10,000
// years, infinite durations included.
google::protobuf::Duration EncodeDuration(absl::Duration duration);

// Nothing when the message is not a valid Duration: out of range, or seconds
// and nanoseconds of different signs.
std::optional<absl::Duration> DecodeDuration(
    const google::protobuf::Duration& message);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_DURATION_H_
