#include "planner/search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/seed.h"
#include "tests/planner/exhaustive.h"
#include "tests/planner/search_problems.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

constexpr Score kNoScore = {.slowest_shard = int64_t{1} << 60};

SearchResult Search(const SearchCase& test_case, const SearchOptions& options,
                    uint64_t seed = 1, const Budget& budget = {}) {
  return SearchLayout(test_case.problem, test_case.length, test_case.bound,
                      options, seed, budget);
}

Score LengthScore(const SearchCase& test_case) {
  return EvaluateLayout(test_case.problem, test_case.length).score;
}

// A valid layout, its exact score, no worse than where it began.
void ExpectGood(const SearchCase& test_case, const SearchResult& result) {
  ASSERT_TRUE(ValidateLayout(test_case.problem, result.layout).ok());
  EXPECT_EQ(EvaluateLayout(test_case.problem, result.layout).score,
            result.score);
  EXPECT_LE(result.score, LengthScore(test_case));
  EXPECT_GE(result.score.slowest_shard, test_case.bound);
}

// Two windows that are worth a search.
std::vector<SearchCase> CasesToSearch() {
  std::vector<SearchCase> cases;
  cases.push_back(MakeSearchCase({.seed = 3, .num_samples = 60}));
  cases.push_back(MakeSearchCase({.seed = 4,
                                  .num_samples = 40,
                                  .num_layers = 11,
                                  .num_slots = 3,
                                  .num_shards = 1}));
  return cases;
}

// Samples of one length whose routing is uniform.
SearchCase UniformCase(uint32_t samples_per_cell) {
  constexpr uint32_t kTokens = 800;
  WindowBuilder builder = ValueOrDie(WindowBuilder::Create(
      {.num_samples = 8 * samples_per_cell,
       .num_layers = 3,
       .num_experts = 8,
       .top_k = 2,
       .token_cap = kTokens * samples_per_cell,
       .topology = ValueOrDie(Topology::FromShards(4, 4, {{0, 1}, {2, 3}})),
       .attention = {{.name = "mla", .alpha = 3, .beta = 2}}}));
  for (uint64_t id = 0; id < 8 * samples_per_cell; ++id) {
    builder.AddSample({.id = id, .tokens = kTokens},
                      std::vector<uint32_t>(3 * 8, kTokens / 4));
  }
  const Window window = ValueOrDie(std::move(builder).Seal());
  const std::vector<uint64_t> loads = window.ExpertLoads();
  const Placement placement = LptPlacement(loads, 3, 8, 4);
  SearchCase out{.problem = MakeProblem(window, 0)};
  out.problem.demand = ProjectDemand(window, placement);
  RowResult rows = ValueOrDie(FewestRows(
      out.problem.occupancy,
      {.num_slots = 4, .token_cap = window.spec().token_cap}, Budget{}));
  out.length = LengthLayout(out.problem, rows.rows, std::move(rows.bins));
  out.bound = LowerBounds(out.problem, out.length.rows, loads,
                          RankLoads(placement, loads))
                  .for_placement;
  return out;
}

