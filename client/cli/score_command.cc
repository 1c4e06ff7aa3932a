#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "client/window_file.h"
#include "planner/plan.h"
#include "planner/planner.h"
#include "planner/rows.h"
#include "proto/codec/codec.h"

namespace routepack::cli {
namespace {

// What the window, the placement and the layout are worth.
struct Recomputed {
  Evaluation evaluation;
  Metrics metrics;
  ScoreBounds bounds;
};

absl::StatusOr<Recomputed> Recompute(const Window& window, const Plan& plan) {
  absl::Status status = ValidatePlacement(plan.placement, "placement");
  if (!status.ok()) return status;
  PackingProblem problem = MakeProblem(window, plan.num_fillers);
  status = ValidateLayout(problem, plan.layout);
  if (!status.ok()) return status;
  problem.demand = ProjectDemand(window, plan.placement, plan.num_fillers);
  const std::vector<uint64_t> experts = window.ExpertLoads();
  const std::vector<uint64_t> ranks = RankLoads(plan.placement, experts);
  Recomputed found;
  found.evaluation = EvaluateLayout(problem, plan.layout);
  found.metrics = MakeMetrics(
      problem, found.evaluation,
      CvGlobal(ranks, window.num_layers(), plan.placement.num_ranks));
  found.bounds = LowerBounds(problem, plan.layout.rows, experts, ranks);
  return found;
}

std::string Comparison(const v1::Plan& stated, const Recomputed& found,
                       uint32_t token_cap) {
  Table table({"routepack", "stated", "recomputed", ""});
  const auto whole = [&](const std::string& name, int64_t a, int64_t b) {
    table.AddRow({name, WithCommas(static_cast<uint64_t>(a)),
                  WithCommas(static_cast<uint64_t>(b)),
                  a == b ? "match" : "DIFFERS"});
  };
  const auto real = [&](const std::string& name, double a, double b) {
    table.AddRow({name, Fixed(a, 6), Fixed(b, 6),
                  std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(b))
                      ? "match"
                      : "DIFFERS"});
  };
  const v1::Metrics& metrics = stated.routepack();
  const double unit = static_cast<double>(kScoreScale) * token_cap;
  whole("slowest shard", metrics.score().slowest_shard(),
        found.metrics.score.slowest_shard);
  whole("all shards", metrics.score().total(), found.metrics.score.total);
  whole("worst row", metrics.score().worst_row(),
        found.metrics.score.worst_row);
  whole("EP peak sum", static_cast<int64_t>(metrics.ep_peak_sum()),
        static_cast<int64_t>(found.metrics.ep_peak_sum));
  whole("tail peak", static_cast<int64_t>(metrics.tail_peak()),
        static_cast<int64_t>(found.metrics.tail_peak));
  const int num_stages = static_cast<int>(found.metrics.stages.size());
  for (int s = 0; s < std::min(metrics.stages_size(), num_stages); ++s) {
    const StageMetrics& stage = found.metrics.stages[s];
    whole(absl::StrCat("stage ", s, " peak sum"),
          static_cast<int64_t>(metrics.stages(s).ep_peak_sum()),
          static_cast<int64_t>(stage.ep_peak_sum));
    whole(absl::StrCat("stage ", s, " tail peak"),
          static_cast<int64_t>(metrics.stages(s).tail_peak()),
          static_cast<int64_t>(stage.tail_peak));
  }
  real("efficiency", metrics.balance_efficiency(),
       found.metrics.balance_efficiency);
  real("attention", metrics.attention(), found.metrics.attention);
  real("joint", metrics.joint(), found.metrics.joint);
  real("CV", metrics.cv_global(), found.metrics.cv_global);
  real("bound, placement", stated.bounds().joint_for_placement(),
       static_cast<double>(found.bounds.for_placement) / unit);
  real("bound, any", stated.bounds().joint_for_any_placement(),
       static_cast<double>(found.bounds.for_any_placement) / unit);
  return table.ToString();
}

// The certificate, from the samples alone: the row search is deterministic.
absl::StatusOr<RowResult> RecomputeRows(const Window& window,
                                        const PlanOptions& options) {
  return FewestRows(MakeProblem(window, 0).occupancy,
                    {.num_slots = window.spec().topology.num_slots(),
                     .token_cap = window.spec().token_cap,
                     .min_rows = options.min_rows,
                     .row_multiple = options.row_multiple,
                     .allow_filler = options.allow_filler,
                     .max_nodes = options.row_search_nodes},
                    Budget{});
}

// The placement before the step; nothing when only a server knows it.
absl::StatusOr<std::optional<Placement>> CurrentPlacement(
    const LoadedWindow& loaded) {
  const v1::CurrentPlacement& current = loaded.header.current_placement();
  const Window& window = loaded.window;
  const uint32_t num_ranks = window.spec().topology.num_ranks();
  if (current.has_committed_version()) return std::nullopt;
  if (current.has_map()) {
    return DecodePlacement(current.map(), window.num_layers(),
                           window.num_experts(), num_ranks,
                           "header.current_placement.map");
  }
  return IdentityPlacement(window.num_layers(), window.num_experts(),
                           num_ranks);
}

// Encodes the plan anew from what the window and the stated placement and
// layout say, and compares it with the stated message. `plan` is a valid one,
// its evaluation recomputed. Taken as stated: what describes the run (key,
// options, search report, timings, warnings, truncated, backend, version), and
// what a limit in time or only a server can tell.
absl::Status CheckRest(const LoadedWindow& loaded, const v1::Plan& stated,
                       Plan plan) {
  const Window& window = loaded.window;
  absl::StatusOr<PlanOptions> options = DecodeOptions(stated.options());
  if (!options.ok()) return options.status();
  if (!stated.truncated()) {
    absl::StatusOr<RowResult> rows = RecomputeRows(window, *options);
    if (!rows.ok()) return rows.status();
    plan.rows = *std::move(rows);
  }
  absl::StatusOr<std::optional<Placement>> current = CurrentPlacement(loaded);
  if (!current.ok()) return current.status();
  if (current->has_value()) {
    absl::StatusOr<MovementModel> model =
        MovementModel::Create(MovementOf(window.spec(), options->movement),
                              "header.options.movement");
    if (!model.ok()) return model.status();
    plan.movement =
        ReportMovement(*model, **current, plan.placement, window.ExpertLoads());
    TransferOptions transfer = options->transfer;
    transfer.node_of_rank = model->spec().node_of_rank;
    plan.transfer =
        ScheduleTransfer(**current, plan.placement,
                         window.spec().pipeline.stage_of_layer, transfer);
  }
  const PlanContext context{.key = stated.key(),
                            .options = stated.options(),
                            .backend = stated.backend()};
  v1::Plan expected = EncodePlan(window, plan, *options, context);
  *expected.mutable_options() = stated.options();
  *expected.mutable_timings() = stated.timings();
  expected.set_algorithm_version(stated.algorithm_version());
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(expected, stated)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "recomputed -> stated: ", differences.substr(0, differences.find('\n'))));
}

