// A few threads that run tasks in order of arrival.
//
// Thread-safe. The destructor lets posted tasks finish; owners who want to
// stop early make their tasks notice it.

#ifndef ROUTEPACK_SERVER_TASK_QUEUE_H_
#define ROUTEPACK_SERVER_TASK_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"

namespace routepack::server {

class TaskQueue {
 public:
  using Task = absl::AnyInvocable<void()>;

  explicit TaskQueue(uint32_t num_threads);
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;
  ~TaskQueue();

  void Post(Task task);
  // Tasks waiting or running.
  size_t backlog() const;

 private:
  void Run();

  // std::mutex here and in all of server/: sanitizers see its locks, while
  // Abseil's are inside a library that is not built with them.
  mutable std::mutex mu_;
  std::condition_variable ready_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_TASK_QUEUE_H_
