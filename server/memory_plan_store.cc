#include "server/memory_plan_store.h"

#include <mutex>

#include "absl/strings/str_cat.h"

namespace routepack::server {

absl::Status MemoryPlanStore::Put(PlanRecord record) {
  const WindowKey key = record.key();
  const std::lock_guard lock(mu_);
  Erase(key);
  by_sequence_.emplace(record.sequence, key);
  if (record.plan != nullptr) {
    by_placement_[{key.job_id, record.plan->placement_version()}] = key;
  }
  if (record.commit.state == v1::COMMIT_STATE_COMMITTED) {
    live_[key.job_id] = key;
  }
  bytes_ += record.bytes;
  records_.emplace(key, std::move(record));
  Evict();
  return absl::OkStatus();
}

absl::StatusOr<PlanRecord> MemoryPlanStore::Get(const WindowKey& key) const {
  const std::lock_guard lock(mu_);
  const auto it = records_.find(key);
  if (it == records_.end()) {
    return absl::NotFoundError(
        absl::StrCat("no window with key ", key.ToString()));
  }
  return it->second;
}

absl::Status MemoryPlanStore::Update(
    const WindowKey& key, absl::FunctionRef<absl::Status(PlanRecord&)> change) {
  const std::lock_guard lock(mu_);
  const auto it = records_.find(key);
  if (it == records_.end()) {
    return absl::NotFoundError(
        absl::StrCat("no window with key ", key.ToString()));
  }
  PlanRecord changed = it->second;  // its bytes stay what they are
  const bool committed = changed.commit.state == v1::COMMIT_STATE_COMMITTED;
  if (absl::Status status = change(changed); !status.ok()) return status;
  it->second = std::move(changed);
  if (!committed && it->second.commit.state == v1::COMMIT_STATE_COMMITTED) {
    live_[key.job_id] = key;
    Evict();
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanRecord> MemoryPlanStore::FindPlacement(
    absl::string_view job_id, absl::string_view version) const {
  const std::lock_guard lock(mu_);
  const auto it =
      by_placement_.find({std::string(job_id), std::string(version)});
  if (it == by_placement_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "job ", job_id, " has no plan with placement version ", version));
  }
  return records_.at(it->second);
}

std::vector<PlanRecord> MemoryPlanStore::List(const PlanFilter& filter,
                                              uint64_t before,
                                              size_t limit) const {
  std::vector<PlanRecord> found;
  const std::lock_guard lock(mu_);
  auto it = by_sequence_.lower_bound(before);
  while (it != by_sequence_.begin() && found.size() < limit) {
    --it;
    const PlanRecord& record = records_.at(it->second);
    if (filter.Matches(record.summary.key())) found.push_back(record);
  }
  return found;
}

size_t MemoryPlanStore::size() const {
  const std::lock_guard lock(mu_);
  return records_.size();
}

uint64_t MemoryPlanStore::bytes() const {
  const std::lock_guard lock(mu_);
  return bytes_;
}

void MemoryPlanStore::Erase(const WindowKey& key) {
  const auto it = records_.find(key);
  if (it == records_.end()) return;
  const PlanRecord& record = it->second;
  by_sequence_.erase(record.sequence);
  if (record.plan != nullptr) {
    by_placement_.erase({key.job_id, record.plan->placement_version()});
  }
  if (IsLive(key)) live_.erase(key.job_id);
  bytes_ -= record.bytes;
  records_.erase(it);
}

void MemoryPlanStore::Evict() {
  auto it = by_sequence_.begin();
  while ((records_.size() > capacity_ || bytes_ > max_bytes_) &&
         it != by_sequence_.end()) {
    const WindowKey key = it->second;
    ++it;
    // The newest record stays: its window has just been answered.
    if (it == by_sequence_.end()) break;
    if (!IsLive(key)) Erase(key);
  }
}

bool MemoryPlanStore::IsLive(const WindowKey& key) const {
  const auto it = live_.find(key.job_id);
  return it != live_.end() && it->second == key;
}

}  // namespace routepack::server
