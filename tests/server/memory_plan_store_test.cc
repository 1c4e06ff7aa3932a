#include "server/memory_plan_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/page_token.h"
#include "tests/server/windows.h"

namespace routepack::server {
namespace {

using testing::ElementsAre;

PlanRecord Ready(uint64_t step, const std::string& job = "job",
                 const std::string& run = "run") {
  PlanRecord record;
  record.sequence = step;
  *record.summary.mutable_key() = Key(step, job, run);
  record.summary.set_state(v1::PLAN_STATE_READY);
  auto plan = std::make_shared<v1::Plan>();
  plan->set_placement_version("v" + std::to_string(step));
  record.plan = std::move(plan);
  record.commit = NewCommitLedger({0});
  return record;
}

void Commit(PlanStore& store, uint64_t step, const std::string& job = "job") {
  ASSERT_TRUE(store
                  .Update(WindowKey::Of(Key(step, job)),
                          [](PlanRecord& record) {
                            record.commit.state = v1::COMMIT_STATE_COMMITTED;
                            return absl::OkStatus();
                          })
                  .ok());
}

std::vector<uint64_t> Steps(const PlanStore& store, PlanFilter filter = {},
                            uint64_t before = kNewest, size_t limit = 100) {
  std::vector<uint64_t> steps;
  for (const PlanRecord& record : store.List(filter, before, limit)) {
    steps.push_back(record.summary.key().step());
  }
  return steps;
}

TEST(MemoryPlanStore, EvictsTheOldestFirst) {
  MemoryPlanStore store(2);
  for (uint64_t step : {1, 2, 3}) ASSERT_TRUE(store.Put(Ready(step)).ok());
  EXPECT_THAT(Steps(store), ElementsAre(3, 2));
  EXPECT_EQ(store.Get(WindowKey::Of(Key(1))).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store.FindPlacement("job", "v1").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MemoryPlanStore, NeverEvictsTheNewestCommittedPlanOfAJob) {
  MemoryPlanStore store(1);
  ASSERT_TRUE(store.Put(Ready(1)).ok());
  Commit(store, 1);
  for (uint64_t step : {2, 3, 4}) ASSERT_TRUE(store.Put(Ready(step)).ok());
  EXPECT_THAT(Steps(store), ElementsAre(4, 1));
  EXPECT_TRUE(store.FindPlacement("job", "v1").ok());
  // Its successor takes its place.
  Commit(store, 4);
  ASSERT_TRUE(store.Put(Ready(5)).ok());
  EXPECT_THAT(Steps(store), ElementsAre(5, 4));
}

TEST(MemoryPlanStore, EvictsTheOldestAboveItsBytes) {
  MemoryPlanStore store(100, 1000);
  const auto put = [&](uint64_t step, uint64_t bytes) {
    PlanRecord record = Ready(step);
    record.bytes = bytes;
    ASSERT_TRUE(store.Put(std::move(record)).ok());
  };
  for (uint64_t step : {1, 2, 3}) put(step, 300);
  EXPECT_EQ(store.bytes(), 900);
  put(4, 401);
  EXPECT_THAT(Steps(store), ElementsAre(4, 3));
  EXPECT_EQ(store.bytes(), 701);
  // One of a key takes the place of the other.
  put(4, 500);
  EXPECT_EQ(store.bytes(), 800);
  // The newest stays whatever it takes, and so does a live plan.
  Commit(store, 3);
  put(5, 5000);
  EXPECT_THAT(Steps(store), ElementsAre(5, 3));
  EXPECT_EQ(store.bytes(), 5300);
  put(6, 1);
  EXPECT_THAT(Steps(store), ElementsAre(6, 3));
}

TEST(MemoryPlanStore, KeepsTheLivePlanOfEveryJob) {
  MemoryPlanStore store(1);
  for (uint64_t step : {1, 2, 3}) {
    const std::string job = "job" + std::to_string(step);
    ASSERT_TRUE(store.Put(Ready(step, job)).ok());
    Commit(store, step, job);
  }
  ASSERT_TRUE(store.Put(Ready(4, "other")).ok());
  EXPECT_THAT(Steps(store), ElementsAre(4, 3, 2, 1));
}

TEST(MemoryPlanStore, ReplacesTheRecordOfAKey) {
  MemoryPlanStore store(10);
  PlanRecord failed = Ready(1);
  failed.plan = nullptr;
  failed.summary.set_state(v1::PLAN_STATE_FAILED);
  ASSERT_TRUE(store.Put(failed).ok());
  PlanRecord again = Ready(1);
  again.sequence = 7;
  ASSERT_TRUE(store.Put(again).ok());
  EXPECT_EQ(store.size(), 1);
  EXPECT_EQ(store.Get(WindowKey::Of(Key(1)))->sequence, 7);
}

TEST(MemoryPlanStore, UpdateLeavesTheRecordOnError) {
  MemoryPlanStore store(10);
  ASSERT_TRUE(store.Put(Ready(1)).ok());
  const absl::Status status =
      store.Update(WindowKey::Of(Key(1)), [](PlanRecord& record) {
        record.summary.set_rows(99);
        return absl::AbortedError("no");
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(store.Get(WindowKey::Of(Key(1)))->summary.rows(), 0);
  EXPECT_EQ(store
                .Update(WindowKey::Of(Key(2)),
                        [](PlanRecord&) { return absl::OkStatus(); })
                .code(),
            absl::StatusCode::kNotFound);
}

TEST(MemoryPlanStore, FindsPlacementsOfTheSameJobOnly) {
  MemoryPlanStore store(10);
  ASSERT_TRUE(store.Put(Ready(1, "a")).ok());
  EXPECT_TRUE(store.FindPlacement("a", "v1").ok());
  EXPECT_FALSE(store.FindPlacement("b", "v1").ok());
}

TEST(MemoryPlanStore, ListsByFilterAndPosition) {
  MemoryPlanStore store(10);
  ASSERT_TRUE(store.Put(Ready(1, "a", "x")).ok());
  ASSERT_TRUE(store.Put(Ready(2, "b", "x")).ok());
  ASSERT_TRUE(store.Put(Ready(3, "a", "y")).ok());
  ASSERT_TRUE(store.Put(Ready(4, "a", "x")).ok());
  EXPECT_THAT(Steps(store, {.job_id = "a"}), ElementsAre(4, 3, 1));
  EXPECT_THAT(Steps(store, {.job_id = "a", .run_id = "x"}), ElementsAre(4, 1));
  EXPECT_THAT(Steps(store, {.run_id = "x"}, 4), ElementsAre(2, 1));
  EXPECT_THAT(Steps(store, {}, kNewest, 2), ElementsAre(4, 3));
}

TEST(PageToken, ComesBackForTheSameFilterOnly) {
  const PlanFilter filter{.job_id = "a", .run_id = "x"};
  const std::string token = EncodePageToken(42, filter);
  EXPECT_EQ(DecodePageToken(token, filter), 42);
  EXPECT_EQ(DecodePageToken(token, {.job_id = "a"}), std::nullopt);
  EXPECT_EQ(DecodePageToken("", filter), std::nullopt);
  EXPECT_EQ(DecodePageToken("djEuNDI=", filter), std::nullopt);
  EXPECT_EQ(DecodePageToken("%%%", filter), std::nullopt);
  std::string wrong = token;
  wrong[4] = wrong[4] == 'A' ? 'B' : 'A';
  EXPECT_EQ(DecodePageToken(wrong, filter), std::nullopt);
}

}  // namespace
}  // namespace routepack::server
