#include "planner/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/planner/random_movement.h"
#include "tests/planner/test_windows.h"
#include "tests/planner/thread_counts.h"

namespace routepack {
namespace {

// Ranks with slots and staging buffers that do as a schedule says, and notice
// when it overwrites what is still needed.
class Simulator {
 public:
  Simulator(const Placement& from, const Placement& to)
      : from_(from), to_(to), slots_(from.expert_of_slot) {}

  void Run(const StageSchedule& schedule) {
    ASSERT_EQ(schedule.copy_begin.size(), schedule.rounds() + 2u);
    uint32_t peak = 0;
    for (uint32_t round = 0; round <= schedule.rounds(); ++round) {
      if (round < schedule.rounds()) {
        ASSERT_NO_FATAL_FAILURE(Round(schedule.SendsOf(round)));
        peak = std::max(peak, Staged());
      }
      for (const SlotMove& copy : schedule.CopiesAfter(round)) {
        ASSERT_NO_FATAL_FAILURE(Copy(copy));
        peak = std::max(peak, Staged());
      }
    }
    EXPECT_EQ(schedule.peak_staging, peak);
    EXPECT_EQ(Staged(), 0u);
  }

  const std::vector<uint32_t>& slots() const { return slots_; }

 private:
  static constexpr uint32_t kDead = ~uint32_t{0};

  uint32_t Rank(uint32_t slot) const { return slot / from_.slots_per_rank(); }
  uint32_t& At(uint32_t layer, uint32_t slot) {
    return slots_[size_t{layer} * from_.num_experts + slot];
  }

  // Takes an expert out of a slot where it is live and has to leave.
  void Take(const SlotMove& move) {
    const size_t at = size_t{move.layer} * from_.num_experts + move.expert;
    ASSERT_EQ(move.from_slot, from_.slot_of_expert[at]);
    ASSERT_EQ(At(move.layer, move.from_slot), move.expert);
    At(move.layer, move.from_slot) = kDead;
  }
  void Put(const SlotMove& move) {
    const size_t at = size_t{move.layer} * from_.num_experts + move.expert;
    ASSERT_EQ(move.to_slot, to_.slot_of_expert[at]);
    ASSERT_EQ(At(move.layer, move.to_slot), kDead) << "a live slot";
    At(move.layer, move.to_slot) = move.expert;
  }

  void Round(std::span<const SlotMove> sends) {
    // Received into slots that are free before anything of the round is sent.
    for (const SlotMove& move : sends) {
      ASSERT_NE(Rank(move.from_slot), Rank(move.to_slot));
      if (move.direct) {
        ASSERT_NO_FATAL_FAILURE(Put(move));
      }
    }
    for (const SlotMove& move : sends) {
      ASSERT_NO_FATAL_FAILURE(Take(move));
      if (!move.direct) {
        staging_[Rank(move.to_slot)].insert({move.layer, move.expert});
      }
    }
  }

  void Copy(const SlotMove& copy) {
    const size_t at = size_t{copy.layer} * from_.num_experts + copy.expert;
    const uint32_t rank = Rank(to_.slot_of_expert[at]);
    if (copy.from_slot == kStagingSlot) {
      ASSERT_EQ(staging_[rank].erase({copy.layer, copy.expert}), 1u);
    } else {
      ASSERT_EQ(Rank(copy.from_slot), rank);
      ASSERT_NO_FATAL_FAILURE(Take(copy));
    }
    if (copy.to_slot == kStagingSlot) {
      staging_[rank].insert({copy.layer, copy.expert});
    } else {
      ASSERT_NO_FATAL_FAILURE(Put(copy));
    }
  }

  // Buffers of the rank that uses most.
  uint32_t Staged() const {
    size_t most = 0;
    for (const auto& [rank, experts] : staging_) {
      most = std::max(most, experts.size());
    }
    return static_cast<uint32_t>(most);
  }

