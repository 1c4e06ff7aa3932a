#include "planner/search_math.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

TEST(SearchMathTest, LogEqualsTheLibrarys) {
  EXPECT_EQ(Log(1), 0);
  TestRandom random(1);
  for (int k = 0; k < 100'000; ++k) {
    const double x = std::ldexp(1.0 + random.Below(1 << 30) * 0x1p-30,
                                static_cast<int>(random.Below(120)) - 60);
    EXPECT_NEAR(Log(x), std::log(x), 1e-14 * std::fabs(std::log(x)) + 1e-16)
        << x;
  }
  EXPECT_NEAR(Log(0x1p-53), std::log(0x1p-53), 1e-13);
}

TEST(SearchMathTest, ExpOfNegativeEqualsTheLibrarys) {
  EXPECT_EQ(ExpOfNegative(0), 1);
  EXPECT_EQ(ExpOfNegative(-701), 0);
  EXPECT_EQ(ExpOfNegative(-INFINITY), 0);
  TestRandom random(2);
  for (int k = 0; k < 100'000; ++k) {
    const double x = -(random.Below(1 << 30) * 0x1p-30) *
                     std::ldexp(1.0, static_cast<int>(random.Below(20)) - 11);
    EXPECT_NEAR(ExpOfNegative(x), std::exp(x), 1e-14 * std::exp(x)) << x;
  }
}

}  // namespace
}  // namespace routepack
