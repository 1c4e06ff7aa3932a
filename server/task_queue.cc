#include "server/task_queue.h"

#include <utility>

namespace routepack::server {

TaskQueue::TaskQueue(uint32_t num_threads) {
  threads_.reserve(num_threads);
  for (uint32_t t = 0; t < num_threads; ++t) {
    threads_.emplace_back([this] { Run(); });
  }
}

TaskQueue::~TaskQueue() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void TaskQueue::Post(Task task) {
  absl::MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
}

size_t TaskQueue::backlog() const {
  absl::MutexLock lock(&mu_);
  return tasks_.size() + running_;
}

void TaskQueue::Run() {
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return closed_ || !tasks_.empty();
  };
  for (;;) {
    Task task;
    {
      absl::MutexLock lock(&mu_, absl::Condition(&ready));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      ++running_;
    }
    task();
    task = nullptr;  // what it holds is freed before it counts as done
    absl::MutexLock lock(&mu_);
    --running_;
  }
}

}  // namespace routepack::server
