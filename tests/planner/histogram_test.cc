#include "planner/histogram.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/task_arena.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Id>
std::vector<uint32_t> CountPlainly(const std::vector<Id>& ids,
                                   const RoutingShape& shape) {
  std::vector<uint32_t> counts(size_t{shape.num_layers} * shape.num_experts);
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t layer = i % per_token / shape.top_k;
    ++counts[layer * shape.num_experts + static_cast<size_t>(ids[i])];
  }
  return counts;
}

template <typename Id>
std::vector<Id> RandomIds(std::mt19937_64& rng, size_t tokens,
                          const RoutingShape& shape) {
  const uint64_t end = std::min<uint64_t>(
      shape.num_experts, uint64_t{std::numeric_limits<Id>::max()} + 1);
  std::vector<Id> ids(tokens * shape.num_layers * shape.top_k);
  for (Id& id : ids) id = static_cast<Id>(rng() % end);
  return ids;
}

template <typename Id>
ExpertIds Ids(const std::vector<Id>& ids) {
  return std::span<const Id>(ids);
}

template <typename Id>
class CountRoutedExpertsOf : public testing::Test {};
using IdTypes = testing::Types<uint8_t, uint16_t, int32_t>;
TYPED_TEST_SUITE(CountRoutedExpertsOf, IdTypes);

TYPED_TEST(CountRoutedExpertsOf, CountsByHand) {
  // Two tokens, two layers, top-2 of three experts.
  const std::vector<TypeParam> ids = {0, 2, 1, 0,  //
                                      2, 1, 1, 2};
  std::vector<uint32_t> counts(6, 0);
  ASSERT_TRUE(CountRoutedExperts(Ids(ids), {2, 3, 2}, counts).ok());
  EXPECT_THAT(counts, ElementsAre(1, 1, 2, 1, 2, 1));
}

TYPED_TEST(CountRoutedExpertsOf, MatchesThePlainLoopForAnyShape) {
  std::mt19937_64 rng(1);
  const uint32_t experts[] = {1,   2,   3,   8,   60,  64,  100, 127, 128,
                              129, 160, 200, 255, 256, 257, 384, 512};
  for (uint32_t num_experts : experts) {
    for (uint32_t top_k = 1; top_k <= 12; ++top_k) {
      const RoutingShape shape = {static_cast<uint32_t>(1 + rng() % 19),
                                  num_experts, top_k};
      const auto ids = RandomIds<TypeParam>(rng, rng() % 20, shape);
      std::vector<uint32_t> counts(size_t{shape.num_layers} * num_experts, 0);
      const absl::Status status = CountRoutedExperts(Ids(ids), shape, counts);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(counts, CountPlainly(ids, shape))
          << "layers " << shape.num_layers << " experts " << num_experts
          << " top_k " << top_k;
    }
  }
}

TYPED_TEST(CountRoutedExpertsOf, ReadsIdsAtAnyAddress) {
  std::mt19937_64 rng(2);
  const RoutingShape shape = {5, 64, 4};
  auto ids = RandomIds<TypeParam>(rng, 9, shape);
  const std::vector<uint32_t> expected = CountPlainly(ids, shape);
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<TypeParam> moved(shift, 0);
    moved.insert(moved.end(), ids.begin(), ids.end());
    std::vector<uint32_t> counts(5 * 64, 0);
    ASSERT_TRUE(
        CountRoutedExperts(std::span<const TypeParam>(moved).subspan(shift),
                           shape, counts)
            .ok());
    EXPECT_EQ(counts, expected);
  }
}

TYPED_TEST(CountRoutedExpertsOf, AddsToTheCounts) {
  const std::vector<TypeParam> ids = {1};
  std::vector<uint32_t> counts = {5, 7};
  ASSERT_TRUE(CountRoutedExperts(Ids(ids), {1, 2, 1}, counts).ok());
  EXPECT_THAT(counts, ElementsAre(5, 8));
}

// Every bad id, wherever it stands, whatever stands beside it.
TYPED_TEST(CountRoutedExpertsOf, NamesTheFirstBadId) {
  std::mt19937_64 rng(3);
  for (uint32_t num_experts : {3, 64, 100, 128, 200, 255}) {
    for (uint32_t top_k : {1, 2, 3, 4, 6, 8, 10}) {
      const RoutingShape shape = {7, num_experts, top_k};
      const auto good = RandomIds<TypeParam>(rng, 6, shape);
      for (int trial = 0; trial < 40; ++trial) {
        auto ids = good;
        const size_t position = rng() % ids.size();
        const uint64_t most = std::numeric_limits<TypeParam>::max();
        const uint64_t bad =
            trial == 0   ? num_experts
            : trial == 1 ? most
                         : num_experts + rng() % (most + 1 - num_experts);
        ids[position] = static_cast<TypeParam>(bad);
        // A later bad id is not the one that is named.
        if (trial % 2 == 1) ids.back() = static_cast<TypeParam>(most);
        std::vector<uint32_t> counts(size_t{7} * num_experts, 0);
        const absl::Status status = CountRoutedExperts(Ids(ids), shape, counts);
        ASSERT_TRUE(absl::IsInvalidArgument(status)) << bad;
        EXPECT_EQ(status.message(),
                  "token " + std::to_string(position / (7 * top_k)) +
                      ", layer " +
                      std::to_string(position % (7 * top_k) / top_k) +
                      ": expert id " + std::to_string(ids[position]) +
                      " is outside [0, " + std::to_string(num_experts) + ")");
      }
    }
  }
}

