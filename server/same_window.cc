#include "server/same_window.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/codec/codec.h"
#include "server/text.h"
#include "server/window_key.h"

namespace routepack::server {
namespace {

absl::Status Differs(const WindowSession& session, absl::string_view how) {
  return absl::AlreadyExistsError(absl::StrCat(
      "key ", WindowKey::Of(session.key()).ToString(), " has ", how));
}

// " (window digest ...)" when there is one.
std::string Known(const WindowSession& session) {
  const std::string digest = session.window_digest();
  return digest.empty() ? "" : absl::StrCat(" (window digest ", digest, ")");
}

}  // namespace

absl::Status CheckSameContent(const WindowSession& session,
                              const v1::WindowHeader& header) {
  const std::string& known = session.content_digest();
  const std::string& given = header.content_digest();
  if (known.empty() || given.empty() || known == given) {
    return absl::OkStatus();
  }
  return Differs(
      session,
      absl::StrCat("a window with other samples", Known(session),
                   ": its content_digest is \"", known, "\", this one's \"",
                   Shortened(given, 4 * kMaxContentDigest), "\""));
}

absl::Status CheckSameHeader(const WindowSession& session,
                             const v1::WindowHeader& header) {
  if (session.header_digest() != HeaderDigest(header)) {
    return Differs(session,
                   absl::StrCat("a window with another header", Known(session),
                                ": sizes, topology, attention, options, "
                                "current placement or participants differ"));
  }
  return CheckSameContent(session, header);
}

absl::Status CheckSameWindow(const WindowSession& session,
                             const v1::WindowHeader& header,
                             const Window& window) {
  const std::string known = session.window_digest();
  if (known != window.digest()) {
    return Differs(session, absl::StrCat("another window, digest ", known,
                                         ": this one's is ", window.digest()));
  }
  if (session.request_digest() != RequestDigest(window, header)) {
    return Differs(session, absl::StrCat("this very window, digest ", known,
                                         ", but with other options, current "
                                         "placement or participants"));
  }
  return absl::OkStatus();
}

}  // namespace routepack::server
