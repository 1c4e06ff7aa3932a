#include "planner/movement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "planner/errors.h"
#include "planner/movement_report.h"
#include "tests/planner/random_movement.h"
#include "tests/planner/slow_lanes.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;

struct Gpu {
  uint32_t shard, rank;
  friend auto operator<=>(const Gpu&, const Gpu&) = default;
};
// [kind, from, to] bytes.
using Sent = std::map<std::tuple<uint32_t, Gpu, Gpu>, uint64_t>;

// Moves an expert byte by byte, as spec 1.8 says.
Sent SendByteByByte(const MovementSpec& spec, const SlowLanes& lanes,
                    uint32_t l, uint32_t from_slot, uint32_t to_slot) {
  const uint32_t slots = spec.slots_per_rank;
  const uint32_t p = from_slot / slots;
  const uint32_t q = to_slot / slots;
  Sent sent;
  const auto send = [&](uint32_t kind, Gpu from, Gpu to) {
    if (from != to) ++sent[{kind, from, to}];
  };
  for (uint32_t kind = 0; kind < spec.kinds.size(); ++kind) {
    if (!spec.kinds[kind].lane_owned) {
      for (uint64_t byte = 0; byte < spec.kinds[kind].bytes; ++byte) {
        for (uint32_t g = 0; g < spec.num_shards; ++g) {
          send(kind, {g, p}, {g, q});
        }
      }
      continue;
    }
    const std::vector<uint32_t>& before = lanes[l][from_slot % slots];
    const std::vector<uint32_t>& after = lanes[l][to_slot % slots];
    for (uint64_t byte = 0; byte < spec.kinds[kind].bytes; ++byte) {
      const uint64_t x = byte * before.size() / spec.kinds[kind].bytes;
      send(kind, {before[x], p}, {before[x], q});
      send(kind, {before[x], q}, {after[x], q});
    }
  }
  return sent;
}

uint32_t NodeOf(const MovementSpec& spec, Gpu gpu) {
  if (spec.node_of_rank.empty()) return 0;
  return spec.node_of_rank[gpu.shard * spec.num_ranks + gpu.rank];
}

double WeightedBytes(const MovementSpec& spec, const Sent& sent) {
  double bytes = 0;
  for (const auto& [flow, count] : sent) {
    const bool inside =
        NodeOf(spec, std::get<1>(flow)) == NodeOf(spec, std::get<2>(flow));
    bytes += static_cast<double>(count * spec.gpus_per_rank) *
             (inside ? 1 : spec.inter_node_cost);
  }
  return bytes;
}

SlowLanes LanesOf(const MovementSpec& spec) {
  GradientBuffer buffer = spec.buffer;
  buffer.chunk_of_layer.resize(spec.num_layers, 0);
  for (size_t l = 0; l < spec.stage_of_layer.size(); ++l) {
    buffer.chunk_of_layer[l] += 1000 * spec.stage_of_layer[l];
  }
  return LanesElementByElement(buffer, spec.num_layers, spec.slots_per_rank,
                               spec.num_shards);
}

TEST(MovementModel, MovesAreThoseOfTheBytes) {
  TestRandom random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const MovementModel model =
        ValueOrDie(MovementModel::Create(RandomMovementSpec(random)));
    const MovementSpec& spec = model.spec();  // with the kinds it assumes
    const SlowLanes lanes = LanesOf(spec);
    for (int k = 0; k < 20; ++k) {
      const uint32_t l = random.Below(spec.num_layers);
      const uint32_t u = random.Below(model.num_experts());
      const uint32_t v = random.Below(model.num_experts());
      const Sent expected = SendByteByByte(spec, lanes, l, u, v);
      Sent sent;
      model.ForEachFlow(l, u, v, [&](const Flow& flow) {
        sent[{flow.kind, Gpu{flow.from_shard, flow.from_rank},
              Gpu{flow.to_shard, flow.to_rank}}] += flow.bytes;
      });
      ASSERT_EQ(sent, expected);
      ASSERT_EQ(static_cast<double>(model.MoveCost(l, u, v)),
                WeightedBytes(spec, expected) * MovementModel::kCostUnit);
    }
  }
}

TEST(MovementModel, UnknownStateIsOneByteAShard) {
  const MovementModel model = ValueOrDie(MovementModel::Create(
      {.num_layers = 1, .num_shards = 3, .num_ranks = 2, .slots_per_rank = 2}));
  EXPECT_EQ(model.MoveCost(0, 0, 1), 0);
  EXPECT_EQ(model.MoveCost(0, 0, 2), 3 * MovementModel::kCostUnit);
}

