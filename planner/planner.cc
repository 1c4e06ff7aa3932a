#include "planner/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/demand.h"
#include "planner/errors.h"
#include "planner/joint_search.h"
#include "planner/relabel.h"
#include "planner/seed.h"

namespace routepack {
namespace {

constexpr uint32_t kMaxRowOption = 1u << 24;
// Fractions of the work, for progress. Packing is nearly all of it.
constexpr double kBeforePacking = 0.06;
constexpr double kAfterPacking = 0.98;

// Of a sixteenth of a weighted byte, in assignments: beyond any that counts,
// and sums of it stay finite.
constexpr double kMostPrice = 1e100;
// An assignment problem of P ranks takes O(P^3) a layer.
constexpr uint32_t kMostRelabelledRanks = 1024;

constexpr uint64_t kFreeFillers = 1u << 14;
constexpr uint64_t kFreeFillerBytes = uint64_t{64} << 20;

void CheckPlacementOptions(const PlanOptions& options, Violations& bad) {
  const IncrementalOptions& incremental = options.incremental;
  const auto check = [&](const char* name, bool good, const char* what,
                         double value) {
    if (good) return;
    bad.Add(absl::StrCat("header.options.", name),
            absl::StrCat("must be ", what, ", is ", value));
  };
  check(
      "incremental.target_imbalance",
      incremental.target_imbalance >= 0 && incremental.target_imbalance <= 1e6,
      "in [0, 1e6]", incremental.target_imbalance);
  check("incremental.movement_budget", incremental.movement_budget >= 0,
        "at least 0", incremental.movement_budget);
  check("incremental.horizon_steps",
        incremental.horizon_steps > 0 && incremental.horizon_steps <= 1e9,
        "in (0, 1e9]", incremental.horizon_steps);
  check("transfer.experts_per_round", options.transfer.experts_per_round >= 1,
        "at least 1", options.transfer.experts_per_round);
  check("transfer.max_staging", options.transfer.max_staging >= 1, "at least 1",
        options.transfer.max_staging);
  if (!options.refine_after_announce) return;
  if (options.placement == PlacementPolicy::kKeep ||
      options.placement == PlacementPolicy::kIdentity) {
    bad.Add("header.options.refine_after_announce",
            "the placement policy leaves nothing to refine: choose LPT, "
            "LPT_RELABEL or INCREMENTAL, or drop it");
  }
  if (std::isfinite(incremental.movement_budget)) {
    bad.Add("header.options.refine_after_announce",
            "cannot keep a movement_budget, for the refinement moves what "
            "pays: drop one of them");
  }
}

absl::Status CheckCurrent(const Window& window, const Placement& current) {
  if (current.num_layers != window.num_layers() ||
      current.num_experts != window.num_experts() ||
      current.num_ranks != window.spec().topology.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "places ", current.num_layers, " layers of ", current.num_experts,
        " experts on ", current.num_ranks, " EP ranks; the window has ",
        window.num_layers(), ", ", window.num_experts(), " and ",
        window.spec().topology.num_ranks()));
  }
  return ValidatePlacement(current, "header.current_placement");
}

absl::StatusOr<MovementModel> ModelOf(const WindowSpec& window,
                                      const MovementSpec& movement) {
  return MovementModel::Create(MovementOf(window, movement),
                               "header.options.movement");
}

// `count` ids that no sample has: those after the highest, or where they would
// run out of 64 bits, the lowest free ones.
std::vector<uint64_t> FreeIds(const Window& window, uint32_t count) {
  std::vector<uint64_t> ids;
  if (count == 0) return ids;
  std::unordered_set<uint64_t> taken;
  uint64_t next = 0;
  for (const SampleInfo& sample : window.samples()) {
    taken.insert(sample.id);
    next = std::max(next, sample.id);
  }
  next = next > std::numeric_limits<uint64_t>::max() - count ? 0 : next + 1;
  for (; ids.size() < count; ++next) {
    if (!taken.contains(next)) ids.push_back(next);
  }
  return ids;
}

std::string CellsSentence(const Window& window, const RowResult& rows) {
  const uint32_t slots = window.spec().topology.num_slots();
  return absl::StrCat(
      rows.rows, " rows x ", slots, " slots = ", uint64_t{rows.rows} * slots,
      " cells but the window has ", window.num_samples(), " samples");
}

