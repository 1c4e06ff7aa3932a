#include "server/commit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/errors.h"

namespace routepack::server {
namespace {

absl::Status Refused(std::string type, uint32_t rank, std::string why) {
  return PreconditionError({.type = std::move(type),
                            .subject = absl::StrCat("rank ", rank),
                            .description = std::move(why)});
}

absl::Status CheckReport(const v1::ReportApplyRequest& report,
                         const CommitLedger& ledger) {
  if (ledger.participants.empty()) {
    return Refused("NO_PARTICIPANTS", report.rank(),
                   "the window named no participant_ranks, so its placement "
                   "is never committed");
  }
  Violations bad;
  if (!std::binary_search(ledger.participants.begin(),
                          ledger.participants.end(), report.rank())) {
    bad.Add("rank",
            absl::StrCat("rank ", report.rank(), " is not among the window's ",
                         ledger.participants.size(), " participant_ranks"));
  }
  if (report.state() != v1::APPLY_STATE_OLD &&
      report.state() != v1::APPLY_STATE_NEW &&
      report.state() != v1::APPLY_STATE_TORN) {
    bad.Add("state", absl::StrCat("must be OLD, NEW or TORN, is ",
                                  static_cast<int>(report.state())));
  }
  return bad.ToStatus();
}

// What a report says after the commit: nothing may contradict it.
absl::Status CheckCommitted(const v1::ReportApplyRequest& report,
                            const std::string& placement_digest) {
  if (report.state() == v1::APPLY_STATE_NEW &&
      report.digest() == placement_digest) {
    return absl::OkStatus();
  }
  return Refused("ALREADY_COMMITTED", report.rank(),
                 "all participants have reported this placement as live; a "
                 "rank that lost it must reload from a checkpoint");
}

}  // namespace

CommitLedger NewCommitLedger(std::vector<uint32_t> participants) {
  std::sort(participants.begin(), participants.end());
  participants.erase(std::unique(participants.begin(), participants.end()),
                     participants.end());
  CommitLedger ledger{.participants = std::move(participants)};
  if (!ledger.participants.empty()) ledger.state = v1::COMMIT_STATE_PENDING;
  return ledger;
}

absl::Status EnterReport(const v1::ReportApplyRequest& report,
                         const std::string& placement_digest,
                         CommitLedger& ledger) {
  if (absl::Status status = CheckReport(report, ledger); !status.ok()) {
    return status;
  }
  if (report.epoch() < ledger.epoch) {
    return Refused("STALE_EPOCH", report.rank(),
                   absl::StrCat("epoch ", report.epoch(),
                                " is over, the newest is ", ledger.epoch));
  }
  if (ledger.state == v1::COMMIT_STATE_COMMITTED) {
    return CheckCommitted(report, placement_digest);
  }
  const RankReport entry{.state = report.state(), .digest = report.digest()};
  if (report.epoch() > ledger.epoch) {
    ledger.epoch = report.epoch();
    ledger.reports.clear();
    ledger.state = v1::COMMIT_STATE_PENDING;
  }
  const auto [it, inserted] = ledger.reports.emplace(report.rank(), entry);
  if (!inserted && it->second != entry) {
    return Refused(
        "CONTRADICTORY_REPORT", report.rank(),
        absl::StrCat("the rank already reported ",
                     v1::ApplyState_Name(it->second.state), " with digest \"",
                     it->second.digest, "\" in epoch ", ledger.epoch,
                     "; a new attempt takes a new epoch"));
  }
  if (entry.state != v1::APPLY_STATE_NEW || entry.digest != placement_digest) {
    ledger.state = v1::COMMIT_STATE_ABORTED;
  } else if (ledger.state == v1::COMMIT_STATE_PENDING &&
             ledger.reports.size() == ledger.participants.size()) {
    ledger.state = v1::COMMIT_STATE_COMMITTED;
  }
  return absl::OkStatus();
}

v1::ReportApplyResponse DescribeCommit(const CommitLedger& ledger) {
  v1::ReportApplyResponse response;
  response.set_commit(ledger.state);
  response.set_epoch(ledger.epoch);
  for (uint32_t rank : ledger.participants) {
    if (static_cast<size_t>(response.missing_ranks_size()) == kMaxMissing) {
      break;
    }
    if (!ledger.reports.contains(rank)) response.add_missing_ranks(rank);
  }
  return response;
}

}  // namespace routepack::server