TEST(MovementModel, ASlotChangeInARankMovesOwnedStateBetweenNodes) {
  // Two lanes, on two nodes; slot 0 lies in lane 1 and slot 1 in lane 0.
  MovementSpec spec = DescribeExperts(3 * 128);
  spec.num_layers = 1;
  spec.num_shards = 2;
  spec.num_ranks = 1;
  spec.slots_per_rank = 2;
  spec.buffer.grouped = false;
  spec.node_of_rank = {0, 1};
  const MovementModel model = ValueOrDie(MovementModel::Create(spec));
  EXPECT_EQ(model.MoveCost(0, 0, 1),
            MovementModel::kCostUnit * 3 * 12 * (3 * 128));
  EXPECT_TRUE(model.SlotsDiffer(0));
}

TEST(MovementModel, CostsMuchLargerModelsExactly) {
  // DeepSeek-V3: one rank sends 14 bytes a parameter, BF16 in both shards.
  const uint64_t parameters = uint64_t{3} * 7168 * 2048;
  MovementSpec spec = DescribeExperts(parameters);
  spec.num_layers = 58;
  spec.num_shards = 2;
  spec.num_ranks = 64;
  spec.slots_per_rank = 4;
  spec.node_of_rank = NodesOfConsecutiveRanks(2, 64, 1, 8);
  const MovementModel model = ValueOrDie(MovementModel::Create(spec));
  EXPECT_EQ(model.SendCost(0, 0, 1),
            static_cast<int64_t>(MovementModel::kCostUnit * 16 * parameters));
  EXPECT_EQ(model.SendCost(0, 0, 8),
            static_cast<int64_t>(MovementModel::kCostUnit * 48 * parameters));
}

TEST(DescribeExperts, CountsMixedPrecision) {
  const MovementSpec spec = DescribeExperts(300);
  ASSERT_EQ(spec.kinds.size(), 4u);
  EXPECT_EQ(spec.kinds[0].bytes, 600u);
  EXPECT_FALSE(spec.kinds[0].lane_owned);
  EXPECT_EQ(spec.kinds[3].bytes, 1200u);
  EXPECT_TRUE(spec.kinds[3].lane_owned);
  EXPECT_EQ(spec.buffer.parameters[0].elements, 200u);
  EXPECT_EQ(spec.buffer.parameters[1].elements, 100u);
  EXPECT_DOUBLE_EQ(spec.seconds_per_assignment, 1800 / 4e14);
}

