#include "planner/bounds.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Calls f with every placement of a window.
void ForEachPlacement(const Window& window,
                      const std::function<void(const Placement&)>& f) {
  const uint32_t num_experts = window.num_experts();
  std::function<void(Placement&, uint32_t)> visit = [&](Placement& placement,
                                                        uint32_t l) {
    if (l == window.num_layers()) return f(placement);
    std::vector<uint32_t> experts(num_experts);
    std::iota(experts.begin(), experts.end(), 0);
    const uint32_t h = placement.slots_per_rank();
    do {
      // The order inside a rank makes no difference.
      bool ascending = true;
      for (uint32_t v = 1; v < num_experts; ++v) {
        if (v % h != 0 && experts[v - 1] > experts[v]) ascending = false;
      }
      if (!ascending) continue;
      for (uint32_t v = 0; v < num_experts; ++v) {
        placement.expert_of_slot[l * num_experts + v] = experts[v];
        placement.slot_of_expert[l * num_experts + experts[v]] = v;
      }
      visit(placement, l + 1);
    } while (std::next_permutation(experts.begin(), experts.end()));
  };
  Placement placement = IdentityPlacement(window.num_layers(), num_experts,
                                          window.spec().topology.num_ranks());
  visit(placement, 0);
}

// The least s0 of all feasible layouts; kNone if there is none.
int64_t BestSlowestShard(const PackingProblem& problem, uint32_t rows) {
  const uint32_t num_cells = rows * problem.topology.num_slots();
  int64_t best = kNone;
  std::vector<uint32_t> cell_of(problem.num_items(), 0);
  while (true) {
    std::vector<std::vector<uint32_t>> cells(num_cells);
    for (uint32_t i = 0; i < cell_of.size(); ++i)
      cells[cell_of[i]].push_back(i);
    const Layout layout =
        LayoutFromCells(rows, problem.topology.num_slots(), cells);
    if (ValidateLayout(problem, layout).ok()) {
      best =
          std::min(best, EvaluateLayout(problem, layout).score.slowest_shard);
    }
    size_t k = 0;
    while (k < cell_of.size() && ++cell_of[k] == num_cells) cell_of[k++] = 0;
    if (k == cell_of.size()) return best;
  }
}

ScoreBounds BoundsOf(const Window& window, const Placement& placement,
                     uint32_t rows, uint32_t fillers = 0) {
  const std::vector<uint64_t> loads = window.ExpertLoads();
  return LowerBounds(MakeProblem(window, fillers), rows, loads,
                     RankLoads(placement, loads));
}

Window MakeWindow(const WindowSpec& spec,
                  const std::vector<std::vector<uint32_t>>& counts,
                  const std::vector<uint32_t>& tokens) {
  WindowBuilder builder = ValueOrDie(WindowBuilder::Create(spec));
  for (size_t i = 0; i < counts.size(); ++i) {
    builder.AddSample({.id = i, .tokens = tokens[i]}, counts[i]);
  }
  return ValueOrDie(std::move(builder).Seal());
}

TEST(LowerBoundsTest, AddUpAHandMadeExample) {
  // Two shards of one slot, two ranks of two experts.
  const Window window = MakeWindow(
      {.num_samples = 2,
       .num_layers = 2,
       .num_experts = 4,
       .top_k = 1,
       .token_cap = 8,
       .topology = ValueOrDie(Topology::FromShards(2, 2, {{0}, {1}})),
       .attention = {{.name = "a", .alpha = 3}}},
      {{1, 2, 1, 0, 1, 1, 1, 1}, {3, 2, 0, 1, 2, 2, 1, 1}}, {4, 6});
  // Layer 0: experts 4 4 1 1, ranks 8 2, mean 5. Layer 1: experts 3 3 2 2,
  // ranks 6 4, mean 5. Attention 30, less half a unit for each of 2 cells.
  const ScoreBounds bounds = BoundsOf(window, IdentityPlacement(2, 4, 2), 1);
  EXPECT_EQ(bounds.for_placement, (256 * (30 + 8 + 6) - 1) / 2);
  EXPECT_EQ(bounds.for_any_placement, (256 * (30 + 5 + 5) - 1) / 2);
  EXPECT_TRUE(bounds.hot_expert_layers.empty());
}

