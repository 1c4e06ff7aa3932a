#include "planner/diversity.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/counter_random.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Cells = std::vector<std::vector<uint32_t>>;

PackingProblem ProblemOf(const Window& window, uint32_t fillers = 0) {
  PackingProblem problem = MakeProblem(window, fillers);
  problem.demand =
      ProjectDemand(window,
                    IdentityPlacement(window.num_layers(), window.num_experts(),
                                      window.spec().topology.num_ranks()),
                    fillers);
  return problem;
}

PackingProblem RandomProblem(uint64_t seed, uint32_t fillers = 0) {
  return ProblemOf(RandomWindow(RandomShape(seed)), fillers);
}

Layout SomeLayout(const PackingProblem& problem, TestRandom& random) {
  const uint32_t slots = problem.topology.num_slots();
  return RandomLayout(random, random.Between(1, problem.num_items() / slots),
                      slots, problem.num_items());
}

// The same rows in another order, cells in other slots of their shard, items of
// a cell in another order.
Layout Rearranged(const PackingProblem& problem, const Layout& layout,
                  TestRandom& random) {
  std::vector<uint32_t> rows(layout.rows);
  std::iota(rows.begin(), rows.end(), 0);
  random.Shuffle(rows);
  Cells cells(layout.num_cells());
  for (uint32_t r = 0; r < layout.rows; ++r) {
    for (uint32_t g = 0; g < problem.topology.num_shards(); ++g) {
      const auto slots = problem.topology.slots_of_shard(g);
      std::vector<uint32_t> target(slots.begin(), slots.end());
      random.Shuffle(target);
      for (size_t k = 0; k < slots.size(); ++k) {
        const auto items = layout.cell(r, slots[k]);
        std::vector<uint32_t> cell(items.begin(), items.end());
        random.Shuffle(cell);
        cells[rows[r] * layout.slots + target[k]] = std::move(cell);
      }
    }
  }
  return LayoutFromCells(layout.rows, layout.slots, cells);
}

// Rows of shards of cells of items, where order has no meaning.
using Structure = std::set<std::vector<std::set<std::set<uint32_t>>>>;

Structure StructureOf(const PackingProblem& problem, const Layout& layout) {
  Structure rows;
  for (uint32_t r = 0; r < layout.rows; ++r) {
    std::vector<std::set<std::set<uint32_t>>> row(
        problem.topology.num_shards());
    for (uint32_t d = 0; d < layout.slots; ++d) {
      const auto items = layout.cell(r, d);
      row[problem.topology.shard_of_slot(d)].emplace(items.begin(),
                                                     items.end());
    }
    rows.insert(std::move(row));
  }
  return rows;
}

TEST(CanonicalizeTest, SortsItemsThenCellsThenRows) {
  const PackingProblem problem = ProblemOf(RandomWindow(
      {.num_samples = 9, .num_slots = 2, .num_shards = 1, .max_tokens = 20}));
  const Layout layout =
      LayoutFromCells(2, 2, {{8, 3}, {5, 1, 7}, {6, 2}, {4, 0}});
  EXPECT_EQ(Canonicalize(problem, layout),
            LayoutFromCells(2, 2, {{0, 4}, {2, 6}, {1, 5, 7}, {3, 8}}));
}

TEST(CanonicalizeTest, KeepsCellsInTheirShards) {
  PackingProblem problem = ProblemOf(RandomWindow({.num_samples = 6}));
  problem.topology = ValueOrDie(Topology::FromShards(3, 4, {{0, 2}, {1}}));
  const Layout layout = LayoutFromCells(2, 3, {{5}, {0}, {4}, {3}, {1}, {2}});
  EXPECT_EQ(Canonicalize(problem, layout),
            LayoutFromCells(2, 3, {{2}, {1}, {3}, {4}, {0}, {5}}));
}

TEST(CanonicalizeTest, IsTheSameForRearrangedLayouts) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed, seed % 3);
    const Layout layout = SomeLayout(problem, random);
    const Layout canonical = Canonicalize(problem, layout);
    EXPECT_EQ(Canonicalize(problem, Rearranged(problem, layout, random)),
              canonical);
    EXPECT_EQ(Canonicalize(problem, canonical), canonical);
  }
}

