// Text that clients send: how long it may be, and how much of it is shown.

#ifndef ROUTEPACK_SERVER_TEXT_H_
#define ROUTEPACK_SERVER_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "planner/errors.h"

namespace routepack::server {

inline constexpr size_t kMaxContentDigest = 128;
// Of placement versions and digests.
inline constexpr size_t kMaxVersion = 256;

// Characters of UTF-8.
inline size_t CountCharacters(absl::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

inline void CheckLength(absl::string_view text, const char* field, size_t max,
                        Violations& bad) {
  const size_t characters = CountCharacters(text);
  if (characters <= max) return;
  bad.Add(field, absl::StrCat("has ", characters, " characters, at most ", max,
                              " are allowed"));
}

// At most `max` bytes of it, with "..." where it was cut: never inside a
// character.
inline std::string Shortened(absl::string_view text, size_t max) {
  if (text.size() <= max) return std::string(text);
  while (max > 0 && (text[max] & 0xC0) == 0x80) --max;
  return absl::StrCat(text.substr(0, max), "...");
}

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_TEXT_H_
