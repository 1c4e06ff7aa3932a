// routepackd as its users see it: the real binary on loopback, driven with
// raw stubs.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/clear_timings.h"
#include "tests/integration/calls.h"
#include "tests/integration/server_process.h"
#include "tests/server/windows.h"

namespace routepack {
namespace {

using google::protobuf::util::MessageDifferencer;
using server::Chunk;
using server::Header;
using server::Key;
using server::MakeSample;
using server::MakeSeal;
using server::MakeWindow;
using testing::ElementsAre;
using testing::HasSubstr;

// A window whose row search goes on until it is stopped: triplets that fill
// the cap exactly, one DP slot. Small generator so that it is always the same.
v1::Window HardWindow(const v1::PlanKey& key) {
  v1::Window window;
  v1::WindowHeader& header = *window.mutable_header();
  *header.mutable_key() = key;
  header.set_num_samples(3 * 167);
  header.set_num_layers(1);
  header.set_num_experts(1);
  header.set_top_k(1);
  header.set_token_cap(1000);
  header.mutable_topology()->mutable_mesh()->set_dp(1);
  header.mutable_counts()->set_partial_counts(true);
  header.mutable_options()->set_row_search_nodes(uint64_t{1} << 60);
  uint64_t state = 1;
  const auto random = [&](uint32_t low, uint32_t high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + static_cast<uint32_t>((state >> 33) % (high - low));
  };
  for (uint32_t triplet = 0; triplet < 167; ++triplet) {
    const uint32_t first = random(380, 490);
    const uint32_t second = random(250, (1000 - first) / 2 + 1);
    for (uint32_t tokens : {first, second, 1000 - first - second}) {
      v1::Sample& sample = *window.add_samples();
      sample.set_id(static_cast<uint64_t>(window.samples_size()));
      sample.set_tokens(tokens);
      sample.mutable_counts()->set_u8(std::string(1, '\0'));
    }
  }
  return window;
}

v1::SampleChunk AllSamples(const v1::Window& window) {
  v1::SampleChunk chunk;
  *chunk.mutable_samples() = window.samples();
  return chunk;
}

// Uploads a window and waits until it is in the queue.
void SubmitAndLeave(v1::PlannerService::Stub& stub, const v1::Window& window) {
  PlanCall call(stub);
  ASSERT_TRUE(call.Send(window.header()));
  ASSERT_TRUE(call.Read().has_accepted());
  ASSERT_TRUE(call.Send(AllSamples(window)));
  ASSERT_TRUE(call.Send(MakeSeal(1)));
  ASSERT_TRUE(call.Read().has_sealed());
}

void WaitForState(v1::PlannerService::Stub& stub, const v1::PlanKey& key,
                  v1::PlanState state) {
  const absl::Time end = absl::Now() + kCallTimeout;
  v1::PlanState seen = v1::PLAN_STATE_UNSPECIFIED;
  while (seen != state && absl::Now() < end) {
    const auto response = GetPlan(stub, key);
    ASSERT_TRUE(response.ok()) << response.status();
    seen = response->summary().state();
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_EQ(seen, state);
}

std::vector<v1::PlanEvent::EventCase> Watch(v1::PlannerService::Stub& stub,
                                            const v1::PlanKey& key,
                                            absl::Status& end) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  const auto reader =
      stub.WatchPlan(&context, ForKey<v1::WatchPlanRequest>(key));
  std::vector<v1::PlanEvent::EventCase> seen;
  v1::WatchPlanResponse response;
  while (reader->Read(&response)) {
    const auto what = response.event().event_case();
    // How many progress events there are is up to timing.
    if (what != v1::PlanEvent::kProgress) seen.push_back(what);
  }
  end = FromGrpc(reader->Finish());
  return seen;
}

class ServerTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    server_ = std::make_unique<ServerProcess>(std::move(flags));
    ASSERT_TRUE(server_->running()) << server_->Log();
  }
  v1::PlannerService::Stub& stub() { return server_->stub(); }
  uint32_t OpenWindows() {
    const auto info = Unary(&v1::PlannerService::Stub::GetServerInfo, stub(),
                            v1::GetServerInfoRequest());
    return info.ok() ? info->load().open_windows() : 9999;
  }