std::string FillerAdvice(const Window& window, const RowResult& rows) {
  const uint64_t most = MostFillers(window.spec());
  if (rows.fillers > most) {
    return absl::StrCat(rows.fillers,
                        " filler samples would be needed and at "
                        "most ",
                        most,
                        " are added: lower min_rows or "
                        "row_multiple, or use fewer slots");
  }
  return absl::StrCat("add ", rows.fillers,
                      " filler samples (allow_filler) or use fewer slots");
}

absl::Status InfeasibleError(const Window& window, const RowResult& rows) {
  return PreconditionError(
      {.type = "CELLS_EXCEED_SAMPLES",
       .subject = "rows",
       .description = absl::StrCat(
           CellsSentence(window, rows), "; fewer rows are excluded by ",
           rows.proof, " (at least ", rows.bins_lower_bound, " cells needed); ",
           FillerAdvice(window, rows))});
}

absl::Status RowsNotFoundError(const Window& window, const RowResult& rows) {
  return PreconditionError(
      {.type = "ROWS_NOT_FOUND",
       .subject = "rows",
       .description = absl::StrCat(
           CellsSentence(window, rows), "; ", rows.rows_lower_bound,
           " rows were neither found nor excluded in ", rows.nodes,
           " nodes; raise row_search_nodes, or ", FillerAdvice(window, rows))});
}

absl::Status CheckFillers(const Window& window, const RowResult& rows) {
  if (rows.fillers <= MostFillers(window.spec())) return absl::OkStatus();
  return PreconditionError(
      {.type = "TOO_MANY_FILLERS",
       .subject = "rows",
       .description = absl::StrCat(CellsSentence(window, rows), "; ",
                                   FillerAdvice(window, rows))});
}

// Rows from light at both ends to heavy in the middle, where pipeline bubbles
// are shortest. Ties: lower row first.
Layout OrderLightEnds(const Layout& layout, const Evaluation& evaluation) {
  const size_t num_shards = evaluation.expert.size() / layout.rows;
  std::vector<std::pair<int64_t, uint32_t>> by_cost;
  for (uint32_t r = 0; r < layout.rows; ++r) {
    int64_t cost = 0;
    for (size_t g = 0; g < num_shards; ++g) {
      cost += evaluation.row_cost(r * num_shards + g);
    }
    by_cost.emplace_back(cost, r);
  }
  std::sort(by_cost.begin(), by_cost.end());

  std::vector<std::vector<uint32_t>> cells(layout.num_cells());
  uint32_t first = 0;
  uint32_t last = layout.rows - 1;
  for (size_t k = 0; k < by_cost.size(); ++k) {
    const uint32_t to = k % 2 == 0 ? first++ : last--;
    for (uint32_t d = 0; d < layout.slots; ++d) {
      const auto items = layout.cell(by_cost[k].second, d);
      cells[to * layout.slots + d].assign(items.begin(), items.end());
    }
  }
  return LayoutFromCells(layout.rows, layout.slots, cells);
}

// One run of the planner: each stage fills in its part of the plan.
class Run {
 public:
  Run(const Window& window, const Placement& current,
      const MovementModel& model, const PlanOptions& options,
      const Budget& budget, PlanObserver* observer)
      : window_(window),
        current_(current),
        model_(model),
        options_(options),
        budget_(budget),
        observer_(observer),
        start_(std::chrono::steady_clock::now()),
        stage_start_(start_),
        problem_(MakeProblem(window, 0)) {
    budget_.deadline =
        std::min(budget_.deadline, absl::Now() + options.time_limit);
  }

