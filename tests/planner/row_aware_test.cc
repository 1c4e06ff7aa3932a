#include "planner/row_aware.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "planner/placement.h"
#include "tests/planner/search_problems.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

// sum_{l,r,g} max_p W, from the definition.
int64_t PeaksOf(const Window& window, const Layout& layout,
                const Placement& placement) {
  const Topology& topology = window.spec().topology;
  int64_t sum = 0;
  for (uint32_t r = 0; r < layout.rows; ++r) {
    for (uint32_t g = 0; g < topology.num_shards(); ++g) {
      for (uint32_t l = 0; l < window.num_layers(); ++l) {
        std::vector<int64_t> loads(topology.num_ranks());
        for (uint32_t d : topology.slots_of_shard(g)) {
          for (uint32_t i : layout.cell(r, d)) {
            if (i >= window.num_samples()) continue;
            for (uint32_t e = 0; e < window.num_experts(); ++e) {
              loads[placement.rank_of_expert(l, e)] += window.count(i, l, e);
            }
          }
        }
        sum += *std::max_element(loads.begin(), loads.end());
      }
    }
  }
  return sum;
}

Placement Lpt(const Window& window) {
  return LptPlacement(window.ExpertLoads(), window.num_layers(),
                      window.num_experts(), window.spec().topology.num_ranks());
}

Placement WithExchange(const Placement& placement, uint32_t l, uint32_t u,
                       uint32_t v) {
  Placement out = placement;
  const size_t begin = size_t{l} * placement.num_experts;
  std::swap(out.expert_of_slot[begin + u], out.expert_of_slot[begin + v]);
  out.slot_of_expert[begin + out.expert_of_slot[begin + u]] = u;
  out.slot_of_expert[begin + out.expert_of_slot[begin + v]] = v;
  return out;
}

double PriceOf(const Placement& placement, const SlotPrice& price) {
  double sum = 0;
  for (uint32_t l = 0; l < placement.num_layers; ++l) {
    for (uint32_t e = 0; e < placement.num_experts; ++e) {
      sum += price(
          l, e,
          placement.slot_of_expert[size_t{l} * placement.num_experts + e]);
    }
  }
  return sum;
}

TEST(RowAwareTest, LowersThePeaksByWhatItSays) {
  int lowered = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow(RandomShape(seed));
    const Layout layout = MakeSearchCase(window).length;
    const Placement before = Lpt(window);
    const RowAwareResult result = RefinePlacement(window, layout, before);
    ASSERT_TRUE(ValidatePlacement(result.placement, "placement").ok());
    EXPECT_EQ(PeaksOf(window, layout, before) - result.gain,
              PeaksOf(window, layout, result.placement));
    EXPECT_GE(result.gain, 0);
    EXPECT_LE(result.floor_layers, window.num_layers());
    for (size_t k = 0; k < before.slot_of_expert.size(); ++k) {
      if (before.slot_of_expert[k] / before.slots_per_rank() ==
          result.placement.slot_of_expert[k] / before.slots_per_rank()) {
        EXPECT_EQ(before.slot_of_expert[k], result.placement.slot_of_expert[k]);
      }
    }
    lowered += result.gain > 0;
  }
  EXPECT_GT(lowered, 5);
}

TEST(RowAwareTest, LeavesNoExchangeThatPays) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const Window window = RandomWindow({.seed = seed,
                                        .num_samples = 20,
                                        .num_layers = 2,
                                        .num_experts = 8,
                                        .num_ranks = 4});
    const Layout layout = MakeSearchCase(window).length;
    for (uint64_t proposals : {0, 50}) {
      const RowAwareResult result = RefinePlacement(
          window, layout, Lpt(window), {.proposals_per_expert = proposals});
      const int64_t peaks = PeaksOf(window, layout, result.placement);
      for (uint32_t l = 0; l < 2; ++l) {
        for (uint32_t v = 0; v < 8; ++v) {
          for (uint32_t u = 0; u < v; ++u) {
            EXPECT_GE(PeaksOf(window, layout,
                              WithExchange(result.placement, l, u, v)),
                      peaks);
          }
        }
      }
    }
  }
}

