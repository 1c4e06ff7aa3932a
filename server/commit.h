// When a placement counts as live: the commit protocol of ReportApply.
//
//   PENDING ──all participants NEW with the plan's digest──▶ COMMITTED
//      │ ▲
//      │ └──first report of a newer epoch──┐
//      └──OLD, TORN or another digest──▶ ABORTED
//
// A rank reports once per epoch; the same report again changes nothing, and
// gets the answer the first one would get now. Reports of an older epoch than
// the newest seen are refused, so a rank that was cut off cannot vote in an
// attempt that is over. COMMITTED is final.
//
// A CommitLedger is a plain value kept with the plan; the functions are pure.

#ifndef ROUTEPACK_SERVER_COMMIT_H_
#define ROUTEPACK_SERVER_COMMIT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "routepack/v1/planner_service.pb.h"

namespace routepack::server {

struct RankReport {
  v1::ApplyState state = v1::APPLY_STATE_UNSPECIFIED;
  std::string digest;

  friend bool operator==(const RankReport&, const RankReport&) = default;
};

struct CommitLedger {
  std::vector<uint32_t> participants;  // sorted, each once; may be empty
  v1::CommitState state = v1::COMMIT_STATE_UNSPECIFIED;
  uint64_t epoch = 0;                      // newest seen
  std::map<uint32_t, RankReport> reports;  // of that epoch, by rank
};

// PENDING, or UNSPECIFIED without participants.
CommitLedger NewCommitLedger(std::vector<uint32_t> participants);

// Enters a report about the placement with `placement_digest`.
// INVALID_ARGUMENT: rank is no participant, state not set. FAILED_PRECONDITION
// (see PreconditionOf): "NO_PARTICIPANTS", "STALE_EPOCH",
// "CONTRADICTORY_REPORT" (another report of this rank in this epoch), or
// "ALREADY_COMMITTED" (OLD or TORN after the commit). The ledger is unchanged
// on error.
absl::Status EnterReport(const v1::ReportApplyRequest& report,
                         const std::string& placement_digest,
                         CommitLedger& ledger);

// Where the commit stands, with the first kMaxMissing missing ranks.
inline constexpr size_t kMaxMissing = 100;
v1::ReportApplyResponse DescribeCommit(const CommitLedger& ledger);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_COMMIT_H_
