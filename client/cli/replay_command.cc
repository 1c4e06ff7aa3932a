#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "client/cli/workload_flags.h"
#include "client/window_file.h"
#include "client/workload.h"
#include "google/protobuf/struct.pb.h"
#include "oneapi/tbb/task_arena.h"
#include "planner/planner.h"
#include "proto/codec/codec.h"

ABSL_FLAG(std::vector<std::string>, policies, {},
          "Placement policies to compare, e.g. lpt,incremental, or all; "
          "default: --placement alone.");

namespace routepack::cli {
namespace {

constexpr struct {
  const char* name;
  PlacementPolicy policy;
} kPolicies[] = {{"identity", PlacementPolicy::kIdentity},
                 {"keep", PlacementPolicy::kKeep},
                 {"lpt", PlacementPolicy::kLpt},
                 {"lpt-relabel", PlacementPolicy::kLptRelabel},
                 {"incremental", PlacementPolicy::kIncremental}};

std::string NameOf(PlacementPolicy policy) {
  for (const auto& known : kPolicies) {
    if (known.policy == policy) return known.name;
  }
  return "";
}

// What a step of a policy came to.
struct Step {
  std::string window;
  double cv = 0;
  double joint = 0;  // token-cap units
  double gap = 0;    // to the bound over all placements
  MovementReport movement;
  bool knows_bytes = false;  // else an expert counts as one
  double seconds = 0;
};

// One policy's way through the windows.
struct PolicyRun {
  std::string name;
  PlacementPolicy policy = PlacementPolicy::kIncremental;
  Placement current;
  std::vector<Step> steps;
};

absl::StatusOr<std::vector<PolicyRun>> RunsFromFlags(PlacementPolicy only) {
  std::vector<std::string> names = absl::GetFlag(FLAGS_policies);
  if (names.empty()) names = {NameOf(only)};
  std::vector<PolicyRun> runs;
  for (const auto& known : kPolicies) {
    const auto name = std::find(names.begin(), names.end(), known.name);
    const bool all = names == std::vector<std::string>{"all"};
    if (!all && name == names.end()) continue;
    runs.push_back({.name = known.name, .policy = known.policy});
    if (!all) names.erase(name);
  }
  if (!names.empty() && names != std::vector<std::string>{"all"}) {
    return UsageError(absl::StrCat(
        "--policies: '", names.front(),
        "' is not one of identity, keep, lpt, lpt-relabel, incremental, all"));
  }
  return runs;
}

// Windows in order; nothing at the end.
using WindowSource = std::function<absl::StatusOr<std::optional<LoadedWindow>>(
    std::string* name)>;

absl::Status ApplyFlags(v1::WindowHeader& header) {
  if (absl::Status status = ApplyWindowFlags(header); !status.ok()) {
    return status;
  }
  return ApplyOptionFlags(header);
}

WindowSource FilesInOrder(const Args& paths) {
  return [paths, next = size_t{0}](std::string* name) mutable
         -> absl::StatusOr<std::optional<LoadedWindow>> {
    if (next == paths.size()) return std::nullopt;
    *name = paths[next++];
    absl::StatusOr<WindowFile> file = OpenWindow(*name);
    if (!file.ok()) return file.status();
    if (absl::Status status = ApplyFlags(file->header); !status.ok()) {
      return status;
    }
    return LoadWindow(*name, *std::move(file));
  };
}

absl::StatusOr<WindowSource> GeneratedInOrder(uint32_t windows) {
  absl::StatusOr<WorkloadSpec> spec = WorkloadFromFlags();
  if (!spec.ok()) return spec.status();
  return [spec = *spec, left = windows](std::string* name) mutable
         -> absl::StatusOr<std::optional<LoadedWindow>> {
    if (left-- == 0) return std::nullopt;
    *name = absl::StrCat(spec.name, "-", spec.step);
    absl::StatusOr<Workload> workload = Workload::Create(spec);
    if (!workload.ok()) return workload.status();
    ++spec.step;
    absl::StatusOr<Window> window = workload->MakeWindow();
    if (!window.ok()) return window.status();
    LoadedWindow loaded{workload->header(), *std::move(window)};
    if (absl::Status status = ApplyOptionFlags(loaded.header); !status.ok()) {
      return status;
    }
    return loaded;
  };
}

absl::Status PlanStep(const LoadedWindow& loaded, const std::string& name,
                      PolicyRun& run) {
  absl::StatusOr<PlanOptions> options = DecodeOptions(loaded.header.options());
  if (!options.ok()) return options.status();
  options->placement = run.policy;
  if (run.policy == PlacementPolicy::kKeep ||
      run.policy == PlacementPolicy::kIdentity) {
    options->refine_after_announce = false;
  }
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<Plan> plan = MakePlan(loaded.window, run.current, *options);
  if (!plan.ok()) return plan.status();
  run.current = std::move(plan->placement);
  run.steps.push_back({.window = name,
                       .cv = plan->routepack.cv_global,
                       .joint = plan->routepack.joint,
                       .gap = Gap(plan->routepack.score.slowest_shard,
                                  plan->bounds.for_any_placement),
                       .movement = std::move(plan->movement),
                       .knows_bytes = !options->movement.kinds.empty(),
                       .seconds = std::chrono::duration<double>(
                                      std::chrono::steady_clock::now() - start)
                                      .count()});
  return absl::OkStatus();
}

bool SameSizes(const Placement& placement, const Window& window) {
  return placement.num_layers == window.num_layers() &&
         placement.num_experts == window.num_experts() &&
         placement.num_ranks == window.spec().topology.num_ranks();
}

uint64_t BytesOf(const MovementReport& movement) {
  return movement.intra_node_bytes + movement.inter_node_bytes;
}

double ShareMoved(const MovementReport& movement) {
  return static_cast<double>(movement.change.experts_to_other_rank) /
         static_cast<double>(movement.change.experts_total);
}

void PrintSteps(const std::vector<PolicyRun>& runs) {
  Table table({"window", "policy", "CV", "joint", "gap", "experts moved",
               "bytes", "weighted", "transfer", "plan time"},
              2);
  for (size_t k = 0; k < runs.front().steps.size(); ++k) {
    for (const PolicyRun& run : runs) {
      const Step& step = run.steps[k];
      const MovementReport& moved = step.movement;
      table.AddRow({step.window, run.name, Percent(step.cv),
                    Fixed(step.joint, 2), Percent(step.gap),
                    absl::StrCat(WithCommas(moved.change.experts_to_other_rank),
                                 " (", Percent(ShareMoved(moved), 1), ")"),
                    step.knows_bytes ? Bytes(BytesOf(moved)) : "-",
                    Rounded(moved.weighted_bytes),
                    moved.transfer_seconds > 0
                        ? Milliseconds(moved.transfer_seconds)
                        : "-",
                    Milliseconds(step.seconds)});
    }
  }
  std::cout << table.ToString();
}

// Mean over the steps but the first, whose placement every policy moves to
// from identity.
double MeanOf(const PolicyRun& run,
              const std::function<double(const Step&)>& value) {
  const size_t first = run.steps.size() > 1 ? 1 : 0;
  double sum = 0;
  for (size_t k = first; k < run.steps.size(); ++k) sum += value(run.steps[k]);
  return sum / static_cast<double>(run.steps.size() - first);
}

void PrintSummary(const std::vector<PolicyRun>& runs) {
  const auto lpt =
      std::find_if(runs.begin(), runs.end(),
                   [](const PolicyRun& run) { return run.name == "lpt"; });
  const auto joint = [](const Step& step) { return step.joint; };
  const auto weighted = [](const Step& step) {
    return step.movement.weighted_bytes;
  };
  Table table({"policy", "CV", "joint", "against lpt", "gap", "experts moved",
               "weighted", "lpt moves", "plan time"});
  for (const PolicyRun& run : runs) {
    std::string against = "-";
    std::string times = "-";
    if (lpt != runs.end()) {
      against = Change(MeanOf(*lpt, joint), MeanOf(run, joint));
      if (MeanOf(run, weighted) > 0) {
        times = absl::StrCat(
            Fixed(MeanOf(*lpt, weighted) / MeanOf(run, weighted), 1), " x");
      }
    }
    table.AddRow(
        {run.name,
         Percent(MeanOf(run, [](const Step& step) { return step.cv; })),
         Fixed(MeanOf(run, joint), 2), against,
         Percent(MeanOf(run, [](const Step& step) { return step.gap; })),
         Percent(
             MeanOf(run,
                    [](const Step& step) { return ShareMoved(step.movement); }),
             1),
         Rounded(MeanOf(run, weighted)), times,
         Milliseconds(
             MeanOf(run, [](const Step& step) { return step.seconds; }))});
  }
  std::cout << "\nmean of " << runs.front().steps.size() - 1
            << " steps after the first\n\n"
            << table.ToString();
}

void PrintJson(const std::vector<PolicyRun>& runs) {
  for (const PolicyRun& run : runs) {
    for (const Step& step : run.steps) {
      google::protobuf::Struct object;
      auto& fields = *object.mutable_fields();
      const MovementReport& moved = step.movement;
      const auto number = [&](const char* name, auto value) {
        fields[name].set_number_value(static_cast<double>(value));
      };
      fields["policy"].set_string_value(run.name);
      fields["window"].set_string_value(step.window);
      number("cv", step.cv);
      number("joint", step.joint);
      number("gap_for_any_placement", step.gap);
      number("experts_to_other_rank", moved.change.experts_to_other_rank);
      number("experts_total", moved.change.experts_total);
      number("intra_node_bytes", moved.intra_node_bytes);
      number("inter_node_bytes", moved.inter_node_bytes);
      number("weighted_bytes", moved.weighted_bytes);
      number("transfer_seconds", moved.transfer_seconds);
      number("peak_sum", moved.peak_sum_after);
      number("plan_seconds", step.seconds);
      std::cout << ToJson(object, /*pretty=*/false) << "\n";
    }
  }
}

absl::Status ReplayWindows(const WindowSource& next, size_t windows,
                           std::vector<PolicyRun>& runs) {
  const uint32_t threads = absl::GetFlag(FLAGS_threads);
  tbb::task_arena arena(threads == 0 ? tbb::task_arena::automatic
                                     : static_cast<int>(threads));
  ProgressBar bar;
  for (size_t k = 0;; ++k) {
    std::string name;
    absl::StatusOr<std::optional<LoadedWindow>> loaded = next(&name);
    if (!loaded.ok()) return loaded.status();
    if (!loaded->has_value()) return absl::OkStatus();
    const Window& window = (*loaded)->window;
    for (size_t r = 0; r < runs.size(); ++r) {
      bar.Show(static_cast<double>(k * runs.size() + r) /
                   static_cast<double>(windows * runs.size()),
               absl::StrCat(name, ", ", runs[r].name));
      if (k == 0) {
        runs[r].current =
            IdentityPlacement(window.num_layers(), window.num_experts(),
                              window.spec().topology.num_ranks());
      }
      if (!SameSizes(runs[r].current, window)) {
        return absl::InvalidArgumentError(absl::StrCat(
            name,
            ": has other layers, experts or EP ranks than the windows "
            "before it"));
      }
      const absl::Status status =
          arena.execute([&] { return PlanStep(**loaded, name, runs[r]); });
      if (!status.ok()) {
        return absl::Status(
            status.code(),
            absl::StrCat(name, ", ", runs[r].name, ": ", status.message()));
      }
    }
  }
}

absl::Status RunReplay(const Args& args) {
  const uint32_t generated = absl::GetFlag(FLAGS_windows);
  if (args.empty() && generated < 2) {
    return UsageError(
        "give window files in order, or --preset and --windows=N");
  }
  v1::WindowHeader flags;
  if (absl::Status status = ApplyOptionFlags(flags); !status.ok()) {
    return status;
  }
  absl::StatusOr<PlanOptions> options = DecodeOptions(flags.options());
  if (!options.ok()) return options.status();
  absl::StatusOr<std::vector<PolicyRun>> runs =
      RunsFromFlags(options->placement);
  if (!runs.ok()) return runs.status();
  absl::StatusOr<WindowSource> next =
      args.empty() ? GeneratedInOrder(generated) : FilesInOrder(args);
  if (!next.ok()) return next.status();
  if (absl::Status status =
          ReplayWindows(*next, args.empty() ? generated : args.size(), *runs);
      !status.ok()) {
    return status;
  }
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*runs);
    return absl::OkStatus();
  }
  PrintSteps(*runs);
  if (runs->front().steps.size() > 1) PrintSummary(*runs);
  return absl::OkStatus();
}

}  // namespace

Command ReplayCommand() {
  return {
      .name = "replay",
      .arguments = "[WINDOW...]",
      .summary =
          "Plan windows in order, as a trainer would, and compare "
          "policies.",
      .description =
          "Plans windows one after another, each from the placement that the "
          "step\nbefore left, beginning with identity: window files in the "
          "order given, or\n--windows generated ones (see generate). Prints "
          "what every step moves and\nwhat its plan is worth, and the means of "
          "each placement policy over the\nsteps after the first.\n\n"
          "--policies=all compares identity, keep, lpt, lpt-relabel and "
          "incremental.",
      .examples =
          {"routepackctl replay gsm8k-*.rpw --policies=all",
           "routepackctl replay --preset=flash --windows=30 --drift=0.05 "
           "--policies=lpt,incremental --effort=fast",
           "routepackctl replay --preset=tiny --windows=30 "
           "--shape=rotating-hotspot --json"},
      .flags = Concat({{"policies", "threads", "json"},
                       WorkloadFlags(),
                       WindowFlags(),
                       OptionFlags()}),
      .min_args = 0,
      .max_args = 1 << 20,
      .run = RunReplay};
}

}  // namespace routepack::cli