// Few items, so that equal structures are met often.
TEST(CanonicalizeTest, TellsStructuresApart) {
  int equal = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const uint32_t slots = random.Between(1, 3);
    const uint32_t rows = random.Between(1, 2);
    const uint32_t size = slots * rows + random.Below(2);
    const PackingProblem problem{
        .topology = RandomTopology(random, slots, 1, random.Between(1, slots))};
    const Layout a = RandomLayout(random, rows, slots, size);
    const Layout b = RandomLayout(random, rows, slots, size);
    const bool same = StructureOf(problem, a) == StructureOf(problem, b);
    EXPECT_EQ(Canonicalize(problem, a) == Canonicalize(problem, b), same);
    equal += same;
  }
  EXPECT_GT(equal, 200);
  EXPECT_LT(equal, 1800);
}

TEST(CanonicalizeTest, KeepsTheScore) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed);
    const Layout layout = SomeLayout(problem, random);
    EXPECT_EQ(EvaluateLayout(problem, Canonicalize(problem, layout)).score,
              EvaluateLayout(problem, layout).score);
  }
}

// Spec 1.6.5 by the matrix H [R][F], one direction after the other.
std::vector<float> ProfileByDefinition(const PackingProblem& problem,
                                       const Layout& layout, uint32_t q) {
  const Demand& demand = problem.demand;
  const uint32_t num_shards = problem.topology.num_shards();
  const double mean_tokens =
      std::accumulate(problem.tokens.begin(), problem.tokens.end(), 0.0) /
      layout.num_cells();
  double mean_squares = 0;
  for (double t : problem.tokens) mean_squares += t * t / layout.num_cells();

  std::vector<std::vector<double>> h(layout.rows);
  for (uint32_t r = 0; r < layout.rows; ++r) {
    const double moment_weight = 1 / std::sqrt(2.0 * layout.slots);
    for (uint32_t g = 0; g < num_shards; ++g) {
      std::vector<double> tokens;
      std::vector<double> squares;
      for (uint32_t d : problem.topology.slots_of_shard(g)) {
        tokens.push_back(0);
        squares.push_back(0);
        for (uint32_t i : layout.cell(r, d)) {
          const double t = problem.tokens[i];
          tokens.back() += t / mean_tokens * moment_weight;
          squares.back() += t * t / mean_squares * moment_weight;
        }
      }
      std::sort(tokens.begin(), tokens.end());
      std::sort(squares.begin(), squares.end());
      h[r].insert(h[r].end(), tokens.begin(), tokens.end());
      h[r].insert(h[r].end(), squares.begin(), squares.end());
    }
    const double load_weight =
        1 / std::sqrt(1.0 * demand.num_layers * num_shards * demand.num_ranks);
    for (uint32_t g = 0; g < num_shards; ++g) {
      for (uint32_t l = 0; l < demand.num_layers; ++l) {
        double total = 0;
        std::vector<double> loads(demand.num_ranks);
        for (uint32_t i = 0; i < demand.num_items; ++i) {
          for (uint32_t p = 0; p < demand.num_ranks; ++p) {
            total += demand.item(i)[l * demand.stride + p];
          }
        }
        const double mean =
            total / (layout.rows * num_shards * demand.num_ranks);
        for (uint32_t d : problem.topology.slots_of_shard(g)) {
          for (uint32_t i : layout.cell(r, d)) {
            for (uint32_t p = 0; p < demand.num_ranks; ++p) {
              loads[p] += demand.item(i)[l * demand.stride + p];
            }
          }
        }
        std::sort(loads.begin(), loads.end());
        for (double load : loads) h[r].push_back(load / mean * load_weight);
      }
    }
  }

  std::vector<float> profile;
  for (uint32_t k = 0; k < q; ++k) {
    // Bit k % 16 of the random words of a group of 16 directions.
    const CounterRandom random(0, 0x646972, k / 16 * 16);
    std::vector<float> projected;
    for (const std::vector<double>& features : h) {
      double sum = 0;
      for (size_t f = 0; f < features.size(); ++f) {
        const bool minus = (random.At(f) >> (k % 16)) & 1;
        sum += minus ? -features[f] : features[f];
      }
      projected.push_back(static_cast<float>(sum));
    }
    std::sort(projected.begin(), projected.end());
    profile.insert(profile.end(), projected.begin(), projected.end());
  }
  return profile;
}

