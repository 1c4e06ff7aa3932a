// Where windows are checked and planned.
//
// Two queues in order of arrival: one thread checks complete uploads (digest,
// what only the whole window shows), --concurrent_plans threads plan. Each
// queue has a TBB arena of --threads threads, so that a check never waits for
// the end of a search; TBB shares its workers between the two. A window's
// memory is given back, to admission and to the system, before its plan is
// announced. Thread-safe.

#ifndef ROUTEPACK_SERVER_WORKER_H_
#define ROUTEPACK_SERVER_WORKER_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "oneapi/tbb/task_arena.h"
#include "server/log.h"
#include "server/options.h"
#include "server/task_queue.h"
#include "server/window_session/session.h"
#include "server/window_table.h"

namespace routepack::server {

// The engine's name in plans and in GetServerInfo.
inline constexpr char kBackend[] = "cpu";

// --threads, or one per CPU; at least one for each concurrent plan.
uint32_t PlanningThreads(const ServerOptions& options);

class Worker {
 public:
  // `table` outlives the worker.
  Worker(const ServerOptions& options, WindowTable* table, Log log);

  uint32_t threads() const { return threads_; }

  // Runs a task after the checks that were posted before it, on the checking
  // thread and inside the arena.
  void Post(TaskQueue::Task task);
  // Posts the check of a complete upload.
  void PostCheck(std::shared_ptr<WindowSession> session, SealedUpload upload);
  // Checks an upload at once: into the planning queue with it, or, with
  // violations, the session is forgotten. Inside Post only.
  void Check(const std::shared_ptr<WindowSession>& session,
             SealedUpload upload);

 private:
  // An exception of the task goes to the log.
  void RunGuarded(absl::FunctionRef<void()> task);
  // An exception ends the session.
  void RunPlan(WindowSession& session);
  void Plan(WindowSession& session);

  WindowTable* const table_;
  const Log log_;
  const uint32_t threads_;
  tbb::task_arena checking_arena_;
  tbb::task_arena planning_arena_;
  TaskQueue planning_;
  TaskQueue checking_;  // destroyed first: it posts to the other
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WORKER_H_
