#include "client/cli/commands.h"

namespace routepack::cli {
namespace {

constexpr char kUsagePayload[] = "routepackctl/usage";

}  // namespace

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) {
  return status.GetPayload(kUsagePayload).has_value();
}

}  // namespace routepack::cli
