#include "planner/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Costs = std::vector<int64_t>;

int64_t Total(const Costs& costs, const std::vector<uint32_t>& column_of_row) {
  const size_t n = column_of_row.size();
  int64_t total = 0;
  for (size_t row = 0; row < n; ++row) {
    total += costs[row * n + column_of_row[row]];
  }
  return total;
}

int64_t BruteForce(const Costs& costs, uint32_t n) {
  std::vector<uint32_t> columns(n);
  std::iota(columns.begin(), columns.end(), 0);
  int64_t best = std::numeric_limits<int64_t>::max();
  do {
    best = std::min(best, Total(costs, columns));
  } while (std::next_permutation(columns.begin(), columns.end()));
  return best;
}

Costs RandomCosts(TestRandom& random, uint32_t n, int64_t low, uint32_t width) {
  Costs costs(size_t{n} * n);
  for (int64_t& cost : costs) cost = low + random.Below(width);
  return costs;
}

void ExpectPermutation(std::vector<uint32_t> columns) {
  std::sort(columns.begin(), columns.end());
  for (uint32_t j = 0; j < columns.size(); ++j) ASSERT_EQ(columns[j], j);
}

TEST(MinCostAssignment, WorkedOutByHand) {
  EXPECT_THAT(MinCostAssignment(Costs{4, 1, 2, 3}, 2), ElementsAre(1, 0));
  EXPECT_THAT(MinCostAssignment(Costs{7}, 1), ElementsAre(0));
  EXPECT_THAT(MinCostAssignment(Costs{}, 0), IsEmpty());
}

TEST(MinCostAssignment, EqualCostsKeepTheOrder) {
  EXPECT_THAT(MinCostAssignment(Costs(16, 5), 4), ElementsAre(0, 1, 2, 3));
}

TEST(MinCostAssignment, IsTheOptimumOfBruteForce) {
  TestRandom random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const uint32_t n = random.Between(1, 6);
    // From all ties to hardly any; negative costs too.
    const uint32_t width = 1u << random.Between(0, 20);
    const Costs costs = RandomCosts(random, n, -int64_t{width / 2}, width);
    const std::vector<uint32_t> columns = MinCostAssignment(costs, n);
    ExpectPermutation(columns);
    ASSERT_EQ(Total(costs, columns), BruteForce(costs, n));
  }
}

TEST(MinCostAssignment, HoldsCostsNearTheBound) {
  TestRandom random(2);
  for (int trial = 0; trial < 100; ++trial) {
    Costs costs = RandomCosts(random, 6, 0, 1000);
    const int64_t unit = int64_t{1} << 48;
    const int64_t expected = BruteForce(costs, 6);
    for (int64_t& cost : costs) cost *= unit;
    ASSERT_EQ(Total(costs, MinCostAssignment(costs, 6)), expected * unit);
  }
}

// No exchange of two or three columns improves a large one.
TEST(MinCostAssignment, LargeOnesHaveNoImprovingExchange) {
  TestRandom random(3);
  const uint32_t n = 64;
  const Costs costs = RandomCosts(random, n, 0, 1000);
  const std::vector<uint32_t> columns = MinCostAssignment(costs, n);
  ExpectPermutation(columns);
  const auto cost = [&](uint32_t row, uint32_t of) {
    return costs[size_t{row} * n + columns[of]];
  };
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      ASSERT_LE(cost(i, i) + cost(j, j), cost(i, j) + cost(j, i));
      for (uint32_t k = 0; k < n; ++k) {
        if (i == j || j == k || i == k) continue;
        ASSERT_LE(cost(i, i) + cost(j, j) + cost(k, k),
                  cost(i, j) + cost(j, k) + cost(k, i));
      }
    }
  }
}

}  // namespace
}  // namespace routepack
