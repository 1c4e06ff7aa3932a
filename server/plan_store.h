// Where finished windows are kept: plans, and the errors of windows that have
// none.
//
// A limited number of records of limited size; the oldest go first. A job's
// newest committed plan is never evicted, since its placement is the one that
// lives in the trainers. Implementations are thread-safe and atomic per call.

#ifndef ROUTEPACK_SERVER_PLAN_STORE_H_
#define ROUTEPACK_SERVER_PLAN_STORE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "routepack/v1/planner_service.pb.h"
#include "server/commit.h"
#include "server/window_key.h"

namespace routepack::server {

// A finished window. Copies are cheap: what is large is shared.
struct PlanRecord {
  // Grows with the time of admission; orders lists.
  uint64_t sequence = 0;
  // State (READY, FAILED or CANCELLED), times, figures, key. Its `commit` is
  // the ledger's.
  v1::PlanSummary summary;
  // Of the header, to recognise a request that comes again as a stream, and
  // what the header says about the samples.
  std::string header_digest;
  std::string content_digest;
  // Of the window, and RequestDigest; empty when it was never complete.
  std::string window_digest;
  std::string request_digest;
  // Why there is no plan; OK when READY.
  absl::Status error;
  // Null unless READY. SetPlan makes it.
  std::shared_ptr<const v1::Plan> plan;
  // What happened to a READY window, in order; the last one holds the plan.
  std::vector<std::shared_ptr<const v1::PlanEvent>> events;
  // The placement before the plan.
  std::shared_ptr<const v1::Placement> current;
  CommitLedger commit;
  // Memory of all this: RecordBytes, kept up by SetPlan.
  uint64_t bytes = 0;

  // Adds the event of the plan; `plan` is the one inside it.
  void SetPlan(v1::Plan value) {
    auto event = std::make_shared<v1::PlanEvent>();
    *event->mutable_plan() = std::move(value);
    plan = std::shared_ptr<const v1::Plan>(event, &event->plan());
    bytes += event->SpaceUsedLong();
    events.push_back(std::move(event));
  }

  WindowKey key() const { return WindowKey::Of(summary.key()); }
};

// Memory that a record holds once all its participants have reported, about.
// O(size).
inline uint64_t RecordBytes(const PlanRecord& record) {
  constexpr uint64_t kReport = 128;  // a node of CommitLedger::reports
  uint64_t bytes = sizeof(record) + record.error.message().size() +
                   record.summary.SpaceUsedLong() +
                   kReport * record.commit.participants.size();
  for (const auto& event : record.events) bytes += event->SpaceUsedLong();
  if (record.current != nullptr) bytes += record.current->SpaceUsedLong();
  return bytes;
}

// Which records a list wants; empty strings match all.
struct PlanFilter {
  std::string job_id;
  std::string run_id;

  bool Matches(const v1::PlanKey& key) const {
    return (job_id.empty() || key.job_id() == job_id) &&
           (run_id.empty() || key.run_id() == run_id);
  }
};

class PlanStore {
 public:
  virtual ~PlanStore() = default;

  // Adds a record or replaces the one of its key.
  virtual absl::Status Put(PlanRecord record) = 0;
  // NOT_FOUND: no such key.
  virtual absl::StatusOr<PlanRecord> Get(const WindowKey& key) const = 0;
  // Changes a record in one step; an error of `change` leaves it as it was.
  virtual absl::Status Update(
      const WindowKey& key,
      absl::FunctionRef<absl::Status(PlanRecord&)> change) = 0;
  // The READY record whose plan has this placement version. NOT_FOUND: the
  // job has no such plan.
  virtual absl::StatusOr<PlanRecord> FindPlacement(
      absl::string_view job_id, absl::string_view version) const = 0;
  // At most `limit` records with a sequence below `before`, newest first.
  virtual std::vector<PlanRecord> List(const PlanFilter& filter,
                                       uint64_t before, size_t limit) const = 0;
  virtual size_t size() const = 0;
  // Sum of the records' bytes.
  virtual uint64_t bytes() const = 0;
};

inline constexpr uint64_t kNewest = std::numeric_limits<uint64_t>::max();

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_PLAN_STORE_H_
