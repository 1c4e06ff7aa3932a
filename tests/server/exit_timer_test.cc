#include "server/exit_timer.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace routepack::server {
namespace {

const Log& Silent() {
  static const Log log = *Log::Create("text", "off");
  return log;
}

TEST(ExitTimerDeathTest, EndsAProcessThatHangs) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const ExitTimer timer(absl::Milliseconds(1), 3, Silent());
        absl::SleepFor(absl::Minutes(1));
      },
      testing::ExitedWithCode(3), "");
}

TEST(ExitTimerDeathTest, DoesNothingWhenItIsDestroyedInTime) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        { const ExitTimer timer(absl::Minutes(1), 3, Silent()); }
        _exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace routepack::server
