#include "planner/rows.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/bin_completion.h"
#include "planner/errors.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Uniform in [low, high], the same with every standard library.
uint32_t Draw(std::mt19937_64& rng, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(rng() % (high - low + 1));
}

// The fewest bins, by dynamic programming over subsets: (bins, fill of the
// last) of each subset, reached by adding one item at a time.
uint32_t OptimalBins(const std::vector<uint32_t>& sizes, uint32_t capacity) {
  const size_t n = sizes.size();
  std::vector<std::pair<uint32_t, uint64_t>> best(
      size_t{1} << n, {std::numeric_limits<uint32_t>::max(), 0});
  best[0] = {0, capacity};
  for (size_t set = 1; set < best.size(); ++set) {
    for (size_t i = 0; i < n; ++i) {
      if (!(set >> i & 1)) continue;
      auto [bins, fill] = best[set ^ size_t{1} << i];
      if (fill + sizes[i] <= capacity) {
        fill += sizes[i];
      } else {
        ++bins;
        fill = sizes[i];
      }
      best[set] = std::min(best[set], {bins, fill});
    }
  }
  return best.back().first;
}

std::string BinsError(const Bins& bins, const std::vector<uint32_t>& sizes,
                      uint32_t capacity) {
  std::vector<int> seen(sizes.size(), 0);
  for (const auto& bin : bins) {
    if (bin.empty()) return "empty bin";
    uint64_t total = 0;
    for (uint32_t item : bin) {
      if (item >= sizes.size()) return "no such item";
      ++seen[item];
      total += sizes[item];
    }
    if (total > capacity) return "bin over capacity";
  }
  for (int times : seen) {
    if (times != 1) return "item not in exactly one bin";
  }
  return "";
}

// Sizes of many characters: any, long ones, just above C/2, C/3, C/4, few
// distinct ones, and bins cut into exact pieces.
std::vector<uint32_t> RandomSizes(std::mt19937_64& rng, size_t n,
                                  uint32_t capacity) {
  std::vector<uint32_t> sizes;
  const uint32_t kind = Draw(rng, 0, 5);
  while (sizes.size() < n) {
    const uint32_t parts = Draw(rng, 2, 4);
    switch (kind) {
      case 0:
        sizes.push_back(Draw(rng, 1, capacity));
        break;
      case 1:
        sizes.push_back(Draw(rng, (capacity + 2) / 3, capacity));
        break;
      case 2: {
        const uint32_t above = capacity / parts + Draw(rng, 0, 3);
        sizes.push_back(std::clamp(above, 1u, capacity));
        break;
      }
      case 3:
        sizes.push_back(std::max(1u, capacity * Draw(rng, 1, 7) / 7));
        break;
      case 4: {
        uint32_t left = capacity;
        for (uint32_t p = 1; p < parts && left > 1; ++p) {
          sizes.push_back(Draw(rng, 1, left - 1));
          left -= sizes.back();
        }
        sizes.push_back(left);
        break;
      }
      default:
        sizes.push_back(
            Draw(rng, std::max(1u, capacity / 5), capacity / 2 + 1));
    }
  }
  sizes.resize(n);
  for (uint32_t& size : sizes) size = std::clamp(size, 1u, capacity);
  return sizes;
}

RowResult Rows(const std::vector<uint32_t>& occupancy,
               const RowConstraints& constraints) {
  absl::StatusOr<RowResult> result =
      FewestRows(occupancy, constraints, Budget{});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : RowResult{};
}

TEST(FirstFitDecreasing, PacksByHand) {
  EXPECT_THAT(FirstFitDecreasing(std::vector<uint32_t>{4, 8, 1, 4, 2, 1}, 10),
              ElementsAre(ElementsAre(1, 4), ElementsAre(0, 3, 2, 5)));
}

