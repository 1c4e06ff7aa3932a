// absl::Time and google.protobuf.Timestamp.

#ifndef ROUTEPACK_SERVER_TIMESTAMP_H_
#define ROUTEPACK_SERVER_TIMESTAMP_H_

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace routepack::server {

inline google::protobuf::Timestamp EncodeTime(absl::Time time) {
  google::protobuf::Timestamp message;
  const int64_t seconds = absl::ToUnixSeconds(time);
  message.set_seconds(seconds);
  message.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return message;
}

inline absl::Time DecodeTime(const google::protobuf::Timestamp& message) {
  return absl::FromUnixSeconds(message.seconds()) +
         absl::Nanoseconds(message.nanos());
}

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_TIMESTAMP_H_
