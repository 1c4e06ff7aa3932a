#include "planner/chain.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "planner/search_space.h"
#include "tests/planner/search_problems.h"

namespace routepack {
namespace {

using Cells = std::vector<std::vector<uint32_t>>;

// The layout after a move, by brute force.
Layout Moved(const Chain& chain, const Layout& layout, const Move& move) {
  Cells cells(layout.num_cells());
  for (uint32_t i = 0; i < layout.items.size(); ++i) {
    uint32_t cell = chain.cell_of(i);
    if (i == move.item) cell = move.to;
    if (i == move.back) cell = move.from;
    cells[cell].push_back(i);
  }
  return LayoutFromCells(layout.rows, layout.slots, cells);
}

// s0 + w1 s1 + w2 s2 of a difference, small enough to be exact.
long double Growth(const SearchSpace& space, const Score& from,
                   const Score& to) {
  return static_cast<long double>(to.slowest_shard - from.slowest_shard) +
         space.weights.total * static_cast<long double>(to.total - from.total) +
         space.weights.worst_row *
             static_cast<long double>(to.worst_row - from.worst_row);
}

struct Coverage {
  int stopped = 0;
  int rejected = 0;
  int accepted = 0;
  int inside_row_shard = 0;
  int across_shards = 0;
  int relocations = 0;
};

// Tries `steps` random moves and compares every one with full evaluation.
void CompareWithFullScores(const SearchCase& test_case, uint64_t seed,
                           int steps, Coverage& coverage) {
  const PackingProblem& problem = test_case.problem;
  SearchSpace space(problem, test_case.length.rows);
  if (seed % 3 == 0) space.weights = EnergyWeights::Paper();
  Chain chain(space, test_case.length);
  ASSERT_EQ(chain.score(), EvaluateLayout(problem, test_case.length).score);
  TestRandom random(seed);
  for (int step = 0; step < steps; ++step) {
    const Move move = RandomMove(random, chain, test_case.length);
    if (move.from == move.to) {
      ASSERT_FALSE(chain.Fits(move));
      continue;
    }
    const Layout moved = Moved(chain, test_case.length, move);
    ASSERT_EQ(chain.Fits(move), ValidateLayout(problem, moved).ok());
    if (!chain.Fits(move)) continue;

    const Score before = chain.score();
    const Score after = EvaluateLayout(problem, moved).score;
    ASSERT_EQ(chain.ScoreAfter(move), after);
    const double tolerance =
        random.Below(2) == 0
            ? 0
            : static_cast<double>(random.Below(before.slowest_shard / 50 + 1));
    const long double margin = Growth(space, before, after) - tolerance;
    const Chain::Verdict verdict = chain.Try(move, tolerance);
    bool acceptable = after < before || margin <= 0;
    if (!(after < before) && std::fabs(margin) < 1e-6) {
      // Equal up to the rounding of the weights: either will do.
      acceptable = verdict == Chain::Verdict::kAccepted;
    }
    ASSERT_EQ(verdict == Chain::Verdict::kAccepted, acceptable);
    ASSERT_EQ(chain.score(), acceptable ? after : before);

    coverage.stopped += verdict == Chain::Verdict::kStopped;
    coverage.rejected += verdict == Chain::Verdict::kRejected;
    coverage.accepted += acceptable;
    const uint32_t a = space.row_shard_of_cell[move.from];
    const uint32_t b = space.row_shard_of_cell[move.to];
    coverage.inside_row_shard += a == b;
    coverage.across_shards += a % space.shards != b % space.shards;
    coverage.relocations += move.back == chain.nothing();
  }
  ASSERT_TRUE(ValidateLayout(problem, chain.layout()).ok());
  ASSERT_EQ(EvaluateLayout(problem, chain.layout()).score, chain.score());
}

TEST(ChainTest, IncrementalScoreEqualsFullScore) {
  Coverage coverage;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    CompareWithFullScores(RandomSearchCase(seed), seed, 4000, coverage);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(coverage.stopped, 100);
  EXPECT_GT(coverage.rejected, 10'000);
  EXPECT_GT(coverage.accepted, 10'000);
  EXPECT_GT(coverage.inside_row_shard, 5'000);
  EXPECT_GT(coverage.across_shards, 5'000);
  EXPECT_GT(coverage.relocations, 2'000);
}

TEST(ChainTest, IncrementalScoreEqualsFullScoreOfDemandBeyond16Bits) {
  Coverage coverage;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    SearchCase test_case = RandomSearchCase(seed);
    for (uint32_t& value : test_case.problem.demand.values) value *= 4001;
    CompareWithFullScores(test_case, seed, 300, coverage);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(coverage.accepted, 200);
}

TEST(ChainTest, IncrementalScoreEqualsFullScoreOfManyLayersAndRanks) {
  Coverage coverage;
  for (uint32_t layers : {7u, 8u, 9u, 33u}) {
    for (uint32_t ranks : {1u, 5u, 16u}) {
      CompareWithFullScores(MakeSearchCase({.seed = layers + ranks,
                                            .num_samples = 40,
                                            .num_layers = layers,
                                            .num_experts = 2 * ranks,
                                            .top_k = 1,
                                            .num_ranks = ranks}),
                            ranks, 3000, coverage);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(coverage.stopped, 100);
}

TEST(ChainTest, RemembersTheBestOfATrajectory) {
  const SearchCase test_case = RandomSearchCase(5);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  Chain chain(space, test_case.length);
  TestRandom random(1);
  for (int trajectory = 0; trajectory < 5; ++trajectory) {
    chain.StartTrajectory();
    Score best = chain.score();
    for (int step = 0; step < 300; ++step) {
      const Move move = RandomMove(random, chain, test_case.length);
      if (!chain.Fits(move)) continue;
      chain.Try(move, random.Below(2) == 0 ? 0 : 1e12);
      best = std::min(best, chain.score());
      ASSERT_EQ(chain.best_score(), best);
      ASSERT_EQ(EvaluateLayout(test_case.problem, chain.BestLayout()).score,
                best);
    }
    EXPECT_LT(best, chain.score());
  }
}

TEST(ChainTest, CopiesAreIndependent) {
  const SearchCase test_case = RandomSearchCase(8);
  const SearchSpace space(test_case.problem, test_case.length.rows);
  Chain chain(space, test_case.length);
  const Chain copy = chain;
  TestRandom random(2);
  for (int step = 0; step < 200; ++step) {
    const Move move = RandomMove(random, chain, test_case.length);
    if (chain.Fits(move)) chain.Try(move, 1e12);
  }
  EXPECT_NE(chain.layout(), copy.layout());
  EXPECT_EQ(EvaluateLayout(test_case.problem, copy.layout()).score,
            copy.score());
}

TEST(ChainTest, NeverEmptiesACell) {
  const SearchCase test_case = MakeSearchCase({.min_tokens = 40});
  const SearchSpace space(test_case.problem, test_case.length.rows);
  const Chain chain(space, test_case.length);
  int lonely = 0;
  for (uint32_t i = 0; i < test_case.problem.num_items(); ++i) {
    const uint32_t from = chain.cell_of(i);
    if (chain.items_of(from).size() > 1) continue;
    ++lonely;
    for (uint32_t to = 0; to < space.cells; ++to) {
      EXPECT_FALSE(chain.Fits(
          {.item = i, .from = from, .to = to, .back = chain.nothing()}));
    }
  }
  EXPECT_GT(lonely, 0);
}

}  // namespace
}  // namespace routepack
