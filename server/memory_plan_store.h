// A PlanStore in memory. Get, Put and Update are O(log n), List is O(n).

#ifndef ROUTEPACK_SERVER_MEMORY_PLAN_STORE_H_
#define ROUTEPACK_SERVER_MEMORY_PLAN_STORE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/plan_store.h"

namespace routepack::server {

class MemoryPlanStore : public PlanStore {
 public:
  // Keeps `capacity` records of together `max_bytes`, but at least the newest,
  // and those it must not evict.
  explicit MemoryPlanStore(
      size_t capacity,
      uint64_t max_bytes = std::numeric_limits<uint64_t>::max())
      : capacity_(capacity), max_bytes_(max_bytes) {}

  absl::Status Put(PlanRecord record) override;
  absl::StatusOr<PlanRecord> Get(const WindowKey& key) const override;
  absl::Status Update(
      const WindowKey& key,
      absl::FunctionRef<absl::Status(PlanRecord&)> change) override;
  absl::StatusOr<PlanRecord> FindPlacement(
      absl::string_view job_id, absl::string_view version) const override;
  std::vector<PlanRecord> List(const PlanFilter& filter, uint64_t before,
                               size_t limit) const override;
  size_t size() const override;
  uint64_t bytes() const override;

 private:
  using PlacementName = std::pair<std::string, std::string>;  // job, version

  void Erase(const WindowKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsLive(const WindowKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const size_t capacity_;
  const uint64_t max_bytes_;
  mutable std::mutex mu_;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<WindowKey, PlanRecord> records_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, WindowKey> by_sequence_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<PlacementName, WindowKey> by_placement_
      ABSL_GUARDED_BY(mu_);
  // The newest committed plan of each job.
  absl::flat_hash_map<std::string, WindowKey> live_ ABSL_GUARDED_BY(mu_);
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_MEMORY_PLAN_STORE_H_