  std::unique_ptr<ServerProcess> server_;
};

TEST_F(ServerTest, StreamsAWindowFromHeaderToPlan) {
  Start();
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(Header(Key(1), 8)));
  const v1::PlanEvent accepted = call.Read();
  EXPECT_EQ(accepted.accepted().next_chunk(), 0);
  EXPECT_EQ(accepted.accepted().max_chunk_bytes(), 4u << 20);
  EXPECT_EQ(accepted.accepted().state(), v1::PLAN_STATE_UPLOADING);
  ASSERT_TRUE(call.Send(Chunk(0, 0, 5)));
  ASSERT_TRUE(call.Send(Chunk(1, 5, 3)));
  ASSERT_TRUE(call.Send(MakeSeal(2)));
  const v1::PlanEvent sealed = call.Read();
  ASSERT_TRUE(sealed.has_sealed());
  v1::PlanEvent placed = call.Read();
  while (placed.has_progress()) placed = call.Read();
  ASSERT_TRUE(placed.has_placement_ready());
  v1::PlanEvent planned = call.Read();
  while (planned.has_progress()) planned = call.Read();
  ASSERT_TRUE(planned.has_plan());
  EXPECT_TRUE(call.Finish().ok());

  const v1::Plan& plan = planned.plan();
  EXPECT_EQ(plan.window_digest(), sealed.sealed().window_digest());
  EXPECT_EQ(plan.placement_digest(),
            placed.placement_ready().placement_digest());
  EXPECT_EQ(plan.placement_version(),
            placed.placement_ready().placement_version());
  EXPECT_TRUE(MessageDifferencer::Equals(plan.placement(),
                                         placed.placement_ready().placement()));
  EXPECT_EQ(plan.backend(), "cpu");
  // The same window in one message, counted differently, is the same window.
  const auto unary = CreatePlan(stub(), MakeWindow(Key(1), 8));
  ASSERT_TRUE(unary.ok()) << unary.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*unary, plan));
  EXPECT_EQ(OpenWindows(), 0);
}

// The events of placement and plan of one call.
struct Announced {
  v1::PlacementReady placement;
  v1::Plan plan;
};
Announced StreamAll(v1::PlannerService::Stub& stub, const v1::Window& window) {
  PlanCall call(stub);
  EXPECT_TRUE(call.Send(window.header()));
  EXPECT_TRUE(call.Send(AllSamples(window)));
  EXPECT_TRUE(call.Send(MakeSeal(1)));
  Announced announced;
  while (!announced.plan.has_placement()) {
    const v1::PlanEvent event = call.Read();
    if (event.event_case() == v1::PlanEvent::EVENT_NOT_SET) break;
    if (event.has_placement_ready()) {
      announced.placement = event.placement_ready();
    }
    if (event.has_plan()) announced.plan = event.plan();
  }
  EXPECT_TRUE(call.Finish().ok());
  return announced;
}

TEST_F(ServerTest, AnnouncesThePlacementWithItsTransfer) {
  Start();
  v1::Window window = MakeWindow(Key(1), 40);
  v1::PlanOptions& options = *window.mutable_header()->mutable_options();
  options.set_placement(v1::PLACEMENT_POLICY_LPT);
  options.mutable_movement()->set_parameters_per_expert(300);
  const Announced kept = StreamAll(stub(), window);
  EXPECT_FALSE(kept.placement.may_change());
  EXPECT_GT(kept.placement.movement().weighted_bytes(), 0);
  EXPECT_TRUE(MessageDifferencer::Equals(kept.placement.movement(),
                                         kept.plan.movement()));
  ASSERT_EQ(kept.plan.transfer_size(), 1);
  ASSERT_EQ(kept.placement.transfer_size(), 1);
  EXPECT_GT(kept.plan.transfer(0).rounds_size(), 0);
  EXPECT_TRUE(MessageDifferencer::Equals(kept.placement.transfer(0),
                                         kept.plan.transfer(0)));
  EXPECT_EQ(kept.placement.placement_digest(), kept.plan.placement_digest());

  window.mutable_header()->mutable_key()->set_step(2);
  options.set_refine_after_announce(true);
  options.mutable_incremental()->set_break_even(false);  // moves cost nothing
  const Announced refined = StreamAll(stub(), window);
  EXPECT_TRUE(refined.placement.may_change());
  EXPECT_EQ(refined.placement.placement_digest(),
            kept.placement.placement_digest());
  EXPECT_EQ(refined.plan.refinement().announced_digest(),
            kept.placement.placement_digest());
  EXPECT_LE(refined.plan.routepack().joint(), kept.plan.reorder().joint());
}