TEST(FirstFitDecreasing, TakesLowerIndexFirstAmongEquals) {
  EXPECT_THAT(FirstFitDecreasing(std::vector<uint32_t>{5, 5, 5}, 10),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(FirstFitDecreasing, MatchesQuadraticFirstFit) {
  std::mt19937_64 rng(1);
  for (int trial = 0; trial < 500; ++trial) {
    const uint32_t capacity = Draw(rng, 2, 200);
    const auto sizes = RandomSizes(rng, Draw(rng, 0, 60), capacity);
    Bins expected;
    std::vector<uint32_t> fill;
    for (uint32_t item : DecreasingOrder(sizes)) {
      size_t bin = 0;
      while (bin < fill.size() && fill[bin] + sizes[item] > capacity) ++bin;
      if (bin == fill.size()) {
        fill.push_back(0);
        expected.emplace_back();
      }
      fill[bin] += sizes[item];
      expected[bin].push_back(item);
    }
    EXPECT_EQ(FirstFitDecreasing(sizes, capacity), expected);
  }
}

TEST(BestFitDecreasing, MatchesQuadraticBestFit) {
  std::mt19937_64 rng(2);
  for (int trial = 0; trial < 500; ++trial) {
    const uint32_t capacity = Draw(rng, 2, 200);
    const auto sizes = RandomSizes(rng, Draw(rng, 0, 60), capacity);
    Bins expected;
    std::vector<uint32_t> fill;
    for (uint32_t item : DecreasingOrder(sizes)) {
      size_t best = fill.size();
      for (size_t bin = 0; bin < fill.size(); ++bin) {
        if (fill[bin] + sizes[item] > capacity) continue;
        if (best == fill.size() || fill[bin] > fill[best]) best = bin;
      }
      if (best == fill.size()) {
        fill.push_back(0);
        expected.emplace_back();
      }
      fill[best] += sizes[item];
      expected[best].push_back(item);
    }
    EXPECT_EQ(BestFitDecreasing(sizes, capacity), expected);
  }
}

TEST(MartelloTothL2, CountsRoomThatIsTooSmall) {
  // Capacity says 4; no two items share a bin.
  const std::vector<uint32_t> sizes(6, 6);
  EXPECT_EQ(CapacityBound(sizes, 10), 4);
  EXPECT_EQ(MartelloTothL2(sizes, 10), 6);
  // The 4s do not fit beside the 7s.
  EXPECT_EQ(MartelloTothL2(std::vector<uint32_t>{7, 7, 4, 4, 4, 4}, 10), 4);
}

TEST(MartelloTothL2, EqualsTheBestThreshold) {
  std::mt19937_64 rng(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const uint32_t capacity = Draw(rng, 2, 40);
    const auto sizes = RandomSizes(rng, Draw(rng, 1, 30), capacity);
    int64_t best = 0;
    for (uint32_t k = 0; 2 * k <= capacity; ++k) {
      int64_t large = 0;
      int64_t room = 0;
      int64_t small = 0;
      for (uint32_t size : sizes) {
        if (2 * size > capacity) {
          ++large;
          if (size <= capacity - k) room += capacity - size;
        } else if (size >= k) {
          small += size;
        }
      }
      const int64_t more = std::max<int64_t>(0, small - room);
      best = std::max(best, large + (more + capacity - 1) / capacity);
    }
    EXPECT_EQ(MartelloTothL2(sizes, capacity), best);
  }
}

TEST(DualFeasibleBound, SeesThatOnlyTwoThirdsFit) {
  // 35 > 100 / 3: two a bin, where L2 sees 2.1 bins.
  const std::vector<uint32_t> sizes(6, 35);
  EXPECT_EQ(MartelloTothL2(sizes, 100), 3);
  EXPECT_EQ(DualFeasibleBound(sizes, 100), 3);
  const std::vector<uint32_t> more(60, 35);
  EXPECT_EQ(MartelloTothL2(more, 100), 21);
  EXPECT_EQ(DualFeasibleBound(more, 100), 30);
  EXPECT_EQ(DualFeasibleBound(std::vector<uint32_t>(60, 26), 100), 20);
}

TEST(Bounds, NeverPassTheOptimum) {
  std::mt19937_64 rng(4);
  int dual_feasible_helps = 0;
  int l2_helps = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    const uint32_t capacity = Draw(rng, 2, trial % 2 == 0 ? 30 : 1000);
    const auto sizes = RandomSizes(rng, Draw(rng, 1, 9), capacity);
    const uint32_t opt = OptimalBins(sizes, capacity);
    const uint32_t l1 = CapacityBound(sizes, capacity);
    const uint32_t l2 = MartelloTothL2(sizes, capacity);
    const uint32_t dual = DualFeasibleBound(sizes, capacity);
    EXPECT_LE(l1, l2);
    EXPECT_LE(l2, opt);
    ASSERT_LE(dual, opt) << "capacity " << capacity << " sizes "
                         << testing::PrintToString(sizes);
    l2_helps += l2 > l1;
    dual_feasible_helps += dual > l2;
  }
  EXPECT_GT(l2_helps, 100);
  EXPECT_GT(dual_feasible_helps, 10);
}

TEST(Bounds, AreZeroWithoutItems) {
  EXPECT_EQ(CapacityBound({}, 7), 0);
  EXPECT_EQ(MartelloTothL2(std::vector<uint32_t>{}, 7), 0);
  EXPECT_EQ(DualFeasibleBound({}, 7), 0);
}

TEST(PackIntoBins, DecidesLikeTheOracle) {
  std::mt19937_64 rng(5);
  for (int trial = 0; trial < 4000; ++trial) {
    const uint32_t capacity = Draw(rng, 2, trial % 2 == 0 ? 25 : 500);
    const auto sizes = RandomSizes(rng, Draw(rng, 1, 12), capacity);
    const uint32_t opt = OptimalBins(sizes, capacity);
    const PackingAttempt no =
        PackIntoBins(sizes, capacity, opt - 1, 1'000'000, Budget{});
    ASSERT_EQ(no.fit, Fit::kNo) << testing::PrintToString(sizes);
    const PackingAttempt yes =
        PackIntoBins(sizes, capacity, opt, 1'000'000, Budget{});
    ASSERT_EQ(yes.fit, Fit::kYes) << testing::PrintToString(sizes);
    EXPECT_LE(yes.bins.size(), opt);
    EXPECT_EQ(BinsError(yes.bins, sizes, capacity), "");
  }
}

TEST(PackIntoBins, FindsPerfectPackings) {
  // Bins cut into three pieces without waste: a known hard family.
  std::mt19937_64 rng(6);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<uint32_t> sizes;
    for (int bin = 0; bin < 20; ++bin) {
      const uint32_t a = Draw(rng, 380, 490);
      const uint32_t b = Draw(rng, 250, (1000 - a) / 2);
      for (uint32_t size : {a, b, 1000 - a - b}) sizes.push_back(size);
    }
    const PackingAttempt attempt =
        PackIntoBins(sizes, 1000, 20, 2'000'000, Budget{});
    ASSERT_EQ(attempt.fit, Fit::kYes);
    EXPECT_EQ(BinsError(attempt.bins, sizes, 1000), "");
  }
}

