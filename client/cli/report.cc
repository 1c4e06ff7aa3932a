#include "client/cli/report.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/flags.h"
#include "client/cli/search_report.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "google/protobuf/util/json_util.h"

namespace routepack::cli {
namespace {

std::string PlacementText(const v1::PlacementChange& change) {
  const double total = std::max<double>(1, change.experts_total());
  return absl::StrCat(
      WithCommas(change.experts_to_other_rank()), " of ",
      WithCommas(change.experts_total()), " experts change rank (",
      Percent(change.experts_to_other_rank() / total, 1), "), ",
      WithCommas(change.experts_to_other_slot()), " change slot");
}

// Why INCREMENTAL moved no more; empty for other policies.
std::string StopText(v1::IncrementalStop stop) {
  switch (stop) {
    case v1::INCREMENTAL_STOP_TARGET:
      return "stopped at the target imbalance";
    case v1::INCREMENTAL_STOP_STALLED:
      return "stopped where no swap balances more";
    case v1::INCREMENTAL_STOP_BUDGET:
      return "stopped at the movement budget";
    case v1::INCREMENTAL_STOP_BREAK_EVEN:
      return "stopped where more would not pay for its transfer";
    default:
      return "";
  }
}

std::string BreakEvenText(const v1::MovementReport& moved) {
  if (moved.transfer_seconds() == 0 || moved.saved_seconds() == 0) return "";
  std::string text = absl::StrCat(
      "; takes ", Milliseconds(moved.transfer_seconds()), " or more and saves ",
      Milliseconds(moved.saved_seconds()), " a step: ");
  return std::isfinite(moved.break_even_steps())
             ? absl::StrCat(text, "pays after ",
                            Fixed(moved.break_even_steps(), 1), " steps")
             : absl::StrCat(text, "never pays");
}

// What the placement moves, in which rounds and why no more of it.
std::string Movement(const v1::Plan& plan) {
  const v1::MovementReport& moved = plan.movement();
  const v1::MovementOptions& said = plan.options().movement();
  std::string text;
  const std::string stop = StopText(plan.incremental_stop());
  if (!stop.empty()) absl::StrAppend(&text, Line("", stop));
  if (said.parameters_per_expert() != 0 || said.kinds_size() != 0) {
    absl::StrAppend(
        &text,
        Line("movement", absl::StrCat(Bytes(moved.intra_node_bytes() +
                                            moved.inter_node_bytes()),
                                      ", ", Bytes(moved.inter_node_bytes()),
                                      " between nodes", BreakEvenText(moved))));
  }
  int rounds = 0;
  uint32_t least = 0;
  uint32_t staging = 0;
  for (const v1::StageTransfer& stage : plan.transfer()) {
    rounds = std::max(rounds, stage.rounds_size());
    least = std::max(least, stage.min_rounds());
    staging = std::max(staging, stage.peak_staging());
  }
  if (rounds > 0) {
    absl::StrAppend(
        &text,
        Line("transfer", absl::StrCat(rounds, " rounds (at least ", least,
                                      " are needed), at most ", staging,
                                      " staged expert(s) a rank")));
  }
  if (plan.has_refinement()) {
    const v1::PlacementRefinement& refined = plan.refinement();
    absl::StrAppend(
        &text,
        Line("refined",
             absl::StrCat(WithCommas(refined.change().experts_to_other_rank()),
                          " experts changed rank once the packing was known",
                          refined.floor_layers() == 0
                              ? ""
                              : absl::StrCat("; in ", refined.floor_layers(),
                                             " layer(s) one expert makes "
                                             "every peak"))));
  }
  return text;
}

std::string Arms(const v1::Plan& plan) {
  Table table({"arm", "CV", "peak sum", "tail peak", "efficiency", "attention",
               "joint"});
  const auto add = [&](const std::string& name, const v1::Metrics& m) {
    table.AddRow({name, Fixed(m.cv_global(), 4), WithCommas(m.ep_peak_sum()),
                  WithCommas(m.tail_peak()), Fixed(m.balance_efficiency(), 4),
                  Fixed(m.attention(), 3), Fixed(m.joint(), 3)});
  };
  const v1::Metrics& base = plan.baseline();
  const auto add_change = [&](const std::string& name, const v1::Metrics& m) {
    table.AddRow({name, Change(base.cv_global(), m.cv_global()),
                  Change(base.ep_peak_sum(), m.ep_peak_sum()),
                  Change(base.tail_peak(), m.tail_peak()),
                  Change(base.balance_efficiency(), m.balance_efficiency()),
                  Change(base.attention(), m.attention()),
                  Change(base.joint(), m.joint())});
  };
  add("baseline", base);
  add("reorder", plan.reorder());
  add_change("  vs baseline", plan.reorder());
  add("routepack", plan.routepack());
  add_change("  vs baseline", plan.routepack());
  return table.ToString();
}

// What LPT and packing do for each pipeline stage; empty if there are none.
std::string Stages(const v1::Plan& plan) {
  const v1::Metrics& base = plan.baseline();
  const v1::Metrics& result = plan.routepack();
  if (result.stages_size() < 2 || base.stages_size() != result.stages_size()) {
    return "";
  }
  Table table({"stage", "MoE layers", "peak sum", "vs baseline", "tail peak",
               "vs baseline"});
  for (int s = 0; s < result.stages_size(); ++s) {
    const v1::StageMetrics& before = base.stages(s);
    const v1::StageMetrics& after = result.stages(s);
    table.AddRow({absl::StrCat(s), absl::StrCat(after.num_layers()),
                  WithCommas(after.ep_peak_sum()),
                  Change(before.ep_peak_sum(), after.ep_peak_sum()),
                  WithCommas(after.tail_peak()),
                  Change(before.tail_peak(), after.tail_peak())});
  }
  return absl::StrCat(table.ToString(), "\n");
}

std::string Rows(const v1::Plan& plan, uint32_t token_cap, uint32_t shown) {
  const v1::Layout& layout = plan.layout();
  const int rows = std::min<int>(layout.rows_size(), static_cast<int>(shown));
  if (rows == 0) return "";
  // Rows are wide: a line a row, a group "samples/tokens fill" a cell.
  constexpr int kMaxCells = 8;
  const int slots = layout.rows(0).cells_size();
  std::vector<std::string> header = {"row", "tokens", "cost"};
  for (int d = 0; d < std::min(slots, kMaxCells); ++d) {
    header.push_back(absl::StrCat("slot ", d));
  }
  if (slots > kMaxCells) header.push_back("...");
  Table table(std::move(header));
  for (int r = 0; r < rows; ++r) {
    const v1::Row& row = layout.rows(r);
    const auto cost =
        std::max_element(row.shard_cost().begin(), row.shard_cost().end());
    std::vector<std::string> cells = {
        absl::StrCat(r), WithCommas(row.tokens()),
        cost == row.shard_cost().end() ? "-" : Fixed(*cost, 3)};
    for (int d = 0; d < std::min(row.cells_size(), kMaxCells); ++d) {
      const v1::Cell& cell = row.cells(d);
      cells.push_back(absl::StrCat(
          cell.sample_ids_size(), "/", cell.tokens(),
          token_cap == 0
              ? ""
              : absl::StrCat(
                    " ",
                    Percent(static_cast<double>(cell.occupancy()) / token_cap,
                            0))));
    }
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(
      Line("layout",
           absl::StrCat("first ", rows, " of ", layout.rows_size(), " rows x ",
                        slots, " DP slots (samples/tokens",
                        token_cap == 0 ? "" : " fill", ")")),
      table.ToString());
}

std::string Timings(const v1::Plan& plan) {
  std::vector<std::string> stages;
  double total = 0;
  for (const v1::StageTiming& timing : plan.timings()) {
    const double seconds = Seconds(timing.duration());
    total += seconds;
    stages.push_back(absl::StrCat(timing.stage(), " ", Milliseconds(seconds)));
  }
  return absl::StrCat(Milliseconds(total), ": ", absl::StrJoin(stages, ", "));
}

}  // namespace

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + 1e-9 * duration.nanos();
}

std::string Line(const std::string& label, const std::string& text) {
  const std::string padding(label.size() < 12 ? 12 - label.size() : 1, ' ');
  return absl::StrCat(OutputStyle().Bold(label), padding, text, "\n");
}

std::string RowsText(const v1::Plan& plan) {
  const v1::RowCertificate& rows = plan.rows();
  const uint64_t slots =
      plan.layout().rows().empty() ? 0 : plan.layout().rows(0).cells_size();
  std::string text = absl::StrCat(rows.rows(), " rows, ");
  if (rows.outcome() != v1::ROW_OUTCOME_CERTIFIED) {
    return absl::StrCat(text, "best known: at least ", rows.rows_lower_bound(),
                        " are needed, fewer than ", rows.rows(),
                        " were not excluded (", rows.nodes(), " nodes)");
  }
  absl::StrAppend(&text, "certified minimum (proof: ", rows.proof(), "; ",
                  rows.bins_lower_bound(), " cells or more are needed");
  if (rows.rows() > 1 && (rows.rows() - 1) * slots < rows.bins_lower_bound()) {
    absl::StrAppend(&text, ", ", rows.rows() - 1, " rows have ",
                    (rows.rows() - 1) * slots);
  }
  return absl::StrCat(text, ")");
}

std::string PlanReport(const v1::Plan& plan, uint32_t token_cap,
                       uint32_t rows_shown, bool verbose) {
  const Style style = OutputStyle();
  const v1::ExplicitShards& topology = plan.topology();
  std::string text =
      Line("plan",
           absl::StrCat(KeyText(plan.key()), ", ", topology.dp_slots(),
                        " DP slots, ", topology.ep_ranks(), " EP ranks, ",
                        topology.shards_size(), " EDP shard(s), ",
                        WithCommas(plan.layout().window_tokens()), " tokens"));
  absl::StrAppend(&text, Line("rows", style.Green(RowsText(plan))));
  absl::StrAppend(
      &text, Line("balance",
                  absl::StrCat("CV of rank loads ",
                               Fixed(plan.baseline().cv_global(), 4), " -> ",
                               Fixed(plan.routepack().cv_global(), 4), " (",
                               Change(plan.baseline().cv_global(),
                                      plan.routepack().cv_global()),
                               ")")));
  absl::StrAppend(&text,
                  Line("placement", PlacementText(plan.placement_change())));
  absl::StrAppend(&text, Movement(plan));
  absl::StrAppend(&text, "\n", Arms(plan), "\n", Stages(plan));
  const v1::Bounds& bounds = plan.bounds();
  absl::StrAppend(
      &text,
      Line("bounds",
           absl::StrCat("joint >= ", Fixed(bounds.joint_for_placement(), 3),
                        " for this placement (gap ",
                        Percent(bounds.gap_for_placement()),
                        "), >= ", Fixed(bounds.joint_for_any_placement(), 3),
                        " for any (gap ",
                        Percent(bounds.gap_for_any_placement()), ")")));
  if (bounds.hot_expert_layers_size() != 0) {
    absl::StrAppend(
        &text,
        Line("", absl::StrCat("in ", bounds.hot_expert_layers_size(),
                              " layer(s) one expert is hotter than the mean "
                              "rank: ",
                              absl::StrJoin(bounds.hot_expert_layers(), " "))));
  }
  absl::StrAppend(&text, SearchText(plan, verbose));
  absl::StrAppend(&text, Line("time", Timings(plan)));
  if (plan.layout().filler_sample_ids_size() != 0) {
    absl::StrAppend(
        &text,
        Line("fillers", absl::StrCat(plan.layout().filler_sample_ids_size(),
                                     " zero-loss samples added")));
  }
  for (const std::string& warning : plan.warnings()) {
    absl::StrAppend(&text, Line("warning", style.Yellow(warning)));
  }
  const std::string rows = Rows(plan, token_cap, rows_shown);
  return rows.empty() ? text : absl::StrCat(text, "\n", rows);
}

std::string EventText(const v1::PlanEvent& event) {
  switch (event.event_case()) {
    case v1::PlanEvent::kAccepted:
      return absl::StrCat("accepted: ", StateText(event.accepted().state()),
                          ", next chunk ", event.accepted().next_chunk());
    case v1::PlanEvent::kSealed:
      return absl::StrCat("sealed: ", event.sealed().queue_position(),
                          " windows ahead, digest ",
                          event.sealed().window_digest());
    case v1::PlanEvent::kPlacementReady:
      return absl::StrCat(
          "placement ready: ", event.placement_ready().placement_version(),
          ", ", PlacementText(event.placement_ready().placement_change()));
    case v1::PlanEvent::kProgress: {
      const v1::Progress& progress = event.progress();
      std::string text = progress.stage();
      if (progress.rows() != 0) {
        absl::StrAppend(&text, ", ", progress.rows(), " rows");
      }
      if (progress.joint() != 0) {
        absl::StrAppend(&text, ", joint ", Fixed(progress.joint(), 3));
      }
      if (progress.gap() != 0) {
        absl::StrAppend(&text, ", gap ", Percent(progress.gap()));
      }
      if (progress.proposals_per_second() != 0) {
        absl::StrAppend(&text, ", ", Percent(progress.acceptance_rate(), 1),
                        " accepted, ", Rounded(progress.proposals_per_second()),
                        " proposals/s");
      }
      return text;
    }
    case v1::PlanEvent::kPlan:
      return absl::StrCat("plan: ", RowsText(event.plan()), ", joint ",
                          Fixed(event.plan().routepack().joint(), 3), ", gap ",
                          Percent(event.plan().bounds().gap_for_placement()));
    case v1::PlanEvent::EVENT_NOT_SET:
      break;
  }
  return "";
}

std::string StateText(v1::PlanState state) {
  constexpr size_t kPrefix = sizeof("PLAN_STATE_") - 1;
  const std::string name = v1::PlanState_Name(state);
  return name.size() > kPrefix ? absl::AsciiStrToLower(name.substr(kPrefix))
                               : absl::StrCat(static_cast<int>(state));
}

std::string ToJson(const google::protobuf::Message& message, bool pretty) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = pretty;
  options.preserve_proto_field_names = true;
  std::string text;
  // Fails only for google.protobuf.Any of unknown types, which we have not.
  if (!google::protobuf::util::MessageToJsonString(message, &text, options)
           .ok()) {
    return "{}";
  }
  return text;
}

}  // namespace routepack::cli
