#include "server/window_session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "planner/errors.h"
#include "proto/codec/codec.h"
#include "server/memory_plan_store.h"
#include "server/window_session/event_log.h"
#include "server/window_session/state.h"
#include "tests/server/windows.h"

namespace routepack::server {
namespace {

using testing::ElementsAre;

const absl::Time kStart = absl::UnixEpoch();

std::shared_ptr<WindowSession> NewSession(uint32_t num_samples,
                                          Admission& admission) {
  auto request = DecodeRequest(Header(Key(1), num_samples));
  EXPECT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(LoadCurrent(MemoryPlanStore(1), *request).ok());
  auto builder = WindowBuilder::Create(request->spec);
  auto reservation = admission.Admit(1);
  return std::make_shared<WindowSession>(
      std::make_shared<const WindowRequest>(*std::move(request)), 7,
      *std::move(builder), *std::move(reservation), kStart);
}

class SessionTest : public testing::Test {
 protected:
  // To QUEUED with its window; returns what Seal handed out on the way.
  void SealAndEnqueue() {
    v1::Accepted accepted;
    const uint64_t stream = session_->Attach(kStart, accepted);
    ASSERT_TRUE(session_->AddChunk(stream, Chunk(0, 0, 4), kStart).ok());
    auto sealed = session_->Seal(stream, MakeSeal(1), kStart);
    ASSERT_TRUE(sealed.ok()) << sealed.status();
    auto window = std::move(sealed->builder).Seal();
    ASSERT_TRUE(window.ok()) << window.status();
    ASSERT_TRUE(
        session_->Enqueue({.window = *std::move(window),
                           .reservation = std::move(sealed->reservation),
                           .request_digest = "digest"},
                          3));
  }
  std::shared_ptr<const PlanRecord> Record(v1::PlanState state,
                                           absl::Status error) {
    return std::make_shared<const PlanRecord>(
        session_->MakeRecord(state, std::move(error), kStart));
  }
  std::vector<std::string> ViolatedFields(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    std::vector<std::string> fields;
    for (const FieldViolation& v : ViolationsOf(status)) {
      fields.push_back(v.field);
    }
    return fields;
  }

