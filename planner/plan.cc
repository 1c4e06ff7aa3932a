#include "planner/plan.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/demand.h"
#include "planner/seed.h"

namespace routepack {
namespace {

template <typename T>
absl::Status Differs(const std::string& what, const T& stated, const T& found) {
  return absl::InternalError(
      absl::StrCat(what, " is stated as ", stated, "; recomputed ", found));
}

template <typename T>
absl::Status Compare(const std::string& what, const T& stated, const T& found) {
  return stated == found ? absl::OkStatus() : Differs(what, stated, found);
}

// Ratios may come from another machine's compiler, or through JSON.
absl::Status Compare(const std::string& what, double stated, double found) {
  constexpr double kTolerance = 1e-9;
  // Written so that NaN fails.
  if (std::abs(stated - found) <= kTolerance * std::max(1.0, found)) {
    return absl::OkStatus();
  }
  return Differs(what, stated, found);
}

// The first difference of a list of them.
absl::Status FirstError(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

absl::Status CompareStages(const std::string& arm, const Metrics& stated,
                           const Metrics& found) {
  absl::Status status = Compare(absl::StrCat(arm, ".stages.size"),
                                stated.stages.size(), found.stages.size());
  for (size_t s = 0; status.ok() && s < found.stages.size(); ++s) {
    const auto compare = [&](const char* field, uint64_t a, uint64_t b) {
      status.Update(
          Compare(absl::StrCat(arm, ".stages[", s, "].", field), a, b));
    };
    const StageMetrics& a = stated.stages[s];
    const StageMetrics& b = found.stages[s];
    compare("num_layers", a.num_layers, b.num_layers);
    compare("ep_peak_sum", a.ep_peak_sum, b.ep_peak_sum);
    compare("tail_peak", a.tail_peak, b.tail_peak);
  }
  return status;
}

absl::Status CompareMetrics(const std::string& arm, const Metrics& stated,
                            const Metrics& found) {
  const auto name = [&](const char* field) {
    return absl::StrCat(arm, ".", field);
  };
  return FirstError({
      Compare(name("cv_global"), stated.cv_global, found.cv_global),
      Compare(name("ep_peak_sum"), stated.ep_peak_sum, found.ep_peak_sum),
      Compare(name("tail_peak"), stated.tail_peak, found.tail_peak),
      Compare(name("balance_efficiency"), stated.balance_efficiency,
              found.balance_efficiency),
      Compare(name("attention"), stated.attention, found.attention),
      Compare(name("joint"), stated.joint, found.joint),
      Compare(name("score.slowest_shard"), stated.score.slowest_shard,
              found.score.slowest_shard),
      Compare(name("score.total"), stated.score.total, found.score.total),
      Compare(name("score.worst_row"), stated.score.worst_row,
              found.score.worst_row),
      CompareStages(arm, stated, found),
  });
}

absl::Status CheckEvaluation(const Evaluation& stated,
                             const Evaluation& found) {
  if (stated.attention.empty() && stated.expert.empty()) {
    return absl::OkStatus();
  }
  if (stated == found) return absl::OkStatus();
  return absl::InternalError("evaluation differs from the recomputed one");
}

absl::Status CheckPlacement(const Window& window, const Plan& plan) {
  const Placement& placement = plan.placement;
  if (absl::Status valid = ValidatePlacement(placement, "placement");
      !valid.ok()) {
    return absl::InternalError(valid.message());
  }
  const uint64_t total = uint64_t{window.num_layers()} * window.num_experts();
  const PlacementChange& change = plan.movement.change;
  if (change.experts_to_other_rank > change.experts_to_other_slot ||
      change.experts_to_other_slot > total) {
    return absl::InternalError(absl::StrCat(
        "movement.change of ", change.experts_to_other_rank, " and ",
        change.experts_to_other_slot, " of ", total, " experts"));
  }
  return FirstError({
      Compare("placement.num_layers", placement.num_layers,
              window.num_layers()),
      Compare("placement.num_experts", placement.num_experts,
              window.num_experts()),
      Compare("placement.num_ranks", placement.num_ranks,
              window.spec().topology.num_ranks()),
      Compare("movement.change.experts_total", change.experts_total, total),
  });
}

absl::Status CheckFillers(const Window& window, const Plan& plan) {
  std::unordered_set<uint64_t> ids;
  for (const SampleInfo& sample : window.samples()) ids.insert(sample.id);
  for (uint64_t id : plan.filler_ids) {
    if (!ids.insert(id).second) {
      return absl::InternalError(
          absl::StrCat("filler id ", id, " is taken already"));
    }
  }
  const uint32_t listed = static_cast<uint32_t>(plan.filler_ids.size());
  return FirstError({
      Compare("num_fillers", plan.num_fillers, listed),
      Compare("rows.fillers", plan.rows.fillers, listed),
  });
}

// The row search is not repeated, but what it says must be possible.
absl::Status CheckRows(const PackingProblem& problem, const Plan& plan) {
  const RowResult& rows = plan.rows;
  const bool certified = rows.outcome == RowOutcome::kCertified;
  if (!certified && rows.outcome != RowOutcome::kBestKnown) {
    return absl::InternalError("rows.outcome says that there is no layout");
  }
  if (rows.rows_lower_bound > rows.rows ||
      certified != (rows.rows_lower_bound == rows.rows) ||
      certified == rows.proof.empty()) {
    return absl::InternalError(
        absl::StrCat("rows: ", rows.rows, ", at least ", rows.rows_lower_bound,
                     " by '", rows.proof, "', do not fit the outcome ",
                     certified ? "certified" : "best known"));
  }
  if (rows.bins_lower_bound > rows.bins_upper_bound ||
      rows.bins_upper_bound > uint64_t{rows.rows} * plan.layout.slots) {
    return absl::InternalError(absl::StrCat(
        "rows: between ", rows.bins_lower_bound, " and ", rows.bins_upper_bound,
        " bins for ", uint64_t{rows.rows} * plan.layout.slots, " cells"));
  }
  if (rows.proof == "exhaustive-search") return absl::OkStatus();
  const auto samples = std::span(problem.occupancy).first(problem.num_samples);
  const uint32_t proved =
      std::max({CapacityBound(samples, problem.token_cap),
                MartelloTothL2(samples, problem.token_cap),
                DualFeasibleBound(samples, problem.token_cap)});
  if (rows.nodes == 0 && rows.bins_lower_bound > proved) {
    return Differs("rows.bins_lower_bound", rows.bins_lower_bound, proved);
  }
  return absl::OkStatus();
}

absl::Status CheckBounds(const ScoreBounds& stated, const ScoreBounds& found) {
  return FirstError({
      Compare("bounds.for_placement", stated.for_placement,
              found.for_placement),
      Compare("bounds.for_any_placement", stated.for_any_placement,
              found.for_any_placement),
      stated.hot_expert_layers == found.hot_expert_layers
          ? absl::OkStatus()
          : absl::InternalError(
                "bounds.hot_expert_layers names other layers than it should"),
  });
}

// Loads of the window on experts and, under two placements, on ranks.
struct WindowLoads {
  Placement identity;
  std::vector<uint64_t> experts;         // [l][e]
  std::vector<uint64_t> identity_ranks;  // [l][p]
  std::vector<uint64_t> ranks;           // [l][p] under the plan's placement
};

WindowLoads LoadsOf(const Window& window, const Placement& placement) {
  WindowLoads loads{
      .identity = IdentityPlacement(window.num_layers(), window.num_experts(),
                                    placement.num_ranks),
      .experts = window.ExpertLoads()};
  loads.identity_ranks = RankLoads(loads.identity, loads.experts);
  loads.ranks = RankLoads(placement, loads.experts);
  return loads;
}

// The two arms that pack by length only. `problem` comes back with the demand
// under the plan's placement.
absl::Status CheckLengthArms(const Window& window, const Plan& plan,
                             const WindowLoads& loads,
                             PackingProblem& problem) {
  const double identity_cv = CvGlobal(loads.identity_ranks, window.num_layers(),
                                      plan.placement.num_ranks);
  const double cv =
      CvGlobal(loads.ranks, window.num_layers(), plan.placement.num_ranks);
  Bins bins = FirstFitDecreasing(
      std::span(problem.occupancy).first(problem.num_samples),
      problem.token_cap);
  const auto project = [&](const Placement& placement) {
    problem.demand = {};
    problem.demand = ProjectDemand(window, placement, plan.num_fillers);
  };
  if (bins.size() + plan.num_fillers > plan.layout.num_cells()) {
    project(plan.placement);
    return FirstError(
        {Compare("baseline.cv_global", plan.baseline.cv_global, identity_cv),
         Compare("reorder.cv_global", plan.reorder.cv_global, cv)});
  }
  const Layout length =
      LengthLayout(problem, plan.layout.rows, std::move(bins));
  project(loads.identity);
  const Metrics baseline =
      MakeMetrics(problem, EvaluateLayout(problem, length), identity_cv);
  project(plan.placement);
  const Metrics reorder =
      MakeMetrics(problem, EvaluateLayout(problem, length), cv);
  return FirstError({CompareMetrics("baseline", plan.baseline, baseline),
                     CompareMetrics("reorder", plan.reorder, reorder)});
}

absl::Status CheckScores(const Window& window, const Plan& plan,
                         PackingProblem& problem) {
  const WindowLoads loads = LoadsOf(window, plan.placement);
  const ScoreBounds bounds =
      LowerBounds(problem, plan.layout.rows, loads.experts, loads.ranks);
  absl::Status status =
      FirstError({CheckBounds(plan.bounds, bounds),
                  CheckLengthArms(window, plan, loads, problem)});
  if (!status.ok()) return status;
  const Evaluation evaluation = EvaluateLayout(problem, plan.layout);
  const double cv =
      CvGlobal(loads.ranks, window.num_layers(), plan.placement.num_ranks);
  status = FirstError({CompareMetrics("routepack", plan.routepack,
                                      MakeMetrics(problem, evaluation, cv)),
                       CheckEvaluation(plan.evaluation, evaluation)});
  if (!status.ok()) return status;
  if (plan.reorder.score < plan.routepack.score) {
    return absl::InternalError("routepack is worse than reorder");
  }
  if (plan.routepack.score.slowest_shard < bounds.for_placement ||
      plan.reorder.score.slowest_shard < bounds.for_placement ||
      plan.baseline.score.slowest_shard < bounds.for_any_placement ||
      bounds.for_placement < bounds.for_any_placement) {
    return absl::InternalError("a score is below its lower bound");
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const Window& window, const Plan& plan) {
  absl::Status status =
      FirstError({CheckPlacement(window, plan), CheckFillers(window, plan),
                  Compare("rows.rows", plan.rows.rows, plan.layout.rows)});
  if (!status.ok()) return status;
  PackingProblem problem = MakeProblem(window, plan.num_fillers);
  if (status = ValidateLayout(problem, plan.layout); !status.ok()) {
    return status;
  }
  if (status = CheckRows(problem, plan); !status.ok()) return status;
  return CheckScores(window, plan, problem);
}

std::vector<StageMetrics> StagesOf(const Pipeline& pipeline,
                                   const Evaluation& evaluation) {
  std::vector<StageMetrics> stages(pipeline.num_stages);
  for (size_t l = 0; l < pipeline.stage_of_layer.size(); ++l) {
    StageMetrics& stage = stages[pipeline.stage_of_layer[l]];
    const LoadPeaks& layer = evaluation.layers[l];
    ++stage.num_layers;
    stage.ep_peak_sum += static_cast<uint64_t>(layer.sum);
    stage.tail_peak = std::max<uint64_t>(stage.tail_peak, layer.largest);
  }
  return stages;
}

}  // namespace

double CvGlobal(std::span<const uint64_t> rank_loads, uint32_t num_layers,
                uint32_t num_ranks) {
  double sum = 0;
  for (uint32_t l = 0; l < num_layers; ++l) {
    const auto loads = rank_loads.subspan(size_t{l} * num_ranks, num_ranks);
    uint64_t total = 0;
    for (uint64_t load : loads) total += load;
    if (total == 0) continue;
    const double mean = static_cast<double>(total) / num_ranks;
    double squares = 0;
    for (uint64_t load : loads) {
      const double difference = static_cast<double>(load) - mean;
      squares += difference * difference;
    }
    sum += std::sqrt(squares / num_ranks) / mean;
  }
  return num_layers == 0 ? 0 : sum / num_layers;
}

Metrics MakeMetrics(const PackingProblem& problem, const Evaluation& evaluation,
                    double cv_global) {
  const double unit =
      static_cast<double>(kScoreScale) * static_cast<double>(problem.token_cap);
  Metrics metrics{
      .cv_global = cv_global,
      .ep_peak_sum = evaluation.ep_peak_sum,
      .tail_peak = evaluation.tail_peak,
      .balance_efficiency = 1,
      .joint = static_cast<double>(evaluation.score.slowest_shard) / unit,
      .score = evaluation.score};
  if (evaluation.ep_peak_sum > 0) {
    metrics.balance_efficiency = static_cast<double>(evaluation.balance_load) /
                                 problem.topology.num_ranks() /
                                 static_cast<double>(evaluation.ep_peak_sum);
  }
  int64_t attention = 0;
  for (int64_t cost : evaluation.attention) attention += cost;
  metrics.attention = static_cast<double>(attention) / unit;
  metrics.stages = StagesOf(problem.pipeline, evaluation);
  return metrics;
}

double Gap(int64_t slowest_shard, int64_t bound) {
  if (bound == 0) return 0;
  return static_cast<double>(slowest_shard - bound) /
         static_cast<double>(bound);
}

absl::Status ValidatePlan(const Window& window, const Plan& plan) {
  try {
    return CheckPlan(window, plan);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory to validate the plan");
  }
}

}  // namespace routepack
