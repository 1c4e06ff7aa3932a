#include "client/cli/search_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/report.h"
#include "client/cli/table.h"

namespace routepack::cli {
namespace {

constexpr size_t kMostTemperatureRows = 12;
constexpr int kMostColumns = 60;  // of the sparkline

std::string EndText(const v1::SearchReport& report) {
  switch (report.end()) {
    case v1::SEARCH_END_SEEDS_ONLY:
      return "no annealing was asked for";
    case v1::SEARCH_END_STEPS_SPENT:
      return "all its steps were made";
    case v1::SEARCH_END_BOUND_REACHED:
      return "the bound is reached, within 0.01%";
    case v1::SEARCH_END_NO_IMPROVEMENT:
      return "nothing improved any more, nor in two restarts";
    case v1::SEARCH_END_NOTHING_TO_GAIN:
      return report.levels().empty()
                 ? "the best first layout reaches the bound, within 0.01%"
                 : "no exchange of samples fits";
    case v1::SEARCH_END_TIME_LIMIT:
      return "time ran out";
    default:
      return "it does not say why";
  }
}

std::string EffortText(v1::Effort effort) {
  constexpr size_t kPrefix = sizeof("EFFORT_") - 1;
  const std::string name = v1::Effort_Name(effort);
  return name.size() > kPrefix ? absl::AsciiStrToLower(name.substr(kPrefix))
                               : absl::StrCat(static_cast<int>(effort));
}

// What length-only packing leaves above the bound, and how much of it the plan
// has taken away.
std::string ClosedText(const v1::Plan& plan) {
  const double bound = plan.bounds().joint_for_placement();
  const double left = plan.reorder().joint() - bound;
  if (left <= 0) return "length-only packing reaches the bound";
  return absl::StrCat(
      "closed ",
      Percent((plan.reorder().joint() - plan.routepack().joint()) / left, 1),
      " of what length-only packing left above the bound");
}

std::string WorkText(const v1::SearchReport& report) {
  double seconds = 0;
  for (const v1::SearchStage& stage : report.stages()) {
    seconds += Seconds(stage.duration());
  }
  if (report.levels().empty()) {
    return absl::StrCat(report.distinct(), " first layouts in ",
                        Milliseconds(seconds));
  }
  return absl::StrCat(WithCommas(report.proposals().steps()), " proposals in ",
                      Milliseconds(seconds), " (",
                      Rounded(report.proposals_per_second()), "/s)");
}

std::string Excess(double joint, double bound) {
  return bound > 0 ? Percent(joint / bound - 1) : "-";
}

std::string StageTable(const v1::Plan& plan) {
  const double bound = plan.bounds().joint_for_placement();
  Table table({"stage", "joint", "change", "above bound", "time"});
  double before = 0;
  for (const v1::SearchStage& stage : plan.search_report().stages()) {
    const double seconds = Seconds(stage.duration());
    table.AddRow({stage.name(), Fixed(stage.joint(), 3),
                  before == 0 ? "" : Change(before, stage.joint()),
                  Excess(stage.joint(), bound),
                  seconds == 0 ? "" : Milliseconds(seconds)});
    before = stage.joint();
  }
  return table.ToString();
}

std::string SeedsText(const v1::Plan& plan) {
  const v1::SearchReport& report = plan.search_report();
  std::string text =
      absl::StrCat("effort ", EffortText(plan.options().search().effort()),
                   ", seed ", plan.options().seed(), "; ", report.candidates(),
                   " first layouts tried, ", report.distinct(), " distinct");
  if (!report.levels().empty()) {
    absl::StrAppend(&text, "; population ", report.population(),
                    ", mean distance ", Fixed(report.diversity(), 3), "; ",
                    report.restarts(),
                    report.restarts() == 1 ? " restart" : " restarts");
  }
  return text;
}

// Levels of similar temperature as one row of the table.
struct LevelGroup {
  double temperature = 0;  // the hottest
  uint32_t levels = 0;
  uint64_t steps = 0;
  uint64_t infeasible = 0;
  uint64_t stopped_early = 0;
  uint64_t accepted = 0;
  double joint = 0;        // the lowest terminal one
  uint32_t survivors = 0;  // the fewest
};

void AddLevel(const v1::AnnealLevel& level, LevelGroup& group) {
  if (group.levels++ == 0) {
    group.temperature = level.temperature();
    group.joint = level.lowest_terminal_joint();
    group.survivors = level.surviving_members();
  }
  group.steps += level.proposals().steps();
  group.infeasible += level.proposals().infeasible();
  group.stopped_early += level.proposals().stopped_early();
  group.accepted += level.proposals().accepted();
  group.joint = std::min(group.joint, level.lowest_terminal_joint());
  group.survivors = std::min(group.survivors, level.surviving_members());
}

// At most kMostTemperatureRows, the hottest first; those without temperature,
// which begin an annealing, come before them, in a row of their own.
std::vector<LevelGroup> GroupLevels(const v1::SearchReport& report) {
  std::vector<LevelGroup> groups;
  std::vector<const v1::AnnealLevel*> warm;
  for (const v1::AnnealLevel& level : report.levels()) {
    if (level.temperature() > 0) {
      warm.push_back(&level);
      continue;
    }
    groups.resize(1);
    AddLevel(level, groups[0]);
  }
  std::stable_sort(warm.begin(), warm.end(), [](const auto* a, const auto* b) {
    return a->temperature() > b->temperature();
  });
  const size_t rows =
      std::min(warm.size(), kMostTemperatureRows - groups.size());
  for (size_t row = 0; row < rows; ++row) {
    groups.emplace_back();
    for (size_t j = warm.size() * row / rows;
         j < warm.size() * (row + 1) / rows; ++j) {
      AddLevel(*warm[j], groups.back());
    }
  }
  return groups;
}

std::string Part(uint64_t part, uint64_t whole) {
  return whole == 0
             ? "-"
             : Percent(static_cast<double>(part) / static_cast<double>(whole),
                       1);
}

std::string TemperatureTable(const v1::Plan& plan) {
  Table table({"temperature", "levels", "proposals", "no fit", "cut short",
               "accepted", "lowest", "survive"});
  for (const LevelGroup& group : GroupLevels(plan.search_report())) {
    table.AddRow({group.temperature == 0
                      ? "0"
                      : absl::StrFormat("%.1e", group.temperature),
                  absl::StrCat(group.levels), WithCommas(group.steps),
                  Part(group.infeasible, group.steps),
                  Part(group.stopped_early, group.steps),
                  Part(group.accepted, group.steps), Fixed(group.joint, 3),
                  absl::StrCat(group.survivors)});
  }
  return table.ToString();
}

// The excess of the best layout over the bound, from where the search began to
// where it ended: its logarithm, for each halving is as hard as the one before.
std::string ConvergenceText(const v1::Plan& plan) {
  const v1::SearchReport& report = plan.search_report();
  const auto& levels = report.levels();
  const double bound = plan.bounds().joint_for_placement();
  // The stage before the annealing.
  const double start = report.stages_size() < 2
                           ? levels[0].joint()
                           : report.stages(report.stages_size() - 2).joint();
  const double end = levels[levels.size() - 1].joint();
  if (start <= end) return "none: the best first layout stayed the best";
  const double least = std::max(end - bound, 1e-4 * bound);
  const auto height = [&](double joint) {
    return std::log(std::max((joint - bound) / least, 1.0));
  };
  std::vector<double> heights = {height(start)};
  const int columns = std::min(levels.size(), kMostColumns);
  for (int c = 0; c < columns; ++c) {
    heights.push_back(
        height(levels[levels.size() * (c + 1) / columns - 1].joint()));
  }
  return absl::StrCat("[", Sparkline(heights), "] from ", Excess(start, bound),
                      " above the bound (@) to ", Excess(end, bound));
}

std::string Verbose(const v1::Plan& plan) {
  const v1::SearchReport& report = plan.search_report();
  std::string text = absl::StrCat(Line("seeds", SeedsText(plan)), "\n",
                                  StageTable(plan), "\n");
  if (!report.levels().empty()) {
    absl::StrAppend(&text, TemperatureTable(plan), "\n",
                    Line("convergence", ConvergenceText(plan)));
  }
  const bool more = report.end() == v1::SEARCH_END_SEEDS_ONLY ||
                    report.end() == v1::SEARCH_END_STEPS_SPENT;
  const bool best = plan.options().search().effort() == v1::EFFORT_BEST;
  absl::StrAppend(
      &text,
      Line("ended",
           absl::StrCat("The search ended because ", EndText(report),
                        !more  ? "."
                        : best ? ": more --steps may find better."
                               : ": a higher --effort may find better.")),
      "\n");
  return text;
}

}  // namespace

std::string SearchText(const v1::Plan& plan, bool verbose) {
  if (!plan.has_search_report()) return "";
  const v1::SearchReport& report = plan.search_report();
  const std::string line =
      Line("search", absl::StrCat(ClosedText(plan), ": ", WorkText(report),
                                  verbose ? "" : "; ended because ",
                                  verbose ? "" : EndText(report)));
  return verbose ? absl::StrCat(line, Verbose(plan)) : line;
}

}  // namespace routepack::cli
