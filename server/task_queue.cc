#include "server/task_queue.h"

#include <mutex>
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
    const std::lock_guard lock(mu_);
    closed_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskQueue::Post(Task task) {
  {
    const std::lock_guard lock(mu_);
    tasks_.push_back(std::move(task));
  }
  ready_.notify_one();
}

size_t TaskQueue::backlog() const {
  const std::lock_guard lock(mu_);
  return tasks_.size() + running_;
}

void TaskQueue::Run() {
  std::unique_lock lock(mu_);
  for (;;) {
    ready_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;  // what it holds is freed before it counts as done
    lock.lock();
    --running_;
  }
}

}  // namespace routepack::server
