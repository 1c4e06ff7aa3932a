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

// 100 samples, 2 layers, 4 experts, 2 ranks padded to 8, 2 slots, 1 shard.
uint64_t SmallWindowBytes(uint64_t samples, uint64_t fillers) {
  const uint64_t items = samples + fillers;
  const uint64_t loads = items + items + items / 2;
  return WindowBytes(samples, 2, 4, 64) + loads * 2 * 8 * 4 + 2 * 4 * 52;
}

TEST(PlanningBytes, CountsTheWindowLoadsAndPlacements) {
  const auto spec = DecodeSpec(Header(Key(1), 100));
  ASSERT_TRUE(spec.ok());
  ASSERT_EQ(spec->topology.num_slots(), 2u);
  EXPECT_EQ(PlanningBytes(*spec, {}), SmallWindowBytes(100, 0));
}

TEST(PlanningBytes, CountsTheFillersThatMayBeAdded) {
  const auto spec = DecodeSpec(Header(Key(1), 99));
  ASSERT_TRUE(spec.ok());
  // 99 samples need 50 rows at most, one cell of which is filled.
  EXPECT_EQ(PlanningBytes(*spec, {.allow_filler = true}),
            SmallWindowBytes(99, 1));
  // 52 are a multiple of 4; 200 rows have 400 cells.
  EXPECT_EQ(PlanningBytes(*spec, {.row_multiple = 4, .allow_filler = true}),
            SmallWindowBytes(99, 5));
  EXPECT_EQ(PlanningBytes(*spec, {.min_rows = 200, .allow_filler = true}),
            SmallWindowBytes(99, 301));
  EXPECT_EQ(PlanningBytes(*spec, {.min_rows = 200}), SmallWindowBytes(99, 0));
  // More than this are refused.
  EXPECT_EQ(PlanningBytes(*spec, {.min_rows = 1 << 24, .allow_filler = true}),
            SmallWindowBytes(99, MostFillers(*spec)));
}

TEST(PlanningBytes, Saturates) {
  auto spec = DecodeSpec(Header(Key(1), 100));
  ASSERT_TRUE(spec.ok());
  spec->num_samples = spec->num_layers = spec->num_experts = 0xFFFFFFFF;
  EXPECT_EQ(PlanningBytes(*spec, {}), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace routepack::server