absl::Status Differs(const std::string& path, const absl::Status& status) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not a plan of this window: ", status.message()));
}

absl::Status Run(const Args& args) {
  absl::StatusOr<WindowFile> file = OpenWindow(args[0]);
  if (!file.ok()) return file.status();
  if (absl::Status status = ApplyWindowFlags(file->header); !status.ok()) {
    return status;
  }
  absl::StatusOr<LoadedWindow> loaded = LoadWindow(args[0], *std::move(file));
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<v1::Plan> stated = ReadPlan(args[1]);
  if (!stated.ok()) return stated.status();
  absl::StatusOr<Plan> plan = DecodePlan(loaded->window, *stated);
  if (!plan.ok()) return Differs(args[1], plan.status());
  absl::StatusOr<Recomputed> found = Recompute(loaded->window, *plan);
  if (!found.ok()) return Differs(args[1], found.status());
  absl::Status valid = ValidatePlan(loaded->window, *plan);
  if (valid.ok()) {
    plan->evaluation = found->evaluation;
    valid = CheckRest(*loaded, *stated, *std::move(plan));
  }
  if (absl::GetFlag(FLAGS_json)) {
    v1::Metrics recomputed;
    EncodeMetrics(found->metrics, &recomputed);
    std::cout << "{\"match\": " << (valid.ok() ? "true" : "false")
              << ", \"stated\": " << ToJson(stated->routepack(), false)
              << ", \"recomputed\": " << ToJson(recomputed, false) << "}\n";
  } else {
    std::cout << Comparison(*stated, *found, loaded->window.spec().token_cap);
  }
  if (!valid.ok()) return Differs(args[1], valid);
  if (!absl::GetFlag(FLAGS_json)) {
    std::cout << "\n"
              << OutputStyle().Green("match")
              << ": every sample in one cell, all cells within the cap; row "
                 "certificate, all\nthree arms and bounds as stated\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command ScoreCommand() {
  return {.name = "score",
          .arguments = "WINDOW PLAN",
          .summary = "Check a plan against its window, recomputing its score.",
          .description =
              "Recomputes coverage, caps, the row certificate, all metrics,\n"
              "bounds and the exact score here, and exits 1 at the first\n"
              "difference. Only what describes the run is taken as stated:\n"
              "key, options, search report, timings, warnings, backend and\n"
              "version. Give the window flags that plan was given.",
          .examples = {"routepackctl score window.rpw plan.json",
                       "routepackctl score window.rpw plan.rpp --ep=16 "
                       "--dp=16"},
          .flags = Concat({{"json"}, WindowFlags()}),
          .min_args = 2,
          .max_args = 2,
          .run = Run};
}

}  // namespace routepack::cli
