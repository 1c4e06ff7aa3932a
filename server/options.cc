#include "server/options.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace routepack::server {
namespace {

using Errors = std::vector<std::string>;

template <typename T>
void CheckRange(absl::string_view flag, T value, T low, T high,
                Errors& errors) {
  if (value >= low && value <= high) return;
  errors.push_back(absl::StrCat("--", flag, " must be in [", low, ", ", high,
                                "], is ", value));
}

void CheckDuration(absl::string_view flag, absl::Duration value,
                   absl::Duration low, absl::Duration high, Errors& errors) {
  if (value >= low && value <= high) return;
  errors.push_back(absl::StrCat(
      "--", flag, " must be in [", absl::FormatDuration(low), ", ",
      absl::FormatDuration(high), "], is ", absl::FormatDuration(value)));
}

void CheckOneOf(absl::string_view flag, absl::string_view value,
                const std::vector<absl::string_view>& allowed, Errors& errors) {
  if (absl::c_linear_search(allowed, value)) return;
  errors.push_back(absl::StrCat("--", flag, " must be one of ",
                                absl::StrJoin(allowed, ", "), ", is \"", value,
                                "\""));
}

// Everything after the last colon is the port: "[::1]:7070" has several.
void CheckListen(absl::string_view listen, Errors& errors) {
  const size_t colon = listen.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port > 65535) {
    errors.push_back(absl::StrCat(
        "--listen must be host:port with a port in [0, 65535], is \"", listen,
        "\""));
  }
}

}  // namespace

absl::Status ValidateOptions(const ServerOptions& options) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  Errors errors;
  CheckListen(options.listen, errors);
  CheckRange<uint32_t>("threads", options.threads, 0, 1024, errors);
  CheckRange<uint32_t>("concurrent_plans", options.concurrent_plans, 1, 64,
                       errors);
  CheckRange<uint32_t>("max_open_windows", options.max_open_windows, 1, 100000,
                       errors);
  CheckRange<uint64_t>("window_memory_mb", options.window_memory_mb, 1,
                       uint64_t{1} << 24, errors);
  CheckRange<uint64_t>("max_unary_bytes", options.max_unary_bytes, 1024,
                       256 * kMiB, errors);
  CheckRange<uint32_t>("max_chunk_bytes", options.max_chunk_bytes, 1024,
                       64 * kMiB, errors);
  CheckDuration("upload_idle_timeout", options.upload_idle_timeout,
                absl::Milliseconds(1), absl::Hours(24), errors);
  CheckRange<uint32_t>("plan_history", options.plan_history, 1, 1000000,
                       errors);
  CheckRange<uint64_t>("plan_store_mb", options.plan_store_mb, 1,
                       uint64_t{1} << 24, errors);
  CheckRange<uint32_t>("max_list_page", options.max_list_page, 1, 1000, errors);
  CheckDuration("drain_timeout", options.drain_timeout, absl::ZeroDuration(),
                absl::Hours(1), errors);
  CheckOneOf("log_format", options.log_format, {"text", "json"}, errors);
  CheckOneOf("log_level", options.log_level,
             {"trace", "debug", "info", "warn", "error", "critical", "off"},
             errors);
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

}  // namespace routepack::server
