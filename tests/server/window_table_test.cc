#include "server/window_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "planner/errors.h"
#include "proto/codec/status.h"
#include "server/memory_plan_store.h"
#include "tests/server/windows.h"

namespace routepack::server {
namespace {

using testing::ElementsAre;

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

class WindowTableTest : public testing::Test {
 protected:
  std::shared_ptr<WindowSession> Open(uint64_t step,
                                      const std::string& job = "job") {
    auto opened = table_.Open(Header(Key(step, job), 4), 0, kNow);
    EXPECT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(opened->created);
    return opened->session;
  }
  // Walks a session to READY with an empty plan.
  void MakeReady(WindowSession& session) {
    v1::Accepted accepted;
    const uint64_t stream = session.Attach(kNow, accepted);
    ASSERT_TRUE(session.AddChunk(stream, Chunk(0, 0, 4), kNow).ok());
    auto sealed = session.Seal(stream, MakeSeal(1), kNow);
    ASSERT_TRUE(sealed.ok());
    auto window = std::move(sealed->builder).Seal();
    ASSERT_TRUE(window.ok());
    ASSERT_TRUE(session.Enqueue({.window = *std::move(window),
                                 .reservation = std::move(sealed->reservation),
                                 .request_digest = "digest"},
                                0));
    ASSERT_TRUE(session.StartPlanning(kNow).has_value());
    PlanRecord record =
        session.MakeRecord(v1::PLAN_STATE_READY, absl::OkStatus(), kNow);
    v1::Plan plan;
    plan.set_placement_version("v");
    record.SetPlan(std::move(plan));
    ASSERT_TRUE(table_.End(session, std::move(record), kNow));
  }
  v1::ListPlansResponse List(uint32_t page_size, const std::string& token = "",
                             const std::string& job = "") {
    v1::ListPlansRequest request;
    request.set_page_size(page_size);
    request.set_page_token(token);
    request.set_job_id(job);
    auto response = table_.List(request, 1000);
    EXPECT_TRUE(response.ok()) << response.status();
    return *response;
  }
  static std::vector<uint64_t> Steps(const v1::ListPlansResponse& list) {
    std::vector<uint64_t> steps;
    for (const v1::PlanSummary& plan : list.plans()) {
      steps.push_back(plan.key().step());
    }
    return steps;
  }

  Admission admission_{8, uint64_t{1} << 30};
  MemoryPlanStore store_{100};
  WindowTable table_{&admission_, &store_};
};

TEST_F(WindowTableTest, AKeyHasOneSession) {
  const auto session = Open(1);
  const auto again = table_.Open(Header(Key(1), 4), 0, kNow);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->created);
  EXPECT_EQ(again->session, session);
  EXPECT_EQ(admission_.open_windows(), 1);
  EXPECT_EQ(*table_.Find(Key(1)), session);
}

TEST_F(WindowTableTest, AReadyWindowIsFoundInTheStore) {
  MakeReady(*Open(1));
  EXPECT_EQ(table_.num_open(), 0);
  EXPECT_EQ((*table_.Find(Key(1)))->state(), v1::PLAN_STATE_READY);
  const auto again = table_.Open(Header(Key(1), 4), 0, kNow);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->created);
  EXPECT_EQ(again->session->request_digest(), "digest");
}

class FullStore : public MemoryPlanStore {
 public:
  using MemoryPlanStore::MemoryPlanStore;
  absl::Status Put(PlanRecord) override { throw std::bad_alloc(); }
};

TEST_F(WindowTableTest, AWindowEndsEvenIfItsRecordCannotBeKept) {
  FullStore store(1);
  WindowTable table(&admission_, &store);
  const auto session = table.Open(Header(Key(1), 4), 0, kNow)->session;
  EXPECT_TRUE(table.End(*session,
                        session->MakeRecord(v1::PLAN_STATE_CANCELLED,
                                            absl::CancelledError(""), kNow),
                        kNow));
  EXPECT_EQ(session->state(), v1::PLAN_STATE_CANCELLED);
  EXPECT_EQ(table.num_open(), 0);
}

