#include "planner/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planner/errors.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;

using Loads = std::vector<uint64_t>;

// Algorithm 1 of the RoutePack paper, line by line, one layer.
std::vector<uint32_t> AlgorithmOne(const Loads& load, uint32_t num_ranks) {
  const uint32_t slots = static_cast<uint32_t>(load.size()) / num_ranks;
  Loads rank_load(num_ranks, 0);
  std::vector<uint32_t> used(num_ranks, 0);
  std::vector<uint32_t> order(load.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return load[a] > load[b]; });
  std::vector<uint32_t> slot_of_expert(load.size());
  for (uint32_t e : order) {
    uint32_t best = num_ranks;
    for (uint32_t p = 0; p < num_ranks; ++p) {
      if (used[p] == slots) continue;
      if (best == num_ranks || rank_load[p] < rank_load[best]) best = p;
    }
    slot_of_expert[e] = best * slots + used[best];
    rank_load[best] += load[e];
    ++used[best];
  }
  return slot_of_expert;
}

void ExpectAlgorithmOne(const Loads& loads, uint32_t num_layers,
                        uint32_t num_experts, uint32_t num_ranks) {
  const Placement placement =
      LptPlacement(loads, num_layers, num_experts, num_ranks);
  ASSERT_TRUE(ValidatePlacement(placement, "placement").ok());
  for (uint32_t l = 0; l < num_layers; ++l) {
    const Loads layer(loads.begin() + l * num_experts,
                      loads.begin() + (l + 1) * num_experts);
    const auto begin = placement.slot_of_expert.begin() + l * num_experts;
    ASSERT_EQ(std::vector<uint32_t>(begin, begin + num_experts),
              AlgorithmOne(layer, num_ranks));
  }
}

TEST(LptPlacement, WorkedOutByHand) {
  // 9 to rank 0, 7 to rank 1, 6 to rank 1 (13), 5 to rank 0 (14), 4 to rank 1
  // (17, full), 1 to rank 0.
  const Placement placement = LptPlacement(Loads{4, 9, 6, 1, 7, 5}, 1, 6, 2);
  EXPECT_THAT(placement.slot_of_expert, ElementsAre(5, 0, 4, 2, 3, 1));
  EXPECT_THAT(placement.expert_of_slot, ElementsAre(1, 5, 3, 4, 2, 0));
  EXPECT_THAT(RankLoads(placement, Loads{4, 9, 6, 1, 7, 5}),
              ElementsAre(15, 17));
}