TEST(PackIntoBins, StopsAtTheNodeLimit) {
  std::mt19937_64 rng(7);
  std::vector<uint32_t> sizes;
  for (int i = 0; i < 200; ++i) sizes.push_back(Draw(rng, 2000, 4000));
  const uint32_t bins = MartelloTothL2(sizes, 9000);
  for (uint64_t limit : {0, 1, 10, 1000}) {
    const PackingAttempt attempt =
        PackIntoBins(sizes, 9000, bins, limit, Budget{});
    EXPECT_EQ(attempt.fit, Fit::kUnknown);
    // Each of the four passes may finish a bin beyond its share.
    EXPECT_LE(attempt.nodes, limit + 8);
  }
}

// The four outcomes from the optimum, straight from the definition.
struct ExpectedRows {
  uint64_t rows;
  bool feasible;
};
ExpectedRows RowsByDefinition(uint64_t opt, uint64_t num_samples,
                              const RowConstraints& c) {
  for (uint64_t rows = 1;; ++rows) {
    if (rows < c.min_rows || rows % c.row_multiple != 0) continue;
    if (rows * c.num_slots < opt) continue;
    return {rows, rows * c.num_slots <= num_samples};
  }
}

TEST(FewestRows, MatchesTheDefinitionOnSmallWindows) {
  std::mt19937_64 rng(8);
  int infeasible = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    const uint32_t capacity = Draw(rng, 2, 300);
    const auto sizes = RandomSizes(rng, Draw(rng, 1, 12), capacity);
    const RowConstraints constraints = {.num_slots = Draw(rng, 1, 4),
                                        .token_cap = capacity,
                                        .min_rows = Draw(rng, 1, 3),
                                        .row_multiple = Draw(rng, 1, 3),
                                        .allow_filler = trial % 3 == 0,
                                        .max_nodes = 1'000'000};
    const uint32_t opt = OptimalBins(sizes, capacity);
    const auto [rows, feasible] =
        RowsByDefinition(opt, sizes.size(), constraints);
    const RowResult result = Rows(sizes, constraints);
    ASSERT_EQ(result.outcome, feasible || constraints.allow_filler
                                  ? RowOutcome::kCertified
                                  : RowOutcome::kInfeasible);
    EXPECT_EQ(result.rows, rows);
    EXPECT_EQ(result.rows_lower_bound, rows);
    EXPECT_LE(result.bins_lower_bound, opt);
    EXPECT_GE(result.bins_upper_bound, opt);
    EXPECT_EQ(result.bins_upper_bound, result.bins.size());
    EXPECT_LE(result.bins.size(), rows * constraints.num_slots);
    EXPECT_EQ(BinsError(result.bins, sizes, capacity), "");
    EXPECT_EQ(result.fillers,
              feasible ? 0 : rows * constraints.num_slots - sizes.size());
    EXPECT_FALSE(result.truncated);
    EXPECT_NE(result.proof, "");
    infeasible += !feasible;
  }
  EXPECT_GT(infeasible, 500);
}