  const Placement& from_;
  const Placement& to_;
  std::vector<uint32_t> slots_;  // [l][v]
  // [rank] of (layer, expert)
  std::map<uint32_t, std::set<std::pair<uint32_t, uint32_t>>> staging_;
};

// A change of a few swaps a layer, or of everything.
Placement RandomChange(TestRandom& random, const Placement& from) {
  if (random.Below(2) == 0) {
    return RandomPlacement(random, from.num_layers, from.num_experts,
                           from.num_ranks);
  }
  Placement to = from;
  for (uint32_t l = 0; l < to.num_layers; ++l) {
    const size_t row = size_t{l} * to.num_experts;
    for (uint32_t k = random.Below(4); k > 0; --k) {
      std::swap(to.expert_of_slot[row + random.Below(to.num_experts)],
                to.expert_of_slot[row + random.Below(to.num_experts)]);
    }
    for (uint32_t v = 0; v < to.num_experts; ++v) {
      to.slot_of_expert[row + to.expert_of_slot[row + v]] = v;
    }
  }
  return to;
}

// The most experts that leave, or enter, a rank.
uint32_t Degree(const Placement& from, const Placement& to,
                const std::vector<uint32_t>& stage_of_layer, uint32_t stage) {
  std::vector<uint32_t> out(from.num_ranks, 0), in(from.num_ranks, 0);
  for (uint32_t l = 0; l < from.num_layers; ++l) {
    if (!stage_of_layer.empty() && stage_of_layer[l] != stage) continue;
    for (uint32_t e = 0; e < from.num_experts; ++e) {
      const uint32_t p = from.rank_of_expert(l, e);
      const uint32_t q = to.rank_of_expert(l, e);
      if (p == q) continue;
      ++out[p];
      ++in[q];
    }
  }
  return std::max(*std::max_element(out.begin(), out.end()),
                  *std::max_element(in.begin(), in.end()));
}

void ExpectRoundsWithin(const StageSchedule& schedule, uint32_t slots,
                        uint32_t per_round) {
  for (uint32_t round = 0; round < schedule.rounds(); ++round) {
    std::map<uint32_t, uint32_t> out, in;
    for (const SlotMove& move : schedule.SendsOf(round)) {
      ASSERT_LE(++out[move.from_slot / slots], per_round);
      ASSERT_LE(++in[move.to_slot / slots], per_round);
    }
  }
}

TEST(ScheduleTransfer, EndsInTheNewMapWithinItsBounds) {
  TestRandom random(1);
  int least = 0;
  int more = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    const uint32_t layers = random.Between(1, 6);
    const uint32_t ranks = random.Between(1, 8);
    const uint32_t slots = random.Between(1, 6);
    const Placement from =
        RandomPlacement(random, layers, ranks * slots, ranks);
    const Placement to = RandomChange(random, from);
    std::vector<uint32_t> stage_of_layer;
    if (random.Below(2) == 0) {
      stage_of_layer.resize(layers);
      for (uint32_t& stage : stage_of_layer) stage = random.Below(3);
    }
    const TransferOptions options = {.experts_per_round = random.Between(1, 3),
                                     .max_staging = random.Between(1, 6)};
    const auto schedules = ScheduleTransfer(from, to, stage_of_layer, options);
    Simulator simulator(from, to);
    for (uint32_t stage = 0; stage < schedules.size(); ++stage) {
      const StageSchedule& schedule = schedules[stage];
      ASSERT_NO_FATAL_FAILURE(simulator.Run(schedule));
      ASSERT_NO_FATAL_FAILURE(
          ExpectRoundsWithin(schedule, slots, options.experts_per_round));
      ASSERT_LE(schedule.peak_staging, options.max_staging);
      const uint32_t k = options.experts_per_round;
      ASSERT_EQ(schedule.min_rounds,
                (Degree(from, to, stage_of_layer, stage) + k - 1) / k);
      ASSERT_GE(schedule.rounds(), schedule.min_rounds);
      ++(schedule.rounds() == schedule.min_rounds ? least : more);
    }
    ASSERT_EQ(simulator.slots(), to.expert_of_slot);
  }
  // Both ways are tested.
  EXPECT_GT(least, 100);
  EXPECT_GT(more, 100);
}

TEST(ScheduleTransfer, NeedsTheLeastRoundsWhereStagingAllows) {
  TestRandom random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t layers = random.Between(1, 8);
    const uint32_t ranks = random.Between(1, 8);
    const Placement from = RandomPlacement(random, layers, ranks * 4, ranks);
    const Placement to = RandomChange(random, from);
    for (const uint32_t k : {1u, 2u, 5u}) {
      const auto schedules = ScheduleTransfer(
          from, to, {}, {.experts_per_round = k, .max_staging = 1000});
      ASSERT_EQ(schedules[0].rounds(), (Degree(from, to, {}, 0) + k - 1) / k);
    }
  }
}

TEST(ScheduleTransfer, ASwapIsOneRoundAndOneBuffer) {
  const Placement from = IdentityPlacement(1, 4, 2);
  Placement to = from;
  to.slot_of_expert = to.expert_of_slot = {2, 1, 0, 3};
  const auto schedules = ScheduleTransfer(from, to, {}, {.max_staging = 1});
  ASSERT_EQ(schedules[0].rounds(), 1u);
  EXPECT_EQ(schedules[0].SendsOf(0).size(), 2u);
  EXPECT_EQ(schedules[0].CopiesAfter(0).size(), 2u);
  EXPECT_EQ(schedules[0].peak_staging, 1u);
}

TEST(ScheduleTransfer, AnyNumberOfExpertsMayTravelInARound) {
  const Placement from = IdentityPlacement(1, 8, 2);
  Placement to = from;
  to.slot_of_expert = to.expert_of_slot = {4, 5, 6, 7, 0, 1, 2, 3};
  const auto schedules = ScheduleTransfer(
      from, to, {}, {.experts_per_round = ~uint32_t{0}, .max_staging = 8});
  EXPECT_EQ(schedules[0].rounds(), 1u);
  EXPECT_EQ(schedules[0].min_rounds, 1u);
}