TEST(LptPlacement, BreaksTiesByLowerExpertAndLowerRank) {
  const Placement placement = LptPlacement(Loads(6, 3), 1, 6, 3);
  EXPECT_THAT(placement.slot_of_expert, ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(LptPlacement, WithoutLoadFillsRanksInOrder) {
  // The lowest rank stays the least loaded one until it is full.
  const Placement placement = LptPlacement(Loads(6, 0), 1, 6, 3);
  EXPECT_THAT(placement.slot_of_expert, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(LptPlacement, FullRanksTakeNoMore) {
  const Placement placement = LptPlacement(Loads{100, 0, 0, 0}, 1, 4, 2);
  EXPECT_THAT(placement.slot_of_expert, ElementsAre(0, 2, 3, 1));
}

TEST(LptPlacement, OneRankOrOneExpertPerRank) {
  ExpectAlgorithmOne(Loads{3, 1, 2, 5}, 1, 4, 1);
  ExpectAlgorithmOne(Loads{3, 1, 2, 5}, 1, 4, 4);
  ExpectAlgorithmOne(Loads{3}, 1, 1, 1);
}

TEST(LptPlacement, IsAlgorithmOneOnRandomLoads) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 400; ++trial) {
    const uint32_t ranks = 1 + random() % 20;
    const uint32_t experts = ranks * (1 + random() % 8);
    const uint32_t layers = 1 + random() % 3;
    // From all equal, over many ties, to loads that need every byte.
    const int bits = static_cast<int>(random() % 50);
    Loads loads(layers * experts);
    for (uint64_t& load : loads) {
      load = random() & ((uint64_t{1} << bits) - 1);
    }
    ExpectAlgorithmOne(loads, layers, experts, ranks);
    if (HasFatalFailure()) return;
  }
}

TEST(LptPlacement, IsAlgorithmOneOnLargeLayers) {
  std::mt19937_64 random(12);
  for (uint32_t ranks : {3u, 64u, 100u, 256u}) {
    const uint32_t experts = ranks * 6;
    Loads loads(4 * experts);
    for (uint64_t& load : loads) load = random() % 5000;
    ExpectAlgorithmOne(loads, 4, experts, ranks);
  }
}

TEST(LptPlacement, DoesNotDependOnThreads) {
  std::mt19937_64 random(13);
  Loads loads(60 * 384);
  for (uint64_t& load : loads) load = random() % 100;
  const Placement expected = LptPlacement(loads, 60, 384, 64);
  OnSeveralThreadCounts(
      [&] { EXPECT_EQ(LptPlacement(loads, 60, 384, 64), expected); });
}

TEST(LptPlacement, LowersThePeak) {
  std::mt19937_64 random(14);
  Loads loads(10 * 64);
  for (uint64_t& load : loads) load = random() % 1000;
  const Loads before = RankLoads(IdentityPlacement(10, 64, 8), loads);
  const Loads after = RankLoads(LptPlacement(loads, 10, 64, 8), loads);
  for (size_t l = 0; l < 10; ++l) {
    const auto peak = [l](const Loads& all) {
      return *std::max_element(all.begin() + l * 8, all.begin() + l * 8 + 8);
    };
    EXPECT_LT(peak(after), peak(before));
  }
}

TEST(IdentityPlacement, KeepsExpertsInOrder) {
  const Placement placement = IdentityPlacement(2, 4, 2);
  EXPECT_THAT(placement.slot_of_expert, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_EQ(placement.slot_of_expert, placement.expert_of_slot);
  EXPECT_EQ(placement.slots_per_rank(), 2u);
  EXPECT_EQ(placement.rank_of_expert(1, 2), 1u);
  EXPECT_TRUE(ValidatePlacement(placement, "placement").ok());
}

TEST(RankLoads, AddUpToExpertLoads) {
  std::mt19937_64 random(15);
  Loads loads(3 * 24);
  for (uint64_t& load : loads) load = random() >> 20;
  const Placement placement = LptPlacement(loads, 3, 24, 4);
  const Loads ranks = RankLoads(placement, loads);
  for (uint32_t l = 0; l < 3; ++l) {
    for (uint32_t p = 0; p < 4; ++p) {
      uint64_t sum = 0;
      for (uint32_t e = 0; e < 24; ++e) {
        if (placement.rank_of_expert(l, e) == p) sum += loads[l * 24 + e];
      }
      EXPECT_EQ(ranks[l * 4 + p], sum);
    }
  }
}

TEST(ComparePlacements, CountsRanksAndSlots) {
  const Placement identity = IdentityPlacement(2, 4, 2);
  Placement other = identity;
  // Layer 0: 0 and 1 swap inside rank 0. Layer 1: 1 and 2 swap across ranks.
  other.slot_of_expert = {1, 0, 2, 3, 0, 2, 1, 3};
  other.expert_of_slot = other.slot_of_expert;
  const PlacementChange change = ComparePlacements(identity, other);
  EXPECT_EQ(change.experts_to_other_slot, 4u);
  EXPECT_EQ(change.experts_to_other_rank, 2u);
  EXPECT_EQ(change.experts_total, 8u);
  EXPECT_EQ(ComparePlacements(other, other).experts_to_other_slot, 0u);
}

TEST(PlacementDigest, NeverChanges) {
  EXPECT_EQ(PlacementDigest(IdentityPlacement(2, 4, 2)),
            "41e2412cbb82f6bef6d5717ac8c44289");
}

TEST(PlacementDigest, TellsMapsApart) {
  std::set<std::string> digests = {
      PlacementDigest(IdentityPlacement(2, 4, 2)),
      PlacementDigest(IdentityPlacement(2, 4, 4)),
      PlacementDigest(IdentityPlacement(4, 2, 2)),
      PlacementDigest(IdentityPlacement(1, 8, 2)),
      PlacementDigest(LptPlacement(Loads{1, 2, 3, 4, 0, 0, 0, 0}, 2, 4, 2)),
      PlacementDigest(LptPlacement(Loads{0, 0, 0, 0, 1, 2, 3, 4}, 2, 4, 2))};
  EXPECT_EQ(digests.size(), 6u);
  for (const std::string& digest : digests) {
    EXPECT_EQ(digest.size(), 32u);
    EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

std::vector<std::string> Listed(const Placement& placement) {
  std::vector<std::string> lines;
  for (const FieldViolation& violation :
       ViolationsOf(ValidatePlacement(placement, "map"))) {
    lines.push_back(violation.field + ": " + violation.description);
  }
  return lines;
}

TEST(ValidatePlacement, ListsEveryFlawOfTheMaps) {
  Placement placement = IdentityPlacement(2, 4, 2);
  placement.slot_of_expert = {0, 0, 2, 3, 0, 1, 2, 4};
  placement.expert_of_slot = {0, 1, 1, 3, 0, 1, 2, 3};
  EXPECT_THAT(
      Listed(placement),
      ElementsAre(
          "map.layers[0].slot_of_expert[1]: slot 0 is already at position 0",
          "map.layers[0].expert_of_slot[2]: expert 1 is already at position 1",
          "map.layers[1].slot_of_expert[3]: must be below 4, is 4"));
}

TEST(ValidatePlacement, MapsMustBeInverse) {
  Placement placement = IdentityPlacement(2, 4, 2);
  placement.slot_of_expert = {0, 1, 2, 3, 1, 2, 0, 3};
  EXPECT_THAT(Listed(placement),
              ElementsAre("map.layers[1].expert_of_slot[1]: must be 0 because "
                          "slot_of_expert[0] is 1, is 1",
                          "map.layers[1].expert_of_slot[2]: must be 1 because "
                          "slot_of_expert[1] is 2, is 2",
                          "map.layers[1].expert_of_slot[0]: must be 2 because "
                          "slot_of_expert[2] is 0, is 0"));
}

TEST(ValidatePlacement, SizesMustMatch) {
  Placement placement = IdentityPlacement(2, 4, 2);
  placement.slot_of_expert.pop_back();
  placement.expert_of_slot.clear();
  placement.num_ranks = 3;
  EXPECT_THAT(
      Listed(placement),
      ElementsAre("map: 4 experts do not divide into 3 EP ranks",
                  "map.slot_of_expert: must have num_layers * num_experts = 8 "
                  "entries, has 7",
                  "map.expert_of_slot: must have num_layers * num_experts = 8 "
                  "entries, has 0"));
  EXPECT_FALSE(
      ValidatePlacement({1, 4, 0, {0, 1, 2, 3}, {0, 1, 2, 3}}, "map").ok());
}

TEST(ValidatePlacement, HugeEntriesAreNoIndices) {
  Placement placement = IdentityPlacement(1, 4, 2);
  placement.slot_of_expert.assign(4, 0xFFFFFFFF);
  placement.expert_of_slot.assign(4, 0xFFFFFFFF);
  EXPECT_EQ(Listed(placement).size(), 8u);
}

}  // namespace
}  // namespace routepack
