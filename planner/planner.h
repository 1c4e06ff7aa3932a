// The front door of the planner: a window in, a validated plan out.
//
//   absl::StatusOr<Plan> plan = MakePlan(window, current, PlanOptions{});
//
// Stages, in order: placement (announced to the observer at once, so that
// trainers can move expert state meanwhile), rows, bounds, baseline, demand,
// packing, validation. Runs on the threads of the caller's TBB arena; the plan
// does not depend on how many there are. Peak memory besides the window: loads
// of 4 L P bytes (P rounded up to a multiple of 8) for N samples and fillers,
// and once more for as many cells and row-shards while seeds are made, or 1.5
// times for the R G row-shards of each member of the population, twice while
// these are resampled; demand once more in 2 or 4 bytes; and some maps of L E
// entries.

#ifndef ROUTEPACK_PLANNER_PLANNER_H_
#define ROUTEPACK_PLANNER_PLANNER_H_

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/budget.h"
#include "planner/plan.h"

namespace routepack {

// Plans are reproducible within one version of the algorithms.
inline constexpr std::string_view kAlgorithmVersion =
    "2026.12-incremental-placement";

struct PlanProgress {
  std::string_view stage;  // that has just ended: "placement", "rows", ...;
                           // "packing" also while it runs
  double fraction = 0;     // of the work, in [0, 1]
  uint32_t rows = 0;       // 0 before they are known
  double joint = 0;        // best so far, token-cap units; 0 before
  double bound = 0;        // for the placement; 0 before
  double gap = 0;          // joint / bound - 1; 0 before
  // Of the search, while it runs.
  double acceptance_rate = 0;  // accepted per step
  double proposals_per_second = 0;
  absl::Duration elapsed;
};

// Called from the planning thread; must return quickly.
class PlanObserver {
 public:
  virtual ~PlanObserver() = default;
  // The announced placement, what moving to it costs and in which order. With
  // refine_after_announce it may still change.
  virtual void OnPlacement(const Placement&, const MovementReport&,
                           std::span<const StageSchedule>) {}
  virtual void OnProgress(const PlanProgress&) {}
};

// Fillers that are added at most. A filler costs a sample's worth of demand and
// of packing time; more of them than samples only make sense for tiny windows,
// and a large min_rows must not exhaust the machine.
uint64_t MostFillers(const WindowSpec& spec);

// What moves cost in a window: the given description of experts, with the
// window's sizes, shards and stages.
MovementSpec MovementOf(const WindowSpec& window, const MovementSpec& given);

// INVALID_ARGUMENT lists the options that are out of range for such a window,
// with paths "header.options...". MakePlan checks them, too.
absl::Status ValidateOptions(const WindowSpec& window,
                             const PlanOptions& options);

// `current` is the placement that is live when the step begins; it has the
// window's sizes. `observer` may be null.
// FAILED_PRECONDITION (see PreconditionOf): "CELLS_EXCEED_SAMPLES", no feasible
//   layout, with the violated bound and the fillers that would repair it;
//   "ROWS_NOT_FOUND", none found within the node limit and none excluded; or
//   "TOO_MANY_FILLERS", more than MostFillers: the samples, and 2^14 or 64 MiB
//   of demand.
// DEADLINE_EXCEEDED: the budget's deadline or the time limit passed before
//   there was any layout.
// CANCELLED: the budget was cancelled.
// INVALID_ARGUMENT: options out of range, with paths "header.options...", or a
//   `current` that is no placement of the window.
// RESOURCE_EXHAUSTED: there is no memory to plan it.
absl::StatusOr<Plan> MakePlan(const Window& window, const Placement& current,
                              const PlanOptions& options,
                              const Budget& budget = {},
                              PlanObserver* observer = nullptr);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_PLANNER_H_
