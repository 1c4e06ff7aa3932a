#include "proto/codec/rank_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/codec/plan_codec.h"
#include "tests/codec/test_messages.h"
#include "tests/planner/random_movement.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using testing::ElementsAre;

struct Scene {
  Window window;
  Placement before;
  Placement after;
  v1::Placement current;
  v1::Plan plan;
};

Scene MakeScene(uint64_t seed) {
  TestRandom random(seed);
  Window window = RandomWindow({.seed = seed, .num_samples = 9});
  Placement before =
      RandomPlacement(random, window.num_layers(), window.num_experts(),
                      window.spec().topology.num_ranks());
  PlanOptions options;
  options.placement = PlacementPolicy::kLpt;  // moves nearly everything
  options.search.steps = 2000;
  options.allow_filler = true;
  options.min_rows = 3;  // 12 cells for 9 samples: 3 fillers
  const Plan plan = ValueOrDie(MakePlan(window, before, options));
  v1::Placement current;
  EncodePlacement(before, &current);
  v1::Plan message = EncodePlan(window, plan, options, {});
  return {std::move(window), std::move(before), plan.placement,
          std::move(current), std::move(message)};
}

v1::GetRankPlanRequest Request(uint32_t slot, uint32_t rank,
                               const std::vector<uint32_t>& layers = {}) {
  v1::GetRankPlanRequest request;
  request.set_dp_slot(slot);
  request.set_ep_rank(rank);
  request.mutable_layers()->Add(layers.begin(), layers.end());
  return request;
}

TEST(RankPlan, MovesTurnTheOldMapIntoTheNewOne) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Scene scene = MakeScene(seed);
    const uint32_t experts = scene.window.num_experts();
    std::vector<uint32_t> slots = scene.before.expert_of_slot;
    std::vector<std::tuple<uint32_t, uint32_t>> arrived;
    std::vector<std::tuple<uint32_t, uint32_t>> left;
    for (uint32_t p = 0; p < scene.before.num_ranks; ++p) {
      const v1::RankPlan rank =
          ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(0, p)));
      for (const v1::ExpertMove& move : rank.incoming()) {
        const uint32_t at = move.layer() * experts;
        EXPECT_EQ(scene.before.expert_of_slot[at + move.from_slot()],
                  move.expert());
        EXPECT_EQ(scene.after.rank_of_expert(move.layer(), move.expert()), p);
        EXPECT_NE(move.from_slot(), move.to_slot());
        slots[at + move.to_slot()] = move.expert();
        if (scene.before.rank_of_expert(move.layer(), move.expert()) != p) {
          arrived.emplace_back(move.layer(), move.expert());
        }
      }
      for (const v1::ExpertMove& move : rank.outgoing()) {
        EXPECT_EQ(scene.before.rank_of_expert(move.layer(), move.expert()), p);
        EXPECT_NE(scene.after.rank_of_expert(move.layer(), move.expert()), p);
        left.emplace_back(move.layer(), move.expert());
      }
    }
    EXPECT_EQ(slots, scene.after.expert_of_slot);
    std::sort(arrived.begin(), arrived.end());
    std::sort(left.begin(), left.end());
    EXPECT_EQ(arrived, left);
    EXPECT_EQ(
        arrived.size(),
        ComparePlacements(scene.before, scene.after).experts_to_other_rank);
  }
}

// Moves of round j of all ranks together, sorted.
std::vector<std::string> Sorted(
    std::vector<const google::protobuf::RepeatedPtrField<v1::SlotMove>*>
        lists) {
  std::vector<std::string> moves;
  for (const auto* list : lists) {
    for (const v1::SlotMove& move : *list) {
      moves.push_back(move.ShortDebugString());
    }
  }
  std::sort(moves.begin(), moves.end());
  return moves;
}

TEST(RankPlan, RoundsOfAllRanksAreTheTransfer) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Scene scene = MakeScene(seed);
    ASSERT_EQ(scene.plan.transfer_size(), 1);
    const v1::StageTransfer& transfer = scene.plan.transfer(0);
    std::vector<v1::RankPlan> ranks;
    for (uint32_t p = 0; p < scene.before.num_ranks; ++p) {
      ranks.push_back(
          ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(0, p))));
      ASSERT_EQ(ranks.back().rounds_size(), transfer.rounds_size());
      EXPECT_EQ(ranks.back().staging_experts(), transfer.peak_staging());
    }
    for (int j = 0; j < transfer.rounds_size(); ++j) {
      const v1::TransferRound& round = transfer.rounds(j);
      std::vector<const google::protobuf::RepeatedPtrField<v1::SlotMove>*>
          sends;
      std::vector<const google::protobuf::RepeatedPtrField<v1::SlotMove>*>
          copies;
      for (const v1::RankPlan& rank : ranks) {
        EXPECT_LE(rank.rounds(j).sends_size(), 2);  // one out, one in
        sends.push_back(&rank.rounds(j).sends());
        copies.push_back(&rank.rounds(j).copies());
      }
      // Sender and receiver both know of a send.
      EXPECT_EQ(Sorted(sends), Sorted({&round.sends(), &round.sends()}));
      EXPECT_EQ(Sorted(copies), Sorted({&round.copies()}));
    }
  }
}

