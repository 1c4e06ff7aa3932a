#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "client/window_file.h"
#include "oneapi/tbb/task_arena.h"
#include "planner/planner.h"
#include "proto/codec/codec.h"

namespace routepack::cli {
namespace {

// Shows where the planner stands.
class BarObserver : public PlanObserver {
 public:
  explicit BarObserver(ProgressBar& bar) : bar_(bar) {}
  void OnProgress(const PlanProgress& progress) override {
    v1::PlanEvent event;
    *event.mutable_progress() = EncodeProgress(progress);
    bar_.Show(progress.fraction, EventText(event));
  }

 private:
  ProgressBar& bar_;
};

absl::StatusOr<Placement> CurrentOf(const v1::WindowHeader& header,
                                    const Window& window) {
  const uint32_t ranks = window.spec().topology.num_ranks();
  switch (header.current_placement().kind_case()) {
    case v1::CurrentPlacement::kMap:
      return DecodePlacement(header.current_placement().map(),
                             window.num_layers(), window.num_experts(), ranks,
                             "header.current_placement.map");
    case v1::CurrentPlacement::kCommittedVersion:
      return absl::FailedPreconditionError(absl::StrCat(
          "header.current_placement.committed_version '",
          header.current_placement().committed_version(),
          "' is known to a server only: plan with --server, or give the map"));
    default:
      return IdentityPlacement(window.num_layers(), window.num_experts(),
                               ranks);
  }
}

absl::StatusOr<v1::Plan> PlanHere(const std::string& path, WindowFile file) {
  absl::StatusOr<LoadedWindow> loaded = LoadWindow(path, std::move(file));
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<PlanOptions> options = DecodeOptions(loaded->header.options());
  if (!options.ok()) return options.status();
  absl::StatusOr<Placement> current = CurrentOf(loaded->header, loaded->window);
  if (!current.ok()) return current.status();
  const uint32_t threads = absl::GetFlag(FLAGS_threads);
  tbb::task_arena arena(threads == 0 ? tbb::task_arena::automatic
                                     : static_cast<int>(threads));
  ProgressBar bar;
  BarObserver observer(bar);
  absl::StatusOr<Plan> plan = arena.execute([&] {
    return MakePlan(loaded->window, *current, *options, {}, &observer);
  });
  bar.Clear();
  if (!plan.ok()) return plan.status();
  return EncodePlan(
      loaded->window, *plan, *options,
      {.key = loaded->header.key(), .options = loaded->header.options()});
}

// A window that is only planned once needs no name; the server wants one.
void NameForServer(v1::PlanKey& key) {
  if (!key.job_id().empty()) return;
  key.set_job_id("routepackctl");
  if (key.run_id().empty()) {
    key.set_run_id(
        absl::StrCat(absl::ToUnixMicros(absl::Now()), "-", getpid()));
  }
}

absl::StatusOr<v1::Plan> PlanThere(const std::string& path, WindowFile window) {
  if (path == "-") {
    return UsageError(
        "a window from standard input cannot be sent again if "
        "the connection breaks: use a file");
  }
  v1::WindowHeader& header = window.header;
  NameForServer(*header.mutable_key());
  absl::StatusOr<PlannerClient> client =
      ConnectFromFlags(absl::InfiniteDuration());
  if (!client.ok()) return client.status();
  if (absl::Status status = FillContentDigest(window.next, header);
      !status.ok()) {
    return status;
  }
  ProgressBar bar;
  const auto open = [&]() -> absl::StatusOr<SampleSource> {
    absl::StatusOr<WindowFile> file = OpenWindow(path);
    if (!file.ok()) return file.status();
    return [&bar, &header, next = std::move(file->next),
            sent = uint64_t{0}](v1::Sample* sample) mutable {
      bar.Show(static_cast<double>(sent++) / header.num_samples(), "upload");
      return next(sample);
    };
  };
  return client->StreamPlan(header, open, [&](const v1::PlanEvent& event) {
    if (event.has_progress()) {
      bar.Show(event.progress().fraction(), EventText(event));
    }
  });
}

absl::Status Run(const Args& args) {
  const std::string& path = args[0];
  absl::StatusOr<WindowFile> file = OpenWindow(path);
  if (!file.ok()) return file.status();
  v1::WindowHeader& header = file->header;
  if (absl::Status status = ApplyWindowFlags(header); !status.ok()) {
    return status;
  }
  if (absl::Status status = ApplyOptionFlags(header); !status.ok()) {
    return status;
  }
  ApplyKeyFlags(*header.mutable_key());
  const uint32_t token_cap = header.token_cap();
  absl::StatusOr<v1::Plan> plan = FlagChanged("server")
                                      ? PlanThere(path, *std::move(file))
                                      : PlanHere(path, *std::move(file));
  if (!plan.ok()) return plan.status();
  const std::string output = absl::GetFlag(FLAGS_output);
  if (!output.empty()) {
    if (absl::Status status = WritePlan(output, *plan); !status.ok()) {
      return status;
    }
  }
  if (output == "-") return absl::OkStatus();
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*plan);
    return absl::OkStatus();
  }
  std::cout << PlanReport(*plan, token_cap, absl::GetFlag(FLAGS_rows),
                          absl::GetFlag(FLAGS_verbose));
  if (!output.empty()) std::cout << "\nplan written to " << output << "\n";
  return absl::OkStatus();
}

}  // namespace

Command PlanCommand() {
  return {
      .name = "plan",
      .arguments = "WINDOW",
      .summary = "Plan a window file here, or through a server.",
      .description =
          "Plans the window (.rpw, .json, or - for JSON on standard input)\n"
          "with the planner that is built in, or with --server through\n"
          "routepackd, and prints what the plan is worth. The other flags\n"
          "override what the file says, so that one window can be planned for\n"
          "several settings; score needs the same ones. -v shows how the\n"
          "search went: what each stage gained, which proposals were accepted\n"
          "at which temperature, when it converged and why it ended.",
      .examples =
          {"routepackctl plan window.rpw --output=plan.json",
           "routepackctl plan window.rpw --ep=16 --attention_config=c.json",
           "routepackctl plan window.rpw --effort=best -v",
           "routepackctl plan window.json --server=localhost:7070",
           "routepackctl plan window.rpw --json | jq .bounds"},
      .flags = Concat({{"output", "json", "rows", "verbose", "threads"},
                       WindowFlags(),
                       OptionFlags(),
                       ServerFlags(),
                       KeyFlags()}),
      .min_args = 1,
      .max_args = 1,
      .run = Run};
}

}  // namespace routepack::cli
