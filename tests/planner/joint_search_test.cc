#include "planner/joint_search.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "planner/placement.h"
#include "tests/planner/search_problems.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

struct JointCase {
  explicit JointCase(const Window& the_window)
      : window(the_window),
        search(MakeSearchCase(window)),
        placement(LptPlacement(window.ExpertLoads(), window.num_layers(),
                               window.num_experts(),
                               window.spec().topology.num_ranks())),
        bounds(LowerBounds(search.problem, search.length.rows,
                           window.ExpertLoads(),
                           RankLoads(placement, window.ExpertLoads()))) {}

  JointSearchResult Run(PackingProblem& problem, const SearchOptions& options,
                        const SlotPrice& price = {},
                        const Budget& budget = {}) const {
    return SearchJointly(window, problem, search.length, placement, bounds,
                         options, price, /*seed=*/1, budget);
  }

  Window window;
  SearchCase search;
  Placement placement;
  ScoreBounds bounds;
};

constexpr SearchOptions kFew = {.effort = Effort::kFast, .steps = 5000};

TEST(JointSearchTest, IsNeverWorseAndLeavesTheDemandOfItsPlacement) {
  int refined = 0;
  for (uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    const JointCase test_case(RandomWindow(RandomShape(seed)));
    const Score before =
        EvaluateLayout(test_case.search.problem, test_case.search.length).score;
    PackingProblem problem = test_case.search.problem;
    const JointSearchResult result = test_case.Run(problem, kFew);
    ASSERT_TRUE(ValidatePlacement(result.placement, "placement").ok());
    ASSERT_TRUE(ValidateLayout(problem, result.packing.layout).ok());
    EXPECT_EQ(problem.demand.values,
              ProjectDemand(test_case.window, result.placement,
                            problem.num_items() - problem.num_samples)
                  .values);
    EXPECT_EQ(problem.attention, test_case.search.problem.attention);
    EXPECT_EQ(EvaluateLayout(problem, result.packing.layout).score,
              result.packing.score);
    EXPECT_LE(result.packing.score, before);
    EXPECT_GE(result.packing.score.slowest_shard,
              test_case.bounds.for_any_placement);
    EXPECT_EQ(result.refined, result.placement != test_case.placement);
    refined += result.refined;
  }
  EXPECT_GT(refined, 10);
}

TEST(JointSearchTest, GainsOverPackingAlone) {
  double alone = 0;
  double jointly = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const JointCase test_case(RandomWindow({.seed = seed,
                                            .num_samples = 80,
                                            .num_layers = 6,
                                            .num_experts = 32,
                                            .num_ranks = 4}));
    PackingProblem problem = test_case.search.problem;
    const SearchOptions options = {.effort = Effort::kFast, .steps = 40'000};
    alone += static_cast<double>(SearchLayout(problem, test_case.search.length,
                                              test_case.bounds.for_placement,
                                              options, 1)
                                     .score.slowest_shard -
                                 test_case.bounds.for_any_placement);
    jointly += static_cast<double>(
        test_case.Run(problem, options).packing.score.slowest_shard -
        test_case.bounds.for_any_placement);
  }
  EXPECT_LT(jointly, alone);
}

TEST(JointSearchTest, ReportsEveryTurn) {
  const JointCase test_case(RandomWindow({.seed = 2, .num_samples = 60}));
  PackingProblem problem = test_case.search.problem;
  std::vector<double> fractions;
  Score lowest = {.slowest_shard = int64_t{1} << 60};
  const JointSearchResult result = SearchJointly(
      test_case.window, problem, test_case.search.length, test_case.placement,
      test_case.bounds, kFew, {}, 1, {}, [&](const SearchProgress& progress) {
        fractions.push_back(progress.fraction);
        lowest = std::min(lowest, progress.incumbent);
      });
  std::vector<std::string> names;
  for (const SearchStage& stage : result.packing.report.stages) {
    names.push_back(stage.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"attention first", "placement",
                                             "annealed", "placement"}));
  EXPECT_LE(result.packing.report.proposals.steps, 5000);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_FALSE(fractions.empty());
  EXPECT_GE(lowest, result.packing.score);
}

TEST(JointSearchTest, LeavesPlacementWhereHotExpertsBind) {
  JointCase test_case(RandomWindow({.seed = 2, .num_samples = 60}));
  test_case.bounds.hot_expert_layers = {0, 1, 2};
  PackingProblem problem = test_case.search.problem;
  const JointSearchResult result = test_case.Run(problem, kFew);
  EXPECT_FALSE(result.refined);
  EXPECT_EQ(result.packing.layout,
            SearchLayout(problem, test_case.search.length,
                         test_case.bounds.for_placement, kFew, 1)
                .layout);
}

TEST(JointSearchTest, DearMovesKeepThePlacement) {
  const JointCase test_case(RandomWindow({.seed = 3, .num_samples = 60}));
  PackingProblem problem = test_case.search.problem;
  const SlotPrice price = [&](uint32_t l, uint32_t e, uint32_t slot) {
    const size_t at = size_t{l} * test_case.placement.num_experts + e;
    return test_case.placement.slot_of_expert[at] == slot ? 0.0 : 1e6;
  };
  EXPECT_FALSE(test_case.Run(problem, kFew, price).refined);
}

TEST(JointSearchTest, DoesNotDependOnThreads) {
  const JointCase test_case(RandomWindow({.seed = 7, .num_samples = 60}));
  std::vector<JointSearchResult> found;
  OnSeveralThreadCounts([&] {
    PackingProblem problem = test_case.search.problem;
    found.push_back(test_case.Run(problem, kFew));
  });
  for (const JointSearchResult& result : found) {
    EXPECT_EQ(result.placement, found[0].placement);
    EXPECT_EQ(result.packing.layout, found[0].packing.layout);
  }
}

TEST(JointSearchTest, SeedsAloneAreRefinedToo) {
  const JointCase test_case(RandomWindow({.seed = 8, .num_samples = 60}));
  PackingProblem problem = test_case.search.problem;
  const JointSearchResult result =
      test_case.Run(problem, {.effort = Effort::kSeeds});
  EXPECT_EQ(result.packing.report.end, SearchEnd::kSeedsOnly);
  EXPECT_TRUE(result.refined);
}

TEST(JointSearchTest, ABudgetThatHasRunOutGivesTheFirstLayout) {
  const JointCase test_case(RandomWindow({.seed = 8, .num_samples = 60}));
  PackingProblem problem = test_case.search.problem;
  const JointSearchResult result = test_case.Run(
      problem, kFew, {}, {.deadline = absl::Now() - absl::Seconds(1)});
  EXPECT_TRUE(result.packing.truncated);
  EXPECT_FALSE(result.refined);
  EXPECT_TRUE(ValidateLayout(problem, result.packing.layout).ok());
}

}  // namespace
}  // namespace routepack