TEST(SearchTest, IsValidExactAndNeverWorseThanLengthOnly) {
  int better = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const SearchCase test_case = RandomSearchCase(seed);
    for (Effort effort : {Effort::kSeeds, Effort::kFast}) {
      SCOPED_TRACE(testing::Message() << "case " << seed << ", effort "
                                      << static_cast<int>(effort));
      const SearchResult result = Search(test_case, {.effort = effort}, seed);
      ExpectGood(test_case, result);
      better += result.score < LengthScore(test_case);
    }
    SCOPED_TRACE(seed);
    ExpectGood(test_case, Search(test_case, {.steps = 30'000}));
    ExpectGood(test_case,
               Search(test_case, {.effort = Effort::kBest, .steps = 20'000}));
  }
  EXPECT_GT(better, 50);  // of 80
}

TEST(SearchTest, PacksFillersLikeSamples) {
  int with_fillers = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase test_case = MakeSearchCase({.seed = seed,
                                                 .num_samples = 10,
                                                 .num_slots = 4,
                                                 .token_cap = 70,
                                                 .min_tokens = 25});
    with_fillers +=
        test_case.problem.num_items() > test_case.problem.num_samples;
    ExpectGood(test_case, Search(test_case, {.effort = Effort::kFast}));
  }
  EXPECT_GT(with_fillers, 5);
}

TEST(SearchTest, MoreEffortIsNotWorseOnTheWhole) {
  int64_t last = std::numeric_limits<int64_t>::max();
  for (Effort effort : {Effort::kSeeds, Effort::kFast, Effort::kBalanced}) {
    int64_t sum = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      sum += Search(RandomSearchCase(seed), {.effort = effort})
                 .score.slowest_shard;
    }
    EXPECT_LT(sum, last);
    last = sum;
  }
}

TEST(SearchTest, IsTheSameForAnyNumberOfThreads) {
  for (const SearchCase& test_case : CasesToSearch()) {
    for (const SearchOptions& options :
         {SearchOptions{.effort = Effort::kSeeds}, SearchOptions{},
          SearchOptions{.effort = Effort::kBest, .steps = 100'000}}) {
      std::vector<SearchResult> results;
      OnSeveralThreadCounts(
          [&] { results.push_back(Search(test_case, options)); });
      for (const SearchResult& result : results) {
        EXPECT_EQ(result.layout, results[0].layout);
        EXPECT_EQ(result.score, results[0].score);
        EXPECT_EQ(result.report.proposals.accepted,
                  results[0].report.proposals.accepted);
        EXPECT_EQ(result.report.diversity, results[0].report.diversity);
      }
    }
  }
}

TEST(SearchTest, DependsOnTheSeedOnly) {
  int different = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SearchCase test_case =
        MakeSearchCase({.seed = seed, .num_samples = 50});
    const SearchOptions options{.effort = Effort::kFast};
    const SearchResult result = Search(test_case, options, 7);
    EXPECT_EQ(result.layout, Search(test_case, options, 7).layout);
    different += result.layout != Search(test_case, options, 8).layout;
  }
  EXPECT_GE(different, 15);
}

TEST(SearchTest, SeedsEffortReturnsTheBestSeed) {
  for (const SearchCase& test_case : CasesToSearch()) {
    const SearchResult result =
        Search(test_case, {.effort = Effort::kSeeds}, 5);
    const SeedPool pool = MakeSeeds(test_case.problem, test_case.length,
                                    {.candidates = 32, .choice_width = 4}, 5);
    EXPECT_EQ(result.layout, pool.layouts[pool.best()]);
    EXPECT_EQ(result.report.end, SearchEnd::kSeedsOnly);
    EXPECT_EQ(result.report.proposals.steps, 0u);
    EXPECT_EQ(result.report.stages.size(), 3u);
    EXPECT_TRUE(result.report.levels.empty());
    EXPECT_FALSE(result.truncated);
  }
}

TEST(SearchTest, ReturnsAtOnceWhenThereIsNothingToGain) {
  for (uint32_t samples_per_cell : {1, 5}) {
    const SearchCase test_case = UniformCase(samples_per_cell);
    const SearchResult result = Search(test_case, {.effort = Effort::kBest});
    ExpectGood(test_case, result);
    EXPECT_EQ(result.report.end, SearchEnd::kNothingToGain);
    EXPECT_EQ(result.report.proposals.steps, 0u);
    EXPECT_TRUE(result.report.levels.empty());
    EXPECT_FALSE(result.truncated);
  }
}

TEST(SearchTest, DeadlineTruncatesBeforeAndDuringAnnealing) {
  for (const SearchCase& test_case : CasesToSearch()) {
    for (absl::Duration left :
         {-absl::Seconds(1), absl::Milliseconds(20), absl::Milliseconds(60)}) {
      const SearchResult result =
          Search(test_case, {.steps = uint64_t{1} << 40}, 1,
                 {.deadline = absl::Now() + left});
      ExpectGood(test_case, result);
      EXPECT_TRUE(result.truncated);
      EXPECT_EQ(result.report.end, SearchEnd::kTimeLimit);
      EXPECT_LT(result.report.proposals.steps, uint64_t{1} << 40);
    }
  }
}

// Wherever the deadline falls, also in the last level.
TEST(SearchTest, SpendsItsStepsOrIsTruncated) {
  const SearchCase test_case = CasesToSearch()[0];
  const SearchOptions options{.steps = 200'000, .levels = 2, .population = 2};
  for (int left = 0; left < 40; ++left) {
    const SearchResult result =
        Search(test_case, options, 1,
               {.deadline = absl::Now() + absl::Milliseconds(left)});
    ExpectGood(test_case, result);
    EXPECT_EQ(result.truncated, result.report.proposals.steps < options.steps);
  }
}

TEST(SearchTest, CancellationEndsIt) {
  for (const SearchCase& test_case : CasesToSearch()) {
    std::stop_source cancelled;
    cancelled.request_stop();
    const SearchResult first =
        Search(test_case, {}, 1, {.stop = cancelled.get_token()});
    ExpectGood(test_case, first);
    EXPECT_TRUE(first.truncated);
    EXPECT_EQ(first.report.proposals.steps, 0u);

    std::stop_source stop;
    int calls = 0;
    const SearchResult second =
        SearchLayout(test_case.problem, test_case.length, test_case.bound,
                     {.steps = 1'000'000, .levels = 100}, 1,
                     {.stop = stop.get_token()}, [&](const SearchProgress&) {
                       if (++calls == 3) stop.request_stop();
                     });
    ExpectGood(test_case, second);
    EXPECT_TRUE(second.truncated);
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(second.report.end, SearchEnd::kTimeLimit);
  }
}

TEST(SearchTest, ReportAddsUp) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase test_case = RandomSearchCase(seed);
    const SearchOptions options =
        ResolveSearch({.effort = Effort::kFast}, test_case.problem.num_items());
    std::vector<SearchProgress> progress;
    const SearchResult result =
        SearchLayout(test_case.problem, test_case.length, test_case.bound,
                     {.effort = Effort::kFast}, seed, {},
                     [&](const SearchProgress& p) { progress.push_back(p); });
    const SearchReport& report = result.report;

    ASSERT_GE(report.stages.size(), 3u);
    const char* const kNames[] = {"length-only", "paired", "best seed",
                                  "annealed"};
    for (size_t k = 0; k < report.stages.size(); ++k) {
      EXPECT_EQ(report.stages[k].name, kNames[k]);
      if (k == 0) continue;
      EXPECT_LE(report.stages[k].score, report.stages[k - 1].score);
    }
    EXPECT_EQ(report.stages.front().score, LengthScore(test_case));
    EXPECT_EQ(report.stages.back().score, result.score);
    EXPECT_EQ(
        report.stages.size() == 4,
        report.end != SearchEnd::kNothingToGain || report.proposals.steps > 0);

    ProposalCounts sum;
    Score incumbent = report.stages[2].score;
    for (const AnnealLevel& level : report.levels) {
      sum += level.proposals;
      EXPECT_LE(level.incumbent, incumbent);
      EXPECT_GE(level.lowest_terminal, level.incumbent.slowest_shard);
      incumbent = level.incumbent;
    }
    EXPECT_EQ(incumbent, result.score);
    EXPECT_EQ(sum.steps, report.proposals.steps);
    EXPECT_EQ(sum.infeasible, report.proposals.infeasible);
    EXPECT_EQ(sum.stopped_early, report.proposals.stopped_early);
    EXPECT_EQ(sum.evaluated, report.proposals.evaluated);
    EXPECT_EQ(sum.accepted, report.proposals.accepted);
    EXPECT_EQ(sum.infeasible + sum.stopped_early + sum.evaluated, sum.steps);
    EXPECT_LE(sum.accepted, sum.evaluated);
    EXPECT_LE(sum.steps, options.steps);
    if (report.end == SearchEnd::kStepsSpent) {
      EXPECT_EQ(sum.steps, options.steps);
    }

    EXPECT_LE(report.candidates, options.candidates);
    EXPECT_GE(report.distinct, 1u);
    EXPECT_LE(report.distinct, report.candidates);
    EXPECT_EQ(report.population, options.population);
    EXPECT_GE(report.diversity, 0);

    ASSERT_EQ(progress.size(), report.levels.size());
    uint64_t steps = 0;
    for (size_t k = 0; k < progress.size(); ++k) {
      steps += report.levels[k].proposals.steps;
      EXPECT_EQ(progress[k].proposals.steps, steps);
      EXPECT_EQ(progress[k].incumbent, report.levels[k].incumbent);
      EXPECT_DOUBLE_EQ(
          progress[k].fraction,
          static_cast<double>(steps) / static_cast<double>(options.steps));
    }
  }
}

TEST(SearchTest, FindsTheOptimumOfSmallCases) {
  constexpr int kCases = 40;
  int optimal = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const SearchCase test_case = SmallSearchCase(seed);
    const SearchResult result = Search(test_case, {});
    const Score best =
        ExhaustiveSearch(test_case.problem, test_case.length.rows)
            .Optimum(result.score);
    optimal += best == result.score;
  }
  EXPECT_GE(optimal, 38);
}

// Every assignment of items to cells, evaluated in full.
Score BestByEnumeration(const PackingProblem& problem, uint32_t rows) {
  const uint32_t cells = rows * problem.topology.num_slots();
  std::vector<uint32_t> cell_of(problem.num_items());
  Score best = kNoScore;
  while (true) {
    std::vector<std::vector<uint32_t>> contents(cells);
    for (uint32_t i = 0; i < cell_of.size(); ++i) {
      contents[cell_of[i]].push_back(i);
    }
    const Layout layout =
        LayoutFromCells(rows, problem.topology.num_slots(), contents);
    if (ValidateLayout(problem, layout).ok()) {
      best = std::min(best, EvaluateLayout(problem, layout).score);
    }
    size_t k = 0;
    while (k < cell_of.size() && ++cell_of[k] == cells) cell_of[k++] = 0;
    if (k == cell_of.size()) return best;
  }
}

TEST(ExhaustiveSearchTest, EqualsPlainEnumeration) {
  int rows_above_one = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomWindowOptions options{.seed = seed};
    options.num_samples = 5 + seed % 3;
    options.num_slots = 1 + seed % 4;
    options.num_shards = 1 + seed / 4 % std::min(3u, options.num_slots);
    options.token_cap = 120;
    const SearchCase test_case = MakeSearchCase(options);
    if (std::pow(test_case.length.num_cells(), test_case.problem.num_items()) >
        70'000) {
      continue;
    }
    rows_above_one += test_case.length.rows > 1;
    const Score best =
        BestByEnumeration(test_case.problem, test_case.length.rows);
    ASSERT_LT(best, kNoScore);
    ExhaustiveSearch search(test_case.problem, test_case.length.rows);
    EXPECT_EQ(search.Optimum(kNoScore), best);
    // What it is given to beat does not change the answer.
    EXPECT_EQ(search.Optimum(LengthScore(test_case)), best);
    EXPECT_EQ(search.Optimum(best), best);
    Score less = best;
    --less.worst_row;
    EXPECT_EQ(search.Optimum(less), less);
  }
  EXPECT_GT(rows_above_one, 15);
}

TEST(ResolveSearchTest, EffortSaysWhatIsNotGiven) {
  EXPECT_EQ(ResolveSearch({.effort = Effort::kFast}, 100).steps, 20'000u);
  EXPECT_EQ(ResolveSearch({}, 100).steps, 200'000u);
  EXPECT_EQ(ResolveSearch({.effort = Effort::kBest}, 100).steps, 2'000'000u);
  EXPECT_EQ(ResolveSearch({.effort = Effort::kFast}, 10).steps, 20'000u);
  EXPECT_EQ(ResolveSearch({}, 10).steps, 200'000u);
  EXPECT_EQ(ResolveSearch({}, 1000).steps, 2'000'000u);
  EXPECT_EQ(ResolveSearch({.effort = Effort::kFast}, 1u << 24).steps, 800'000u);
  EXPECT_EQ(ResolveSearch({}, 1u << 24).steps, 5'000'000u);
  EXPECT_EQ(ResolveSearch({.effort = Effort::kBest}, 1u << 24).steps,
            80'000'000u);
  for (Effort effort :
       {Effort::kSeeds, Effort::kFast, Effort::kBalanced, Effort::kBest}) {
    const SearchOptions options = ResolveSearch({.effort = effort}, 512);
    EXPECT_EQ(options.effort, effort);
    EXPECT_GE(options.candidates, options.population);
    EXPECT_GE(options.population, 1u);
    EXPECT_GE(options.choice_width, 1u);
    EXPECT_GE(options.projections, 1u);
    EXPECT_TRUE(options.diversity_penalty.has_value());
    EXPECT_TRUE(options.guided_probability.has_value());
    EXPECT_TRUE(options.relocation_probability.has_value());
    // Nothing is left to resolve.
    EXPECT_EQ(ResolveSearch(options, 1), options);
  }
}

TEST(ResolveSearchTest, KeepsWhatIsGiven) {
  const SearchOptions given{.effort = Effort::kFast,
                            .steps = 11,
                            .levels = 3,
                            .population = 5,
                            .candidates = 2,
                            .choice_width = 7,
                            .projections = 9,
                            .diversity_penalty = 0,
                            .guided_probability = 0,
                            .relocation_probability = 0};
  EXPECT_EQ(ResolveSearch(given, 1000), given);
  // Candidates are enough for the population unless they are given.
  EXPECT_EQ(ResolveSearch({.population = 100}, 1000).candidates, 100u);
}

TEST(CheckSearchTest, NamesEveryFieldThatIsOutOfRange) {
  const auto fields = [](const SearchOptions& options) {
    Violations violations;
    CheckSearch(options, "header.options.search", violations);
    std::vector<std::string> names;
    for (const FieldViolation& violation : violations.kept()) {
      names.push_back(violation.field);
    }
    return names;
  };
  EXPECT_TRUE(fields({}).empty());
  EXPECT_TRUE(fields(ResolveSearch({.effort = Effort::kBest}, 100)).empty());
  EXPECT_TRUE(fields({.steps = uint64_t{1} << 40,
                      .levels = 1024,
                      .population = 1024,
                      .candidates = 1 << 16,
                      .choice_width = 1 << 16,
                      .projections = 1024,
                      .diversity_penalty = 1e6,
                      .guided_probability = 1,
                      .relocation_probability = 1})
                  .empty());
  const std::vector<std::string> all = {
      "header.options.search.steps",
      "header.options.search.levels",
      "header.options.search.population",
      "header.options.search.candidates",
      "header.options.search.choice_width",
      "header.options.search.projections",
      "header.options.search.diversity_penalty",
      "header.options.search.guided_probability",
      "header.options.search.relocation_probability"};
  EXPECT_THAT(fields({.steps = (uint64_t{1} << 40) + 1,
                      .levels = 1025,
                      .population = 1025,
                      .candidates = (1 << 16) + 1,
                      .choice_width = (1 << 16) + 1,
                      .projections = 1025,
                      .diversity_penalty = 1.1e6,
                      .guided_probability = 1.1,
                      .relocation_probability = -0.1}),
              testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(fields({.levels = 1}),
              testing::ElementsAre("header.options.search.levels"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(
      fields({.diversity_penalty = nan,
              .guided_probability = nan,
              .relocation_probability = nan}),
      testing::ElementsAre("header.options.search.diversity_penalty",
                           "header.options.search.guided_probability",
                           "header.options.search.relocation_probability"));
}

TEST(MatchShardRowsTest, KeepsTheScoreAndTheCellsAndLowersThePeaks) {
  int lower = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase test_case = RandomSearchCase(seed);
    const PackingProblem& problem = test_case.problem;
    const Evaluation before = EvaluateLayout(problem, test_case.length);
    Evaluation after = before;
    const Layout matched = MatchShardRows(problem, test_case.length, after);
    ASSERT_TRUE(ValidateLayout(problem, matched).ok());
    EXPECT_EQ(after, EvaluateLayout(problem, matched));
    EXPECT_EQ(after.score, before.score);
    // Cells stay in their slot.
    for (uint32_t d = 0; d < matched.slots; ++d) {
      std::set<std::vector<uint32_t>> cells[2];
      for (uint32_t r = 0; r < matched.rows; ++r) {
        const auto a = test_case.length.cell(r, d);
        const auto b = matched.cell(r, d);
        cells[0].emplace(a.begin(), a.end());
        cells[1].emplace(b.begin(), b.end());
      }
      EXPECT_EQ(cells[0], cells[1]);
    }
    EXPECT_LE(after.ep_peak_sum, before.ep_peak_sum);
    if (after.ep_peak_sum == before.ep_peak_sum) {
      EXPECT_EQ(matched, test_case.length);
    }
    lower += after.ep_peak_sum < before.ep_peak_sum;
  }
  EXPECT_GT(lower, 5);
}

}  // namespace
}  // namespace routepack
