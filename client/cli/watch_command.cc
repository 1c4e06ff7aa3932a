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
  absl::StatusOr<PlannerClient> client =
      ConnectFromFlags(absl::InfiniteDuration());
  if (!client.ok()) return client.status();
  const bool json = absl::GetFlag(FLAGS_json);
  return client
      ->WatchPlan(*key,
                  [&](const v1::PlanEvent& event) {
                    const std::string text =
                        json ? ToJson(event, /*pretty=*/false)
                             : EventText(event);
                    if (!text.empty()) std::cout << text << std::endl;
                  })
      .status();
}

}  // namespace

Command WatchCommand() {
  return {.name = "watch",
          .summary = "Follow a window until it is planned.",
          .description =
              "A line for every event; --json prints one JSON "
              "object a line.",
          .examples = {"routepackctl watch --job=grpo --step=7",
                       "routepackctl watch --job=grpo --step=7 --json"},
          .flags = Concat({KeyFlags(), ServerFlags(), {"json"}}),
          .run = Run};
}

}  // namespace routepack::cli