TEST(SketchLayoutTest, EqualsTheDefinitionOnRandomProblems) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed, seed % 3);
    const Layout layout = SomeLayout(problem, random);
    const uint32_t q = random.Between(1, 40);
    const LayoutSketch sketch = SketchLayout(problem, layout, q);
    const std::vector<float> expected = ProfileByDefinition(problem, layout, q);
    ASSERT_EQ(sketch.profile.size(), expected.size());
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_NEAR(sketch.profile[k], expected[k], 1e-5);
    }
    for (uint32_t r = 0; r < layout.rows; ++r) {
      for (uint32_t d = 0; d < layout.slots; ++d) {
        for (uint32_t i : layout.cell(r, d)) {
          EXPECT_EQ(sketch.cell_of_item[i], r * layout.slots + d);
          EXPECT_EQ(sketch.row_of_item[i], r);
        }
      }
    }
  }
}

TEST(SketchLayoutTest, ProfileDoesNotDependOnTheArrangement) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const PackingProblem problem = RandomProblem(seed);
    const Layout layout = SomeLayout(problem, random);
    EXPECT_EQ(
        SketchLayout(problem, Rearranged(problem, layout, random), 8).profile,
        SketchLayout(problem, layout, 8).profile);
  }
}

TEST(SketchLayoutTest, LeavesOutWhatIsZero) {
  PackingProblem problem = RandomProblem(3);
  std::fill(problem.demand.values.begin(), problem.demand.values.end(), 0);
  TestRandom random(3);
  const Layout layout = SomeLayout(problem, random);
  for (float projection : SketchLayout(problem, layout, 8).profile) {
    EXPECT_TRUE(std::isfinite(projection));
  }
}

TEST(SketchLayoutTest, DoesNotDependOnThreads) {
  const PackingProblem problem = RandomProblem(5);
  TestRandom random(5);
  const Layout layout = SomeLayout(problem, random);
  const std::vector<float> expected = SketchLayout(problem, layout, 8).profile;
  OnSeveralThreadCounts(
      [&] { EXPECT_EQ(SketchLayout(problem, layout, 8).profile, expected); });
}

// Where every item is: its cell (r, d), or its row.
std::vector<uint32_t> GroupsOf(const Layout& layout, bool of_rows) {
  std::vector<uint32_t> groups(layout.items.size());
  for (uint32_t r = 0; r < layout.rows; ++r) {
    for (uint32_t d = 0; d < layout.slots; ++d) {
      for (uint32_t i : layout.cell(r, d)) {
        groups[i] = of_rows ? r : r * layout.slots + d;
      }
    }
  }
  return groups;
}

// Pair by pair.
double CoassignmentByDefinition(const Layout& x, const Layout& y,
                                bool of_rows) {
  const std::vector<uint32_t> a = GroupsOf(x, of_rows);
  const std::vector<uint32_t> b = GroupsOf(y, of_rows);
  int one = 0;
  int any = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      one += (a[i] == a[j]) != (b[i] == b[j]);
      any += a[i] == a[j] || b[i] == b[j];
    }
  }
  return any == 0 ? 0 : static_cast<double>(one) / any;
}

double DistanceByDefinition(const PackingProblem& problem, const Layout& x,
                            const Layout& y, uint32_t q) {
  const double coassignment = (CoassignmentByDefinition(x, y, false) +
                               CoassignmentByDefinition(x, y, true)) /
                              2;
  const std::vector<float> a = ProfileByDefinition(problem, x, q);
  const std::vector<float> b = ProfileByDefinition(problem, y, q);
  double profile = 0;
  for (size_t k = 0; k < a.size(); ++k) profile += std::abs(a[k] - b[k]);
  if (q > 0) profile /= q * x.rows;
  return coassignment / 2 + profile / 2;
}

struct TwoLayouts {
  PackingProblem problem;
  Layout x;
  Layout y;
};

TwoLayouts RandomPair(uint64_t seed) {
  TestRandom random(seed);
  TwoLayouts two{.problem = RandomProblem(seed)};
  two.x = SomeLayout(two.problem, random);
  two.y = RandomLayout(random, two.x.rows, two.x.slots, two.x.items.size());
  return two;
}