// Each named bound must by itself exclude the next smaller admissible rows.
TEST(FewestRows, ProofNamesABoundThatExcludesFewerRows) {
  std::mt19937_64 rng(9);
  std::map<std::string, int> seen;
  for (int trial = 0; trial < 6000; ++trial) {
    const uint32_t capacity = Draw(rng, 2, 300);
    const auto sizes = RandomSizes(rng, Draw(rng, 1, 12), capacity);
    const RowConstraints constraints = {.num_slots = Draw(rng, 1, 3),
                                        .token_cap = capacity,
                                        .min_rows = Draw(rng, 1, 3),
                                        .row_multiple = Draw(rng, 1, 2)};
    const RowResult result = Rows(sizes, constraints);
    ++seen[result.proof];
    const uint64_t multiple = constraints.row_multiple;
    const bool smaller_admissible =
        result.rows >= std::max<uint64_t>(constraints.min_rows, 1) + multiple;
    const uint64_t excluded_cells =
        uint64_t{smaller_admissible ? result.rows - uint32_t(multiple)
                                    : result.rows - 1} *
        constraints.num_slots;
    if (result.proof == "capacity") {
      EXPECT_GT(CapacityBound(sizes, capacity), excluded_cells);
    } else if (result.proof == "martello-toth-l2") {
      EXPECT_GT(MartelloTothL2(sizes, capacity), excluded_cells);
      EXPECT_LE(CapacityBound(sizes, capacity), excluded_cells);
    } else if (result.proof == "dual-feasible") {
      EXPECT_GT(DualFeasibleBound(sizes, capacity), excluded_cells);
    } else if (result.proof == "exhaustive-search") {
      EXPECT_GT(OptimalBins(sizes, capacity), excluded_cells);
    } else if (result.proof == "min-rows") {
      EXPECT_EQ(result.rows, constraints.min_rows);
    } else {
      EXPECT_EQ(result.proof, "row-multiple");
      EXPECT_EQ(result.rows % multiple, 0);
      EXPECT_NE(result.rows, constraints.min_rows);
      EXPECT_LT(result.rows - multiple, constraints.min_rows);
    }
  }
  for (const char* proof : {"capacity", "martello-toth-l2", "dual-feasible",
                            "exhaustive-search", "min-rows", "row-multiple"}) {
    EXPECT_GT(seen[proof], 0) << proof;
  }
}

