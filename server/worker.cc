#include "server/worker.h"

#include <algorithm>
#include <string>
#include <utility>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "oneapi/tbb/info.h"
#include "planner/planner.h"
#include "proto/codec/codec.h"
#include "proto/codec/movement_codec.h"
#include "server/guarded.h"

namespace routepack::server {
namespace {

// Windows above this are worth giving their memory back to the system.
constexpr uint64_t kTrimBytes = uint64_t{16} << 20;

void TrimHeap(uint64_t freed_bytes) {
#if defined(__GLIBC__)
  if (freed_bytes >= kTrimBytes) malloc_trim(0);
#else
  (void)freed_bytes;
#endif
}

// Turns what the planner observes into events of the session.
class SessionObserver : public PlanObserver {
 public:
  SessionObserver(WindowSession& session, const PlanOptions& options)
      : session_(session), options_(options) {}

  void OnPlacement(const Placement& placement, const MovementReport& movement,
                   std::span<const StageSchedule> transfer) override {
    v1::PlanEvent event;
    v1::PlacementReady& ready = *event.mutable_placement_ready();
    ready.set_placement_digest(PlacementDigest(placement));
    ready.set_placement_version(
        PlacementVersion(session_.key(), ready.placement_digest()));
    EncodePlacement(placement, ready.mutable_placement());
    EncodeChange(movement.change, ready.mutable_placement_change());
    EncodeMovement(movement, ready.mutable_movement());
    EncodeTransfer(transfer, ready.mutable_transfer());
    ready.set_may_change(options_.refine_after_announce);
    session_.AppendEvent(std::move(event));
  }
  void OnProgress(const PlanProgress& progress) override {
    v1::PlanEvent event;
    *event.mutable_progress() = EncodeProgress(progress);
    session_.AppendEvent(std::move(event));
  }

 private:
  WindowSession& session_;
  const PlanOptions& options_;
};

absl::StatusOr<v1::Plan> PlanWindow(WindowSession& session,
                                    const PlanningInput& input) {
  const WindowRequest& request = *session.request();
  const Budget budget{.stop = session.stop_token(),
                      .deadline = session.best_effort_deadline()};
  SessionObserver observer(session, request.options);
  absl::StatusOr<routepack::Plan> plan = MakePlan(
      input.window, request.current, request.options, budget, &observer);
  if (!plan.ok()) return plan.status();
  return EncodePlan(input.window, *plan, request.options,
                    {.key = session.key(),
                     .options = request.header.options(),
                     .backend = kBackend});
}

PlanRecord ReadyRecord(const WindowSession& session, v1::Plan plan,
                       absl::Time now) {
  PlanRecord record =
      session.MakeRecord(v1::PLAN_STATE_READY, absl::OkStatus(), now);
  record.summary.set_rows(plan.rows().rows());
  record.summary.set_joint(plan.routepack().joint());
  record.summary.set_gap(plan.bounds().gap_for_placement());
  record.summary.set_placement_version(plan.placement_version());
  record.SetPlan(std::move(plan));
  return record;
}

uint32_t ThreadsOf(const ServerOptions& options) {
  return options.threads != 0
             ? options.threads
             : static_cast<uint32_t>(tbb::info::default_concurrency());
}

}  // namespace

uint32_t PlanningThreads(const ServerOptions& options) {
  return std::max(ThreadsOf(options), options.concurrent_plans);
}

Worker::Worker(const ServerOptions& options, WindowTable* table, Log log)
    : table_(table),
      log_(std::move(log)),
      threads_(ThreadsOf(options)),
      checking_arena_(static_cast<int>(threads_)),
      planning_arena_(static_cast<int>(PlanningThreads(options)),
                      options.concurrent_plans),
      planning_(options.concurrent_plans),
      checking_(1) {}

void Worker::Post(TaskQueue::Task task) {
  checking_.Post([this, task = std::move(task)]() mutable {
    checking_arena_.execute([&] { RunGuarded([&] { task(); }); });
  });
}

void Worker::PostCheck(std::shared_ptr<WindowSession> session,
                       SealedUpload upload) {
  Post([this, session = std::move(session),
        upload = std::move(upload)]() mutable {
    Check(session, std::move(upload));
  });
}

void Worker::Check(const std::shared_ptr<WindowSession>& session,
                   SealedUpload upload) {
  absl::Status status = Guarded([&]() -> absl::Status {
    absl::StatusOr<Window> window = std::move(upload.builder).Seal();
    if (!window.ok()) return window.status();
    std::string digest = RequestDigest(*window, session->request()->header);
    if (session->Enqueue({.window = *std::move(window),
                          .reservation = std::move(upload.reservation),
                          .request_digest = std::move(digest)},
                         static_cast<uint32_t>(planning_.backlog()))) {
      planning_.Post([this, session] { RunPlan(*session); });
    }
    return absl::OkStatus();
  });
  // Before the end is announced, so that the next window finds the place free.
  upload.reservation.Release();
  if (!status.ok()) table_->Forget(*session, std::move(status), absl::Now());
}

void Worker::RunGuarded(absl::FunctionRef<void()> task) {
  const absl::Status status = Guarded([&] {
    task();
    return absl::OkStatus();
  });
  if (!status.ok()) log_.Error("task", {{"error", status.ToString()}});
}

void Worker::RunPlan(WindowSession& session) {
  const absl::Status status = Guarded([&] {
    Plan(session);
    return absl::OkStatus();
  });
  if (status.ok()) return;
  // What frees the window and lets its callers go, unless it has ended.
  RunGuarded([&] { table_->Forget(session, status, absl::Now()); });
}

void Worker::Plan(WindowSession& session) {
  const absl::Time start = absl::Now();
  std::optional<PlanningInput> input = session.StartPlanning(start);
  if (!input.has_value()) return;
  const uint64_t bytes = input->reservation.bytes();
  PlanRecord record;
  const absl::Status status = Guarded([&]() -> absl::Status {
    absl::StatusOr<v1::Plan> plan = absl::UnknownError("not planned");
    planning_arena_.execute([&] { plan = PlanWindow(session, *input); });
    if (!plan.ok()) return plan.status();
    record = ReadyRecord(session, *std::move(plan), absl::Now());
    return absl::OkStatus();
  });
  input.reset();
  TrimHeap(bytes);
  const absl::Time now = absl::Now();
  const std::string key = WindowKey::Of(session.key()).ToString();
  const double ms = absl::ToDoubleMilliseconds(now - start);
  if (!status.ok()) {
    log_.Warn("planning ended without a plan",
              {{"key", key}, {"ms", ms}, {"error", status.ToString()}});
    table_->End(session, session.MakeRecord(v1::PLAN_STATE_FAILED, status, now),
                now);
    return;
  }
  log_.Info("planned", {{"key", key},
                        {"ms", ms},
                        {"rows", record.summary.rows()},
                        {"joint", record.summary.joint()},
                        {"gap", record.summary.gap()}});
  table_->End(session, std::move(record), now);
}

}  // namespace routepack::server