TEST(LayoutDistanceTest, EqualsTheDefinitionOnRandomProblems) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    const auto [problem, x, y] = RandomPair(seed);
    for (uint32_t q : {0u, 6u}) {
      const LayoutSketch a = SketchLayout(problem, x, q);
      const LayoutSketch b = SketchLayout(problem, y, q);
      EXPECT_NEAR(LayoutDistance(a, b), DistanceByDefinition(problem, x, y, q),
                  q == 0 ? 1e-12 : 1e-5);
    }
  }
}

TEST(LayoutDistanceTest, CountsPairsOfCellsAndRows) {
  const PackingProblem problem = ProblemOf(RandomWindow(
      {.num_samples = 4, .num_slots = 1, .num_shards = 1, .max_tokens = 20}));
  // Cells and rows are the same here. Together in x: 01, 23; in y: 012.
  const Layout x = LayoutFromCells(2, 1, {{0, 1}, {2, 3}});
  const Layout y = LayoutFromCells(2, 1, {{0, 1, 2}, {3}});
  EXPECT_DOUBLE_EQ(
      LayoutDistance(SketchLayout(problem, x, 0), SketchLayout(problem, y, 0)),
      0.5 * 3 / 4);
}

TEST(LayoutDistanceTest, IsSymmetric) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto [problem, x, y] = RandomPair(seed);
    const LayoutSketch a = SketchLayout(problem, x, 6);
    const LayoutSketch b = SketchLayout(problem, y, 6);
    EXPECT_EQ(LayoutDistance(a, b), LayoutDistance(b, a));
  }
}

TEST(LayoutDistanceTest, IsZeroForEqualCanonicalForms) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const auto [problem, x, y] = RandomPair(seed);
    const LayoutSketch a = SketchLayout(problem, x, 6);
    const LayoutSketch same =
        SketchLayout(problem, Rearranged(problem, x, random), 6);
    const LayoutSketch b = SketchLayout(problem, y, 6);
    const LayoutSketch same_b =
        SketchLayout(problem, Rearranged(problem, y, random), 6);
    EXPECT_EQ(LayoutDistance(a, same), 0);
    EXPECT_EQ(LayoutDistance(same, same_b), LayoutDistance(a, b));
  }
}

// Candidates of one problem with made-up scores, some of them equal.
struct Candidates {
  std::vector<LayoutSketch> sketches;
  std::vector<Score> scores;
};

Candidates RandomCandidates(uint64_t seed, uint32_t size) {
  TestRandom random(seed);
  const PackingProblem problem = RandomProblem(seed);
  const uint32_t slots = problem.topology.num_slots();
  const uint32_t rows = random.Between(1, problem.num_items() / slots);
  Candidates candidates;
  for (uint32_t k = 0; k < size; ++k) {
    candidates.sketches.push_back(SketchLayout(
        problem, RandomLayout(random, rows, slots, problem.num_items()), 4));
    candidates.scores.push_back({.slowest_shard = 1000 + random.Below(60),
                                 .total = 3000 + random.Below(3)});
  }
  return candidates;
}

// Spec 1.6, points 5 and 6.
std::vector<uint32_t> SelectByDefinition(const Candidates& candidates,
                                         uint32_t population, double penalty) {
  const auto& [sketches, scores] = candidates;
  const uint32_t size = static_cast<uint32_t>(scores.size());
  std::vector<std::pair<int64_t, uint32_t>> by_primary;
  for (uint32_t x = 0; x < size; ++x) {
    by_primary.emplace_back(scores[x].slowest_shard, x);
  }
  std::sort(by_primary.begin(), by_primary.end());
  std::set<uint32_t> better;
  for (uint32_t k = 0; k < (size + 1) / 2; ++k) {
    better.insert(by_primary[k].second);
  }

  const uint32_t picks = std::min(population, size);
  std::vector<uint32_t> chosen;
  for (uint32_t pick = 0; pick < picks; ++pick) {
    std::optional<uint32_t> best;
    double best_merit = 0;
    for (uint32_t x = 0; x < size; ++x) {
      if (std::count(chosen.begin(), chosen.end(), x) > 0) continue;
      if (pick == 0) {
        if (!best.has_value() || scores[x] < scores[*best]) best = x;
        continue;
      }
      if (pick < (picks + 1) / 2 && better.count(x) == 0) continue;
      double nearest = std::numeric_limits<double>::infinity();
      for (uint32_t y : chosen) {
        nearest = std::min(nearest, LayoutDistance(sketches[x], sketches[y]));
      }
      const double s0 = scores[chosen[0]].slowest_shard;
      const double merit =
          nearest - penalty * ((scores[x].slowest_shard - s0) / s0);
      if (!best.has_value() || merit > best_merit) {
        best = x;
        best_merit = merit;
      }
    }
    chosen.push_back(*best);
  }
  for (uint32_t k = 0; chosen.size() < population; ++k) {
    chosen.push_back(chosen[k]);
  }
  return chosen;
}

