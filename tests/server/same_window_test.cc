#include "server/same_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/codec/codec.h"
#include "server/guarded.h"
#include "server/text.h"
#include "tests/server/windows.h"

namespace routepack::server {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::WindowHeader WithDigest(const std::string& digest) {
  v1::WindowHeader header = Header(Key(1), 4);
  header.set_content_digest(digest);
  return header;
}

// A finished window of this header and of MakeWindow's samples.
WindowSession Known(const v1::WindowHeader& header) {
  v1::Window message = MakeWindow(Key(1), 4);
  *message.mutable_header() = header;
  const absl::StatusOr<Window> window = DecodeWindow(message);
  EXPECT_TRUE(window.ok()) << window.status();
  PlanRecord record;
  *record.summary.mutable_key() = header.key();
  record.summary.set_state(v1::PLAN_STATE_READY);
  record.header_digest = HeaderDigest(header);
  record.content_digest = header.content_digest();
  record.window_digest = window->digest();
  record.request_digest = RequestDigest(*window, header);
  return WindowSession(record);
}

TEST(SameWindow, ContentDigestsDifferOnlyWhereBothAreGiven) {
  for (const char* known : {"", "a"}) {
    const WindowSession session = Known(WithDigest(known));
    for (const char* given : {"", "a"}) {
      EXPECT_TRUE(CheckSameHeader(session, WithDigest(given)).ok());
    }
  }
  const absl::Status other =
      CheckSameHeader(Known(WithDigest("a")), WithDigest("b"));
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(other.message()),
              testing::AllOf(HasSubstr("other samples"), HasSubstr("\"a\""),
                             HasSubstr("\"b\"")));
}

TEST(SameWindow, AnotherHeaderIsToldFromOtherSamples) {
  v1::WindowHeader header = WithDigest("b");
  header.set_token_cap(50);
  const absl::Status status = CheckSameHeader(Known(WithDigest("a")), header);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("another header"),
                             Not(HasSubstr("other samples"))));
}

TEST(SameWindow, WholeWindowsAreComparedByWhatTheyMean) {
  const v1::WindowHeader header = Header(Key(1), 4);
  const WindowSession session = Known(header);
  v1::Window message = MakeWindow(Key(1), 4);
  const Window same = *DecodeWindow(message);
  v1::WindowHeader spelled = header;
  spelled.set_length_multiple(1);
  spelled.mutable_options()->set_min_rows(1);
  EXPECT_TRUE(CheckSameWindow(session, spelled, same).ok());

  spelled.mutable_options()->set_seed(8);
  const absl::Status options = CheckSameWindow(session, spelled, same);
  EXPECT_EQ(options.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(
      std::string(options.message()),
      testing::AllOf(HasSubstr(same.digest()), HasSubstr("other options")));

  *message.mutable_samples(3) = MakeSample(11);
  const Window other = *DecodeWindow(message);
  const absl::Status samples = CheckSameWindow(session, header, other);
  EXPECT_EQ(samples.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(
      std::string(samples.message()),
      testing::AllOf(HasSubstr(same.digest()), HasSubstr(other.digest())));
}

TEST(SameWindow, LongTextsAreShownInPart) {
  const absl::Status status = CheckSameHeader(
      Known(WithDigest("a")), WithDigest(std::string(1 << 20, 'b')));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_LT(status.message().size(), 2000);
  // Cut before a character that would be cut in two.
  EXPECT_EQ(Shortened("a\u00e4b", 2), "a...");
  EXPECT_EQ(Shortened("a\u00e4b", 3), "a\u00e4...");
  EXPECT_EQ(Shortened("abc", 3), "abc");
}

TEST(Guarded, MakesAStatusOfWhatIsThrown) {
  EXPECT_EQ(Guarded([]() -> absl::Status { throw std::bad_alloc(); }).code(),
            absl::StatusCode::kResourceExhausted);
  const absl::Status error =
      Guarded([]() -> absl::Status { throw std::runtime_error("why"); });
  EXPECT_EQ(error, absl::InternalError("why"));
  EXPECT_EQ(Guarded([]() -> absl::Status { throw 7; }).code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(Guarded([] { return absl::AbortedError("x"); }),
            absl::AbortedError("x"));
}

}  // namespace
}  // namespace routepack::server
