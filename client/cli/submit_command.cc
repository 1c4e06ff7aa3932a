#include <iostream>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/window_file.h"

ABSL_FLAG(bool, wait, false, "Wait for the plan and print it.");

namespace routepack::cli {
namespace {

absl::Status Wait(PlannerClient& client, const v1::WindowHeader& header,
                  const PlannerClient::SampleSourceFactory& open) {
  absl::StatusOr<v1::Plan> plan = client.StreamPlan(header, open);
  if (!plan.ok()) return plan.status();
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*plan);
  } else {
    std::cout << PlanReport(*plan, header.token_cap(),
                            absl::GetFlag(FLAGS_rows),
                            absl::GetFlag(FLAGS_verbose));
  }
  return absl::OkStatus();
}

absl::Status Run(const Args& args) {
  const std::string& path = args[0];
  absl::StatusOr<WindowFile> file = OpenWindow(path);
  if (!file.ok()) return file.status();
  v1::WindowHeader header = std::move(file->header);
  if (absl::Status status = ApplyWindowFlags(header); !status.ok()) {
    return status;
  }
  if (absl::Status status = ApplyOptionFlags(header); !status.ok()) {
    return status;
  }
  ApplyKeyFlags(*header.mutable_key());
  if (header.key().job_id().empty()) {
    return UsageError(absl::StrCat(path, " names no job: give --job"));
  }
  absl::StatusOr<PlannerClient> client =
      ConnectFromFlags(absl::InfiniteDuration());
  if (!client.ok()) return client.status();
  if (absl::Status status = FillContentDigest(file->next, header);
      !status.ok()) {
    return status;
  }
  const auto open = [&path]() -> absl::StatusOr<SampleSource> {
    absl::StatusOr<WindowFile> again = OpenWindow(path);
    if (!again.ok()) return again.status();
    return std::move(again->next);
  };
  if (absl::GetFlag(FLAGS_wait)) return Wait(*client, header, open);
  absl::StatusOr<PlannerClient::Submitted> submitted =
      client->SubmitWindow(header, open);
  if (!submitted.ok()) return submitted.status();
  if (absl::GetFlag(FLAGS_json)) {
    v1::PlanSummary summary;
    *summary.mutable_key() = header.key();
    summary.set_state(submitted->state);
    summary.set_num_samples(header.num_samples());
    std::cout << ToJson(summary);
  } else {
    std::cout << KeyText(header.key()) << ": " << StateText(submitted->state)
              << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command SubmitCommand() {
  return {.name = "submit",
          .arguments = "WINDOW",
          .summary = "Send a window to a server and return.",
          .description =
              "Uploads the window file and prints its key and state; the\n"
              "server plans on. get, watch and rank take the same key flags.",
          .examples = {"routepackctl submit window.rpw --job=grpo --step=7",
                       "routepackctl submit window.rpw --job=grpo --step=7 "
                       "--wait"},
          .flags = Concat({{"wait", "json", "rows", "verbose"},
                           ServerFlags(),
                           KeyFlags(),
                           WindowFlags(),
                           OptionFlags()}),
          .min_args = 1,
          .max_args = 1,
          .run = Run};
}

}  // namespace routepack::cli