TEST(NodesOfConsecutiveRanks, FollowsMegatronsOrder) {
  EXPECT_THAT(NodesOfConsecutiveRanks(2, 4, 1, 4),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(NodesOfConsecutiveRanks(2, 2, 2, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(NodesOfConsecutiveRanks(1, 3, 1, 8), ElementsAre(0, 0, 0));
}

TEST(MovementModel, NamesWhatIsOutOfRange) {
  const auto field = [](auto change) {
    MovementSpec spec = DescribeExperts(300);
    spec.num_layers = 2;
    spec.num_shards = 2;
    spec.num_ranks = 2;
    spec.slots_per_rank = 2;
    change(spec);
    const auto bad = ViolationsOf(MovementModel::Create(spec).status());
    return bad.empty() ? "" : bad[0].field;
  };
  EXPECT_EQ(field([](MovementSpec&) {}), "");
  EXPECT_EQ(field([](MovementSpec& s) { s.num_layers = 0; }),
            "movement.num_layers");
  EXPECT_EQ(field([](MovementSpec& s) {
              s.node_of_rank = {1, 2, 3};
            }),
            "movement.node_of_rank");
  EXPECT_EQ(field([](MovementSpec& s) { s.stage_of_layer = {1}; }),
            "movement.stage_of_layer");
  EXPECT_EQ(field([](MovementSpec& s) {
              s.stage_of_layer = {0, 1u << 20};
            }),
            "movement.stage_of_layer");
  EXPECT_EQ(field([](MovementSpec& s) { s.kinds[1].bytes = 1201; }),
            "movement.kinds[1].bytes");
  EXPECT_EQ(field([](MovementSpec& s) { s.kinds[0].bytes = 0; }),
            "movement.kinds[0].bytes");
  EXPECT_EQ(field([](MovementSpec& s) { s.buffer.parameters.clear(); }),
            "movement.kinds[1].bytes");
  EXPECT_EQ(field([](MovementSpec& s) { s.buffer.end_multiple = 0; }),
            "movement.buffer.end_multiple");
  EXPECT_EQ(field([](MovementSpec& s) {
              s.inter_node_cost = std::numeric_limits<double>::quiet_NaN();
            }),
            "movement.inter_node_cost");
  EXPECT_EQ(field([](MovementSpec& s) { s.inter_node_bandwidth = -1; }),
            "movement.inter_node_bandwidth");
  EXPECT_EQ(field([](MovementSpec& s) {
              s.kinds[0].bytes = uint64_t{1} << 40;
              s.num_ranks = 1u << 14;
              s.slots_per_rank = 4;
            }),
            "movement.kinds");
}

TEST(MovementModel, RefusesTooManyGpusBeforeItNamesTheirNodes) {
  const auto bad = ViolationsOf(MovementModel::Create({.num_layers = 1,
                                                       .num_shards = 1u << 16,
                                                       .num_ranks = 1u << 14,
                                                       .slots_per_rank = 1,
                                                       .ranks_per_node = 8})
                                    .status());
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].field, "movement.num_shards");
}

TEST(MovementModel, ChunksAreThoseOfAStage) {
  // Four layers that share no buffer: two stages of two chunks.
  MovementSpec spec = DescribeExperts(300);
  spec.num_layers = 4;
  spec.num_shards = 3;
  spec.num_ranks = 1;
  spec.slots_per_rank = 2;
  spec.node_of_rank = {0, 1, 2};
  spec.stage_of_layer = {0, 1, 0, 1};
  spec.buffer.chunk_of_layer = {0, 0, 1, 1};
  MovementSpec apart = spec;
  apart.stage_of_layer = {0, 1, 2, 3};
  apart.buffer.chunk_of_layer.clear();
  const MovementModel model = ValueOrDie(MovementModel::Create(spec));
  const MovementModel expected = ValueOrDie(MovementModel::Create(apart));
  EXPECT_GT(expected.MoveCost(0, 0, 1), 0);
  for (uint32_t l = 0; l < 4; ++l) {
    EXPECT_EQ(model.MoveCost(l, 0, 1), expected.MoveCost(l, 0, 1));
  }
  // In one stage of one chunk layers share the buffer.
  spec.stage_of_layer = {0, 0, 0, 0};
  spec.buffer.chunk_of_layer = {0, 0, 0, 0};
  const MovementModel shared = ValueOrDie(MovementModel::Create(spec));
  EXPECT_NE(shared.MoveCost(0, 0, 1), expected.MoveCost(0, 0, 1));
}

// Bytes on each GPU's links, by stage.
struct SlowLinks {
  std::map<std::tuple<uint32_t, Gpu, bool, bool>, uint64_t> bytes;

  void Add(const MovementSpec& spec, uint32_t stage, const Sent& sent) {
    for (const auto& [flow, count] : sent) {
      const auto& [kind, from, to] = flow;
      const bool inside = NodeOf(spec, from) == NodeOf(spec, to);
      bytes[{stage, from, inside, false}] += count;
      bytes[{stage, to, inside, true}] += count;
    }
  }
  double Seconds(const MovementSpec& spec) const {
    double seconds = 0;
    for (const auto& [link, count] : bytes) {
      seconds = std::max(seconds,
                         static_cast<double>(count) /
                             (std::get<2>(link) ? spec.intra_node_bandwidth
                                                : spec.inter_node_bandwidth));
    }
    return seconds;
  }
};

TEST(ReportMovement, AddsUpWhatMoves) {
  TestRandom random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const MovementModel model =
        ValueOrDie(MovementModel::Create(RandomMovementSpec(random)));
    const MovementSpec& spec = model.spec();
    const SlowLanes lanes = LanesOf(spec);
    const uint32_t experts = model.num_experts();
    const Placement from =
        RandomPlacement(random, spec.num_layers, experts, spec.num_ranks);
    const Placement to =
        RandomPlacement(random, spec.num_layers, experts, spec.num_ranks);
    std::vector<uint64_t> loads(size_t{spec.num_layers} * experts);
    for (uint64_t& load : loads) load = random.Below(1000);

    std::vector<uint64_t> kind_bytes(spec.kinds.size(), 0);
    SlowLinks links;
    double weighted = 0;
    for (size_t j = 0; j < loads.size(); ++j) {
      const auto l = static_cast<uint32_t>(j / experts);
      const Sent sent = SendByteByByte(spec, lanes, l, from.slot_of_expert[j],
                                       to.slot_of_expert[j]);
      weighted += WeightedBytes(spec, sent);
      links.Add(spec, model.stage_of_layer(l), sent);
      for (const auto& [flow, count] : sent) {
        kind_bytes[std::get<0>(flow)] += count * spec.gpus_per_rank;
      }
    }
    const MovementReport report = ReportMovement(model, from, to, loads);
    ASSERT_EQ(report.kind_bytes, kind_bytes);
    uint64_t total = 0;
    for (const uint64_t bytes : kind_bytes) total += bytes;
    ASSERT_EQ(report.intra_node_bytes + report.inter_node_bytes, total);
    ASSERT_DOUBLE_EQ(report.weighted_bytes, weighted);
    ASSERT_DOUBLE_EQ(
        static_cast<double>(report.intra_node_bytes) +
            spec.inter_node_cost * static_cast<double>(report.inter_node_bytes),
        weighted);
    ASSERT_DOUBLE_EQ(report.transfer_seconds, links.Seconds(spec));
    ASSERT_EQ(report.change.experts_total, loads.size());
  }
}