TEST(ScheduleTransfer, CyclesInsideARankTakeNoRounds) {
  const Placement from = IdentityPlacement(1, 6, 2);
  Placement to = from;
  to.expert_of_slot = {2, 0, 1, 3, 5, 4};
  to.slot_of_expert = {1, 2, 0, 3, 5, 4};
  const auto schedules = ScheduleTransfer(from, to, {}, {.max_staging = 1});
  EXPECT_EQ(schedules[0].rounds(), 0u);
  EXPECT_EQ(schedules[0].CopiesAfter(0).size(), 4u + 3u);
  EXPECT_EQ(schedules[0].peak_staging, 1u);
  Simulator simulator(from, to);
  simulator.Run(schedules[0]);
  EXPECT_EQ(simulator.slots(), to.expert_of_slot);
}

TEST(ScheduleTransfer, NothingToDoIsNoRounds) {
  const Placement map = IdentityPlacement(3, 6, 2);
  const auto schedules = ScheduleTransfer(map, map, {}, {});
  EXPECT_EQ(schedules[0].rounds(), 0u);
  EXPECT_TRUE(schedules[0].copies.empty());
  EXPECT_EQ(schedules[0].peak_staging, 0u);
}

TEST(ScheduleTransfer, SpreadsWhatCrossesTheUplinks) {
  TestRandom random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const uint32_t shards = random.Between(1, 2);
    const uint32_t ranks = random.Between(2, 8);
    const Placement from = RandomPlacement(random, 3, ranks * 4, ranks);
    const Placement to = RandomChange(random, from);
    TransferOptions options = {.max_staging = random.Between(1, 4),
                               .max_uplink = random.Between(1, 4)};
    for (uint32_t j = 0; j < shards * ranks; ++j) {
      options.node_of_rank.push_back(j / 3);
    }
    const auto schedules = ScheduleTransfer(from, to, {}, options);
    Simulator simulator(from, to);
    ASSERT_NO_FATAL_FAILURE(simulator.Run(schedules[0]));
    ASSERT_EQ(simulator.slots(), to.expert_of_slot);
    ASSERT_LE(schedules[0].peak_staging, options.max_staging);
    ASSERT_NO_FATAL_FAILURE(ExpectRoundsWithin(schedules[0], 4, 1));
    for (uint32_t round = 0; round < schedules[0].rounds(); ++round) {
      // [node, in] experts, and moves that bring them
      std::map<std::pair<uint32_t, bool>, std::pair<uint32_t, uint32_t>> load;
      for (const SlotMove& move : schedules[0].SendsOf(round)) {
        std::set<std::pair<uint32_t, bool>> links;
        for (uint32_t g = 0; g < shards; ++g) {
          const uint32_t out =
              options.node_of_rank[g * ranks + move.from_slot / 4];
          const uint32_t in =
              options.node_of_rank[g * ranks + move.to_slot / 4];
          if (out == in) continue;
          ++load[{out, false}].first;
          ++load[{in, true}].first;
          links.insert({out, false});
          links.insert({in, true});
        }
        for (const auto& link : links) ++load[link].second;
      }
      for (const auto& [link, used] : load) {
        ASSERT_TRUE(used.first <= options.max_uplink || used.second == 1);
      }
    }
  }
}

TEST(ScheduleTransfer, LargeChangesStayWithinTheBuffers) {
  TestRandom random(4);
  const Placement from = RandomPlacement(random, 24, 256, 32);
  const Placement to = RandomPlacement(random, 24, 256, 32);
  const auto schedules = ScheduleTransfer(from, to, {}, {.max_staging = 4});
  Simulator simulator(from, to);
  simulator.Run(schedules[0]);
  EXPECT_EQ(simulator.slots(), to.expert_of_slot);
  EXPECT_LE(schedules[0].peak_staging, 4u);
  EXPECT_LE(schedules[0].rounds(), schedules[0].min_rounds * 5 / 4);
}

TEST(ScheduleTransfer, DoesNotDependOnThreads) {
  TestRandom random(5);
  const Placement from = RandomPlacement(random, 12, 64, 8);
  const Placement to = RandomPlacement(random, 12, 64, 8);
  const std::vector<uint32_t> stages = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  const auto expected = ScheduleTransfer(from, to, stages, {});
  OnSeveralThreadCounts([&] {
    const auto schedules = ScheduleTransfer(from, to, stages, {});
    for (size_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(schedules[stage].sends, expected[stage].sends);
      EXPECT_EQ(schedules[stage].copies, expected[stage].copies);
    }
  });
}

}  // namespace
}  // namespace routepack
