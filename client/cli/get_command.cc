#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/window_file.h"

namespace routepack::cli {
namespace {

absl::Status Run(const Args&) {
  absl::StatusOr<v1::PlanKey> key = KeyFromFlags();
  if (!key.ok()) return key.status();
  absl::StatusOr<PlannerClient> client = ConnectFromFlags(absl::Seconds(10));
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::GetPlanResponse> response = client->GetPlan(*key);
  if (!response.ok()) return response.status();
  const std::string output = absl::GetFlag(FLAGS_output);
  if (!output.empty()) {
    if (!response->has_plan()) {
      return absl::FailedPreconditionError(absl::StrCat(
          KeyText(*key), " is ", StateText(response->summary().state()),
          ": there is no plan to write"));
    }
    if (absl::Status status = WritePlan(output, response->plan());
        !status.ok()) {
      return status;
    }
    if (output == "-") return absl::OkStatus();
  }
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*response);
    return absl::OkStatus();
  }
  if (response->has_plan()) {
    std::cout << PlanReport(response->plan(), 0, absl::GetFlag(FLAGS_rows),
                            absl::GetFlag(FLAGS_verbose));
    if (!output.empty()) std::cout << "\nplan written to " << output << "\n";
  } else {
    const v1::PlanSummary& summary = response->summary();
    std::cout << KeyText(*key) << ": " << StateText(summary.state())
              << (summary.error().empty() ? "" : ": ") << summary.error()
              << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command GetCommand() {
  return {
      .name = "get",
      .summary = "Get a plan from a server, or its state.",
      .description =
          "--json prints GetPlanResponse; --output writes the "
          "plan alone.",
      .examples = {"routepackctl get --job=grpo --step=7",
                   "routepackctl get --job=grpo --step=7 "
                   "--output=plan.rpp"},
      .flags = Concat(
          {KeyFlags(), ServerFlags(), {"output", "json", "rows", "verbose"}}),
      .run = Run};
}

}  // namespace routepack::cli