  Admission admission_{10, 1000};
  std::shared_ptr<WindowSession> session_ = NewSession(4, admission_);
};

v1::PlanEvent Progress(double fraction) {
  v1::PlanEvent event;
  event.mutable_progress()->set_fraction(fraction);
  return event;
}

TEST(WindowState, HasTheArrowsOfItsTableOnly) {
  const v1::PlanState kU = v1::PLAN_STATE_UPLOADING;
  const v1::PlanState kQ = v1::PLAN_STATE_QUEUED;
  const v1::PlanState kP = v1::PLAN_STATE_PLANNING;
  const v1::PlanState kR = v1::PLAN_STATE_READY;
  const v1::PlanState kC = v1::PLAN_STATE_CANCELLED;
  const v1::PlanState kF = v1::PLAN_STATE_FAILED;
  const std::set<std::pair<v1::PlanState, v1::PlanState>> arrows = {
      {kU, kQ}, {kU, kC}, {kU, kF}, {kQ, kP}, {kQ, kC},
      {kQ, kF}, {kP, kR}, {kP, kC}, {kP, kF}};
  for (int from = 0; from < v1::PlanState_ARRAYSIZE; ++from) {
    for (int to = 0; to < v1::PlanState_ARRAYSIZE; ++to) {
      const std::pair arrow(static_cast<v1::PlanState>(from),
                            static_cast<v1::PlanState>(to));
      EXPECT_EQ(CanMove(arrow.first, arrow.second), arrows.contains(arrow))
          << from << " to " << to;
    }
  }
}

TEST_F(SessionTest, GoesFromUploadingToReady) {
  EXPECT_EQ(session_->state(), v1::PLAN_STATE_UPLOADING);
  SealAndEnqueue();
  EXPECT_EQ(session_->state(), v1::PLAN_STATE_QUEUED);
  EXPECT_EQ(session_->request_digest(), "digest");
  EXPECT_EQ(admission_.open_windows(), 1);
  {
    const auto input = session_->StartPlanning(kStart);
    ASSERT_TRUE(input.has_value());
    EXPECT_EQ(input->window.num_samples(), 4);
    EXPECT_EQ(session_->state(), v1::PLAN_STATE_PLANNING);
  }
  EXPECT_EQ(admission_.open_windows(), 0);
  ASSERT_TRUE(session_->Claim(v1::PLAN_STATE_READY));
  EXPECT_EQ(session_->record(), nullptr);
  PlanRecord record =
      session_->MakeRecord(v1::PLAN_STATE_READY, absl::OkStatus(), kStart);
  record.SetPlan({});
  session_->Finish(std::make_shared<const PlanRecord>(record), kStart);
  EXPECT_EQ(session_->state(), v1::PLAN_STATE_READY);
  ASSERT_NE(session_->record(), nullptr);
  EXPECT_EQ(session_->record()->sequence, 7);
}

TEST_F(SessionTest, RefusesArrowsThatItsTableLacks) {
  EXPECT_DEATH(session_->Claim(v1::PLAN_STATE_READY),
               "PLAN_STATE_UPLOADING to PLAN_STATE_READY");
  SealAndEnqueue();
  EXPECT_DEATH(session_->Claim(v1::PLAN_STATE_READY),
               "PLAN_STATE_QUEUED to PLAN_STATE_READY");
}

TEST_F(SessionTest, OneWinnerDecidesTheEnd) {
  SealAndEnqueue();
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      winners += session_->Claim(t % 2 == 0 ? v1::PLAN_STATE_CANCELLED
                                            : v1::PLAN_STATE_FAILED);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST_F(SessionTest, ClaimingFreesTheWindowAndStopsTheSearch) {
  SealAndEnqueue();
  EXPECT_EQ(admission_.open_windows(), 1);
  EXPECT_FALSE(session_->stop_token().stop_requested());
  ASSERT_TRUE(session_->Claim(v1::PLAN_STATE_CANCELLED));
  EXPECT_EQ(admission_.open_windows(), 0);
  EXPECT_TRUE(session_->stop_token().stop_requested());
  EXPECT_FALSE(session_->StartPlanning(kStart).has_value());
}

TEST_F(SessionTest, ChunksComeInOrder) {
  v1::Accepted accepted;
  const uint64_t stream = session_->Attach(kStart, accepted);
  EXPECT_EQ(accepted.next_chunk(), 0);
  const absl::Status early = session_->AddChunk(stream, Chunk(1, 0, 2), kStart);
  EXPECT_THAT(ViolatedFields(early), ElementsAre("chunk.index"));
  ASSERT_TRUE(session_->AddChunk(stream, Chunk(0, 0, 2), kStart).ok());
  const absl::Status twice = session_->AddChunk(stream, Chunk(0, 0, 2), kStart);
  EXPECT_THAT(ViolatedFields(twice), ElementsAre("chunk.index"));
}

TEST_F(SessionTest, ChunksHoldSamplesButNoMoreThanAnnounced) {
  v1::Accepted accepted;
  const uint64_t stream = session_->Attach(kStart, accepted);
  EXPECT_THAT(
      ViolatedFields(session_->AddChunk(stream, Chunk(0, 0, 0), kStart)),
      ElementsAre("chunk.samples"));
  EXPECT_THAT(
      ViolatedFields(session_->AddChunk(stream, Chunk(0, 0, 5), kStart)),
      ElementsAre("chunk.samples"));
}

TEST_F(SessionTest, SealMustMatchWhatArrived) {
  v1::Accepted accepted;
  const uint64_t stream = session_->Attach(kStart, accepted);
  ASSERT_TRUE(session_->AddChunk(stream, Chunk(0, 0, 2), kStart).ok());
  EXPECT_THAT(
      ViolatedFields(session_->Seal(stream, MakeSeal(2), kStart).status()),
      ElementsAre("seal.num_chunks"));
  EXPECT_THAT(
      ViolatedFields(session_->Seal(stream, MakeSeal(1), kStart).status()),
      ElementsAre("seal"));
  ASSERT_TRUE(session_->AddChunk(stream, Chunk(1, 2, 2), kStart).ok());
  EXPECT_TRUE(session_->Seal(stream, MakeSeal(2), kStart).ok());
  EXPECT_EQ(session_->Seal(stream, MakeSeal(2), kStart).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(SessionTest, ANewStreamTakesOverWhereTheOldOneStopped) {
  v1::Accepted accepted;
  const uint64_t old = session_->Attach(kStart, accepted);
  ASSERT_TRUE(session_->AddChunk(old, Chunk(0, 0, 2), kStart).ok());
  const uint64_t stream = session_->Attach(kStart, accepted);
  EXPECT_EQ(accepted.next_chunk(), 1);
  EXPECT_TRUE(session_->IsDetached(old));
  EXPECT_FALSE(session_->IsDetached(stream));
  EXPECT_EQ(session_->AddChunk(old, Chunk(1, 2, 2), kStart).code(),
            absl::StatusCode::kAborted);
  EXPECT_TRUE(session_->AddChunk(stream, Chunk(1, 2, 2), kStart).ok());
}

TEST_F(SessionTest, IsAbandonedWhileUploadingWithoutAStream) {
  EXPECT_TRUE(session_->IsAbandoned());
  v1::Accepted accepted;
  const uint64_t old = session_->Attach(kStart, accepted);
  EXPECT_FALSE(session_->IsAbandoned());
  const uint64_t stream = session_->Attach(kStart, accepted);
  session_->Detach(old, kStart);
  EXPECT_FALSE(session_->IsAbandoned());
  EXPECT_EQ(session_->AbandonedFor(kStart + absl::Hours(1)),
            absl::ZeroDuration());
  session_->Detach(stream, kStart + absl::Seconds(2));
  EXPECT_TRUE(session_->IsAbandoned());
  EXPECT_EQ(session_->AbandonedFor(kStart + absl::Seconds(5)),
            absl::Seconds(3));
  SealAndEnqueue();
  EXPECT_FALSE(session_->IsAbandoned());
  EXPECT_EQ(session_->AbandonedFor(kStart + absl::Hours(1)),
            absl::ZeroDuration());
}

TEST_F(SessionTest, IsIdleSinceItsLastRecordWhileUploading) {
  EXPECT_EQ(session_->IdleFor(kStart + absl::Seconds(5)), absl::Seconds(5));
  v1::Accepted accepted;
  const uint64_t stream = session_->Attach(kStart + absl::Seconds(6), accepted);
  EXPECT_EQ(session_->IdleFor(kStart + absl::Seconds(7)), absl::Seconds(1));
  ASSERT_TRUE(
      session_->AddChunk(stream, Chunk(0, 0, 4), kStart + absl::Seconds(8))
          .ok());
  EXPECT_EQ(session_->IdleFor(kStart + absl::Seconds(8)), absl::ZeroDuration());
  ASSERT_TRUE(session_->Seal(stream, MakeSeal(1), kStart).ok());
  EXPECT_EQ(session_->IdleFor(kStart + absl::Hours(1)), absl::ZeroDuration());
}

class CountingListener : public EventListener {
 public:
  void Wake() override { ++wakes; }
  std::atomic<int> wakes = 0;
};

TEST_F(SessionTest, WakesListenersWhileTheyLive) {
  auto listener = std::make_shared<CountingListener>();
  session_->Subscribe(listener);
  SealAndEnqueue();
  const int wakes = listener->wakes;
  EXPECT_GT(wakes, 0);
  session_->AppendEvent({});
  EXPECT_EQ(listener->wakes, wakes + 1);
  listener.reset();
  session_->AppendEvent({});
}

TEST_F(SessionTest, ReadersSeeTheEndAfterAllEvents) {
  SealAndEnqueue();
  EventCursor cursor;
  WindowSession::News news = session_->Poll(cursor);
  ASSERT_NE(news.event, nullptr);
  EXPECT_EQ(news.event->sealed().queue_position(), 3);
  news = session_->Poll(cursor);
  EXPECT_EQ(news.event, nullptr);
  EXPECT_FALSE(news.end.has_value());
  ASSERT_TRUE(session_->Claim(v1::PLAN_STATE_FAILED));
  session_->Finish(Record(v1::PLAN_STATE_FAILED, absl::AbortedError("why")),
                   kStart);
  news = session_->Poll(cursor);
  ASSERT_TRUE(news.end.has_value());
  EXPECT_EQ(*news.end, absl::AbortedError("why"));
  EXPECT_EQ(session_->Summary().error(), "why");
}

TEST_F(SessionTest, AReadyRecordReplaysItsEventsWithoutCopies) {
  SealAndEnqueue();
  ASSERT_TRUE(session_->StartPlanning(kStart).has_value());
  session_->AppendEvent(Progress(0.5));
  v1::PlanEvent placed;
  placed.mutable_placement_ready()->set_placement_version("v");
  session_->AppendEvent(placed);
  PlanRecord record =
      session_->MakeRecord(v1::PLAN_STATE_READY, absl::OkStatus(), kStart);
  v1::Plan plan;
  plan.set_window_digest(session_->window_digest());
  record.SetPlan(plan);
  EXPECT_EQ(record.plan.get(), &record.events.back()->plan());
  ASSERT_TRUE(session_->Claim(v1::PLAN_STATE_READY));
  session_->Finish(std::make_shared<const PlanRecord>(record), kStart);

  const WindowSession replay(record);
  const v1::PlanEvent accepted = replay.AcceptedEvent();
  EXPECT_EQ(accepted.accepted().state(), v1::PLAN_STATE_READY);
  EXPECT_EQ(accepted.accepted().window_digest(), session_->window_digest());
  EventCursor cursor;
  EventCursor first_reader;
  for (const auto what :
       {v1::PlanEvent::kSealed, v1::PlanEvent::kPlacementReady,
        v1::PlanEvent::kPlan}) {
    const auto event = replay.Poll(cursor).event;
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(event->event_case(), what);
    auto live = session_->Poll(first_reader).event;
    while (live->has_progress()) live = session_->Poll(first_reader).event;
    EXPECT_EQ(event, live);
  }
  EXPECT_TRUE(replay.Poll(cursor).end->ok());
  EXPECT_TRUE(session_->Poll(first_reader).end->ok());
}

TEST_F(SessionTest, RecordsTellTheirBytes) {
  SealAndEnqueue();
  ASSERT_TRUE(session_->StartPlanning(kStart).has_value());
  PlanRecord record =
      session_->MakeRecord(v1::PLAN_STATE_READY, absl::OkStatus(), kStart);
  v1::Plan plan;
  for (uint64_t i = 0; i < 1000; ++i) plan.add_warnings(std::string(100, 'w'));
  record.SetPlan(plan);
  EXPECT_GT(record.bytes, 100'000);
  EXPECT_EQ(record.bytes, RecordBytes(record));
}

v1::PlanEvent Sealed() {
  v1::PlanEvent event;
  event.mutable_sealed();
  return event;
}

TEST(EventLog, KeepsLastingEventsAndTheNewestProgress) {
  EventLog log;
  log.Append(Sealed());
  log.Append(Progress(0.1));
  log.Append(Progress(0.2));
  v1::PlanEvent plan;
  plan.mutable_plan();
  log.Append(Progress(0.3));
  log.Append(std::move(plan));
  EventCursor slow;
  EXPECT_TRUE(log.Next(slow)->has_sealed());
  EXPECT_EQ(log.Next(slow)->progress().fraction(), 0.3);
  EXPECT_TRUE(log.Next(slow)->has_plan());
  EXPECT_EQ(log.Next(slow), nullptr);
}

TEST(EventLog, ReadersMoveAtTheirOwnPace) {
  EventLog log;
  EventCursor fast;
  EventCursor late;
  EXPECT_EQ(log.Next(fast), nullptr);
  log.Append(Progress(0.1));
  EXPECT_EQ(log.Next(fast)->progress().fraction(), 0.1);
  EXPECT_EQ(log.Next(fast), nullptr);
  log.Append(Progress(0.2));
  EXPECT_EQ(log.Next(fast)->progress().fraction(), 0.2);
  EXPECT_EQ(log.Next(late)->progress().fraction(), 0.2);
  EXPECT_EQ(log.Next(late), nullptr);
}

}  // namespace
}  // namespace routepack::server
