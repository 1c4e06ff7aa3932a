#include "planner/errors.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace routepack {
namespace {

// Payloads are lines of tab-separated, C-escaped strings: the planner knows no
// protobuf.
constexpr char kViolationsUrl[] = "routepack.planner/violations";
constexpr char kPreconditionUrl[] = "routepack.planner/precondition";

std::vector<std::string> UnescapeLine(const std::string& line) {
  std::vector<std::string> parts = absl::StrSplit(line, '\t');
  for (std::string& part : parts) {
    std::string plain;
    if (!absl::CUnescape(part, &plain)) return {};
    part = std::move(plain);
  }
  return parts;
}

}  // namespace

void Violations::Add(std::string_view field, std::string_view description) {
  ++total_;
  if (kept_.size() < kMaxKept) {
    kept_.push_back({std::string(field), std::string(description)});
  }
}

void Violations::Merge(const absl::Status& status, std::string_view field) {
  if (status.ok()) return;
  const std::vector<FieldViolation> list = ViolationsOf(status);
  if (list.empty()) Add(field, std::string(status.message()));
  for (const FieldViolation& v : list) Add(v.field, v.description);
}

absl::Status Violations::ToStatus() const {
  if (empty()) return absl::OkStatus();
  std::string message =
      absl::StrCat(kept_.front().field, ": ", kept_.front().description);
  if (total_ > kMaxKept) {
    absl::StrAppend(&message, " (and ", total_ - 1, " more, the first ",
                    kMaxKept, " are listed)");
  } else if (total_ > 1) {
    absl::StrAppend(&message, " (and ", total_ - 1, " more)");
  }
  std::string payload;
  for (const FieldViolation& violation : kept_) {
    absl::StrAppend(&payload, absl::CEscape(violation.field), "\t",
                    absl::CEscape(violation.description), "\n");
  }
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kViolationsUrl, absl::Cord(std::move(payload)));
  return status;
}

std::vector<FieldViolation> ViolationsOf(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto payload = status.GetPayload(kViolationsUrl);
  if (!payload.has_value()) return violations;
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(*payload), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    std::vector<std::string> parts = UnescapeLine(line);
    if (parts.size() != 2) continue;
    violations.push_back({std::move(parts[0]), std::move(parts[1])});
  }
  return violations;
}

absl::Status PreconditionError(const PreconditionDetail& detail) {
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat(detail.subject, ": ", detail.description));
  status.SetPayload(kPreconditionUrl, absl::Cord(absl::StrCat(
                                          absl::CEscape(detail.type), "\t",
                                          absl::CEscape(detail.subject), "\t",
                                          absl::CEscape(detail.description))));
  return status;
}

PreconditionDetail PreconditionOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPreconditionUrl);
  if (!payload.has_value()) return {};
  std::vector<std::string> parts = UnescapeLine(std::string(*payload));
  if (parts.size() != 3) return {};
  return {std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
}

}  // namespace routepack