TEST_F(ServerTest, PlansDoNotDependOnThreads) {
  v1::Plan plans[2];
  for (int n = 0; n < 2; ++n) {
    Start({absl::StrCat("--threads=", 1 + 3 * n)});
    const auto plan = CreatePlan(stub(), MakeWindow(Key(1), 40));
    ASSERT_TRUE(plan.ok()) << plan.status();
    plans[n] = *plan;
    ClearTimings(plans[n]);
  }
  EXPECT_TRUE(MessageDifferencer::Equals(plans[0], plans[1]));
}

TEST_F(ServerTest, GoesOnWithAnUploadAfterABrokenConnection) {
  Start();
  {
    PlanCall call(stub());
    ASSERT_TRUE(call.Send(Header(Key(1), 8)));
    ASSERT_TRUE(call.Read().has_accepted());
    ASSERT_TRUE(call.Send(Chunk(0, 0, 4)));
    // The half-close is answered after the chunk.
    call.HalfClose();
    EXPECT_EQ(call.Finish().code(), absl::StatusCode::kAborted);
  }
  {
    PlanCall call(stub());
    ASSERT_TRUE(call.Send(Header(Key(1), 8)));
    EXPECT_EQ(call.Read().accepted().next_chunk(), 1);
    call.Break();
  }
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(Header(Key(1), 8)));
  EXPECT_EQ(call.Read().accepted().next_chunk(), 1);
  ASSERT_TRUE(call.Send(Chunk(1, 4, 4)));
  ASSERT_TRUE(call.Send(MakeSeal(2)));
  EXPECT_TRUE(call.Finish().ok());
  const auto plan = GetPlan(stub(), Key(1));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->summary().state(), v1::PLAN_STATE_READY);
}

TEST_F(ServerTest, ANewStreamTakesOverTheUploadOfTheOldOne) {
  Start();
  PlanCall old(stub());
  ASSERT_TRUE(old.Send(Header(Key(1), 8)));
  ASSERT_TRUE(old.Read().has_accepted());
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(Header(Key(1), 8)));
  ASSERT_TRUE(call.Read().has_accepted());
  EXPECT_EQ(old.Finish().code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(call.Send(Chunk(0, 0, 8)));
  ASSERT_TRUE(call.Send(MakeSeal(1)));
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(ServerTest, DropsSilentUploads) {
  Start({"--upload_idle_timeout=20ms"});
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(Header(Key(1), 8)));
  ASSERT_TRUE(call.Read().has_accepted());
  const absl::Status status = call.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("silent"));
  EXPECT_EQ(GetPlan(stub(), Key(1)).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenWindows(), 0);
}

TEST_F(ServerTest, RefusesOverloadFromTheHeaderWithARetryDelay) {
  Start({"--max_open_windows=1"});
  PlanCall first(stub());
  ASSERT_TRUE(first.Send(Header(Key(1), 8)));
  ASSERT_TRUE(first.Read().has_accepted());
  PlanCall second(stub());
  ASSERT_TRUE(second.Send(Header(Key(2), 8)));
  const absl::Status full = second.Finish();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelayOf(full).has_value());
  const absl::Status unary = CreatePlan(stub(), MakeWindow(Key(3), 8)).status();
  EXPECT_EQ(unary.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelayOf(unary).has_value());
  // Once the place is free they come in.
  ASSERT_TRUE(first.Send(Chunk(0, 0, 8)));
  ASSERT_TRUE(first.Send(MakeSeal(1)));
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_TRUE(CreatePlan(stub(), MakeWindow(Key(3), 8)).ok());
}

