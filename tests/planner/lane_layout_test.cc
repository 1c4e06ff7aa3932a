#include "planner/lane_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/errors.h"
#include "tests/planner/slow_lanes.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Piece = LaneLayout::Piece;

TEST(LaneLayout, MegatronBufferWorkedOutByHand) {
  // Reversed: fc2 of slots 1 and 0, fc1 of slots 1 and 0, at 0, 64, 128 and
  // 256 with 50 and 100 elements; the end 356 is padded to 384, so that two
  // lanes own 192 each.
  GradientBuffer buffer{.parameters = {{.elements = 100}, {.elements = 50}}};
  const LaneLayout layout =
      ValueOrDie(LaneLayout::FromBuffer(buffer, 1, 2, 2, "buffer"));
  EXPECT_THAT(layout.pieces(0, 0),
              ElementsAre(Piece{0, 100, 1}, Piece{100, 150, 0}));
  EXPECT_THAT(
      layout.pieces(0, 1),
      ElementsAre(Piece{0, 64, 0}, Piece{64, 100, 1}, Piece{100, 150, 0}));
  ASSERT_EQ(layout.shares(0, 1).size(), 2u);
  EXPECT_EQ(layout.shares(0, 1)[0].elements, 114u);
  EXPECT_EQ(layout.shares(0, 1)[1].elements, 36u);
}

TEST(LaneLayout, NeighboursOfALaneAreOnePiece) {
  GradientBuffer buffer{.parameters = {{.elements = 100}, {.elements = 50}}};
  const LaneLayout layout =
      ValueOrDie(LaneLayout::FromBuffer(buffer, 3, 2, 1, "buffer"));
  EXPECT_THAT(layout.pieces(2, 1), ElementsAre(Piece{0, 150, 0}));
}

TEST(LaneLayout, IsTheBufferElementByElement) {
  TestRandom random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const uint32_t layers = random.Between(1, 4);
    const uint32_t slots = random.Between(1, 4);
    const uint32_t lanes = random.Between(1, 6);
    const GradientBuffer buffer = RandomBuffer(random, layers);
    const LaneLayout layout = ValueOrDie(
        LaneLayout::FromBuffer(buffer, layers, slots, lanes, "buffer"));
    const SlowLanes slow = LanesElementByElement(buffer, layers, slots, lanes);
    for (uint32_t l = 0; l < layers; ++l) {
      for (uint32_t h = 0; h < slots; ++h) {
        std::vector<uint32_t> owner;
        std::map<uint32_t, uint64_t> shares;
        for (const Piece& piece : layout.pieces(l, h)) {
          ASSERT_EQ(piece.begin, owner.size());
          owner.resize(piece.end, piece.lane);
          shares[piece.lane] += piece.end - piece.begin;
        }
        ASSERT_EQ(owner, slow[l][h]);
        std::map<uint32_t, uint64_t> reported;
        for (const auto& share : layout.shares(l, h)) {
          reported[share.lane] += share.elements;
        }
        ASSERT_EQ(reported, shares);
      }
    }
  }
}

TEST(LaneLayout, CrossingsAreTheElementsWhoseLaneDiffers) {
  TestRandom random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t slots = random.Between(2, 4);
    const uint32_t lanes = random.Between(1, 6);
    const GradientBuffer buffer = RandomBuffer(random, 1);
    const LaneLayout layout =
        ValueOrDie(LaneLayout::FromBuffer(buffer, 1, slots, lanes, "buffer"));
    const SlowLanes slow = LanesElementByElement(buffer, 1, slots, lanes);
    const uint32_t from = random.Below(slots);
    const uint32_t to = random.Below(slots);
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> expected;
    for (size_t x = 0; x < slow[0][from].size(); ++x) {
      const uint32_t a = slow[0][from][x];
      const uint32_t b = slow[0][to][x];
      if (a != b) ++expected[{a, b}];
    }
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> crossings;
    layout.ForEachCrossing(0, from, to,
                           [&](uint32_t a, uint32_t b, uint64_t elements) {
                             crossings[{a, b}] += elements;
                           });
    ASSERT_EQ(crossings, expected);
  }
}

TEST(LaneLayout, TakesExplicitRangesInAnyOrder) {
  const std::vector<LaneRange> ranges = {
      {0, 1, 1, 0, 8}, {0, 0, 1, 3, 8}, {0, 0, 0, 0, 3}};
  const LaneLayout layout =
      ValueOrDie(LaneLayout::FromRanges(ranges, 8, 1, 2, 2, "ranges"));
  EXPECT_THAT(layout.pieces(0, 0), ElementsAre(Piece{0, 3, 0}, Piece{3, 8, 1}));
  EXPECT_THAT(layout.pieces(0, 1), ElementsAre(Piece{0, 8, 1}));
}

TEST(LaneLayout, RefusesRangesThatDoNotCoverASlotOnce) {
  const auto message = [](const std::vector<LaneRange>& ranges) {
    return std::string(LaneLayout::FromRanges(ranges, 8, 1, 1, 2, "ranges")
                           .status()
                           .message());
  };
  EXPECT_THAT(message({}), HasSubstr("do not cover"));
  EXPECT_THAT(message({{0, 0, 0, 0, 7}}), HasSubstr("see element 7"));
  EXPECT_THAT(message({{0, 0, 0, 0, 8}, {0, 0, 1, 0, 5}}),
              HasSubstr("do not cover"));
  EXPECT_THAT(message({{0, 0, 0, 0, 5}, {0, 0, 1, 4, 8}}),
              HasSubstr("do not cover"));
  EXPECT_THAT(message({{0, 0, 2, 0, 8}}), HasSubstr("ranges[0].lane"));
  EXPECT_THAT(message({{0, 1, 0, 0, 8}}), HasSubstr("ranges[0].slot"));
  EXPECT_THAT(message({{0, 0, 0, 0, 9}}), HasSubstr("ranges[0].end"));
}

TEST(LaneLayout, NamesWhatIsOutOfRange) {
  const auto field = [](const GradientBuffer& buffer) {
    const auto bad = ViolationsOf(
        LaneLayout::FromBuffer(buffer, 2, 2, 2, "buffer").status());
    return bad.empty() ? "" : bad[0].field;
  };
  EXPECT_EQ(field({.parameters = {{.elements = 0}}}),
            "buffer.parameters[0].elements");
  EXPECT_EQ(field({.parameters = {{.elements = uint64_t{1} << 40}}}),
            "buffer.parameters");
  EXPECT_EQ(field({.parameters = {{.elements = 1}}, .start_alignment = 0}),
            "buffer.start_alignment");
  EXPECT_EQ(field({.parameters = {{.elements = 1}}, .end_multiple = 0}),
            "buffer.end_multiple");
  EXPECT_EQ(field({.parameters = {{.elements = 1}}, .chunk_of_layer = {0}}),
            "buffer.chunk_of_layer");
  EXPECT_EQ(field({.parameters = {{.elements = 1}}}), "");
}

TEST(LaneLayout, RefusesMoreRangesThanFitIntoMemory) {
  GradientBuffer buffer{.parameters = {{.elements = 1u << 20}}};
  for (uint32_t l = 0; l < 4096; ++l) buffer.chunk_of_layer.push_back(l);
  const auto bad = ViolationsOf(
      LaneLayout::FromBuffer(buffer, 4096, 1, 1u << 16, "buffer").status());
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].field, "buffer.parameters");
}

}  // namespace
}  // namespace routepack
