#include "proto/codec/status.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "planner/errors.h"
#include "tests/codec/test_messages.h"

namespace routepack {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

absl::Status RoundTrip(const absl::Status& status) {
  return StatusFromWire(absl::StatusCode::kUnknown, "lost",
                        StatusToWire(status));
}

google::rpc::Status Parse(const std::string& wire) {
  google::rpc::Status status;
  EXPECT_TRUE(status.ParseFromString(wire));
  return status;
}

absl::Status ManyViolations(size_t count, const std::string& description) {
  Violations bad;
  for (size_t j = 0; j < count; ++j) {
    bad.Add(absl::StrCat("samples[", j, "].tokens"), description);
  }
  return bad.ToStatus();
}

// Bytes of gRPC's two status trailers.
size_t HeaderBytes(const absl::Status& status) {
  size_t percent = 0;
  for (const char c : WireMessage(status)) {
    percent += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
  }
  return percent + absl::Base64Escape(StatusToWire(status)).size();
}

TEST(Status, ViolationsTravelAsBadRequest) {
  Violations bad;
  bad.Add("header.token_cap", "must be at least 1");
  bad.Add("samples[3].tokens", "is 41, more than C = 40; tab\tand \"quotes\"");
  const google::rpc::Status wire = Parse(StatusToWire(bad.ToStatus()));
  EXPECT_EQ(wire.code(), 3);
  ASSERT_EQ(wire.details_size(), 1);
  EXPECT_EQ(wire.details(0).type_url(),
            "type.googleapis.com/google.rpc.BadRequest");
  google::rpc::BadRequest request;
  ASSERT_TRUE(wire.details(0).UnpackTo(&request));
  ASSERT_EQ(request.field_violations_size(), 2);
  EXPECT_EQ(request.field_violations(0).field(), "header.token_cap");

  const absl::Status back = RoundTrip(bad.ToStatus());
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back.message(), bad.ToStatus().message());
  const std::vector<FieldViolation> list = ViolationsOf(back);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].field, "samples[3].tokens");
  EXPECT_EQ(list[1].description,
            "is 41, more than C = 40; tab\tand \"quotes\"");
}

TEST(Status, PreconditionsTravel) {
  const absl::Status status =
      PreconditionError({.type = "CELLS_EXCEED_SAMPLES",
                         .subject = "rows",
                         .description = "R D = 8 > N = 5; 3 fillers repair"});
  const absl::Status back = RoundTrip(status);
  EXPECT_EQ(back.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(back.message(), status.message());
  EXPECT_EQ(PreconditionOf(back).type, "CELLS_EXCEED_SAMPLES");
  EXPECT_EQ(PreconditionOf(back).subject, "rows");
  EXPECT_EQ(PreconditionOf(back).description,
            "R D = 8 > N = 5; 3 fillers repair");
}

TEST(Status, RetryDelaysTravel) {
  const absl::Status status =
      RetryableError(absl::StatusCode::kResourceExhausted, "8 windows are open",
                     absl::Milliseconds(1500));
  EXPECT_EQ(RetryDelayOf(status), absl::Milliseconds(1500));
  const absl::Status back = RoundTrip(status);
  EXPECT_EQ(back.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(back.message(), "8 windows are open");
  EXPECT_EQ(RetryDelayOf(back), absl::Milliseconds(1500));
  EXPECT_FALSE(RetryDelayOf(absl::UnavailableError("x")).has_value());
}

TEST(Status, PlainStatusesKeepCodeAndMessage) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const absl::Status back = RoundTrip(status);
    EXPECT_EQ(back, status);
    EXPECT_THAT(ViolationsOf(back), IsEmpty());
  }
  EXPECT_TRUE(StatusFromWire(absl::StatusCode::kOk, "", "").ok());
}

TEST(Status, FallsBackWhenTheWireIsEmptyOrMalformed) {
  for (const std::string wire : {"", "\xff\xff\xff", "\x0a\x7f"}) {
    EXPECT_EQ(StatusFromWire(absl::StatusCode::kNotFound, "no such plan", wire),
              absl::NotFoundError("no such plan"));
  }
  // A wire without a code does not hide an error.
  EXPECT_EQ(StatusFromWire(absl::StatusCode::kInternal, "x",
                           google::rpc::Status().SerializeAsString())
                .code(),
            absl::StatusCode::kInternal);
}

TEST(Status, DropsDetailsItDoesNotKnow) {
  google::rpc::Status wire;
  wire.set_code(14);
  wire.set_message("gone");
  google::rpc::DebugInfo debug;
  debug.set_detail("stack");
  wire.add_details()->PackFrom(debug);
  wire.add_details()->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  wire.mutable_details(1)->set_value("\xff\xff");  // malformed
  const absl::Status status =
      StatusFromWire(absl::StatusCode::kUnknown, "", wire.SerializeAsString());
  EXPECT_EQ(status, absl::UnavailableError("gone"));
}

TEST(Status, ManyViolationsFitTheHeaderLimit) {
  for (const size_t count : {1, 60, 100, 512}) {
    for (const size_t length : {10, 100, 2000}) {
      const absl::Status status =
          ManyViolations(count, std::string(length, 'd'));
      EXPECT_LE(HeaderBytes(status), kMaxStatusHeaderBytes)
          << count << " of " << length;
      EXPECT_GE(ViolationsOf(RoundTrip(status)).size(), 1u);
    }
  }
  const absl::Status status = ManyViolations(
      512, "must be at most token_cap = 8192, is 8193 (8196 rounded up)");
  const size_t shown = ViolationsOf(RoundTrip(status)).size();
  EXPECT_GT(shown, 50u);
  EXPECT_LT(shown, 100u);
  EXPECT_THAT(std::string(RoundTrip(status).message()), HasSubstr("511 more"));
  EXPECT_THAT(std::string(RoundTrip(status).message()),
              HasSubstr(absl::StrCat("[only the first ", shown,
                                     " fit into the details]")));
  EXPECT_EQ(RoundTrip(status).message(), WireMessage(status));
}

TEST(Status, EverythingFitsTheHeaderLimit) {
  // A message of three-byte characters, and every detail at its largest.
  std::string text;
  while (text.size() < 5000) text += "模";
  absl::Status status(absl::StatusCode::kInvalidArgument, text);
  for (const absl::Status& other :
       {ManyViolations(100, text),
        PreconditionError({.type = text, .subject = text, .description = text}),
        RetryableError(absl::StatusCode::kUnavailable, text,
                       absl::InfiniteDuration())}) {
    other.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
      status.SetPayload(url, payload);
    });
  }
  EXPECT_LE(HeaderBytes(status), kMaxStatusHeaderBytes);
  const absl::Status back = RoundTrip(status);
  EXPECT_FALSE(PreconditionOf(back).type.empty());
  EXPECT_TRUE(RetryDelayOf(back).has_value());
  // Cut between characters.
  EXPECT_THAT(WireMessage(status), HasSubstr("模..."));
}

}  // namespace
}  // namespace routepack
