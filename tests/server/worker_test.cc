#include "server/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/memory_plan_store.h"
#include "server/window_session/state.h"
#include "tests/server/windows.h"

namespace routepack::server {
namespace {

// Throws, once, when the session is in `state`; tells when it has ended.
class ThrowingListener : public EventListener {
 public:
  ThrowingListener(const WindowSession& session, v1::PlanState state)
      : session_(session), state_(state) {}

  void Wake() override {
    const v1::PlanState state = session_.state();
    if (state == state_ && !thrown.exchange(true)) throw std::bad_alloc();
  }

  std::atomic<bool> thrown = false;

 private:
  const WindowSession& session_;
  const v1::PlanState state_;
};

class WorkerTest : public testing::Test {
 protected:
  // A window that is sealed and on its way to the worker.
  std::shared_ptr<WindowSession> Open() {
    const absl::Time now = absl::Now();
    auto opened = table_.Open(Header(Key(1), 4), 0, now);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened->session;
  }
  void Submit(const std::shared_ptr<WindowSession>& session) {
    const absl::Time now = absl::Now();
    v1::Accepted accepted;
    const uint64_t stream = session->Attach(now, accepted);
    ASSERT_TRUE(session->AddChunk(stream, Chunk(0, 0, 4), now).ok());
    auto sealed = session->Seal(stream, MakeSeal(1), now);
    ASSERT_TRUE(sealed.ok()) << sealed.status();
    worker_.PostCheck(session, *std::move(sealed));
  }
  // Until everything posted so far has run, plans included.
  void WaitForEnd(const WindowSession& session) {
    while (session.record() == nullptr) std::this_thread::yield();
  }

  Admission admission_{8, uint64_t{1} << 30};
  MemoryPlanStore store_{100};
  WindowTable table_{&admission_, &store_};
  Worker worker_{{.threads = 2}, &table_, *Log::Create("text", "off")};
};

TEST_F(WorkerTest, PlansWhatIsPosted) {
  const auto session = Open();
  Submit(session);
  WaitForEnd(*session);
  EXPECT_EQ(session->state(), v1::PLAN_STATE_READY);
  EXPECT_EQ(store_.bytes(), session->record()->bytes);
  EXPECT_EQ(session->record()->window_digest,
            session->record()->plan->window_digest());
}

TEST_F(WorkerTest, GoesOnAfterATaskThatThrows) {
  worker_.Post([] { throw std::bad_alloc(); });
  worker_.Post([] { throw 7; });
  absl::Notification done;
  worker_.Post([&] { done.Notify(); });
  done.WaitForNotification();
}

TEST_F(WorkerTest, WhatPlanningThrowsEndsTheWindow) {
  const auto session = Open();
  const auto listener =
      std::make_shared<ThrowingListener>(*session, v1::PLAN_STATE_PLANNING);
  session->Subscribe(listener);
  Submit(session);
  WaitForEnd(*session);
  EXPECT_TRUE(listener->thrown);
  EXPECT_EQ(session->state(), v1::PLAN_STATE_FAILED);
  EXPECT_EQ(session->record()->error.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table_.num_open(), 0);
  EXPECT_EQ(admission_.open_windows(), 0);
  // The worker plans on, and the key is free.
  const auto again = Open();
  Submit(again);
  WaitForEnd(*again);
  EXPECT_EQ(again->state(), v1::PLAN_STATE_READY);
}

TEST_F(WorkerTest, WhatTheCheckThrowsEndsTheWindow) {
  const auto session = Open();
  const auto listener =
      std::make_shared<ThrowingListener>(*session, v1::PLAN_STATE_QUEUED);
  session->Subscribe(listener);
  Submit(session);
  WaitForEnd(*session);
  EXPECT_TRUE(listener->thrown);
  EXPECT_EQ(session->state(), v1::PLAN_STATE_FAILED);
  EXPECT_EQ(admission_.open_windows(), 0);
}

}  // namespace
}  // namespace routepack::server
