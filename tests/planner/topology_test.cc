#include "planner/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "planner/errors.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Shards = std::vector<std::vector<uint32_t>>;

std::vector<uint32_t> ShardOfSlots(const Topology& topology) {
  std::vector<uint32_t> shards;
  for (uint32_t d = 0; d < topology.num_slots(); ++d) {
    shards.push_back(topology.shard_of_slot(d));
  }
  return shards;
}

std::vector<std::string> Fields(const absl::Status& status) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : ViolationsOf(status)) {
    fields.push_back(violation.field);
  }
  return fields;
}

// Worked out by hand: a pipeline stage has tp cp dp GPUs, an EP communicator
// etp ep of them in a row, a DP slot tp cp of them in a row.

TEST(TopologyFromMesh, OneCommunicatorIsOneShard) {
  // 8 GPUs, communicators of 8: slots 0-7 share the only one.
  const auto topology = Topology::FromMesh({.ep = 8, .dp = 8});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->num_slots(), 8u);
  EXPECT_EQ(topology->num_ranks(), 8u);
  EXPECT_EQ(topology->num_shards(), 1u);
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(TopologyFromMesh, TensorParallelSlotsSplitOverTwoCommunicators) {
  // 2 * 8 = 16 GPUs, communicators of 8 GPUs = 4 slots of 2.
  const auto topology = Topology::FromMesh({.tp = 2, .ep = 8, .dp = 8});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->num_shards(), 2u);
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(topology->slots_of_shard(1), ElementsAre(4, 5, 6, 7));
}

TEST(TopologyFromMesh, ContextParallelCountsAsTensorParallel) {
  // 2 * 2 * 8 = 32 GPUs, communicators of 8 GPUs = 2 slots of 4.
  const auto topology =
      Topology::FromMesh({.tp = 2, .cp = 2, .ep = 8, .dp = 8});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

TEST(TopologyFromMesh, ExpertTensorParallelWidensCommunicators) {
  // 4 * 4 = 16 GPUs, communicators of 4 * 2 = 8 GPUs = 2 slots of 4; P is 2.
  const auto topology =
      Topology::FromMesh({.tp = 4, .ep = 2, .etp = 4, .dp = 4});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->num_ranks(), 2u);
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 0, 1, 1));
}

TEST(TopologyFromMesh, PipelineStagesDoNotMatter) {
  // Each of the 4 stages has 8 GPUs in communicators of 4.
  const auto topology = Topology::FromMesh({.pp = 4, .ep = 4, .dp = 8});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(*topology, *Topology::FromMesh({.ep = 4, .dp = 8}));
}

TEST(TopologyFromMesh, AllDegreesAtOnce) {
  // 2 * 3 * 4 = 24 GPUs a stage, communicators of 2 * 6 = 12 GPUs = 2 slots of
  // 6; P is 6.
  const auto topology = Topology::FromMesh(
      {.tp = 2, .cp = 3, .pp = 2, .ep = 6, .etp = 2, .dp = 4});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->num_ranks(), 6u);
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 0, 1, 1));
}

TEST(TopologyFromMesh, CommunicatorPerSlot) {
  // 4 * 3 = 12 GPUs, communicators of 4 GPUs = 1 slot of 4.
  const auto topology = Topology::FromMesh({.tp = 4, .ep = 4, .dp = 3});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(0, 1, 2));
}

TEST(TopologyFromMesh, SlotOverSeveralCommunicatorsIsUnimplemented) {
  // A slot has 4 GPUs, a communicator 2.
  const auto narrow = Topology::FromMesh({.tp = 4, .ep = 2, .dp = 2});
  EXPECT_EQ(narrow.status().code(), absl::StatusCode::kUnimplemented);
  const std::string message(narrow.status().message());
  EXPECT_THAT(message, HasSubstr("header.topology.mesh"));
  EXPECT_THAT(message, HasSubstr("etp ep = 1 * 2 = 2"));
  EXPECT_THAT(message, HasSubstr("tp cp = 4 * 1 = 4"));
  EXPECT_THAT(message, HasSubstr("choose sizes where tp cp divides etp ep"));
}