TEST(LowerBoundsTest, CountLayersWithAHotExpert) {
  const Window window =
      MakeWindow({.num_samples = 1,
                  .num_layers = 3,
                  .num_experts = 4,
                  .top_k = 1,
                  .token_cap = 8,
                  .topology = ValueOrDie(Topology::FromShards(1, 2, {}))},
                 {{6, 2, 0, 0, 4, 4, 0, 0, 0, 0, 5, 3}}, {8});
  const ScoreBounds bounds = BoundsOf(window, IdentityPlacement(3, 4, 2), 1);
  EXPECT_EQ(bounds.hot_expert_layers, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(bounds.for_any_placement, 256 * (6 + 4 + 5));
  EXPECT_EQ(bounds.for_placement, 256 * (8 + 8 + 8));
}

TEST(LowerBoundsTest, AreReachedByAPerfectLayout) {
  const Window window = MakeWindow(
      {.num_samples = 4,
       .num_layers = 1,
       .num_experts = 2,
       .top_k = 1,
       .token_cap = 8,
       .topology = ValueOrDie(Topology::FromShards(4, 2, {{0, 1}, {2, 3}}))},
      {{4, 0}, {0, 4}, {4, 0}, {0, 4}}, {4, 4, 4, 4});
  PackingProblem problem = MakeProblem(window, 0);
  const Placement identity = IdentityPlacement(1, 2, 2);
  problem.demand = ProjectDemand(window, identity);
  EXPECT_EQ(BoundsOf(window, identity, 1).for_any_placement,
            BestSlowestShard(problem, 1));
}

// Cells whose cost rounds to nothing.
TEST(LowerBoundsTest, AllowForTheRoundingOfCells) {
  const Window window =
      MakeWindow({.num_samples = 4,
                  .num_layers = 1,
                  .num_experts = 2,
                  .top_k = 1,
                  .token_cap = 8,
                  .topology = ValueOrDie(Topology::FromShards(4, 2, {})),
                  .attention = {{.name = "a", .alpha = 0.49 / 256}}},
                 {{1, 0}, {0, 1}, {1, 0}, {0, 1}}, {1, 1, 1, 1});
  EXPECT_EQ(BoundsOf(window, IdentityPlacement(1, 2, 2), 1).for_placement,
            2 * 256);
}

TEST(LowerBoundsTest, AreNotAboveTheOptimumOverAllLayoutsAndPlacements) {
  int checked = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const uint32_t num_slots = random.Between(1, 3);
    const uint32_t rows = random.Between(1, num_slots == 3 ? 1 : 2);
    const uint32_t num_layers = random.Between(1, 2);
    const Window window = RandomWindow(
        {.seed = seed,
         .num_samples =
             random.Between(rows * num_slots, num_layers == 1 ? 6 : 5),
         .num_layers = num_layers,
         .num_experts = 4,
         .top_k = random.Between(1, 2),
         .num_ranks = 2,
         .num_slots = num_slots,
         .num_shards = random.Between(1, num_slots),
         .token_cap = 40,
         .max_tokens = 16,
         .attention = {{.name = "a", .alpha = random.Below(100) / 37.0},
                       {.name = "b",
                        .alpha = random.Below(100) / 9100.0,
                        .beta = random.Below(100) / 23.0}}});
    const uint32_t fillers = random.Below(2);
    PackingProblem problem = MakeProblem(window, fillers);
    int64_t best = kNone;
    int64_t any_placement = 0;
    ForEachPlacement(window, [&](const Placement& placement) {
      problem.demand = ProjectDemand(window, placement, fillers);
      const int64_t optimum = BestSlowestShard(problem, rows);
      const ScoreBounds bounds = BoundsOf(window, placement, rows, fillers);
      EXPECT_LE(bounds.for_placement, optimum);
      EXPECT_LE(bounds.for_any_placement, bounds.for_placement);
      any_placement = bounds.for_any_placement;
      best = std::min(best, optimum);
    });
    EXPECT_LE(any_placement, best);
    if (best != kNone) ++checked;
  }
  EXPECT_GT(checked, 30);
}

}  // namespace
}  // namespace routepack
