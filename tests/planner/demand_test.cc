#include "planner/demand.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

// Partial counts, so that any counts up to the sample's tokens will do.
Window RandomWindow(std::mt19937& random, uint32_t num_samples,
                    uint32_t num_layers, uint32_t num_experts,
                    uint32_t num_ranks, uint32_t token_cap) {
  auto builder = WindowBuilder::Create(
      {.num_samples = num_samples,
       .num_layers = num_layers,
       .num_experts = num_experts,
       .top_k = num_experts,
       .token_cap = token_cap,
       .topology = Topology::FromShards(1, num_ranks, {}).value(),
       .partial_counts = true});
  for (uint32_t i = 0; i < num_samples; ++i) {
    const uint32_t tokens = 1 + random() % token_cap;
    std::vector<uint32_t> counts(num_layers * num_experts);
    for (uint32_t& count : counts) count = random() % (tokens + 1);
    builder->AddSample({.id = i, .tokens = tokens}, counts);
  }
  return std::move(*builder).Seal().value();
}

// q[i,l,p], expert by expert.
uint32_t DemandOf(const Window& window, const Placement& placement, uint32_t i,
                  uint32_t l, uint32_t p) {
  uint32_t demand = 0;
  for (uint32_t e = 0; e < window.num_experts(); ++e) {
    if (placement.rank_of_expert(l, e) == p) demand += window.count(i, l, e);
  }
  return demand;
}

TEST(ProjectDemand, AddsUpTheExpertsOfEachRank) {
  std::mt19937 random(21);
  for (int trial = 0; trial < 40; ++trial) {
    const uint32_t ranks = 1 + random() % 19;
    const uint32_t experts = ranks * (1 + random() % 4);
    const uint32_t cap = trial % 2 == 0 ? 1000 : 100'000;
    const Window window = RandomWindow(random, 5, 3, experts, ranks, cap);
    const Placement placement =
        LptPlacement(window.ExpertLoads(), 3, experts, ranks);
    const uint32_t fillers = random() % 3;
    const Demand demand = ProjectDemand(window, placement, fillers);
    ASSERT_EQ(demand.num_items, 5 + fillers);
    ASSERT_EQ(demand.num_layers, 3u);
    ASSERT_EQ(demand.num_ranks, ranks);
    ASSERT_EQ(demand.stride % 8, 0u);
    ASSERT_GE(demand.stride, ranks);
    ASSERT_LT(demand.stride, ranks + 8);
    ASSERT_EQ(demand.values.size(), (5 + fillers) * demand.item_size());
    for (uint32_t i = 0; i < demand.num_items; ++i) {
      for (uint32_t l = 0; l < 3; ++l) {
        const uint32_t* row = demand.item(i) + l * demand.stride;
        for (uint32_t p = 0; p < demand.stride; ++p) {
          EXPECT_EQ(row[p], i < 5 && p < ranks
                                ? DemandOf(window, placement, i, l, p)
                                : 0);
        }
      }
    }
  }
}

TEST(ProjectDemand, RowsStartOn32Bytes) {
  std::mt19937 random(22);
  const Window window = RandomWindow(random, 4, 3, 12, 12, 100);
  const Demand demand = ProjectDemand(window, IdentityPlacement(3, 12, 12), 1);
  for (uint32_t i = 0; i < 5; ++i) {
    for (uint32_t l = 0; l < 3; ++l) {
      EXPECT_EQ(
          reinterpret_cast<uintptr_t>(demand.item(i) + l * demand.stride) % 32,
          0u);
    }
  }
}

TEST(ProjectDemand, KeepsWindowLoads) {
  std::mt19937 random(23);
  const Window window = RandomWindow(random, 30, 4, 24, 6, 5000);
  const std::vector<uint64_t> loads = window.ExpertLoads();
  const Placement placement = LptPlacement(loads, 4, 24, 6);
  const Demand demand = ProjectDemand(window, placement);
  std::vector<uint64_t> ranks(4 * 6);
  for (uint32_t i = 0; i < 30; ++i) {
    for (uint32_t l = 0; l < 4; ++l) {
      for (uint32_t p = 0; p < 6; ++p) {
        ranks[l * 6 + p] += demand.item(i)[l * demand.stride + p];
      }
    }
  }
  EXPECT_EQ(ranks, RankLoads(placement, loads));
}

TEST(ProjectDemand, DoesNotDependOnThreads) {
  std::mt19937 random(24);
  const Window window = RandomWindow(random, 64, 4, 32, 8, 300);
  const Placement placement = LptPlacement(window.ExpertLoads(), 4, 32, 8);
  const Demand expected = ProjectDemand(window, placement, 2);
  OnSeveralThreadCounts([&] {
    EXPECT_EQ(ProjectDemand(window, placement, 2).values, expected.values);
  });
}

}  // namespace
}  // namespace routepack
