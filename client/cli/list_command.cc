#include <algorithm>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"

ABSL_FLAG(uint32_t, limit, 50, "Most plans to list.");

namespace routepack::cli {
namespace {

constexpr uint32_t kMaxPage = 1000;

absl::StatusOr<v1::ListPlansResponse> AllPages(PlannerClient& client) {
  const uint32_t limit = absl::GetFlag(FLAGS_limit);
  v1::ListPlansRequest request;
  request.set_job_id(absl::GetFlag(FLAGS_job));
  request.set_run_id(absl::GetFlag(FLAGS_run));
  v1::ListPlansResponse all;
  while (static_cast<uint32_t>(all.plans_size()) < limit) {
    request.set_page_size(
        std::min<uint32_t>(limit - all.plans_size(), kMaxPage));
    absl::StatusOr<v1::ListPlansResponse> page = client.ListPlans(request);
    if (!page.ok()) return page.status();
    all.mutable_plans()->MergeFrom(page->plans());
    all.set_next_page_token(page->next_page_token());
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  return all;
}

std::string CommitText(v1::CommitState state) {
  constexpr size_t kPrefix = sizeof("COMMIT_STATE_") - 1;
  const std::string name = v1::CommitState_Name(state);
  return state == v1::COMMIT_STATE_UNSPECIFIED || name.size() <= kPrefix
             ? "-"
             : absl::AsciiStrToLower(name.substr(kPrefix));
}

absl::Status Run(const Args&) {
  absl::StatusOr<PlannerClient> client = ConnectFromFlags(absl::Seconds(10));
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::ListPlansResponse> all = AllPages(*client);
  if (!all.ok()) return all.status();
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*all);
    return absl::OkStatus();
  }
  if (all->plans().empty()) {
    std::cout << "no plans\n";
    return absl::OkStatus();
  }
  Table table(
      {"key", "state", "commit", "updated", "samples", "rows", "joint", "gap"},
      /*left=*/4);
  for (const v1::PlanSummary& plan : all->plans()) {
    const bool ready = plan.state() == v1::PLAN_STATE_READY;
    table.AddRow(
        {KeyText(plan.key()), StateText(plan.state()),
         CommitText(plan.commit()),
         absl::FormatTime("%F %T",
                          absl::FromUnixSeconds(plan.update_time().seconds()),
                          absl::LocalTimeZone()),
         WithCommas(plan.num_samples()),
         ready ? absl::StrCat(plan.rows()) : "-",
         ready ? Fixed(plan.joint(), 3) : "-",
         ready ? Percent(plan.gap()) : "-"});
  }
  std::cout << table.ToString();
  if (!all->next_page_token().empty()) {
    std::cout << "more: --limit=" << 2 * absl::GetFlag(FLAGS_limit) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command ListCommand() {
  return {.name = "list",
          .summary = "List a server's windows and plans, newest first.",
          .examples = {"routepackctl list", "routepackctl list --job=grpo"},
          .flags = Concat({{"job", "run", "limit", "json"}, ServerFlags()}),
          .run = Run};
}

}  // namespace routepack::cli