TEST(QualityDiversitySelectTest, EqualsTheDefinitionOnRandomCandidates) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const Candidates candidates = RandomCandidates(seed, random.Between(1, 14));
    const uint32_t population = random.Between(1, 18);
    for (double penalty : {0.0, 2.5, 100.0}) {
      EXPECT_EQ(QualityDiversitySelect(candidates.sketches, candidates.scores,
                                       population, penalty),
                SelectByDefinition(candidates, population, penalty));
    }
  }
}

// Points on a line: distance is half their difference.
LayoutSketch PointAt(float x) { return {.profile = {x}}; }

TEST(QualityDiversitySelectTest, StartsWithTheBestScore) {
  const std::vector<LayoutSketch> sketches = {PointAt(0), PointAt(5),
                                              PointAt(9)};
  const std::vector<Score> scores = {{.slowest_shard = 100, .total = 8},
                                     {.slowest_shard = 100, .total = 7},
                                     {.slowest_shard = 101}};
  EXPECT_THAT(QualityDiversitySelect(sketches, scores, 1, 0), ElementsAre(1));
}

TEST(QualityDiversitySelectTest, AdmitsTheBetterHalfFirst) {
  const std::vector<LayoutSketch> sketches = {PointAt(0), PointAt(1),
                                              PointAt(100), PointAt(50)};
  const std::vector<Score> scores = {{.slowest_shard = 100},
                                     {.slowest_shard = 101},
                                     {.slowest_shard = 102},
                                     {.slowest_shard = 103}};
  EXPECT_THAT(QualityDiversitySelect(sketches, scores, 4, 0),
              ElementsAre(0, 1, 2, 3));
  // A population of two: the first half is the winner.
  EXPECT_THAT(QualityDiversitySelect(sketches, scores, 2, 0),
              ElementsAre(0, 2));
}

TEST(QualityDiversitySelectTest, PenaltyTradesDistanceForScore) {
  const std::vector<LayoutSketch> sketches = {PointAt(0), PointAt(4),
                                              PointAt(8)};
  const std::vector<Score> scores = {
      {.slowest_shard = 100}, {.slowest_shard = 101}, {.slowest_shard = 110}};
  // 2 - 0.01 penalty against 4 - 0.1 penalty.
  EXPECT_THAT(QualityDiversitySelect(sketches, scores, 2, 20),
              ElementsAre(0, 2));
  EXPECT_THAT(QualityDiversitySelect(sketches, scores, 2, 25),
              ElementsAre(0, 1));
}

TEST(QualityDiversitySelectTest, RepeatsCyclically) {
  const std::vector<LayoutSketch> sketches = {PointAt(0), PointAt(4),
                                              PointAt(9)};
  const std::vector<Score> scores(3, {.slowest_shard = 100});
  EXPECT_THAT(QualityDiversitySelect(sketches, scores, 8, 1),
              ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

TEST(QualityDiversitySelectTest, PicksNoneOfNone) {
  EXPECT_THAT(QualityDiversitySelect({}, {}, 4, 1), IsEmpty());
  EXPECT_THAT(QualityDiversitySelect(std::vector{PointAt(0)},
                                     std::vector<Score>(1), 0, 1),
              IsEmpty());
}

TEST(QualityDiversitySelectTest, DoesNotDependOnThreads) {
  const Candidates candidates = RandomCandidates(2, 30);
  const std::vector<uint32_t> expected =
      QualityDiversitySelect(candidates.sketches, candidates.scores, 20, 1);
  OnSeveralThreadCounts([&] {
    EXPECT_EQ(
        QualityDiversitySelect(candidates.sketches, candidates.scores, 20, 1),
        expected);
  });
}

}  // namespace
}  // namespace routepack