TEST(RowAwareTest, AnnealingFindsMoreThanExchangesAlone) {
  int64_t exchanges = 0;
  int64_t annealed = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Window window = RandomWindow({.seed = seed,
                                        .num_samples = 60,
                                        .num_layers = 4,
                                        .num_experts = 32,
                                        .num_ranks = 4});
    const Layout layout = MakeSearchCase(window).length;
    const Placement placement = Lpt(window);
    exchanges +=
        RefinePlacement(window, layout, placement, {.proposals_per_expert = 0})
            .gain;
    annealed += RefinePlacement(window, layout, placement,
                                {.proposals_per_expert = 500})
                    .gain;
  }
  EXPECT_GT(annealed, exchanges);
}

TEST(RowAwareTest, MovesOnlyForWhatTheyCost) {
  const Window window = RandomWindow({.seed = 5,
                                      .num_samples = 50,
                                      .num_layers = 3,
                                      .num_experts = 16,
                                      .num_ranks = 4});
  const Layout layout = MakeSearchCase(window).length;
  const Placement before = Lpt(window);
  uint64_t fewer = before.num_layers * before.num_experts;
  for (double each : {0.0, 2.0, 20.0, 1e9}) {
    const SlotPrice price = [&](uint32_t l, uint32_t e, uint32_t slot) {
      const size_t at = size_t{l} * before.num_experts + e;
      return before.slot_of_expert[at] == slot ? 0 : each;
    };
    const RowAwareResult result =
        RefinePlacement(window, layout, before, {.price = price});
    const double spent = PriceOf(result.placement, price);
    EXPECT_GE(static_cast<double>(result.gain), spent - 1e-6);
    const uint64_t moved =
        ComparePlacements(before, result.placement).experts_to_other_slot;
    EXPECT_LE(moved, fewer);
    fewer = moved;
    if (each == 1e9) {
      EXPECT_EQ(result.placement, before);
    }
  }
}

TEST(RowAwareTest, SaysWhereTheHottestExpertBinds) {
  // Layer 0 goes mostly to one expert, layer 1 to all alike.
  const auto floor_layers = [](uint32_t ranks) {
    WindowBuilder builder = ValueOrDie(WindowBuilder::Create(
        {.num_samples = 8,
         .num_layers = 2,
         .num_experts = 4,
         .top_k = 1,
         .token_cap = 40,
         .topology = ValueOrDie(Topology::FromShards(2, ranks, {{0, 1}}))}));
    for (uint32_t i = 0; i < 8; ++i) {
      builder.AddSample({.id = i, .tokens = 20},
                        std::vector<uint32_t>{17, 1, 1, 1, 5, 5, 5, 5});
    }
    const Window window = ValueOrDie(std::move(builder).Seal());
    return RefinePlacement(window, MakeSearchCase(window).length, Lpt(window))
        .floor_layers;
  };
  EXPECT_EQ(floor_layers(2), 0);  // another expert shares its rank
  EXPECT_EQ(floor_layers(4), 2);
}

TEST(RowAwareTest, DoesNotDependOnThreads) {
  const Window window = RandomWindow({.seed = 9,
                                      .num_samples = 60,
                                      .num_layers = 7,
                                      .num_experts = 24,
                                      .num_ranks = 6});
  const Layout layout = MakeSearchCase(window).length;
  std::vector<Placement> found;
  OnSeveralThreadCounts([&] {
    found.push_back(RefinePlacement(window, layout, Lpt(window)).placement);
  });
  for (const Placement& placement : found) EXPECT_EQ(placement, found[0]);
}

TEST(RowAwareTest, EndsWithTheBudget) {
  const Window window = RandomWindow({.seed = 9, .num_samples = 40});
  const Layout layout = MakeSearchCase(window).length;
  const RowAwareResult result =
      RefinePlacement(window, layout, Lpt(window), {},
                      {.deadline = absl::Now() - absl::Seconds(1)});
  EXPECT_EQ(result.placement, Lpt(window));
}

}  // namespace
}  // namespace routepack