TEST_F(WindowTableTest, CancelledAndFailedKeysMayBeSubmittedAnew) {
  Open(1);
  EXPECT_EQ(*table_.Cancel(Key(1), kNow), v1::PLAN_STATE_CANCELLED);
  EXPECT_EQ(table_.num_open(), 0);
  EXPECT_EQ(admission_.open_windows(), 0);
  EXPECT_EQ((*table_.Find(Key(1)))->state(), v1::PLAN_STATE_CANCELLED);
  const auto session = Open(1);
  EXPECT_EQ((*table_.Find(Key(1)))->state(), v1::PLAN_STATE_UPLOADING);
  ASSERT_TRUE(table_.End(
      *session,
      session->MakeRecord(v1::PLAN_STATE_FAILED, absl::AbortedError("x"), kNow),
      kNow));
  EXPECT_EQ((*table_.Find(Key(1)))->Summary().error(), "x");
  EXPECT_EQ(store_.size(), 1);
  Open(1);
}

TEST_F(WindowTableTest, CancellingAFinishedWindowTellsItsState) {
  MakeReady(*Open(1));
  EXPECT_EQ(*table_.Cancel(Key(1), kNow), v1::PLAN_STATE_READY);
  EXPECT_EQ(table_.Cancel(Key(2), kNow).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(WindowTableTest, ForgottenWindowsLeaveNoTrace) {
  const auto session = Open(1);
  ASSERT_TRUE(table_.Forget(*session, absl::AbortedError("x"), kNow));
  EXPECT_FALSE(table_.Forget(*session, absl::AbortedError("y"), kNow));
  EXPECT_EQ(table_.Find(Key(1)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.size(), 0);
  EXPECT_EQ(session->record()->error, absl::AbortedError("x"));
}

TEST_F(WindowTableTest, DropsUploadsThatWereSilentForTooLong) {
  const auto idle = Open(1);
  const auto busy = Open(2);
  v1::Accepted accepted;
  busy->Attach(kNow + absl::Seconds(8), accepted);
  const auto dropped =
      table_.DropIdle(absl::Seconds(10), kNow + absl::Seconds(10));
  ASSERT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped[0].step(), 1);
  EXPECT_EQ(idle->record()->error.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(busy->state(), v1::PLAN_STATE_UPLOADING);
  EXPECT_EQ(table_.num_open(), 1);
}

TEST_F(WindowTableTest, AFullTableForgetsTheUploadAbandonedForLongest) {
  const absl::Duration limit = WindowTable::kMakesRoomAfter;
  Admission admission{3, uint64_t{1} << 30};
  WindowTable table{&admission, &store_};
  const auto open = [&](uint64_t step, absl::Time now) {
    return table.Open(Header(Key(step), 4), 0, now).status();
  };
  v1::Accepted accepted;
  ASSERT_TRUE(open(1, kNow + absl::Seconds(1)).ok());
  ASSERT_TRUE(open(2, kNow).ok());
  ASSERT_TRUE(open(3, kNow).ok());
  (*table.Find(Key(3)))->Attach(kNow, accepted);
  const absl::Status full = open(4, kNow + limit);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  const auto longest = *table.Find(Key(2));
  EXPECT_TRUE(open(4, kNow + limit + absl::Milliseconds(1)).ok());
  EXPECT_EQ(longest->record()->error.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(table.Find(Key(1)).ok());
  // One that never fits makes nobody leave.
  v1::WindowHeader huge = Header(Key(5), 1u << 24);
  EXPECT_EQ(table.Open(huge, 0, kNow + absl::Hours(1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.Find(Key(1)).ok());
  // An upload with a stream stays, however long it takes.
  EXPECT_TRUE(open(5, kNow + 2 * limit).ok());
  EXPECT_FALSE(table.Find(Key(1)).ok());
  EXPECT_TRUE(table.Find(Key(3)).ok());
}

TEST_F(WindowTableTest, AdmitsAWindowBeforeItBuildsItsPlacement) {
  // Two placements of 2^22 experts take 32 MiB twice over.
  Admission admission{3, uint64_t{1} << 20};
  WindowTable table{&admission, &store_};
  v1::WindowHeader header = Header(Key(1), 1);
  header.set_num_layers(64);
  header.set_num_experts(1 << 16);
  EXPECT_EQ(table.Open(header, 0, kNow).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Nor does it look for the placement of one that is not admitted.
  header.mutable_current_placement()->set_committed_version("unknown");
  EXPECT_EQ(table.Open(header, 0, kNow).status().code(),
            absl::StatusCode::kResourceExhausted);
  header.set_num_layers(65);
  const absl::Status status = table.Open(header, 0, kNow).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(WindowTableTest, ChecksTheLengthOfTexts) {
  v1::WindowHeader header = Header(Key(1), 4);
  std::string text;
  for (int i = 0; i < 128; ++i) text += "\u00e4";
  header.set_content_digest(text);
  EXPECT_TRUE(table_.Open(header, 0, kNow).ok());
  *header.mutable_key() = Key(2);
  header.set_content_digest(text + "x");
  header.mutable_current_placement()->set_committed_version(
      std::string(257, 'v'));
  const absl::Status status = table_.Open(header, 0, kNow).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(ViolationsOf(status).size(), 2);
  EXPECT_EQ(ViolationsOf(status)[0].field, "header.content_digest");
  EXPECT_EQ(ViolationsOf(status)[1].field,
            "header.current_placement.committed_version");
  EXPECT_LT(status.message().size(), 1000);
}

TEST_F(WindowTableTest, RefusesNewWindowsWhileDraining) {
  Open(1);
  table_.BeginDrain();
  EXPECT_TRUE(table_.Open(Header(Key(1), 4), 0, kNow).ok());
  const absl::Status refused = table_.Open(Header(Key(2), 4), 0, kNow).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
}

TEST_F(WindowTableTest, PagesAreStableWhileWindowsComeAndGo) {
  for (uint64_t step = 1; step <= 5; ++step) {
    const auto session = Open(step);
    if (step % 2 == 0) MakeReady(*session);
  }
  const v1::ListPlansResponse first = List(2);
  EXPECT_THAT(Steps(first), ElementsAre(5, 4));
  Open(6);
  ASSERT_TRUE(table_.Cancel(Key(3), kNow).ok());
  const v1::ListPlansResponse second = List(2, first.next_page_token());
  EXPECT_THAT(Steps(second), ElementsAre(3, 2));
  const v1::ListPlansResponse third = List(2, second.next_page_token());
  EXPECT_THAT(Steps(third), ElementsAre(1));
  EXPECT_EQ(third.next_page_token(), "");
  EXPECT_THAT(Steps(List(0)), ElementsAre(6, 5, 4, 3, 2, 1));
}

TEST_F(WindowTableTest, ListsOneEntryPerKey) {
  Open(1);
  ASSERT_TRUE(table_.Cancel(Key(1), kNow).ok());
  Open(1);
  const v1::ListPlansResponse list = List(0);
  ASSERT_EQ(list.plans_size(), 1);
  EXPECT_EQ(list.plans(0).state(), v1::PLAN_STATE_UPLOADING);
}

TEST_F(WindowTableTest, RefusesTokensOfOtherLists) {
  Open(1, "a");
  Open(2, "a");
  const std::string token = List(1, "", "a").next_page_token();
  ASSERT_FALSE(token.empty());
  v1::ListPlansRequest request;
  request.set_page_token(token);
  const absl::Status status = table_.List(request, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ViolationsOf(status)[0].field, "page_token");
}

TEST_F(WindowTableTest, CurrentPlacementMustBeCommittedInTheSameJob) {
  MakeReady(*Open(1));
  v1::WindowHeader header = Header(Key(2), 4);
  header.mutable_current_placement()->set_committed_version("v");
  EXPECT_EQ(table_.Open(header, 0, kNow).status().code(),
            absl::StatusCode::kNotFound);
  header.mutable_current_placement()->set_committed_version("unknown");
  EXPECT_EQ(table_.Open(header, 0, kNow).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace routepack::server
