#include "server/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "proto/codec/codec.h"
#include "tests/server/windows.h"

namespace routepack::server {
namespace {

TEST(Admission, RefusesAboveTheWindowCountWithARetryDelay) {
  Admission admission(2, 1000);
  auto a = admission.Admit(10);
  auto b = admission.Admit(10);
  ASSERT_TRUE(a.ok() && b.ok());
  const absl::Status full = admission.Admit(10).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelayOf(full), Admission::kRetryAfter);
  a->Release();
  EXPECT_TRUE(admission.Admit(10).ok());
}

TEST(Admission, RefusesAboveTheMemoryWithARetryDelay) {
  Admission admission(10, 1000);
  auto a = admission.Admit(600);
  ASSERT_TRUE(a.ok());
  const absl::Status full = admission.Admit(401).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelayOf(full), Admission::kRetryAfter);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("400 of 1000"));
  EXPECT_TRUE(admission.Admit(400).ok());
}

TEST(Admission, SaysNoRetryDelayWhenAWindowNeverFits) {
  Admission admission(10, 1000);
  const absl::Status never = admission.Admit(1001).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelayOf(never), std::nullopt);
}

TEST(Admission, ReservationsReleaseOnceWhereverTheyMove) {
  Admission admission(10, 1000);
  {
    Reservation a = *admission.Admit(100);
    Reservation b = std::move(a);
    a = *admission.Admit(50);
    EXPECT_EQ(admission.open_windows(), 2);
    EXPECT_EQ(admission.reserved_bytes(), 150);
    a = std::move(b);
    EXPECT_EQ(admission.open_windows(), 1);
    EXPECT_EQ(admission.reserved_bytes(), 100);
  }
  EXPECT_EQ(admission.open_windows(), 0);
  EXPECT_EQ(admission.reserved_bytes(), 0);
}

TEST(Admission, ReservationsMayOutliveIt) {
  Reservation late;
  {
    Admission admission(1, 10);
    late = *admission.Admit(10);
  }
  late.Release();
  EXPECT_EQ(late.bytes(), 0);
}

TEST(Admission, NeverExceedsItsLimitsUnderContention) {
  Admission admission(3, 30);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) {
        const auto place = admission.Admit(10);
        if (!place.ok()) continue;
        EXPECT_LE(admission.open_windows(), 3);
        EXPECT_LE(admission.reserved_bytes(), 30);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admission.open_windows(), 0);
}

// Of the windows below: 2 layers, 2 ranks padded to 8.
constexpr uint64_t kLoads = 2 * 8 * 4;
// No annealing and only the candidates that are always made.
PlanOptions Cheapest() {
  return {
      .search = {.effort = Effort::kSeeds, .candidates = 2, .projections = 1}};
}

// 100 samples, 2 layers, 4 experts, 2 ranks, 2 slots, 1 shard.
uint64_t SmallWindowBytes(uint64_t samples, uint64_t fillers) {
  const uint64_t items = samples + fillers;
  return WindowBytes(samples, 2, 4, 64) + 2 * 4 * 52 + items * kLoads +
         2 * (28 * items + 4 * (items / 2)) + (items + items / 2) * kLoads;
}

WindowSpec SmallSpec(uint32_t samples) {
  const auto spec = DecodeSpec(Header(Key(1), samples));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

TEST(PlanningBytes, CountsTheWindowLoadsAndPlacements) {
  const WindowSpec spec = SmallSpec(100);
  ASSERT_EQ(spec.topology.num_slots(), 2u);
  EXPECT_EQ(PlanningBytes(spec, Cheapest()), SmallWindowBytes(100, 0));
}

TEST(PlanningBytes, CountsTheCandidates) {
  const WindowSpec spec = SmallSpec(100);
  PlanOptions options = Cheapest();
  options.search.candidates = 8;
  options.search.projections = 10;
  EXPECT_EQ(PlanningBytes(spec, options) - PlanningBytes(spec, Cheapest()),
            8 * (28 * 100 + 40 * 50) - 2 * (28 * 100 + 4 * 50));
}

TEST(PlanningBytes, CountsThePopulationTwiceAndDemandInLanes) {
  const WindowSpec spec = SmallSpec(100);
  ASSERT_TRUE(spec.attention.empty());
  PlanOptions options = Cheapest();
  options.search.effort = Effort::kFast;
  options.search.population = 10;
  // Eight lanes of two ranks; 96 bytes an item; 32, a block and its tail.
  const uint64_t member = 50 * (6 * 16 + 16 + 32) + 100 * 96;
  const uint64_t ten = PlanningBytes(spec, options);
  EXPECT_EQ(ten, SmallWindowBytes(100, 0) - 150 * kLoads + 100 * 2 * 16 +
                     2 * 10 * member);
  options.search.population = 11;
  EXPECT_EQ(PlanningBytes(spec, options), ten + 2 * member);
  // With a cap like this a sample may send more than 2^14 tokens to a rank.
  WindowSpec wide = spec;
  wide.token_cap = 1 << 16;
  EXPECT_EQ(PlanningBytes(wide, options) - ten,
            2 * member + 100 * 2 * 16 + WindowBytes(100, 2, 4, 1 << 16) -
                WindowBytes(100, 2, 4, 64));
}

TEST(PlanningBytes, CountsTheFillersThatMayBeAdded) {
  const WindowSpec spec = SmallSpec(99);
  const auto bytes = [&](uint32_t min_rows, uint32_t row_multiple,
                         bool allow_filler) {
    PlanOptions options = Cheapest();
    options.min_rows = min_rows;
    options.row_multiple = row_multiple;
    options.allow_filler = allow_filler;
    return PlanningBytes(spec, options);
  };
  // 99 samples need 50 rows at most, one cell of which is filled.
  EXPECT_EQ(bytes(1, 1, true), SmallWindowBytes(99, 1));
  // 52 are a multiple of 4; 200 rows have 400 cells.
  EXPECT_EQ(bytes(1, 4, true), SmallWindowBytes(99, 5));
  EXPECT_EQ(bytes(200, 1, true), SmallWindowBytes(99, 301));
  EXPECT_EQ(bytes(200, 1, false), SmallWindowBytes(99, 0));
  // More than this are refused.
  EXPECT_EQ(bytes(1 << 24, 1, true), SmallWindowBytes(99, MostFillers(spec)));
}

TEST(PlanningBytes, Saturates) {
  WindowSpec spec = SmallSpec(100);
  spec.num_samples = spec.num_layers = spec.num_experts = 0xFFFFFFFF;
  EXPECT_EQ(PlanningBytes(spec, {.search = {.population = 1024}}),
            std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace routepack::server
