#include "server/page_token.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "xxhash.h"

namespace routepack::server {
namespace {

// Guards against mix-ups, not against people.
std::string Checksum(uint64_t before, const PlanFilter& filter) {
  const std::string text =
      absl::StrCat(before, "\n", filter.job_id, "\n", filter.run_id);
  return absl::StrCat(absl::Hex(XXH3_64bits(text.data(), text.size())));
}

}  // namespace

std::string EncodePageToken(uint64_t before, const PlanFilter& filter) {
  return absl::WebSafeBase64Escape(
      absl::StrCat("v1.", before, ".", Checksum(before, filter)));
}

std::optional<uint64_t> DecodePageToken(absl::string_view token,
                                        const PlanFilter& filter) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text)) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  uint64_t before = 0;
  if (parts.size() != 3 || parts[0] != "v1" ||
      !absl::SimpleAtoi(parts[1], &before) ||
      parts[2] != Checksum(before, filter)) {
    return std::nullopt;
  }
  return before;
}

}  // namespace routepack::server
