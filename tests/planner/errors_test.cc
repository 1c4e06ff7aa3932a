#include "planner/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Violations, AreOkWhenThereAreNone) {
  const Violations none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.ToStatus().ok());
}

TEST(Violations, MessageNamesTheOnlyOne) {
  Violations bad;
  bad.Add("header.token_cap", "must be at least 1, is 0");
  const absl::Status status = bad.ToStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "header.token_cap: must be at least 1, is 0");
}

TEST(Violations, MessageNamesTheFirstAndCountsTheOthers) {
  Violations bad;
  bad.Add("header.token_cap", "must be at least 1, is 0");
  bad.Add("samples[0].tokens", "b");
  bad.Add("samples[1].tokens", "c");
  bad.Add("samples[2].tokens", "d");
  EXPECT_EQ(bad.ToStatus().message(),
            "header.token_cap: must be at least 1, is 0 (and 3 more)");
  EXPECT_THAT(
      ViolationsOf(bad.ToStatus()),
      ElementsAre(FieldsAre("header.token_cap", "must be at least 1, is 0"),
                  FieldsAre("samples[0].tokens", "b"),
                  FieldsAre("samples[1].tokens", "c"),
                  FieldsAre("samples[2].tokens", "d")));
}

TEST(Violations, KeepTheFirstHundredAndCountAll) {
  Violations bad;
  for (int i = 0; i < 250; ++i) {
    bad.Add("samples[" + std::to_string(i) + "].id", "twice");
  }
  EXPECT_EQ(bad.total(), 250u);
  EXPECT_EQ(bad.kept().size(), 100u);
  EXPECT_EQ(bad.ToStatus().message(),
            "samples[0].id: twice (and 249 more, the first 100 are listed)");
  const auto listed = ViolationsOf(bad.ToStatus());
  ASSERT_EQ(listed.size(), 100u);
  EXPECT_EQ(listed.back().field, "samples[99].id");
}

TEST(Violations, ExactlyAHundredAreAllListed) {
  Violations bad;
  for (int i = 0; i < 100; ++i) bad.Add("f", "d");
  EXPECT_EQ(bad.ToStatus().message(), "f: d (and 99 more)");
}

TEST(Violations, PayloadKeepsEveryByte) {
  std::string all_bytes;
  for (int c = 0; c < 256; ++c) all_bytes.push_back(static_cast<char>(c));
  Violations bad;
  bad.Add("tab\there\nnewline\\", "");
  bad.Add("", all_bytes);
  EXPECT_THAT(ViolationsOf(bad.ToStatus()),
              ElementsAre(FieldsAre("tab\there\nnewline\\", ""),
                          FieldsAre("", all_bytes)));
}

TEST(Violations, OtherStatusesCarryNone) {
  EXPECT_THAT(ViolationsOf(absl::OkStatus()), IsEmpty());
  EXPECT_THAT(ViolationsOf(absl::InvalidArgumentError("x")), IsEmpty());
  EXPECT_THAT(ViolationsOf(PreconditionError({"T", "s", "d"})), IsEmpty());
}

TEST(Precondition, RoundTrips) {
  const absl::Status status =
      PreconditionError({"CELLS_EXCEED_SAMPLES", "rows",
                         "4 rows of 8 slots need 32 samples\tor 3 fillers"});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rows: 4 rows of 8 slots"));
  const PreconditionDetail detail = PreconditionOf(status);
  EXPECT_EQ(detail.type, "CELLS_EXCEED_SAMPLES");
  EXPECT_EQ(detail.subject, "rows");
  EXPECT_EQ(detail.description,
            "4 rows of 8 slots need 32 samples\tor 3 fillers");
}

TEST(Precondition, OtherStatusesCarryNone) {
  EXPECT_EQ(PreconditionOf(absl::OkStatus()).type, "");
  EXPECT_EQ(PreconditionOf(absl::FailedPreconditionError("x")).type, "");
}

}  // namespace
}  // namespace routepack