TEST(TopologyFromMesh, SlotAcrossACommunicatorBorderIsUnimplemented) {
  // 12 GPUs, communicators of 6, slots of 4: slot 1 lies in both.
  EXPECT_EQ(Topology::FromMesh({.tp = 4, .ep = 6, .dp = 3}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(TopologyFromMesh, StageMustDivideIntoCommunicators) {
  const auto topology = Topology::FromMesh({.tp = 1, .ep = 8, .dp = 12});
  EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(topology.status()),
              ElementsAre("header.topology.mesh.ep"));
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("= 12"));
}

TEST(TopologyFromMesh, ListsEverySizeOutOfRange) {
  const auto zeros = Topology::FromMesh(
      {.tp = 0, .cp = 0, .pp = 0, .ep = 0, .etp = 0, .dp = 0});
  EXPECT_EQ(zeros.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      Fields(zeros.status()),
      ElementsAre("header.topology.mesh.tp", "header.topology.mesh.cp",
                  "header.topology.mesh.pp", "header.topology.mesh.ep",
                  "header.topology.mesh.etp", "header.topology.mesh.dp"));
  const uint32_t huge = 0xFFFFFFFF;
  const auto giants = Topology::FromMesh({huge, huge, huge, huge, huge, huge});
  EXPECT_EQ(Fields(giants.status()).size(), 6u);
  EXPECT_THAT(std::string(giants.status().message()),
              HasSubstr("[1, 65536], is 4294967295"));
}

TEST(TopologyFromMesh, LargestSizesDoNotOverflow) {
  const uint32_t d = Topology::kMaxDegree;
  const auto topology = Topology::FromMesh({.tp = d,
                                            .cp = d,
                                            .pp = d,
                                            .ep = Topology::kMaxRanks,
                                            .etp = d,
                                            .dp = Topology::kMaxSlots});
  EXPECT_EQ(topology.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(topology.status().message()),
              HasSubstr("4294967296 GPUs of a DP slot"));
}

// Walks over the GPUs of a stage; nothing when a slot meets two communicators.
std::optional<std::vector<uint32_t>> ShardsGpuByGpu(const MeshSizes& mesh) {
  std::vector<uint32_t> shard_of_slot(mesh.dp, ~uint32_t{0});
  for (uint32_t gpu = 0; gpu < mesh.tp * mesh.cp * mesh.dp; ++gpu) {
    uint32_t& shard = shard_of_slot[gpu / (mesh.tp * mesh.cp)];
    const uint32_t communicator = gpu / (mesh.etp * mesh.ep);
    if (shard != ~uint32_t{0} && shard != communicator) return std::nullopt;
    shard = communicator;
  }
  return shard_of_slot;
}

TEST(TopologyFromMesh, AgreesWithAWalkOverAllGpus) {
  std::mt19937 random(20261);
  int partitions = 0, spanning = 0, indivisible = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const auto size = [&] { return 1 + static_cast<uint32_t>(random() % 4); };
    const MeshSizes mesh = {size(),          size(), size(),
                            size() * size(), size(), size() * size()};
    const auto topology = Topology::FromMesh(mesh);
    if (mesh.tp * mesh.cp * mesh.dp % (mesh.etp * mesh.ep) != 0) {
      EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
      ++indivisible;
    } else if (const auto shards = ShardsGpuByGpu(mesh)) {
      ASSERT_TRUE(topology.ok()) << topology.status();
      EXPECT_EQ(ShardOfSlots(*topology), *shards);
      EXPECT_EQ(topology->num_shards(), shards->back() + 1);
      EXPECT_EQ(topology->num_ranks(), mesh.ep);
      ++partitions;
    } else {
      EXPECT_EQ(topology.status().code(), absl::StatusCode::kUnimplemented);
      ++spanning;
    }
  }
  EXPECT_GT(partitions, 100);
  EXPECT_GT(spanning, 100);
  EXPECT_GT(indivisible, 100);
}

