#include "planner/anneal.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/planner/search_problems.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

std::vector<Chain> Members(const SearchSpace& space, const Layout& layout,
                           size_t count) {
  return std::vector<Chain>(count, Chain(space, layout));
}

TEST(ProposalTest, ProposesOnlyMovesThatFitAndReachesEverything) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase test_case = RandomSearchCase(seed);
    const SearchSpace space(test_case.problem, test_case.length.rows);
    Chain chain(space, test_case.length);
    DrawStream draws(CounterRandom(seed, 1));
    Proposer proposer(space, {});
    std::vector<bool> moved(test_case.problem.num_items());
    for (int step = 0; step < 3000; ++step) {
      Move move;
      if (!proposer.Propose(chain, draws, &move)) continue;
      ASSERT_EQ(chain.cell_of(move.item), move.from);
      ASSERT_TRUE(chain.Fits(move));
      moved[move.item] = true;
      if (move.back != chain.nothing()) moved[move.back] = true;
      chain.Try(move, 1e15);
    }
    ASSERT_TRUE(ValidateLayout(test_case.problem, chain.layout()).ok());
    // Where moves are possible at all, no sample is left out.
    const auto count = std::count(moved.begin(), moved.end(), true);
    if (count > 0) {
      EXPECT_EQ(count, std::ssize(moved));
    }
  }
}

TEST(ProposalTest, RelocationsFollowTheirProbability) {
  const SearchCase test_case = RandomSearchCase(1);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  const Chain chain(space, test_case.length);
  for (double relocation : {0.0, 1.0}) {
    DrawStream draws(CounterRandom(1, 1));
    Proposer proposer(space, {.relocation = relocation});
    int proposed = 0;
    for (int step = 0; step < 500; ++step) {
      Move move;
      if (!proposer.Propose(chain, draws, &move)) continue;
      ++proposed;
      EXPECT_EQ(move.back == chain.nothing(), relocation == 1.0);
    }
    EXPECT_GT(proposed, 0);
  }
}

TEST(DrawStreamTest, ExponentialHasItsDistribution) {
  DrawStream draws(CounterRandom(9, 1));
  double sum = 0;
  int above_one = 0;
  constexpr int kDraws = 100'000;
  for (int k = 0; k < kDraws; ++k) {
    const double x = draws.Exponential();
    ASSERT_GE(x, 0);
    sum += x;
    above_one += x > 1;
  }
  EXPECT_NEAR(sum / kDraws, 1, 0.02);
  EXPECT_NEAR(static_cast<double>(above_one) / kDraws, std::exp(-1), 0.01);
}

TEST(AnnealTest, ZeroTemperatureNeverWorsens) {
  const SearchCase test_case = RandomSearchCase(4);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  Chain chain(space, test_case.length);
  Score last = chain.score();
  double energy = chain.energy();
  for (uint64_t k = 0; k < 200; ++k) {
    RunChain(space, chain, 20, 0, {}, CounterRandom(k, 1), {});
    EXPECT_TRUE(chain.score() < last || chain.energy() <= energy);
    last = chain.score();
    energy = chain.energy();
  }
}

