#include "server/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/errors.h"

namespace routepack::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kDigest[] = "d1";

v1::ReportApplyRequest Report(uint32_t rank, uint64_t epoch,
                              v1::ApplyState state,
                              const std::string& digest = kDigest) {
  v1::ReportApplyRequest report;
  report.set_rank(rank);
  report.set_epoch(epoch);
  report.set_state(state);
  report.set_digest(digest);
  return report;
}

absl::Status Enter(CommitLedger& ledger, const v1::ReportApplyRequest& report) {
  return EnterReport(report, kDigest, ledger);
}

TEST(Commit, CommitsWhenAllParticipantsReportNew) {
  CommitLedger ledger = NewCommitLedger({4, 2, 2});
  EXPECT_THAT(DescribeCommit(ledger).missing_ranks(), ElementsAre(2, 4));
  ASSERT_TRUE(Enter(ledger, Report(2, 1, v1::APPLY_STATE_NEW)).ok());
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_PENDING);
  EXPECT_THAT(DescribeCommit(ledger).missing_ranks(), ElementsAre(4));
  ASSERT_TRUE(Enter(ledger, Report(4, 1, v1::APPLY_STATE_NEW)).ok());
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_COMMITTED);
  EXPECT_THAT(DescribeCommit(ledger).missing_ranks(), IsEmpty());
}

TEST(Commit, RepeatsChangeNothing) {
  CommitLedger ledger = NewCommitLedger({1, 2});
  ASSERT_TRUE(Enter(ledger, Report(1, 3, v1::APPLY_STATE_NEW)).ok());
  ASSERT_TRUE(Enter(ledger, Report(1, 3, v1::APPLY_STATE_NEW)).ok());
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_PENDING);
  ASSERT_TRUE(Enter(ledger, Report(2, 3, v1::APPLY_STATE_NEW)).ok());
  ASSERT_TRUE(Enter(ledger, Report(2, 3, v1::APPLY_STATE_NEW)).ok());
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_COMMITTED);
}

TEST(Commit, OldTornOrAnotherDigestAbortUntilANewerEpoch) {
  for (const v1::ReportApplyRequest& bad :
       {Report(1, 1, v1::APPLY_STATE_OLD), Report(1, 1, v1::APPLY_STATE_TORN),
        Report(1, 1, v1::APPLY_STATE_NEW, "other")}) {
    CommitLedger ledger = NewCommitLedger({1, 2});
    ASSERT_TRUE(Enter(ledger, bad).ok());
    EXPECT_EQ(ledger.state, v1::COMMIT_STATE_ABORTED);
    ASSERT_TRUE(Enter(ledger, Report(2, 1, v1::APPLY_STATE_NEW)).ok());
    EXPECT_EQ(ledger.state, v1::COMMIT_STATE_ABORTED);

    ASSERT_TRUE(Enter(ledger, Report(2, 2, v1::APPLY_STATE_NEW)).ok());
    EXPECT_EQ(ledger.state, v1::COMMIT_STATE_PENDING);
    EXPECT_THAT(DescribeCommit(ledger).missing_ranks(), ElementsAre(1));
    ASSERT_TRUE(Enter(ledger, Report(1, 2, v1::APPLY_STATE_NEW)).ok());
    EXPECT_EQ(ledger.state, v1::COMMIT_STATE_COMMITTED);
  }
}

TEST(Commit, FencesOlderEpochs) {
  CommitLedger ledger = NewCommitLedger({1, 2});
  ASSERT_TRUE(Enter(ledger, Report(1, 5, v1::APPLY_STATE_NEW)).ok());
  const absl::Status stale = Enter(ledger, Report(2, 4, v1::APPLY_STATE_NEW));
  EXPECT_EQ(stale.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PreconditionOf(stale).type, "STALE_EPOCH");
  EXPECT_EQ(DescribeCommit(ledger).epoch(), 5);
  EXPECT_EQ(ledger.reports.size(), 1);
}

TEST(Commit, RefusesASecondOpinionInOneEpoch) {
  CommitLedger ledger = NewCommitLedger({1, 2});
  ASSERT_TRUE(Enter(ledger, Report(1, 1, v1::APPLY_STATE_NEW)).ok());
  const absl::Status again = Enter(ledger, Report(1, 1, v1::APPLY_STATE_TORN));
  EXPECT_EQ(PreconditionOf(again).type, "CONTRADICTORY_REPORT");
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_PENDING);
}