TEST(FewestRows, InfeasibleNamesTheFillersThatRepair) {
  // Two bins at least, so two rows of three, but only five samples.
  const std::vector<uint32_t> sizes = {6, 6, 6, 6, 2};
  const RowConstraints constraints = {.num_slots = 3, .token_cap = 10};
  const RowResult result = Rows(sizes, constraints);
  EXPECT_EQ(result.outcome, RowOutcome::kInfeasible);
  EXPECT_EQ(result.rows, 2);
  EXPECT_EQ(result.fillers, 1);
  EXPECT_EQ(result.proof, "martello-toth-l2");

  RowConstraints with_filler = constraints;
  with_filler.allow_filler = true;
  const RowResult repaired = Rows(sizes, with_filler);
  EXPECT_EQ(repaired.outcome, RowOutcome::kCertified);
  EXPECT_EQ(repaired.rows, 2);
  EXPECT_EQ(repaired.fillers, 1);
}

TEST(FewestRows, FeasibilityIsNotMonotoneInRows) {
  const std::vector<uint32_t> sizes(8, 5);
  RowConstraints constraints = {.num_slots = 4, .token_cap = 10};
  EXPECT_EQ(Rows(sizes, constraints).rows, 1);
  constraints.min_rows = 2;
  EXPECT_EQ(Rows(sizes, constraints).outcome, RowOutcome::kCertified);
  constraints.min_rows = 3;
  const RowResult three = Rows(sizes, constraints);
  EXPECT_EQ(three.outcome, RowOutcome::kInfeasible);
  EXPECT_EQ(three.proof, "min-rows");
  EXPECT_EQ(three.fillers, 4);
}