TEST_F(ServerTest, RefusesWindowsThatNeverFitInMemory) {
  Start({"--window_memory_mb=1"});
  v1::WindowHeader header = Header(Key(1), 1u << 20);
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(header));
  const absl::Status status = call.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(RetryDelayOf(status).has_value());
}

// A header of a few bytes asks for placements of 2^22 experts.
TEST_F(ServerTest, TakesNoMemoryForWhatIsNotAdmitted) {
  Start({"--window_memory_mb=16"});
  v1::WindowHeader header = Header(Key(1), 1);
  header.set_num_layers(64);
  header.set_num_experts(1 << 16);
  const uint64_t before = server_->PeakMemory();
  for (int n = 0; n < 3; ++n) {
    PlanCall call(stub());
    ASSERT_TRUE(call.Send(header));
    const absl::Status status = call.Finish();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
  if (!kSanitized) {
    EXPECT_LT(server_->PeakMemory() - before, 16u << 20);
  }
  EXPECT_TRUE(CreatePlan(stub(), MakeWindow(Key(2), 8)).ok());
}

TEST_F(ServerTest, GivesKnownWindowsTheirPlanWhenItIsFull) {
  Start({"--max_open_windows=1"});
  v1::Window window = MakeWindow(Key(1), 8);
  const auto plan = CreatePlan(stub(), window);
  ASSERT_TRUE(plan.ok()) << plan.status();
  PlanCall upload(stub());
  ASSERT_TRUE(upload.Send(Header(Key(2), 8)));
  ASSERT_TRUE(upload.Read().has_accepted());

  const auto again = CreatePlan(stub(), window);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*again, *plan));
  PlanCall stream(stub());
  ASSERT_TRUE(stream.Send(window.header()));
  const v1::PlanEvent accepted = stream.Read();
  EXPECT_EQ(accepted.accepted().state(), v1::PLAN_STATE_READY);
  EXPECT_EQ(accepted.accepted().window_digest(), plan->window_digest());
  EXPECT_TRUE(stream.Finish().ok());
  // Another one of the key needs no place to be refused.
  *window.mutable_samples(3) = MakeSample(11);
  EXPECT_EQ(CreatePlan(stub(), window).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(ServerTest, PlansAreKeptWithinTheirMemory) {
  Start({"--plan_store_mb=1"});
  // Placements of 16384 experts: three of them, in both directions, with every
  // plan.
  v1::Window window = MakeWindow(Key(1), 4);
  window.mutable_header()->set_num_layers(16);
  window.mutable_header()->set_num_experts(1024);
  for (v1::Sample& sample : *window.mutable_samples()) {
    v1::SparseCounts& counts = *sample.mutable_counts()->mutable_sparse();
    for (int l = 0; l < 16; ++l) {
      v1::SparseLayer& layer = *counts.add_layers();
      for (uint32_t e : {1, 2}) {
        layer.add_experts(e);
        layer.add_counts(sample.tokens());
      }
    }
  }
  for (uint64_t step = 1; step <= 4; ++step) {
    window.mutable_header()->mutable_key()->set_step(step);
    const auto plan = CreatePlan(stub(), window);
    ASSERT_TRUE(plan.ok()) << plan.status();
  }
  const auto info = Unary(&v1::PlannerService::Stub::GetServerInfo, stub(),
                          v1::GetServerInfoRequest());
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->limits().plan_store_bytes(), 1u << 20);
  EXPECT_GT(info->load().plan_store_bytes(), 3 * 16384 * 8);
  EXPECT_LE(info->load().plan_store_bytes(), 1u << 20);
  EXPECT_LT(info->load().stored_plans(), 4);
  EXPECT_TRUE(GetPlan(stub(), Key(4)).ok());
  EXPECT_EQ(GetPlan(stub(), Key(1)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ServerTest, PlansManyWindowsFromManyThreads) {
  Start({"--concurrent_plans=2", "--max_open_windows=64"});
  std::atomic<int> plans = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t n = 0; n < 5; ++n) {
        const v1::PlanKey key = Key(n, absl::StrCat("job", t));
        const auto samples = static_cast<uint32_t>(8 + 2 * t + n);
        if (n % 2 == 0) {
          const auto plan = CreatePlan(stub(), MakeWindow(key, samples));
          EXPECT_TRUE(plan.ok()) << plan.status();
          plans += plan.ok();
          continue;
        }
        PlanCall call(stub());
        EXPECT_TRUE(call.Send(Header(key, samples)));
        EXPECT_TRUE(call.Send(Chunk(0, 0, 4)));
        EXPECT_TRUE(call.Send(Chunk(1, 4, samples - 4)));
        EXPECT_TRUE(call.Send(MakeSeal(2)));
        const absl::Status status = call.Finish();
        EXPECT_TRUE(status.ok()) << status;
        plans += status.ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plans, 40);
  EXPECT_EQ(OpenWindows(), 0);
  v1::ListPlansRequest request;
  request.set_job_id("job3");
  const auto list =
      Unary(&v1::PlannerService::Stub::ListPlans, stub(), request);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->plans_size(), 5);
}