// The file says where its numbers come from.
TEST(TopologyFromMesh, AgreesWithMegatron) {
  std::ifstream file(ROUTEPACK_TEST_DATA "/megatron_meshes.txt");
  ASSERT_TRUE(file) << "tests/data/megatron_meshes.txt is missing";
  int meshes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    SCOPED_TRACE(line);
    std::istringstream in(line);
    MeshSizes mesh;
    std::string bar, expected;
    ASSERT_TRUE(in >> mesh.tp >> mesh.cp >> mesh.pp >> mesh.ep >> mesh.etp >>
                mesh.dp >> bar >> expected);
    ASSERT_EQ(bar, "|");
    ++meshes;
    const auto topology = Topology::FromMesh(mesh);
    if (expected == "unimplemented") {
      EXPECT_EQ(topology.status().code(), absl::StatusCode::kUnimplemented);
    } else if (expected == "invalid") {
      EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
    } else {
      ASSERT_TRUE(topology.ok()) << topology.status();
      std::string actual;
      for (uint32_t shard : ShardOfSlots(*topology)) {
        actual += (actual.empty() ? "" : ",") + std::to_string(shard);
      }
      EXPECT_EQ(actual, expected);
      EXPECT_EQ(topology->num_ranks(), mesh.ep);
    }
  }
  EXPECT_GE(meshes, 200);
}

TEST(TopologyFromShards, NoShardsMeansOneOfAllSlots) {
  const auto topology = Topology::FromShards(3, 4, {});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->num_ranks(), 4u);
  EXPECT_EQ(topology->num_shards(), 1u);
  EXPECT_THAT(topology->slots_of_shard(0), ElementsAre(0, 1, 2));
}

TEST(TopologyFromShards, KeepsShardsAndSortsTheirSlots) {
  const auto topology = Topology::FromShards(5, 2, {{4, 1}, {3, 0, 2}});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(topology->slots_of_shard(0), ElementsAre(1, 4));
  EXPECT_THAT(topology->slots_of_shard(1), ElementsAre(0, 2, 3));
  EXPECT_THAT(ShardOfSlots(*topology), ElementsAre(1, 0, 1, 1, 0));
}

TEST(TopologyFromShards, ListsEveryFlawOfThePartition) {
  const auto topology =
      Topology::FromShards(5, 2, {{0, 1}, {}, {1, 5, 2}}, "here");
  EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
  const auto violations = ViolationsOf(topology.status());
  ASSERT_EQ(violations.size(), 5u);
  EXPECT_EQ(violations[0].field, "here.shards[1].slots");
  EXPECT_EQ(violations[1].field, "here.shards[2].slots[0]");
  EXPECT_EQ(violations[1].description, "slot 1 is already in shard 0");
  EXPECT_EQ(violations[2].field, "here.shards[2].slots[1]");
  EXPECT_EQ(violations[2].description, "must be below dp_slots = 5, is 5");
  EXPECT_EQ(violations[3].field, "here.shards");
  EXPECT_EQ(violations[3].description, "slot 3 is in no shard");
  EXPECT_EQ(violations[4].description, "slot 4 is in no shard");
}

TEST(TopologyFromShards, RefusesSizesOutOfRange) {
  const auto zeros = Topology::FromShards(0, 0, {});
  EXPECT_THAT(Fields(zeros.status()),
              ElementsAre("header.topology.shards.dp_slots",
                          "header.topology.shards.ep_ranks"));
  const auto giants =
      Topology::FromShards(0xFFFFFFFF, Topology::kMaxRanks + 1, {{0}});
  EXPECT_THAT(Fields(giants.status()),
              ElementsAre("header.topology.shards.dp_slots",
                          "header.topology.shards.ep_ranks"));
}

TEST(TopologyFromShards, RefusesASlotTwiceInOneShard) {
  const auto topology = Topology::FromShards(2, 2, {{0, 1, 0}});
  EXPECT_THAT(Fields(topology.status()),
              ElementsAre("header.topology.shards.shards[0].slots[2]"));
}

}  // namespace
}  // namespace routepack
