#include "proto/codec/status.h"

#include <cstdint>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "planner/errors.h"
#include "proto/codec/duration.h"

namespace routepack {
namespace {

constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxDescriptionBytes = 512;
// Any's type URL, tags and lengths of one detail.
constexpr int64_t kDetailOverhead = 64;
// The note on violations that do not fit.
constexpr int64_t kNoteBytes = 64;

// Length of a message in gRPC's percent-encoding.
int64_t PercentEncodedSize(std::string_view message) {
  int64_t size = 0;
  for (const char c : message) {
    size += c < ' ' || c > '~' || c == '%' ? 3 : 1;
  }
  return size;
}

// At most `size` bytes of UTF-8, cut between characters.
std::string_view Truncate(std::string_view text, size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (text[size] & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

std::string Shorten(std::string_view text, size_t size) {
  std::string_view kept = Truncate(text, size);
  return std::string(kept) + (kept.size() < text.size() ? "..." : "");
}

google::rpc::PreconditionFailure ToPreconditionFailure(
    const PreconditionDetail& detail) {
  google::rpc::PreconditionFailure failure;
  auto* violation = failure.add_violations();
  violation->set_type(Shorten(detail.type, kMaxDescriptionBytes));
  violation->set_subject(Shorten(detail.subject, kMaxDescriptionBytes));
  violation->set_description(Shorten(detail.description, kMaxDescriptionBytes));
  return failure;
}

// The leading violations that fit in `budget` bytes.
google::rpc::BadRequest ToBadRequest(const std::vector<FieldViolation>& bad,
                                     int64_t budget) {
  google::rpc::BadRequest request;
  int64_t size = 0;
  for (const FieldViolation& violation : bad) {
    google::rpc::BadRequest::FieldViolation message;
    message.set_field(Shorten(violation.field, kMaxDescriptionBytes));
    message.set_description(
        Shorten(violation.description, kMaxDescriptionBytes));
    size += static_cast<int64_t>(message.ByteSizeLong()) + 3;  // tag, length
    if (size > budget) break;
    request.add_field_violations()->Swap(&message);
  }
  return request;
}

google::rpc::Status Encode(const absl::Status& status) {
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(status.code()));
  std::string message =
      Shorten(std::string(status.message()), kMaxMessageBytes);
  // Bytes left for details once the message went out percent-encoded and,
  // inside google.rpc.Status, in base64.
  int64_t budget = (static_cast<int64_t>(kMaxStatusHeaderBytes) -
                    PercentEncodedSize(message) - kNoteBytes) /
                       4 * 3 -
                   static_cast<int64_t>(message.size()) - kNoteBytes;

  const PreconditionDetail detail = PreconditionOf(status);
  if (!detail.type.empty()) {
    const google::rpc::PreconditionFailure failure =
        ToPreconditionFailure(detail);
    wire.add_details()->PackFrom(failure);
    budget -= static_cast<int64_t>(failure.ByteSizeLong()) + kDetailOverhead;
  }
  if (const auto delay = RetryDelayOf(status); delay.has_value()) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() = EncodeDuration(*delay);
    wire.add_details()->PackFrom(retry);
    budget -= static_cast<int64_t>(retry.ByteSizeLong()) + kDetailOverhead;
  }
  const std::vector<FieldViolation> bad = ViolationsOf(status);
  if (!bad.empty()) {
    const google::rpc::BadRequest request =
        ToBadRequest(bad, budget - kDetailOverhead);
    const size_t shown = request.field_violations_size();
    if (shown < bad.size()) {
      absl::StrAppend(&message, " [only the first ", shown,
                      " fit into the details]");
    }
    wire.add_details()->PackFrom(request);
  }
  wire.set_message(message);
  return wire;
}

void CopyPayloads(const absl::Status& from, absl::Status& to) {
  from.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    to.SetPayload(url, payload);
  });
}

void AddDetail(const google::protobuf::Any& any, absl::Status& status) {
  if (google::rpc::BadRequest request; any.UnpackTo(&request)) {
    Violations bad;
    for (const auto& violation : request.field_violations()) {
      bad.Add(violation.field(), violation.description());
    }
    CopyPayloads(bad.ToStatus(), status);
  } else if (google::rpc::PreconditionFailure failure;
             any.UnpackTo(&failure) && failure.violations_size() > 0) {
    const auto& first = failure.violations(0);
    CopyPayloads(PreconditionError({.type = first.type(),
                                    .subject = first.subject(),
                                    .description = first.description()}),
                 status);
  } else if (google::rpc::RetryInfo retry; any.UnpackTo(&retry)) {
    status.SetPayload(kRetryInfoUrl, absl::Cord(retry.SerializeAsString()));
  }
}

}  // namespace

std::string WireMessage(const absl::Status& status) {
  return Encode(status).message();
}

std::string StatusToWire(const absl::Status& status) {
  return Encode(status).SerializeAsString();
}

absl::Status StatusFromWire(absl::StatusCode code, std::string_view message,
                            std::string_view wire) {
  google::rpc::Status decoded;
  if (wire.empty() ||
      !decoded.ParseFromArray(wire.data(), static_cast<int>(wire.size()))) {
    return absl::Status(code, std::string(message));
  }
  absl::Status status(decoded.code() == 0
                          ? code
                          : static_cast<absl::StatusCode>(decoded.code()),
                      decoded.message());
  if (status.ok()) return status;
  for (const auto& any : decoded.details()) AddDetail(any, status);
  return status;
}

absl::Status RetryableError(absl::StatusCode code, std::string_view message,
                            absl::Duration retry_after) {
  google::rpc::RetryInfo retry;
  *retry.mutable_retry_delay() = EncodeDuration(retry_after);
  absl::Status status(code, std::string(message));
  status.SetPayload(kRetryInfoUrl, absl::Cord(retry.SerializeAsString()));
  return status;
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfoUrl);
  google::rpc::RetryInfo retry;
  if (!payload.has_value() || !retry.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return DecodeDuration(retry.retry_delay());
}

}  // namespace routepack
