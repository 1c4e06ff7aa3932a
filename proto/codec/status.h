// absl::Status inside, google.rpc.Status with details on the wire.
//
// Violations become BadRequest, precondition details PreconditionFailure,
// retry delays RetryInfo; and back. Independent of gRPC: the serialised
// google.rpc.Status is what gRPC carries as error details.

#ifndef ROUTEPACK_PROTO_CODEC_STATUS_H_
#define ROUTEPACK_PROTO_CODEC_STATUS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace routepack {

// Serialised google.rpc.Status with code, message and details.
std::string StatusToWire(const absl::Status& status);

// The reverse; details that are not understood are dropped. `code` and
// `message` are used when `wire` is empty or malformed.
absl::Status StatusFromWire(absl::StatusCode code, std::string_view message,
                            std::string_view wire);

// RESOURCE_EXHAUSTED (or UNAVAILABLE) with the time after which to try again.
absl::Status RetryableError(absl::StatusCode code, std::string_view message,
                            absl::Duration retry_after);

// The delay a status carries.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_STATUS_H_