TEST_F(ServerTest, OneWindowSentByManyThreadsIsPlannedOnce) {
  Start();
  const v1::Window window = MakeWindow(Key(1), 16);
  std::vector<std::thread> threads;
  std::vector<std::string> plans(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto plan = CreatePlan(stub(), window);
      EXPECT_TRUE(plan.ok()) << plan.status();
      if (plan.ok()) plans[t] = plan->SerializeAsString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Timings are part of the plan: equal bytes mean one run.
  for (const std::string& plan : plans) EXPECT_EQ(plan, plans[0]);
}

TEST_F(ServerTest, CancelsUploadsQueuedWindowsAndSearches) {
  Start();
  const v1::Window hard = HardWindow(Key(1));
  SubmitAndLeave(stub(), hard);
  WaitForState(stub(), Key(1), v1::PLAN_STATE_PLANNING);
  SubmitAndLeave(stub(), MakeWindow(Key(2), 8));
  EXPECT_EQ(GetPlan(stub(), Key(2))->summary().state(), v1::PLAN_STATE_QUEUED);
  PlanCall upload(stub());
  ASSERT_TRUE(upload.Send(Header(Key(3), 8)));
  ASSERT_TRUE(upload.Read().has_accepted());

  for (uint64_t step : {2, 3, 1}) {
    const auto response = CancelPlan(stub(), Key(step));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->state(), v1::PLAN_STATE_CANCELLED);
    EXPECT_EQ(GetPlan(stub(), Key(step))->summary().state(),
              v1::PLAN_STATE_CANCELLED);
  }
  EXPECT_EQ(upload.Finish().code(), absl::StatusCode::kCancelled);
  // The worker is free again, and the key may be used anew.
  EXPECT_TRUE(CreatePlan(stub(), MakeWindow(Key(2), 8)).ok());
  EXPECT_EQ(CancelPlan(stub(), Key(2))->state(), v1::PLAN_STATE_READY);
  EXPECT_EQ(OpenWindows(), 0);
}

TEST_F(ServerTest, WatchersSeeTheWholeLifeWheneverTheyCome) {
  Start();
  ASSERT_TRUE(CreatePlan(stub(), MakeWindow(Key(1), 8)).ok());
  absl::Status end;
  EXPECT_THAT(
      Watch(stub(), Key(1), end),
      ElementsAre(v1::PlanEvent::kAccepted, v1::PlanEvent::kSealed,
                  v1::PlanEvent::kPlacementReady, v1::PlanEvent::kPlan));
  EXPECT_TRUE(end.ok());

  // One that watches from the upload on.
  PlanCall upload(stub());
  ASSERT_TRUE(upload.Send(Header(Key(2), 8)));
  ASSERT_TRUE(upload.Read().has_accepted());
  std::vector<v1::PlanEvent::EventCase> seen;
  std::thread watcher([&] { seen = Watch(stub(), Key(2), end); });
  ASSERT_TRUE(upload.Send(Chunk(0, 0, 8)));
  ASSERT_TRUE(upload.Send(MakeSeal(1)));
  EXPECT_TRUE(upload.Finish().ok());
  watcher.join();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_THAT(
      seen, ElementsAre(v1::PlanEvent::kAccepted, v1::PlanEvent::kSealed,
                        v1::PlanEvent::kPlacementReady, v1::PlanEvent::kPlan));
}