// `bins` bins cut into three exact pieces, for which FFD needs more bins.
std::vector<uint32_t> HardTriplets(int bins) {
  std::mt19937_64 rng(10);
  std::vector<uint32_t> sizes;
  for (int bin = 0; bin < bins; ++bin) {
    const uint32_t a = Draw(rng, 38'000, 49'000);
    const uint32_t b = Draw(rng, 25'000, (100'000 - a) / 2);
    for (uint32_t size : {a, b, 100'000 - a - b}) sizes.push_back(size);
  }
  return sizes;
}

TEST(FewestRows, KeepsBothBoundsWhenTheNodeLimitEnds) {
  const std::vector<uint32_t> sizes = HardTriplets(120);
  RowConstraints constraints = {
      .num_slots = 1, .token_cap = 100'000, .max_nodes = 100};
  const RowResult best = Rows(sizes, constraints);
  EXPECT_EQ(best.outcome, RowOutcome::kBestKnown);
  EXPECT_EQ(best.rows_lower_bound, 120);
  EXPECT_GT(best.rows, 120);
  EXPECT_TRUE(best.truncated);
  EXPECT_EQ(best.proof, "");
  EXPECT_GE(best.nodes, 1);
  EXPECT_EQ(BinsError(best.bins, sizes, 100'000), "");
}

// Twenty numbers are open. The lowest take more nodes than there are, while
// each step down from what first-fit decreasing needs takes a few.
TEST(FewestRows, TakesTheEasyStepsFirst) {
  const std::vector<uint32_t> sizes = HardTriplets(120);
  ASSERT_GE(FirstFitDecreasing(sizes, 100'000).size(), 135);
  const RowResult result =
      Rows(sizes, {.num_slots = 1, .token_cap = 100'000, .max_nodes = 16'000});
  EXPECT_LE(result.rows, 122);
  EXPECT_GE(result.rows, 120);
  EXPECT_EQ(BinsError(result.bins, sizes, 100'000), "");
}

TEST(FewestRows, NotFoundWhenFewerRowsAreOpenAndMoreNeedFillers) {
  // 12 bins in three pieces and 30 full ones: 42 cells, 66 samples. Two rows
  // of 42 are too many.
  std::vector<uint32_t> sizes = HardTriplets(12);
  sizes.insert(sizes.end(), 30, 100'000);
  ASSERT_GT(FirstFitDecreasing(sizes, 100'000).size(), 42);
  RowConstraints constraints = {
      .num_slots = 42, .token_cap = 100'000, .max_nodes = 1};
  const RowResult missed = Rows(sizes, constraints);
  EXPECT_EQ(missed.outcome, RowOutcome::kNotFound);
  EXPECT_EQ(missed.rows_lower_bound, 1);
  EXPECT_EQ(missed.bins_lower_bound, 42);
  EXPECT_EQ(missed.rows, 2);
  EXPECT_EQ(missed.fillers, 18);
  EXPECT_EQ(missed.proof, "");
  EXPECT_TRUE(missed.truncated);

  constraints.allow_filler = true;
  const RowResult repaired = Rows(sizes, constraints);
  EXPECT_EQ(repaired.outcome, RowOutcome::kBestKnown);
  EXPECT_EQ(repaired.rows, 2);
  EXPECT_EQ(repaired.fillers, 18);

  constraints.max_nodes = 1'000'000;
  const RowResult found = Rows(sizes, constraints);
  EXPECT_EQ(found.outcome, RowOutcome::kCertified);
  EXPECT_EQ(found.rows, 1);
  EXPECT_EQ(found.fillers, 0);
  EXPECT_FALSE(found.truncated);
  EXPECT_EQ(BinsError(found.bins, sizes, 100'000), "");
}

TEST(FewestRows, StopsWhenCancelled) {
  std::stop_source source;
  source.request_stop();
  const Budget budget = {.stop = source.get_token()};
  EXPECT_TRUE(absl::IsCancelled(
      FewestRows(std::vector<uint32_t>{1, 2}, {.token_cap = 2}, budget)
          .status()));
}

TEST(FewestRows, ReturnsTheBracketWhenOutOfTime) {
  const Budget budget = {.deadline = absl::InfinitePast()};
  const auto result = FewestRows(
      HardTriplets(120), {.num_slots = 1, .token_cap = 100'000}, budget);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->outcome, RowOutcome::kBestKnown);
  EXPECT_TRUE(result->truncated);
  EXPECT_EQ(result->nodes, 0);
}

TEST(FewestRows, RefusesWhatIsOutOfRange) {
  const std::vector<uint32_t> sizes = {5, 11, 0};
  const absl::Status too_long =
      FewestRows(sizes, {.token_cap = 10}, Budget{}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(too_long));
  const auto violations = ViolationsOf(too_long);
  ASSERT_EQ(violations.size(), 2);
  EXPECT_EQ(violations[0].field, "samples[1].tokens");
  EXPECT_EQ(violations[1].field, "samples[2].tokens");

  const std::vector<uint32_t> one = {1};
  const auto huge =
      FewestRows(one,
                 {.num_slots = 65536, .token_cap = 1, .min_rows = UINT32_MAX},
                 Budget{})
          .status();
  EXPECT_THAT(huge.message(), HasSubstr("header.options.min_rows"));
  EXPECT_THAT(
      FewestRows(one, {.token_cap = 1, .row_multiple = UINT32_MAX}, Budget{})
          .status()
          .message(),
      HasSubstr("header.options.row_multiple"));
  EXPECT_THAT(FewestRows(one, {.token_cap = 1, .row_multiple = 0}, Budget{})
                  .status()
                  .message(),
              HasSubstr("header.options.row_multiple"));
}

TEST(FewestRows, NeedsFillersOnlyForAWindowWithoutSamples) {
  const RowResult none = Rows({}, {.num_slots = 4, .token_cap = 10});
  EXPECT_EQ(none.outcome, RowOutcome::kInfeasible);
  EXPECT_EQ(none.rows, 1);
  EXPECT_EQ(none.fillers, 4);
}

TEST(FewestRows, IsDeterministic) {
  const std::vector<uint32_t> sizes = HardTriplets(120);
  const RowConstraints constraints = {
      .num_slots = 1, .token_cap = 100'000, .max_nodes = 20'000};
  const RowResult a = Rows(sizes, constraints);
  const RowResult b = Rows(sizes, constraints);
  EXPECT_EQ(a.bins, b.bins);
  EXPECT_EQ(a.nodes, b.nodes);
  EXPECT_EQ(a.rows, b.rows);
}

// Sum of twelve uniforms: lengths around `mean`, clamped to the cap.
std::vector<uint32_t> BellLengths(std::mt19937_64& rng, size_t n, uint32_t mean,
                                  uint32_t spread, uint32_t cap) {
  std::vector<uint32_t> lengths;
  for (size_t i = 0; i < n; ++i) {
    int64_t length = int64_t{mean} - 6 * int64_t{spread};
    for (int u = 0; u < 12; ++u) length += Draw(rng, 0, spread);
    lengths.push_back(
        static_cast<uint32_t>(std::clamp<int64_t>(length, 1, cap)));
  }
  return lengths;
}

TEST(FewestRows, HandlesLargeWindowsWithinTheNodeLimit) {
  std::mt19937_64 rng(12);
  const auto many = BellLengths(rng, 4096, 4000, 1500, 16'384);
  const RowResult wide = Rows(many, {.num_slots = 64, .token_cap = 16'384});
  EXPECT_NE(wide.outcome, RowOutcome::kNotFound);
  EXPECT_EQ(BinsError(wide.bins, many, 16'384), "");

  const auto lengthy = BellLengths(rng, 1536, 32'000, 12'000, 65'536);
  const RowConstraints constraints = {
      .num_slots = 8, .token_cap = 65'536, .max_nodes = 20'000};
  const RowResult deep = Rows(lengthy, constraints);
  EXPECT_LE(deep.nodes, constraints.max_nodes + 100);
  EXPECT_LE(deep.rows - deep.rows_lower_bound, 1);
  EXPECT_EQ(BinsError(deep.bins, lengthy, 65'536), "");

  // Thousands of items in a bin, and one item in each of thousands.
  const std::vector<uint32_t> crumbs(100'000, 1);
  EXPECT_EQ(PackIntoBins(crumbs, 50'000, 2, 10'000, Budget{}).fit, Fit::kYes);
  const std::vector<uint32_t> blocks(30'000, 6);
  EXPECT_EQ(PackIntoBins(blocks, 10, 29'999, 10'000, Budget{}).fit, Fit::kNo);
  EXPECT_EQ(PackIntoBins(blocks, 10, 30'000, 300'000, Budget{}).fit, Fit::kYes);
}

TEST(SplitToCells, SplitsTheFullestIntoEvenHalves) {
  const std::vector<uint32_t> sizes = {5, 3, 2, 4, 4, 9};
  Bins bins = {{0, 1, 2}, {3, 4}, {5}};
  SplitToCells(sizes, 4, bins);
  EXPECT_THAT(bins, ElementsAre(ElementsAre(0), ElementsAre(3, 4),
                                ElementsAre(5), ElementsAre(1, 2)));
  SplitToCells(sizes, 6, bins);
  EXPECT_THAT(bins,
              ElementsAre(ElementsAre(0), ElementsAre(3), ElementsAre(5),
                          ElementsAre(1), ElementsAre(4), ElementsAre(2)));
}

TEST(SplitToCells, ReachesEveryNumberOfCells) {
  std::mt19937_64 rng(13);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t capacity = Draw(rng, 2, 100);
    const auto sizes = RandomSizes(rng, Draw(rng, 1, 40), capacity);
    const Bins packed = FirstFitDecreasing(sizes, capacity);
    for (uint32_t cells = packed.size(); cells <= sizes.size(); ++cells) {
      Bins bins = packed;
      SplitToCells(sizes, cells, bins);
      EXPECT_EQ(bins.size(), cells);
      EXPECT_EQ(BinsError(bins, sizes, capacity), "");
    }
  }
}

}  // namespace
}  // namespace routepack