  absl::StatusOr<Plan> Execute() {
    using Stage = absl::Status (Run::*)();
    constexpr struct {
      const char* name;
      Stage run;
      double fraction;
    } kStages[] = {
        {"placement", &Run::PlaceExperts, 0.01},
        {"rows", &Run::MinimiseRows, 0.02},
        {"bounds", &Run::FindBounds, 0.03},
        {"baseline", &Run::EvaluateBaseline, 0.04},
        {"demand", &Run::ProjectPlacement, kBeforePacking},
        {"packing", &Run::PackRows, kAfterPacking},
        {"validation", &Run::Validate, 1.0},
    };
    for (const auto& stage : kStages) {
      if (absl::Status status = CheckBudget(); !status.ok()) return status;
      if (absl::Status status = (this->*stage.run)(); !status.ok()) {
        return status;
      }
      EndStage(stage.name, stage.fraction);
    }
    if (absl::Status status = CheckBudget(); !status.ok()) return status;
    AddWarnings();
    return std::move(plan_);
  }

 private:
  // From the rows on there is a layout, and the deadline only ends searches.
  absl::Status CheckBudget() const {
    if (budget_.Cancelled()) return absl::CancelledError("plan was cancelled");
    if (plan_.rows.rows == 0 && budget_.OutOfTime()) return OutOfTimeError();
    return absl::OkStatus();
  }

  static absl::Status OutOfTimeError() {
    return absl::DeadlineExceededError(
        "the deadline or time limit passed before there was a layout");
  }

  void EndStage(const char* name, double fraction) {
    const auto now = std::chrono::steady_clock::now();
    plan_.timings.push_back({name, absl::FromChrono(now - stage_start_)});
    stage_start_ = now;
    if (observer_ == nullptr) return;
    observer_->OnProgress(
        ProgressOf(name, fraction, plan_.evaluation.score.slowest_shard));
  }

  PlanProgress ProgressOf(const char* stage, double fraction,
                          int64_t joint) const {
    const double unit = static_cast<double>(kScoreScale) *
                        static_cast<double>(window_.spec().token_cap);
    // A refined placement may be below the bound of the announced one.
    const int64_t bound = options_.refine_after_announce
                              ? plan_.bounds.for_any_placement
                              : plan_.bounds.for_placement;
    return {
        .stage = stage,
        .fraction = fraction,
        .rows = plan_.rows.rows,
        .joint = static_cast<double>(joint) / unit,
        .bound = static_cast<double>(bound) / unit,
        .gap = joint == 0 ? 0 : Gap(joint, bound),
        .elapsed = absl::FromChrono(std::chrono::steady_clock::now() - start_)};
  }

  absl::Status PlaceExperts() {
    const uint32_t num_layers = window_.num_layers();
    const uint32_t num_experts = window_.num_experts();
    const uint32_t num_ranks = window_.spec().topology.num_ranks();
    identity_ = IdentityPlacement(num_layers, num_experts, num_ranks);
    expert_loads_ = window_.ExpertLoads();
    plan_.placement = Placed();
    rank_loads_ = RankLoads(plan_.placement, expert_loads_);
    PlanTransfer();
    if (observer_ != nullptr) {
      observer_->OnPlacement(plan_.placement, plan_.movement, plan_.transfer);
    }
    return absl::OkStatus();
  }

  Placement Placed() {
    switch (options_.placement) {
      case PlacementPolicy::kIncremental: {
        IncrementalResult result = IncrementalPlacement(
            expert_loads_, current_, model_, options_.incremental);
        plan_.incremental_stop = result.stop;
        return std::move(result.placement);
      }
      case PlacementPolicy::kLpt:
        return LptPlacement(expert_loads_, current_.num_layers,
                            current_.num_experts, current_.num_ranks);
      case PlacementPolicy::kLptRelabel:
        return RelabelledLptPlacement(expert_loads_, current_, model_);
      case PlacementPolicy::kKeep:
        return current_;
      case PlacementPolicy::kIdentity:
        return identity_;
    }
    return current_;
  }

  void PlanTransfer() {
    TransferOptions transfer = options_.transfer;
    transfer.node_of_rank = model_.spec().node_of_rank;
    plan_.movement =
        ReportMovement(model_, current_, plan_.placement, expert_loads_);
    plan_.transfer =
        ScheduleTransfer(current_, plan_.placement,
                         window_.spec().pipeline.stage_of_layer, transfer);
  }