TEST(CountRoutedExperts, RefusesNegativeIds) {
  std::vector<uint32_t> counts(128, 0);
  for (int32_t bad : {-1, std::numeric_limits<int32_t>::min()}) {
    const std::vector<int32_t> ids = {3, bad};
    EXPECT_THAT(CountRoutedExperts(Ids(ids), {1, 128, 2}, counts).message(),
                HasSubstr("expert id " + std::to_string(bad)));
    EXPECT_THAT(
        CountRoutedExperts(Ids(ids), {1, 100, 2}, std::span(counts).first(100))
            .message(),
        HasSubstr("expert id " + std::to_string(bad)));
  }
}

TEST(CountRoutedExperts, LongSamplesDoNotDependOnTheNumberOfThreads) {
  std::mt19937_64 rng(4);
  const RoutingShape shape = {6, 96, 8};
  auto ids = RandomIds<uint8_t>(rng, 20'000, shape);
  const std::vector<uint32_t> expected = CountPlainly(ids, shape);
  tbb::global_control workers(tbb::global_control::max_allowed_parallelism, 4);
  for (int threads : {1, 2, 4}) {
    tbb::task_arena arena(threads);
    std::vector<uint32_t> counts(expected.size(), 0);
    absl::Status status = arena.execute(
        [&] { return CountRoutedExperts(Ids(ids), shape, counts); });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(counts, expected);
  }
  ids[15'000 * 48 + 13] = 96;
  ids[19'000 * 48] = 200;
  for (int threads : {1, 4}) {
    tbb::task_arena arena(threads);
    std::vector<uint32_t> counts(expected.size(), 0);
    const absl::Status status = arena.execute(
        [&] { return CountRoutedExperts(Ids(ids), shape, counts); });
    EXPECT_EQ(status.message(),
              "token 15000, layer 1: expert id 96 is outside [0, 96)");
  }
}

TEST(CountRoutedExperts, RefusesSizesThatDoNotFit) {
  std::vector<uint32_t> counts(12, 0);
  const std::vector<uint8_t> ids(9, 0);
  const auto message = [&](const RoutingShape& shape, size_t room) {
    return std::string(
        CountRoutedExperts(Ids(ids), shape, std::span(counts).first(room))
            .message());
  };
  EXPECT_THAT(message({2, 6, 2}, 12), HasSubstr("ids: 9 values"));
  EXPECT_THAT(message({3, 6, 3}, 12), HasSubstr("counts: room for 12"));
  EXPECT_THAT(message({0, 6, 3}, 0), HasSubstr("num_layers 0"));
  EXPECT_THAT(message({3, 0, 3}, 0), HasSubstr("num_experts 0"));
  EXPECT_THAT(message({3, 4, 0}, 12), HasSubstr("top_k 0"));
  EXPECT_THAT(message({5000, 4, 3}, 12), HasSubstr("num_layers 5000"));
  EXPECT_THAT(message({3, 1u << 31, 3}, 12), HasSubstr("at most"));
  EXPECT_THAT(message({3, 4, 1u << 31}, 12), HasSubstr("at most"));
  EXPECT_EQ(message({3, 4, 3}, 12), "");
}

TEST(CountRoutedExperts, CountsNothingForNoTokens) {
  std::vector<uint32_t> counts(12, 0);
  EXPECT_TRUE(
      CountRoutedExperts(std::span<const uint8_t>(), {3, 4, 2}, counts).ok());
  EXPECT_THAT(counts, testing::Each(0));
}

TEST(CountRoutedExpertsOfBatch, CountsEachSample) {
  std::mt19937_64 rng(5);
  const RoutingShape shape = {5, 40, 6};
  const std::vector<uint32_t> rows = {3, 0, 700, 1, 20'000};
  const size_t tokens = std::accumulate(rows.begin(), rows.end(), size_t{0});
  const auto ids = RandomIds<uint16_t>(rng, tokens, shape);
  const auto counts = CountRoutedExperts(Ids(ids), rows, shape);
  ASSERT_TRUE(counts.ok()) << counts.status();
  ASSERT_EQ(counts->size(), rows.size() * 200);
  size_t begin = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t end = begin + rows[i] * 30;
    const std::vector<uint16_t> sample(ids.begin() + begin, ids.begin() + end);
    EXPECT_EQ(std::vector<uint32_t>(counts->begin() + i * 200,
                                    counts->begin() + (i + 1) * 200),
              CountPlainly(sample, shape));
    begin = end;
  }
}

TEST(CountRoutedExpertsOfBatch, NamesTheFirstBadSample) {
  const std::vector<uint32_t> rows = {2, 1, 2};
  std::vector<uint8_t> ids(5 * 4, 1);
  ids[2 * 4 + 3] = 9;
  ids[4 * 4] = 7;
  EXPECT_EQ(CountRoutedExperts(Ids(ids), rows, {2, 4, 2}).status().message(),
            "sample 1, token 0, layer 1: expert id 9 is outside [0, 4)");
}

TEST(CountRoutedExpertsOfBatch, RefusesRowsThatDoNotMatch) {
  const std::vector<uint8_t> ids(12, 0);
  for (const std::vector<uint32_t>& rows :
       {std::vector<uint32_t>{2}, std::vector<uint32_t>{3, 1},
        std::vector<uint32_t>{}}) {
    EXPECT_THAT(
        CountRoutedExperts(Ids(ids), rows, {2, 4, 2}).status().message(),
        HasSubstr("ids: 12 values, not sum(rows) L k"));
  }
  // 2^36 rows of 2^28 ids are 2^64 of them, which is 0 in 64 bits.
  const std::vector<uint32_t> rows(32, 1u << 31);
  EXPECT_THAT(
      CountRoutedExperts(std::span<const uint8_t>(), rows, {4096, 1, 65536})
          .status()
          .message(),
      HasSubstr("ids: 0 values, not sum(rows) L k"));
  const auto none =
      CountRoutedExperts(std::span<const uint8_t>(), {}, {2, 4, 2});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace routepack