TEST_F(ServerTest, WatchersLearnOfACancellation) {
  Start();
  SubmitAndLeave(stub(), HardWindow(Key(1)));
  absl::Status end;
  std::thread watcher([&] { Watch(stub(), Key(1), end); });
  WaitForState(stub(), Key(1), v1::PLAN_STATE_PLANNING);
  EXPECT_TRUE(CancelPlan(stub(), Key(1)).ok());
  watcher.join();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
  // And so do those who come later.
  Watch(stub(), Key(1), end);
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
}

TEST_F(ServerTest, RankPlansWaitUntilThePlanIsReady) {
  Start();
  PlanCall upload(stub());
  ASSERT_TRUE(upload.Send(Header(Key(1), 8)));
  ASSERT_TRUE(upload.Read().has_accepted());
  auto request = ForKey<v1::GetRankPlanRequest>(Key(1));
  request.set_dp_slot(1);
  absl::StatusOr<v1::GetRankPlanResponse> response;
  std::thread rank([&] {
    response = Unary(&v1::PlannerService::Stub::GetRankPlan, stub(), request);
  });
  const auto impatient = Unary(&v1::PlannerService::Stub::GetRankPlan, stub(),
                               request, absl::Milliseconds(30));
  EXPECT_EQ(impatient.status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(upload.Send(Chunk(0, 0, 8)));
  ASSERT_TRUE(upload.Send(MakeSeal(1)));
  EXPECT_TRUE(upload.Finish().ok());
  rank.join();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->rank_plan().rows_size(),
            static_cast<int>(GetPlan(stub(), Key(1))->summary().rows()));
}

TEST_F(ServerTest, DeadlinesGetTheBestPlanOrLeaveItToTheBackground) {
  Start();
  v1::Window patient = HardWindow(Key(1));
  patient.mutable_header()->mutable_options()->set_best_effort_at_deadline(
      true);
  const auto plan =
      CreatePlan(stub(), patient, absl::Seconds(kSanitized ? 15 : 3));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->truncated());

  SubmitAndLeave(stub(), HardWindow(Key(2)));
  WaitForState(stub(), Key(2), v1::PLAN_STATE_PLANNING);
  const absl::Status late =
      CreatePlan(stub(), HardWindow(Key(2)), absl::Milliseconds(50)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetPlan(stub(), Key(2))->summary().state(),
            v1::PLAN_STATE_PLANNING);
  EXPECT_TRUE(CancelPlan(stub(), Key(2)).ok());
}

TEST_F(ServerTest, CommittedPlacementsCarryTheNextStep) {
  Start({"--plan_history=1"});
  v1::Window window = MakeWindow(Key(1), 8);
  window.mutable_header()->add_participant_ranks(0);
  window.mutable_header()->add_participant_ranks(1);
  const auto plan = CreatePlan(stub(), window);
  ASSERT_TRUE(plan.ok()) << plan.status();
  v1::Window next = MakeWindow(Key(2), 8);
  next.mutable_header()->mutable_current_placement()->set_committed_version(
      plan->placement_version());
  EXPECT_EQ(CreatePlan(stub(), next).status().code(),
            absl::StatusCode::kNotFound);

  auto report = ForKey<v1::ReportApplyRequest>(Key(1));
  report.set_placement_version(plan->placement_version());
  report.set_epoch(1);
  report.set_state(v1::APPLY_STATE_NEW);
  report.set_digest(plan->placement_digest());
  auto answer = Unary(&v1::PlannerService::Stub::ReportApply, stub(), report);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->commit(), v1::COMMIT_STATE_PENDING);
  EXPECT_THAT(answer->missing_ranks(), ElementsAre(1));
  report.set_rank(1);
  answer = Unary(&v1::PlannerService::Stub::ReportApply, stub(), report);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->commit(), v1::COMMIT_STATE_COMMITTED);

  const auto second = CreatePlan(stub(), next);
  ASSERT_TRUE(second.ok()) << second.status();
  // The same counts lead to the same map: nothing moves.
  EXPECT_EQ(second->placement_change().experts_to_other_slot(), 0);
  // History is one plan, but the live placement's stays besides.
  ASSERT_TRUE(CreatePlan(stub(), MakeWindow(Key(3), 8)).ok());
  EXPECT_TRUE(GetPlan(stub(), Key(1)).ok());
  EXPECT_EQ(GetPlan(stub(), Key(2)).status().code(),
            absl::StatusCode::kNotFound);
  // Other jobs cannot name it.
  *next.mutable_header()->mutable_key() = Key(2, "other");
  EXPECT_EQ(CreatePlan(stub(), next).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ServerTest, RefusesToShareItsPort) {
  Start();
  ServerProcess second({absl::StrCat("--listen=", server_->target())});
  EXPECT_FALSE(second.running());
  EXPECT_EQ(second.ExitCode(), 1);
  EXPECT_THAT(second.Log(), HasSubstr("cannot listen on " + server_->target()));
  EXPECT_TRUE(CreatePlan(stub(), MakeWindow(Key(1), 8)).ok());
}

