#include "proto/codec/duration.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace routepack {
namespace {

google::protobuf::Duration Message(int64_t seconds, int32_t nanos) {
  google::protobuf::Duration message;
  message.set_seconds(seconds);
  message.set_nanos(nanos);
  return message;
}

TEST(Duration, RoundTrips) {
  for (const absl::Duration d :
       {absl::ZeroDuration(), absl::Nanoseconds(1), -absl::Nanoseconds(1),
        absl::Seconds(-3) - absl::Nanoseconds(7), absl::Hours(24 * 365 * 100),
        absl::Milliseconds(1500)}) {
    EXPECT_EQ(DecodeDuration(EncodeDuration(d)), d);
  }
}

TEST(Duration, ClampsToTheRangeOfTheMessage) {
  EXPECT_EQ(EncodeDuration(absl::InfiniteDuration()).seconds(),
            315'576'000'000);
  EXPECT_EQ(EncodeDuration(-absl::InfiniteDuration()).seconds(),
            -315'576'000'000);
  EXPECT_EQ(EncodeDuration(absl::Nanoseconds(1) / 2).nanos(), 0);
}

TEST(Duration, RefusesInvalidMessages) {
  EXPECT_FALSE(DecodeDuration(Message(1, -1)).has_value());
  EXPECT_FALSE(DecodeDuration(Message(-1, 1)).has_value());
  EXPECT_FALSE(DecodeDuration(Message(0, 1'000'000'000)).has_value());
  EXPECT_FALSE(DecodeDuration(Message(315'576'000'001, 0)).has_value());
  EXPECT_FALSE(DecodeDuration(Message(std::numeric_limits<int64_t>::min(),
                                      std::numeric_limits<int32_t>::min()))
                   .has_value());
}

}  // namespace
}  // namespace routepack
