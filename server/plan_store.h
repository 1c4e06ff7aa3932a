// Where finished windows are kept: plans, and the errors of windows that have
// none.
//
// At most `capacity` records; the oldest go first. A job's newest committed
// plan is never evicted, since its placement is the one that lives in the
// trainers. Implementations are thread-safe and atomic per call.

#ifndef ROUTEPACK_SERVER_PLAN_STORE_H_
#define ROUTEPACK_SERVER_PLAN_STORE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
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
  // Of the header, to recognise a request that comes again as a stream.
  std::string header_digest;
  // RequestDigest; empty when the window was never complete.
  std::string request_digest;
  // Why there is no plan; OK when READY.
  absl::Status error;
  // Null unless READY.
  std::shared_ptr<const v1::Plan> plan;
  // The placement before the plan.
  std::shared_ptr<const v1::Placement> current;
  CommitLedger commit;

  WindowKey key() const { return WindowKey::Of(summary.key()); }
};

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
};

inline constexpr uint64_t kNewest = std::numeric_limits<uint64_t>::max();

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_PLAN_STORE_H_
