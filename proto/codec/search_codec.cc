#include "proto/codec/search_codec.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/codec/duration.h"
#include "proto/codec/score_units.h"

namespace routepack {
namespace {

constexpr char kOptionsField[] = "header.options.search";

Effort DecodeEffort(v1::Effort effort, Violations& bad) {
  switch (effort) {
    case v1::EFFORT_UNSPECIFIED:
    case v1::EFFORT_BALANCED:
      return Effort::kBalanced;
    case v1::EFFORT_SEEDS:
      return Effort::kSeeds;
    case v1::EFFORT_FAST:
      return Effort::kFast;
    case v1::EFFORT_BEST:
      return Effort::kBest;
    default:
      bad.Add(absl::StrCat(kOptionsField, ".effort"),
              absl::StrCat("unknown value ", static_cast<int>(effort)));
      return Effort::kBalanced;
  }
}

v1::Effort EncodeEffort(Effort effort) {
  switch (effort) {
    case Effort::kSeeds:
      return v1::EFFORT_SEEDS;
    case Effort::kFast:
      return v1::EFFORT_FAST;
    case Effort::kBalanced:
      return v1::EFFORT_BALANCED;
    case Effort::kBest:
      return v1::EFFORT_BEST;
  }
  return v1::EFFORT_UNSPECIFIED;
}

v1::SearchEnd EncodeEnd(SearchEnd end) {
  switch (end) {
    case SearchEnd::kSeedsOnly:
      return v1::SEARCH_END_SEEDS_ONLY;
    case SearchEnd::kStepsSpent:
      return v1::SEARCH_END_STEPS_SPENT;
    case SearchEnd::kBoundReached:
      return v1::SEARCH_END_BOUND_REACHED;
    case SearchEnd::kNoImprovement:
      return v1::SEARCH_END_NO_IMPROVEMENT;
    case SearchEnd::kNothingToGain:
      return v1::SEARCH_END_NOTHING_TO_GAIN;
    case SearchEnd::kTimeLimit:
      return v1::SEARCH_END_TIME_LIMIT;
  }
  return v1::SEARCH_END_UNSPECIFIED;
}

SearchEnd DecodeEnd(v1::SearchEnd end, Violations& bad) {
  switch (end) {
    case v1::SEARCH_END_SEEDS_ONLY:
      return SearchEnd::kSeedsOnly;
    case v1::SEARCH_END_STEPS_SPENT:
      return SearchEnd::kStepsSpent;
    case v1::SEARCH_END_BOUND_REACHED:
      return SearchEnd::kBoundReached;
    case v1::SEARCH_END_NO_IMPROVEMENT:
      return SearchEnd::kNoImprovement;
    case v1::SEARCH_END_NOTHING_TO_GAIN:
      return SearchEnd::kNothingToGain;
    case v1::SEARCH_END_TIME_LIMIT:
      return SearchEnd::kTimeLimit;
    default:
      bad.Add("search_report.end",
              absl::StrCat("unknown value ", static_cast<int>(end)));
      return SearchEnd::kSeedsOnly;
  }
}

void EncodeCounts(const ProposalCounts& counts, v1::ProposalCounts* message) {
  message->set_steps(counts.steps);
  message->set_infeasible(counts.infeasible);
  message->set_stopped_early(counts.stopped_early);
  message->set_evaluated(counts.evaluated);
  message->set_accepted(counts.accepted);
}

ProposalCounts DecodeCounts(const v1::ProposalCounts& message) {
  return {.steps = message.steps(),
          .infeasible = message.infeasible(),
          .stopped_early = message.stopped_early(),
          .evaluated = message.evaluated(),
          .accepted = message.accepted()};
}

// From the message, so that a report that was read back has the same rate.
double ProposalsPerSecond(const v1::SearchReport& message) {
  if (message.levels().empty()) return 0;
  double seconds = 0;
  for (const v1::SearchStage& stage : message.stages()) {
    if (stage.name() != "annealed" && stage.name() != "attention first") {
      continue;
    }
    seconds += static_cast<double>(stage.duration().seconds()) +
               1e-9 * stage.duration().nanos();
  }
  return seconds > 0
             ? static_cast<double>(message.proposals().steps()) / seconds
             : 0;
}

}  // namespace

SearchOptions DecodeSearchOptions(const v1::SearchOptions& message,
                                  Violations& bad) {
  SearchOptions options{.effort = DecodeEffort(message.effort(), bad),
                        .steps = message.steps(),
                        .levels = message.levels(),
                        .population = message.population(),
                        .candidates = message.candidates(),
                        .choice_width = message.choice_width(),
                        .projections = message.projections()};
  if (message.has_diversity_penalty()) {
    options.diversity_penalty = message.diversity_penalty();
  }
  if (message.has_guided_probability()) {
    options.guided_probability = message.guided_probability();
  }
  if (message.has_relocation_probability()) {
    options.relocation_probability = message.relocation_probability();
  }
  CheckSearch(options, kOptionsField, bad);
  return options;
}

void EncodeSearchOptions(const SearchOptions& options,
                         v1::SearchOptions* message) {
  message->Clear();
  message->set_effort(EncodeEffort(options.effort));
  message->set_steps(options.steps);
  message->set_levels(options.levels);
  message->set_population(options.population);
  message->set_candidates(options.candidates);
  message->set_choice_width(options.choice_width);
  message->set_projections(options.projections);
  if (options.diversity_penalty.has_value()) {
    message->set_diversity_penalty(*options.diversity_penalty);
  }
  if (options.guided_probability.has_value()) {
    message->set_guided_probability(*options.guided_probability);
  }
  if (options.relocation_probability.has_value()) {
    message->set_relocation_probability(*options.relocation_probability);
  }
}

void EncodeSearchReport(const Window& window, const SearchReport& report,
                        v1::SearchReport* message) {
  message->Clear();
  const auto joint = [units = UnitsPerCap(window)](int64_t slowest_shard) {
    return static_cast<double>(slowest_shard) / units;
  };
  for (const SearchStage& stage : report.stages) {
    v1::SearchStage* out = message->add_stages();
    out->set_name(stage.name);
    out->set_joint(joint(stage.score.slowest_shard));
    EncodeScore(stage.score, out->mutable_score());
    *out->mutable_duration() = EncodeDuration(stage.duration);
  }
  for (const AnnealLevel& level : report.levels) {
    v1::AnnealLevel* out = message->add_levels();
    out->set_temperature(level.temperature);
    EncodeCounts(level.proposals, out->mutable_proposals());
    out->set_joint(joint(level.incumbent.slowest_shard));
    out->set_lowest_terminal_joint(joint(level.lowest_terminal));
    out->set_surviving_members(level.surviving_members);
  }
  EncodeCounts(report.proposals, message->mutable_proposals());
  message->set_candidates(report.candidates);
  message->set_distinct(report.distinct);
  message->set_population(report.population);
  message->set_restarts(report.restarts);
  message->set_diversity(report.diversity);
  message->set_end(EncodeEnd(report.end));
  message->set_proposals_per_second(ProposalsPerSecond(*message));
}

SearchReport DecodeSearchReport(const Window& window,
                                const v1::SearchReport& message,
                                Violations& bad) {
  SearchReport report{.proposals = DecodeCounts(message.proposals()),
                      .candidates = message.candidates(),
                      .distinct = message.distinct(),
                      .population = message.population(),
                      .restarts = message.restarts(),
                      .diversity = message.diversity(),
                      .end = DecodeEnd(message.end(), bad)};
  for (int j = 0; j < message.stages_size(); ++j) {
    const v1::SearchStage& stage = message.stages(j);
    const std::optional<absl::Duration> duration =
        DecodeDuration(stage.duration());
    if (!duration.has_value()) {
      bad.Add(absl::StrCat("search_report.stages[", j, "].duration"),
              "is out of range");
    }
    report.stages.push_back(
        {.name = stage.name(),
         .score = DecodeScore(stage.score()),
         .duration = duration.value_or(absl::ZeroDuration())});
  }
  for (int j = 0; j < message.levels_size(); ++j) {
    const v1::AnnealLevel& level = message.levels(j);
    const std::string field = absl::StrCat("search_report.levels[", j, "]");
    report.levels.push_back(
        {.temperature = level.temperature(),
         .proposals = DecodeCounts(level.proposals()),
         .incumbent = {.slowest_shard = DecodeCost(level.joint(), window,
                                                   field + ".joint", bad)},
         .lowest_terminal = DecodeCost(level.lowest_terminal_joint(), window,
                                       field + ".lowest_terminal_joint", bad),
         .surviving_members = level.surviving_members()});
  }
  return report;
}

}  // namespace routepack