  absl::Status MinimiseRows() {
    const WindowSpec& spec = window_.spec();
    absl::StatusOr<RowResult> rows =
        FewestRows(problem_.occupancy,
                   {.num_slots = spec.topology.num_slots(),
                    .token_cap = spec.token_cap,
                    .min_rows = options_.min_rows,
                    .row_multiple = options_.row_multiple,
                    .allow_filler = options_.allow_filler,
                    .max_nodes = options_.row_search_nodes},
                   budget_);
    if (!rows.ok()) return rows.status();
    switch (rows->outcome) {
      case RowOutcome::kInfeasible:
        return InfeasibleError(window_, *rows);
      case RowOutcome::kNotFound:
        return budget_.OutOfTime() ? OutOfTimeError()
                                   : RowsNotFoundError(window_, *rows);
      case RowOutcome::kCertified:
      case RowOutcome::kBestKnown:
        break;
    }
    if (absl::Status fillers = CheckFillers(window_, *rows); !fillers.ok()) {
      return fillers;
    }
    plan_.rows = *std::move(rows);
    plan_.truncated = plan_.rows.truncated;
    plan_.num_fillers = plan_.rows.fillers;
    plan_.filler_ids = FreeIds(window_, plan_.num_fillers);
    problem_ = MakeProblem(window_, plan_.num_fillers);
    length_ = LengthLayout(problem_, plan_.rows.rows, LengthOnlyBins());
    return absl::OkStatus();
  }

  // First-fit decreasing where it fits, as in the paper, so that anybody can
  // repeat it; else the packing that proved R feasible.
  Bins LengthOnlyBins() {
    Bins found = std::exchange(plan_.rows.bins, {});
    Bins bins = FirstFitDecreasing(
        std::span(problem_.occupancy).first(problem_.num_samples),
        problem_.token_cap);
    const uint64_t cells =
        uint64_t{plan_.rows.rows} * problem_.topology.num_slots();
    return bins.size() + plan_.num_fillers <= cells ? bins : found;
  }

  absl::Status FindBounds() {
    plan_.bounds =
        LowerBounds(problem_, plan_.rows.rows, expert_loads_, rank_loads_);
    return absl::OkStatus();
  }

  // What it costs, in assignments over the horizon, that an expert is in a
  // slot: its share of the transfer, as if all GPUs were equally busy.
  SlotPrice MovePrice() const {
    if (!options_.incremental.break_even || !KnowsTimes(model_)) return {};
    const MovementSpec& spec = model_.spec();
    const double gpus = static_cast<double>(spec.num_shards) * spec.num_ranks *
                        spec.gpus_per_rank * model_.num_stages();
    const double price = std::min(
        1 / (spec.intra_node_bandwidth * gpus * MovementModel::kCostUnit) /
            (spec.seconds_per_assignment / spec.num_shards *
             options_.incremental.horizon_steps),
        kMostPrice);
    return [this, price](uint32_t l, uint32_t e, uint32_t slot) {
      const uint32_t home =
          current_.slot_of_expert[size_t{l} * current_.num_experts + e];
      return home == slot
                 ? 0
                 : price * static_cast<double>(model_.MoveCost(l, home, slot));
    };
  }

  double Cv(std::span<const uint64_t> rank_loads) const {
    return CvGlobal(rank_loads, window_.num_layers(),
                    problem_.topology.num_ranks());
  }

  absl::Status EvaluateBaseline() {
    problem_.demand = ProjectDemand(window_, identity_, plan_.num_fillers);
    plan_.baseline = MakeMetrics(problem_, EvaluateLayout(problem_, length_),
                                 Cv(RankLoads(identity_, expert_loads_)));
    return absl::OkStatus();
  }

  absl::Status ProjectPlacement() {
    if (plan_.placement != identity_) {
      problem_.demand = {};
      problem_.demand =
          ProjectDemand(window_, plan_.placement, plan_.num_fillers);
    }
    plan_.layout = length_;
    plan_.evaluation = EvaluateLayout(problem_, length_);
    plan_.reorder = MakeMetrics(problem_, plan_.evaluation, Cv(rank_loads_));
    return absl::OkStatus();
  }

