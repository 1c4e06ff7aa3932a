// PlannerClient against the real server: the whole job of a step, and the
// life after a broken one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/planner_client.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/integration/server_process.h"
#include "tests/server/windows.h"

namespace routepack {
namespace {

using google::protobuf::util::MessageDifferencer;
using server::Header;
using server::Key;
using server::MakeSample;
using server::MakeWindow;
using testing::ElementsAre;

PlannerClient::SampleSourceFactory Samples(uint32_t count) {
  return [count]() -> absl::StatusOr<SampleSource> {
    return [count, i = uint32_t{0}](
               v1::Sample* sample) mutable -> absl::StatusOr<bool> {
      if (i == count) return false;
      *sample = MakeSample(i++);
      return true;
    };
  };
}

TEST(Client, DrivesAStepFromWindowToCommit) {
  ServerProcess server;
  ASSERT_TRUE(server.running()) << server.Log();
  PlannerClient client({.target = server.target()});
  EXPECT_TRUE(client.CheckHealth().ok());

  v1::WindowHeader header = Header(Key(1), 32);
  header.add_participant_ranks(5);
  std::vector<v1::PlanEvent::EventCase> events;
  const auto plan =
      client.StreamPlan(header, Samples(32), [&](const v1::PlanEvent& event) {
        if (!event.has_progress()) events.push_back(event.event_case());
      });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(
      events,
      ElementsAre(v1::PlanEvent::kAccepted, v1::PlanEvent::kSealed,
                  v1::PlanEvent::kPlacementReady, v1::PlanEvent::kPlan));

  // The ranks' parts add up to the plan.
  uint64_t tokens = 0;
  for (uint32_t slot = 0; slot < 2; ++slot) {
    v1::GetRankPlanRequest request;
    *request.mutable_key() = Key(1);
    request.set_dp_slot(slot);
    request.set_ep_rank(slot);
    const auto part = client.GetRankPlan(request);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->placement_digest(), plan->placement_digest());
    for (const v1::RankRow& row : part->rows()) tokens += row.tokens();
  }
  EXPECT_EQ(tokens, plan->layout().window_tokens());

  v1::ReportApplyRequest report;
  *report.mutable_key() = Key(1);
  report.set_placement_version(plan->placement_version());
  report.set_rank(5);
  report.set_state(v1::APPLY_STATE_NEW);
  report.set_digest(plan->placement_digest());
  const auto answer = client.ReportApply(report);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->commit(), v1::COMMIT_STATE_COMMITTED);
  EXPECT_EQ(client.GetPlan(Key(1))->summary().commit(),
            v1::COMMIT_STATE_COMMITTED);
  const auto watched = client.WatchPlan(Key(1), {});
  ASSERT_TRUE(watched.ok());
  EXPECT_TRUE(MessageDifferencer::Equals(*watched, *plan));
  EXPECT_EQ(client.ListPlans({})->plans_size(), 1);
}

TEST(Client, UploadsInChunksOfTheServersSize) {
  ServerProcess server({"--max_chunk_bytes=1024"});
  ASSERT_TRUE(server.running()) << server.Log();
  PlannerClient client({.target = server.target()});
  const auto plan = client.StreamPlan(Header(Key(1), 500), Samples(500));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto whole = client.CreatePlan(MakeWindow(Key(1), 500));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*whole, *plan));
}

TEST(Client, WaitsForAPlaceWhenTheServerIsFull) {
  ServerProcess server({"--max_open_windows=1", "--concurrent_plans=1"});
  ASSERT_TRUE(server.running()) << server.Log();
  std::vector<std::thread> threads;
  std::atomic<int> plans = 0;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      PlannerClient client({.target = server.target()});
      const auto plan = client.StreamPlan(Header(Key(t), 16), Samples(16));
      EXPECT_TRUE(plan.ok()) << plan.status();
      plans += plan.ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plans, 3);
}

// The server dies in the middle of an upload; another one takes its address.
TEST(Client, ResubmitsToTheServersSuccessor) {
  auto server = std::make_unique<ServerProcess>();
  ASSERT_TRUE(server->running()) << server->Log();
  const std::string target = server->target();
  PlannerClient client(
      {.target = target, .max_backoff = absl::Milliseconds(200)});
  std::thread successor;
  int opened = 0;
  const auto open = [&]() -> absl::StatusOr<SampleSource> {
    if (++opened == 1) {
      server = nullptr;
      successor = std::thread([&] {
        server = std::make_unique<ServerProcess>(
            std::vector<std::string>{absl::StrCat("--listen=", target)});
      });
    }
    return Samples(64)();
  };
  const auto plan = client.StreamPlan(Header(Key(1), 64), open);
  successor.join();
  ASSERT_TRUE(plan.ok()) << plan.status() << server->Log();
  EXPECT_EQ(opened, 2);
  EXPECT_TRUE(client.GetPlan(Key(1)).ok());
}

}  // namespace
}  // namespace routepack