TEST(ReportMovement, SaysWhenTheMoveHasPaidForItself) {
  // Both experts of rank 0 have load: exchanging one for an idle one halves
  // the peak of 2000 and sends 100 bytes each way.
  MovementSpec spec{.num_layers = 1, .num_ranks = 2, .slots_per_rank = 2};
  spec.kinds = {{.name = "weights", .bytes = 100}};
  spec.intra_node_bandwidth = 50;
  spec.seconds_per_assignment = 1e-3;
  const std::vector<uint64_t> loads = {1000, 1000, 0, 0};
  const Placement from = IdentityPlacement(1, 4, 2);
  Placement to = from;
  to.slot_of_expert = to.expert_of_slot = {0, 2, 1, 3};
  const MovementModel model = ValueOrDie(MovementModel::Create(spec));
  const MovementReport report = ReportMovement(model, from, to, loads);
  EXPECT_EQ(report.peak_sum_before, 2000u);
  EXPECT_EQ(report.peak_sum_after, 1000u);
  EXPECT_DOUBLE_EQ(report.transfer_seconds, 2);
  EXPECT_DOUBLE_EQ(report.saved_seconds, 1);
  EXPECT_DOUBLE_EQ(report.break_even_steps, 2);

  const MovementReport back = ReportMovement(model, to, from, loads);
  EXPECT_DOUBLE_EQ(back.saved_seconds, -1);
  EXPECT_TRUE(std::isinf(back.break_even_steps));
  EXPECT_EQ(ReportMovement(model, to, to, loads).break_even_steps, 0);

  // The uplink of a node that both ranks share is never used.
  spec.node_bandwidth = 1;
  EXPECT_DOUBLE_EQ(
      ReportMovement(ValueOrDie(MovementModel::Create(spec)), from, to, loads)
          .transfer_seconds,
      2);
  spec.node_of_rank = {0, 1};
  EXPECT_DOUBLE_EQ(
      ReportMovement(ValueOrDie(MovementModel::Create(spec)), from, to, loads)
          .transfer_seconds,
      100);
  spec.seconds_per_assignment = 0;
  EXPECT_EQ(
      ReportMovement(ValueOrDie(MovementModel::Create(spec)), from, to, loads)
          .transfer_seconds,
      0);
}

TEST(LinkLoads, ForgetsWhatIsRemoved) {
  TestRandom random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const MovementModel model =
        ValueOrDie(MovementModel::Create(RandomMovementSpec(random)));
    struct Move {
      uint32_t l, u, v;
    };
    std::vector<Move> moves;
    LinkLoads links(model);
    for (int k = 0; k < 30; ++k) {
      if (!moves.empty() && random.Below(2) == 0) {
        const auto at = moves.begin() + random.Below(moves.size());
        links.Remove(at->l, at->u, at->v);
        moves.erase(at);
      } else {
        moves.push_back({random.Below(model.spec().num_layers),
                         random.Below(model.num_experts()),
                         random.Below(model.num_experts())});
        links.Add(moves.back().l, moves.back().u, moves.back().v);
      }
      LinkLoads fresh(model);
      for (const Move& move : moves) fresh.Add(move.l, move.u, move.v);
      ASSERT_EQ(links.Seconds(), fresh.Seconds());
      ASSERT_EQ(links.inter_node_bytes(), fresh.inter_node_bytes());
    }
  }
}

}  // namespace
}  // namespace routepack