TEST(RankPlan, RoundsAreRestrictedToTheLayersAskedFor) {
  const Scene scene = MakeScene(3);
  const v1::RankPlan all =
      ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(1, 2)));
  const v1::RankPlan some =
      ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(1, 2, {1})));
  int moves = 0;
  ASSERT_EQ(some.rounds_size(), all.rounds_size());
  for (int j = 0; j < all.rounds_size(); ++j) {
    std::vector<std::string> expected;
    for (const v1::SlotMove& move : all.rounds(j).sends()) {
      if (move.layer() == 1) expected.push_back(move.ShortDebugString());
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(Sorted({&some.rounds(j).sends()}), expected);
    moves += some.rounds(j).sends_size();
  }
  EXPECT_GT(moves, 0);
}

TEST(RankPlan, HasTheRowsOfItsSlot) {
  const Scene scene = MakeScene(5);
  const v1::Layout& layout = scene.plan.layout();
  ASSERT_EQ(layout.filler_sample_ids_size(), 3);
  int fillers = 0;
  for (uint32_t d = 0; d < 4; ++d) {
    const v1::RankPlan rank =
        ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(d, 0)));
    EXPECT_EQ(rank.window_tokens(), scene.window.total_tokens());
    EXPECT_EQ(rank.placement_version(), scene.plan.placement_version());
    EXPECT_EQ(rank.placement_digest(), scene.plan.placement_digest());
    ASSERT_EQ(rank.rows_size(), layout.rows_size());
    for (int r = 0; r < rank.rows_size(); ++r) {
      const v1::Cell& cell = layout.rows(r).cells(d);
      const v1::RankRow& row = rank.rows(r);
      EXPECT_TRUE(std::equal(row.sample_ids().begin(), row.sample_ids().end(),
                             cell.sample_ids().begin(),
                             cell.sample_ids().end()));
      EXPECT_EQ(row.tokens(), cell.tokens());
      EXPECT_EQ(row.row_tokens(), layout.rows(r).tokens());
      if (row.filler().empty()) continue;
      ASSERT_EQ(row.filler_size(), row.sample_ids_size());
      EXPECT_GT(std::count(row.filler().begin(), row.filler().end(), true), 0);
      for (int j = 0; j < row.filler_size(); ++j) {
        const bool listed =
            std::count(layout.filler_sample_ids().begin(),
                       layout.filler_sample_ids().end(), row.sample_ids(j));
        EXPECT_EQ(row.filler(j), listed);
        fillers += row.filler(j);
      }
    }
  }
  EXPECT_EQ(fillers, 3);
}

TEST(RankPlan, IsRestrictedToTheLayersAskedFor) {
  const Scene scene = MakeScene(3);
  const v1::RankPlan all =
      ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(1, 2)));
  ASSERT_EQ(all.layers_size(), 3);
  const v1::RankPlan some = ValueOrDie(
      MakeRankPlan(scene.plan, scene.current, Request(1, 2, {2, 0})));
  ASSERT_EQ(some.layers_size(), 2);
  EXPECT_EQ(some.layers(0).layer(), 0u);
  EXPECT_EQ(some.layers(1).layer(), 2u);
  EXPECT_THAT(std::vector<uint32_t>(some.layers(1).expert_of_slot().begin(),
                                    some.layers(1).expert_of_slot().end()),
              testing::ElementsAreArray(scene.after.expert_of_slot.begin() + 24,
                                        scene.after.expert_of_slot.end()));
  std::vector<std::string> expected;
  for (const v1::ExpertMove& move : all.incoming()) {
    if (move.layer() != 1) expected.push_back(move.ShortDebugString());
  }
  std::vector<std::string> found;
  for (const v1::ExpertMove& move : some.incoming()) {
    found.push_back(move.ShortDebugString());
  }
  EXPECT_EQ(found, expected);
}

TEST(RankPlan, MovesAreSorted) {
  const Scene scene = MakeScene(4);
  const v1::RankPlan rank =
      ValueOrDie(MakeRankPlan(scene.plan, scene.current, Request(0, 1)));
  ASSERT_GT(rank.incoming_size(), 3);
  ASSERT_GT(rank.outgoing_size(), 3);
  EXPECT_TRUE(std::is_sorted(rank.incoming().begin(), rank.incoming().end(),
                             [](const auto& a, const auto& b) {
                               return std::pair(a.layer(), a.to_slot()) <
                                      std::pair(b.layer(), b.to_slot());
                             }));
  EXPECT_TRUE(std::is_sorted(rank.outgoing().begin(), rank.outgoing().end(),
                             [](const auto& a, const auto& b) {
                               return std::pair(a.layer(), a.from_slot()) <
                                      std::pair(b.layer(), b.from_slot());
                             }));
}

TEST(RankPlan, RefusesRanksAndLayersThatDoNotExist) {
  const Scene scene = MakeScene(2);
  EXPECT_THAT(
      Fields(MakeRankPlan(scene.plan, scene.current, Request(4, 4, {1, 3, 1}))
                 .status()),
      ElementsAre("dp_slot", "ep_rank", "layers[1]", "layers[2]"));
}

TEST(RankPlan, RefusesACurrentPlacementOfOtherSizes) {
  Scene scene = MakeScene(2);
  scene.current.mutable_layers()->RemoveLast();
  EXPECT_EQ(
      MakeRankPlan(scene.plan, scene.current, Request(0, 0)).status().code(),
      absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace routepack