  absl::Status PackRows() {
    if (budget_.OutOfTime()) {
      plan_.truncated = true;
    } else {
      SearchResult found = Pack();
      if (absl::Status status = CheckBudget(); !status.ok()) return status;
      plan_.truncated |= found.truncated;
      plan_.search = std::move(found.report);
      if (found.score <= plan_.evaluation.score) {
        plan_.layout = std::move(found.layout);
        plan_.evaluation = EvaluateLayout(problem_, plan_.layout);
        if (plan_.evaluation.score != found.score) {
          return absl::InternalError(
              "the incremental score differs from the full score");
        }
      }
    }
    if (options_.row_order == RowOrder::kLightEnds) {
      plan_.layout = OrderLightEnds(plan_.layout, plan_.evaluation);
      plan_.evaluation = EvaluateLayout(problem_, plan_.layout);
    }
    plan_.routepack = MakeMetrics(problem_, plan_.evaluation, Cv(rank_loads_));
    return absl::OkStatus();
  }

  SearchResult Pack() {
    const auto on_progress = [this](const SearchProgress& progress) {
      OnSearch(progress);
    };
    if (!options_.refine_after_announce) {
      return SearchLayout(problem_, length_, plan_.bounds.for_placement,
                          options_.search, options_.seed, budget_, on_progress);
    }
    JointSearchResult found = SearchJointly(
        window_, problem_, length_, plan_.placement, plan_.bounds,
        options_.search, MovePrice(), options_.seed, budget_, on_progress);
    plan_.refinement = Refinement{
        .announced_digest = PlacementDigest(plan_.placement),
        .change = ComparePlacements(plan_.placement, found.placement),
        .floor_layers = found.floor_layers};
    if (found.refined) Adopt(std::move(found.placement));
    return std::move(found.packing);
  }

  // The refined placement; the problem has its demand.
  void Adopt(Placement placement) {
    plan_.placement = std::move(placement);
    rank_loads_ = RankLoads(plan_.placement, expert_loads_);
    plan_.bounds =
        LowerBounds(problem_, plan_.rows.rows, expert_loads_, rank_loads_);
    PlanTransfer();
    plan_.layout = length_;
    plan_.evaluation = EvaluateLayout(problem_, length_);
    plan_.reorder = MakeMetrics(problem_, plan_.evaluation, Cv(rank_loads_));
  }

  void OnSearch(const SearchProgress& search) {
    if (observer_ == nullptr) return;
    PlanProgress progress = ProgressOf(
        "packing",
        kBeforePacking + (kAfterPacking - kBeforePacking) * search.fraction,
        std::min(search.incumbent.slowest_shard,
                 plan_.evaluation.score.slowest_shard));
    progress.acceptance_rate =
        static_cast<double>(search.proposals.accepted) /
        static_cast<double>(std::max<uint64_t>(search.proposals.steps, 1));
    progress.proposals_per_second =
        static_cast<double>(search.proposals.steps) /
        std::max(absl::ToDoubleSeconds(search.annealing), 1e-9);
    observer_->OnProgress(progress);
  }

  // What ValidatePlan checks without evaluating again what was just evaluated
  // in full.
  absl::Status Validate() {
    absl::Status status = ValidateLayout(problem_, plan_.layout);
    if (!status.ok()) return status;
    status = ValidatePlacement(plan_.placement, "placement");
    if (!status.ok()) return absl::InternalError(status.message());
    if (plan_.reorder.score < plan_.routepack.score) {
      return absl::InternalError("the result is worse than its first layout");
    }
    if (plan_.routepack.score.slowest_shard < plan_.bounds.for_placement) {
      return absl::InternalError("the score is below its lower bound");
    }
    return absl::OkStatus();
  }