TEST(AnnealTest, HotChainsAcceptMoreThanColdOnes) {
  const SearchCase test_case = RandomSearchCase(4);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  uint64_t last = 0;
  for (double temperature : {0.0, 1e-3, 1e-2, 1.0}) {
    Chain chain(space, test_case.length);
    const ProposalCounts counts = RunChain(space, chain, 20'000, temperature,
                                           {}, CounterRandom(1, 1), {});
    EXPECT_EQ(counts.steps, 20'000u);
    EXPECT_EQ(counts.infeasible + counts.stopped_early + counts.evaluated,
              counts.steps);
    EXPECT_GT(counts.accepted, last);
    last = counts.accepted;
  }
}

// Spec 1.7, transcribed: F in long double, a scan for every member.
TEST(AnnealTest, ResamplingIsSystematic) {
  TestRandom random(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> energies(random.Between(1, 12));
    for (double& energy : energies) energy = 1000 + random.Below(40);
    const double now = 0.02;
    const double next = 0.01;
    const double u = random.Below(1000) / 1000.0;
    const double lowest = *std::min_element(energies.begin(), energies.end());
    std::vector<long double> weights;
    long double total = 0;
    for (double energy : energies) {
      weights.push_back(
          std::exp(-(1.0L / next - 1.0L / now) * (energy - lowest) / lowest));
      total += weights.back();
    }
    const std::vector<uint32_t> parents =
        ResampledParents(energies, now, next, u);
    ASSERT_EQ(parents.size(), energies.size());
    for (size_t m = 0; m < parents.size(); ++m) {
      const long double place = (u + m) / energies.size();
      long double cumulative = 0;
      uint32_t least = 0;
      for (; least + 1 < energies.size(); ++least) {
        cumulative += weights[least] / total;
        if (cumulative >= place) break;
      }
      // Equal up to rounding at the border of two members.
      if (std::fabs(static_cast<double>(cumulative - place)) > 1e-12) {
        EXPECT_EQ(parents[m], least);
      }
    }
  }
}

TEST(AnnealTest, ColdResamplingKeepsTheBest) {
  EXPECT_EQ(ResampledParents({5, 3, 4}, 1e-3, 1e-5, 0.5),
            (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(ResampledParents({7, 7, 7, 7}, 1e-3, 1e-5, 0.5),
            (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST(AnnealTest, IsTheSameForAnyNumberOfThreads) {
  const SearchCase test_case = RandomSearchCase(11);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  std::vector<Layout> layouts;
  OnSeveralThreadCounts([&] {
    layouts.push_back(AnnealPopulation(space,
                                       Members(space, test_case.length, 5),
                                       {.steps = 30'000, .levels = 8}, 3, {})
                          .layout);
  });
  EXPECT_EQ(layouts[0], layouts[1]);
  EXPECT_EQ(layouts[0], layouts[2]);
}

TEST(AnnealTest, SpendsExactlyItsStepsAndNeverGetsWorse) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const SearchCase test_case = RandomSearchCase(seed);
    const SearchSpace space(test_case.problem, test_case.length.rows);
    const AnnealResult result =
        AnnealPopulation(space, Members(space, test_case.length, 3),
                         {.steps = 10'007, .levels = 7}, seed, {});
    const Score first =
        EvaluateLayout(test_case.problem, test_case.length).score;
    ASSERT_TRUE(ValidateLayout(test_case.problem, result.layout).ok());
    EXPECT_EQ(EvaluateLayout(test_case.problem, result.layout).score,
              result.score);
    Score last = first;
    uint64_t steps = 0;
    for (const AnnealLevel& level : result.levels) {
      EXPECT_LE(level.incumbent, last);
      EXPECT_GE(level.surviving_members, 1u);
      EXPECT_LE(level.surviving_members, 3u);
      last = level.incumbent;
      steps += level.proposals.steps;
    }
    EXPECT_EQ(last, result.score);
    if (result.end == SearchEnd::kStepsSpent) {
      EXPECT_EQ(steps, 10'007u);
    }
  }
}

TEST(AnnealTest, TemperaturesFallGeometrically) {
  const SearchCase test_case = RandomSearchCase(12);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  const AnnealResult result =
      AnnealPopulation(space, Members(space, test_case.length, 1),
                       {.steps = 200'000, .levels = 6}, 1, {});
  ASSERT_GE(result.levels.size(), 4u);
  EXPECT_EQ(result.levels[0].temperature, 0);
  const double ratio =
      result.levels[2].temperature / result.levels[1].temperature;
  EXPECT_NEAR(ratio, std::pow(0.01, 1.0 / 4), 1e-9);
  EXPECT_NEAR(result.levels[3].temperature / result.levels[2].temperature,
              ratio, 1e-9);
}

TEST(AnnealTest, StopsWhenItReachesTheBound) {
  const SearchCase test_case = RandomSearchCase(13);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  const Score first = EvaluateLayout(test_case.problem, test_case.length).score;
  const AnnealResult result = AnnealPopulation(
      space, Members(space, test_case.length, 2),
      {.steps = 1'000'000'000, .levels = 10, .bound = first.slowest_shard}, 1,
      {});
  EXPECT_EQ(result.end, SearchEnd::kBoundReached);
  EXPECT_EQ(result.layout, Chain(space, test_case.length).layout());
}

TEST(AnnealTest, StopsWhenNothingImproves) {
  const SearchCase test_case = RandomSearchCase(14);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  const AnnealResult result =
      AnnealPopulation(space, Members(space, test_case.length, 2),
                       {.steps = 400'000, .levels = 400}, 1, {});
  EXPECT_EQ(result.end, SearchEnd::kNoImprovement);
  EXPECT_LT(result.levels.size(), 400u);
}

TEST(AnnealTest, StopsWhenNoMoveFits) {
  // Two cells that are full, of one sample each, and of different sizes.
  RandomWindowOptions options{.num_samples = 2,
                              .num_slots = 1,
                              .num_shards = 1,
                              .token_cap = 10,
                              .min_tokens = 6,
                              .max_tokens = 10};
  SearchCase test_case = MakeSearchCase(options);
  ASSERT_EQ(test_case.length.rows, 2u);
  const SearchSpace space(test_case.problem, 2);
  const AnnealResult result =
      AnnealPopulation(space, Members(space, test_case.length, 2),
                       {.steps = 100'000, .levels = 10}, 1, {});
  EXPECT_TRUE(result.end == SearchEnd::kNothingToGain ||
              result.end == SearchEnd::kNoImprovement);
  EXPECT_LT(result.levels.size(), 10u);
}

TEST(AnnealTest, StopsWhenCancelled) {
  const SearchCase test_case = RandomSearchCase(15);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  std::stop_source stop;
  int levels = 0;
  const AnnealResult result =
      AnnealPopulation(space, Members(space, test_case.length, 2),
                       {.steps = 1'000'000, .levels = 100}, 1,
                       {.stop = stop.get_token()}, [&](const AnnealLevel&) {
                         if (++levels == 3) stop.request_stop();
                       });
  EXPECT_EQ(levels, 3);
  EXPECT_EQ(result.end, SearchEnd::kTimeLimit);
}

}  // namespace
}  // namespace routepack
