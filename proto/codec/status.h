// absl::Status inside, google.rpc.Status with details on the wire.
//
// Violations become BadRequest, precondition details PreconditionFailure,
// retry delays RetryInfo; and back. Independent of gRPC: the serialised
// google.rpc.Status is what gRPC carries as error details.
//
//   return grpc::Status(code, WireMessage(status), StatusToWire(status));

#ifndef ROUTEPACK_PROTO_CODEC_STATUS_H_
#define ROUTEPACK_PROTO_CODEC_STATUS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace routepack {

// gRPC peers refuse trailers above 8 KiB unless told otherwise, and then the
// caller sees none of the error. Message (percent-encoded) and details
// (base64) together stay below this; the rest is left to gRPC's own fields.
inline constexpr size_t kMaxStatusHeaderBytes = 7168;

// The message for the wire: the status's, shortened when very long, with a
// note when not all violations fit.
std::string WireMessage(const absl::Status& status);

// Serialised google.rpc.Status with code, WireMessage and as many details as
// fit.
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