  void AddWarnings() {
    const WindowSpec& spec = window_.spec();
    std::vector<std::string>& out = plan_.warnings;
    if (spec.attention.empty()) {
      out.push_back(
          "no attention stages were given: attention is taken to be free");
    }
    if (spec.counts_origin == CountsOrigin::kUnspecified) {
      out.push_back(
          "the origin of the counts was not stated: they are exact only if "
          "training keeps the recorded routing");
    }
    if (!window_.imputed().empty()) {
      out.push_back(absl::StrCat(window_.imputed().size(), " of ",
                                 window_.num_samples(),
                                 " samples had no counts: the window mean "
                                 "stands in for them"));
    }
    if (plan_.num_fillers > 0) {
      out.push_back(absl::StrCat(plan_.num_fillers,
                                 " filler samples were added: they must not "
                                 "contribute to the loss"));
    }
    if (plan_.rows.truncated) {
      out.push_back(
          absl::StrCat("the row search ended after ", plan_.rows.nodes,
                       " nodes, at row_search_nodes or the time limit: ",
                       plan_.rows.rows_lower_bound, " rows are not excluded, ",
                       plan_.rows.rows, " are planned"));
    }
    if (plan_.truncated && !plan_.rows.truncated) {
      out.push_back(
          "time ran out before the search ended: the layout is the best so "
          "far");
    }
    if (!plan_.bounds.hot_expert_layers.empty()) {
      out.push_back(absl::StrCat(
          "in ", plan_.bounds.hot_expert_layers.size(), " of ",
          window_.num_layers(),
          " layers one expert is hotter than the mean rank: no placement "
          "balances them"));
    }
  }

  const Window& window_;
  const Placement& current_;
  const MovementModel& model_;
  const PlanOptions& options_;
  Budget budget_;
  PlanObserver* const observer_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point stage_start_;

  Plan plan_;
  Placement identity_;
  std::vector<uint64_t> expert_loads_;  // [l][e]
  std::vector<uint64_t> rank_loads_;    // [l][p]
  PackingProblem problem_;
  Layout length_;
};

}  // namespace

MovementSpec MovementOf(const WindowSpec& window, const MovementSpec& given) {
  MovementSpec out = given;
  out.num_layers = window.num_layers;
  out.num_shards = window.topology.num_shards();
  out.num_ranks = window.topology.num_ranks();
  out.slots_per_rank = window.num_experts / window.topology.num_ranks();
  out.stage_of_layer = window.pipeline.stage_of_layer;
  return out;
}

absl::Status ValidateOptions(const WindowSpec& window,
                             const PlanOptions& options) {
  Violations bad;
  const auto check_rows = [&](const char* name, uint32_t value) {
    if (value >= 1 && value <= kMaxRowOption) return;
    bad.Add(absl::StrCat("header.options.", name),
            absl::StrCat("must be in [1, ", kMaxRowOption, "], is ", value));
  };
  check_rows("min_rows", options.min_rows);
  check_rows("row_multiple", options.row_multiple);
  if (options.time_limit < absl::ZeroDuration()) {
    bad.Add("header.options.time_limit",
            absl::StrCat("must not be negative, is ",
                         absl::FormatDuration(options.time_limit)));
  }
  CheckSearch(options.search, "header.options.search", bad);
  CheckPlacementOptions(options, bad);
  const uint32_t num_ranks = window.topology.num_ranks();
  if (options.placement == PlacementPolicy::kLptRelabel &&
      num_ranks > kMostRelabelledRanks) {
    bad.Add("header.options.placement",
            absl::StrCat("LPT_RELABEL takes at most ", kMostRelabelledRanks,
                         " EP ranks, there are ", num_ranks,
                         ": choose INCREMENTAL or LPT"));
  }
  bad.Merge(ModelOf(window, options.movement).status(),
            "header.options.movement");
  return bad.ToStatus();
}

uint64_t MostFillers(const WindowSpec& spec) {
  const uint64_t item_bytes = uint64_t{spec.num_layers} *
                              DemandStride(spec.topology.num_ranks()) *
                              sizeof(uint32_t);
  return std::max<uint64_t>(
      spec.num_samples, std::min(kFreeFillers, kFreeFillerBytes / item_bytes));
}

absl::StatusOr<Plan> MakePlan(const Window& window, const Placement& current,
                              const PlanOptions& options, const Budget& budget,
                              PlanObserver* observer) {
  try {
    Violations bad;
    bad.Merge(ValidateOptions(window.spec(), options), "header.options");
    bad.Merge(CheckCurrent(window, current), "header.current_placement");
    if (!bad.empty()) return bad.ToStatus();
    absl::StatusOr<MovementModel> model =
        ModelOf(window.spec(), options.movement);
    if (!model.ok()) return model.status();
    return Run(window, current, *model, options, budget, observer).Execute();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory to plan the window");
  }
}

}  // namespace routepack