TEST_F(ServerTest, RefusesWrongCommandLines) {
  for (const char* flag :
       {"positional", "--threads=many", "--threads", "--no_such_flag",
        "--nothreads", "--drain_timeout=soon", "--threads=4000",
        "--listen=nowhere", "--plan_history=0", "--log_format=xml",
        "--upload_idle_timeout=0s"}) {
    ServerProcess wrong({flag});
    EXPECT_FALSE(wrong.running()) << flag;
    EXPECT_EQ(wrong.ExitCode(), 2) << flag << "\n" << wrong.Log();
  }
}

TEST_F(ServerTest, DrainsOnSigterm) {
  Start({"--drain_timeout=60s"});
  PlanCall upload(stub());
  ASSERT_TRUE(upload.Send(Header(Key(1), 8)));
  ASSERT_TRUE(upload.Read().has_accepted());
  server_->Terminate();
  // New windows are refused as soon as it drains; until then they come in.
  absl::Status refused;
  for (uint64_t step = 2; refused.ok(); ++step) {
    refused = CreatePlan(stub(), MakeWindow(Key(step), 8)).status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  // What was open goes on to its end.
  ASSERT_TRUE(upload.Send(Chunk(0, 0, 8)));
  ASSERT_TRUE(upload.Send(MakeSeal(1)));
  EXPECT_TRUE(upload.Finish().ok());
  EXPECT_EQ(server_->ExitCode(), 0);
  EXPECT_THAT(server_->Log(), HasSubstr("stopped"));
}

TEST_F(ServerTest, EndsWhatDoesNotFinishInTheDrainTimeout) {
  Start({"--drain_timeout=10ms"});
  SubmitAndLeave(stub(), HardWindow(Key(1)));
  WaitForState(stub(), Key(1), v1::PLAN_STATE_PLANNING);
  absl::Status end;
  std::thread watcher([&] { Watch(stub(), Key(1), end); });
  // The watcher is connected once it has had the first event; a call that
  // comes too late is UNAVAILABLE as well.
  server_->Terminate();
  watcher.join();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
  EXPECT_EQ(server_->ExitCode(), 0);
}

TEST_F(ServerTest, SendsTheRequestIdBack) {
  Start({"--log_format=json"});
  grpc::ClientContext named;
  named.AddMetadata("x-request-id", "step-17");
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(stub().GetServerInfo(&named, {}, &info).ok());
  EXPECT_EQ(named.GetServerInitialMetadata().find("x-request-id")->second,
            "step-17");
  grpc::ClientContext unnamed;
  ASSERT_TRUE(stub().GetServerInfo(&unnamed, {}, &info).ok());
  EXPECT_NE(unnamed.GetServerInitialMetadata().find("x-request-id"),
            unnamed.GetServerInitialMetadata().end());
  server_->Terminate();
  EXPECT_EQ(server_->ExitCode(), 0);
  EXPECT_THAT(server_->Log(), HasSubstr("\"request_id\":\"step-17\""));
}

}  // namespace
}  // namespace routepack
