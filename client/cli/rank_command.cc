#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"

ABSL_FLAG(uint32_t, dp_slot, 0, "DP slot of the rank.");
ABSL_FLAG(uint32_t, ep_rank, 0, "EP rank of the rank.");
ABSL_FLAG(std::vector<std::string>, layers, {},
          "MoE layers of the rank's pipeline stage, e.g. 0,1,2; empty: all.");

namespace routepack::cli {
namespace {

absl::StatusOr<v1::GetRankPlanRequest> RequestFromFlags() {
  absl::StatusOr<v1::PlanKey> key = KeyFromFlags();
  if (!key.ok()) return key.status();
  v1::GetRankPlanRequest request;
  *request.mutable_key() = *key;
  request.set_dp_slot(absl::GetFlag(FLAGS_dp_slot));
  request.set_ep_rank(absl::GetFlag(FLAGS_ep_rank));
  for (const std::string& text : absl::GetFlag(FLAGS_layers)) {
    uint32_t layer = 0;
    if (!absl::SimpleAtoi(text, &layer)) {
      return UsageError(
          absl::StrCat("--layers: '", text, "' is not a layer number"));
    }
    request.add_layers(layer);
  }
  return request;
}

std::string RankReport(const v1::RankPlan& plan, uint32_t rows_shown) {
  std::string text = absl::StrCat(
      KeyText(plan.key()), ": ", plan.rows_size(), " rows, ",
      plan.layers_size(), " layers, ", plan.incoming_size(),
      " experts take a slot here, ", plan.outgoing_size(), " leave; placement ",
      plan.placement_version(), ", digest ", plan.placement_digest(), "\n\n");
  Table table({"row", "samples", "tokens", "row tokens", "fillers"});
  for (int r = 0; r < plan.rows_size(); ++r) {
    if (static_cast<uint32_t>(r) >= rows_shown) {
      table.AddRow({"..."});
      break;
    }
    const v1::RankRow& row = plan.rows(r);
    int fillers = 0;
    for (bool filler : row.filler()) fillers += filler ? 1 : 0;
    table.AddRow({absl::StrCat(r), absl::StrCat(row.sample_ids_size()),
                  WithCommas(row.tokens()), WithCommas(row.row_tokens()),
                  absl::StrCat(fillers)});
  }
  return absl::StrCat(text, table.ToString());
}

absl::Status Run(const Args&) {
  absl::StatusOr<v1::GetRankPlanRequest> request = RequestFromFlags();
  if (!request.ok()) return request.status();
  absl::StatusOr<PlannerClient> client = ConnectFromFlags(absl::Seconds(10));
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::RankPlan> plan = client->GetRankPlan(*request);
  if (!plan.ok()) return plan.status();
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*plan);
  } else {
    std::cout << RankReport(*plan, absl::GetFlag(FLAGS_rows));
  }
  return absl::OkStatus();
}

}  // namespace

Command RankCommand() {
  return {.name = "rank",
          .summary = "Get the part of a plan that one trainer rank needs.",
          .description = "Waits until the plan is ready or --timeout passes.",
          .examples = {"routepackctl rank --job=grpo --step=7 --dp_slot=3 "
                       "--ep_rank=1",
                       "routepackctl rank --job=grpo --step=7 "
                       "--layers=0,1,2 --json"},
          .flags = Concat({{"dp_slot", "ep_rank", "layers"},
                           KeyFlags(),
                           ServerFlags(),
                           {"json", "rows"}}),
          .run = Run};
}

}  // namespace routepack::cli