TEST(Commit, IsFinalOnceCommitted) {
  CommitLedger ledger = NewCommitLedger({1});
  ASSERT_TRUE(Enter(ledger, Report(1, 1, v1::APPLY_STATE_NEW)).ok());
  EXPECT_TRUE(Enter(ledger, Report(1, 9, v1::APPLY_STATE_NEW)).ok());
  const absl::Status torn = Enter(ledger, Report(1, 9, v1::APPLY_STATE_TORN));
  EXPECT_EQ(PreconditionOf(torn).type, "ALREADY_COMMITTED");
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_COMMITTED);
}

TEST(Commit, RefusesStrangersAndUnsetStates) {
  CommitLedger ledger = NewCommitLedger({1, 2});
  const auto fields = [&](const v1::ReportApplyRequest& report) {
    std::vector<std::string> names;
    const absl::Status status = Enter(ledger, report);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const FieldViolation& v : ViolationsOf(status)) {
      names.push_back(v.field);
    }
    return names;
  };
  EXPECT_THAT(fields(Report(3, 1, v1::APPLY_STATE_NEW)), ElementsAre("rank"));
  EXPECT_THAT(fields(Report(1, 1, v1::APPLY_STATE_UNSPECIFIED)),
              ElementsAre("state"));
  EXPECT_THAT(fields(Report(0, 1, static_cast<v1::ApplyState>(77))),
              ElementsAre("rank", "state"));
  EXPECT_EQ(ledger.epoch, 0);
}

TEST(Commit, NeedsParticipants) {
  CommitLedger ledger = NewCommitLedger({});
  EXPECT_EQ(ledger.state, v1::COMMIT_STATE_UNSPECIFIED);
  EXPECT_EQ(
      PreconditionOf(Enter(ledger, Report(0, 1, v1::APPLY_STATE_NEW))).type,
      "NO_PARTICIPANTS");
}

TEST(Commit, ListsTheFirstHundredMissingRanks) {
  std::vector<uint32_t> ranks(250);
  for (uint32_t r = 0; r < 250; ++r) ranks[r] = 249 - r;
  const v1::ReportApplyResponse response =
      DescribeCommit(NewCommitLedger(ranks));
  ASSERT_EQ(response.missing_ranks_size(), 100);
  EXPECT_EQ(response.missing_ranks(99), 99);
}

// Every order of reports of three ranks over two epochs ends as a plain
// reading of the rules says.
TEST(Commit, AgreesWithAPlainReadingForAllOrders) {
  const v1::ApplyState kStates[] = {v1::APPLY_STATE_OLD, v1::APPLY_STATE_NEW,
                                    v1::APPLY_STATE_TORN};
  for (int code = 0; code < 9 * 9 * 9; ++code) {
    CommitLedger ledger = NewCommitLedger({0, 1, 2});
    uint64_t newest = 0;
    bool committed = false;
    std::map<uint32_t, v1::ApplyState> votes;
    for (int n = 0, rest = code; n < 3; ++n, rest /= 9) {
      const uint32_t rank = rest % 3;
      const v1::ApplyState state = kStates[rest / 3 % 3];
      const uint64_t epoch = 1 + (code >> n) % 2;
      const bool ok = Enter(ledger, Report(rank, epoch, state)).ok();
      if (epoch < newest) {
        EXPECT_FALSE(ok);
        continue;
      }
      if (epoch > newest && !committed) votes.clear();
      newest = std::max(newest, epoch);
      const bool first = votes.emplace(rank, state).second;
      EXPECT_EQ(ok, first || votes[rank] == state);
      bool all_new = votes.size() == 3;
      for (const auto& [r, s] : votes) all_new &= s == v1::APPLY_STATE_NEW;
      committed |= all_new;
    }
    EXPECT_EQ(ledger.state == v1::COMMIT_STATE_COMMITTED, committed);
    EXPECT_EQ(ledger.epoch, newest);
  }
}

}  // namespace
}  // namespace routepack::server
