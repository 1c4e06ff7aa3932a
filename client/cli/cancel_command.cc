#include <iostream>

#include "absl/flags/flag.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"

namespace routepack::cli {
namespace {

absl::Status Run(const Args&) {
  absl::StatusOr<v1::PlanKey> key = KeyFromFlags();
  if (!key.ok()) return key.status();
  absl::StatusOr<PlannerClient> client = ConnectFromFlags(absl::Seconds(10));
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::CancelPlanResponse> response = client->CancelPlan(*key);
  if (!response.ok()) return response.status();
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*response);
  } else {
    std::cout << KeyText(*key) << ": " << StateText(response->state()) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command CancelCommand() {
  return {.name = "cancel",
          .summary = "Stop a window's upload or planning.",
          .examples = {"routepackctl cancel --job=grpo --step=7"},
          .flags = Concat({KeyFlags(), ServerFlags(), {"json"}}),
          .run = Run};
}

}  // namespace routepack::cli
