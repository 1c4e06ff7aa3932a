// The planner's answer and what it reports (RoutePack paper, section 5.3;
// spec 1.5).

#ifndef ROUTEPACK_PLANNER_PLAN_H_
#define ROUTEPACK_PLANNER_PLAN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "planner/bounds.h"
#include "planner/incremental.h"
#include "planner/layout.h"
#include "planner/movement.h"
#include "planner/movement_report.h"
#include "planner/placement.h"
#include "planner/rows.h"
#include "planner/search.h"
#include "planner/transfer.h"
#include "planner/window.h"

namespace routepack {

// The peaks of a pipeline stage: as in Metrics, over its layers.
struct StageMetrics {
  uint32_t num_layers = 0;
  uint64_t ep_peak_sum = 0;
  uint64_t tail_peak = 0;

  friend bool operator==(const StageMetrics&, const StageMetrics&) = default;
};

// How good a placement and a layout are together. Costs divide scores by
// 256 C.
struct Metrics {
  double cv_global = 0;
  uint64_t ep_peak_sum = 0;       // sum_{r,l} max_{g,p} W
  uint64_t tail_peak = 0;         // max W
  double balance_efficiency = 0;  // mean over peak; 1 without load (choice)
  double attention = 0;           // sum over r, g of A
  double joint = 0;               // max_g U
  Score score;
  std::vector<StageMetrics> stages;  // [S]; empty without pipeline
};

// Coefficient of variation of rank loads [L, P], mean of layers; a layer
// without load counts 0 (choice).
double CvGlobal(std::span<const uint64_t> rank_loads, uint32_t num_layers,
                uint32_t num_ranks);

Metrics MakeMetrics(const PackingProblem& problem, const Evaluation& evaluation,
                    double cv_global);

// kIncremental: from the current placement, swaps as long as they pay. kKeep:
// the current placement. kLptRelabel: LPT's loads at less movement.
enum class PlacementPolicy {
  kIncremental,
  kLpt,
  kLptRelabel,
  kKeep,
  kIdentity
};
enum class RowOrder { kAsPlanned, kLightEnds };

struct PlanOptions {
  PlacementPolicy placement = PlacementPolicy::kIncremental;
  // What moves cost. Sizes, shards, ranks and stages are the window's, whatever
  // is given.
  MovementSpec movement;
  IncrementalOptions incremental;
  TransferOptions transfer;  // nodes are those of `movement`
  // Refine the placement after it was announced, by what the packing makes of
  // its rows (row_aware.h). Trainers must then wait for the plan before they
  // move anything. Not with kKeep, kIdentity or a movement budget.
  bool refine_after_announce = false;
  uint32_t min_rows = 1;      // at least 1
  uint32_t row_multiple = 1;  // at least 1
  bool allow_filler = false;
  RowOrder row_order = RowOrder::kAsPlanned;
  uint64_t seed = 0;
  uint64_t row_search_nodes = 200'000;
  SearchOptions search;
  // After this long, return the best plan so far.
  absl::Duration time_limit = absl::InfiniteDuration();
};

struct StageTiming {
  std::string stage;
  absl::Duration duration;
};

// What refine_after_announce made of the announced placement.
struct Refinement {
  std::string announced_digest;  // see PlacementDigest
  PlacementChange change;        // from it to the plan's
  uint32_t floor_layers = 0;     // layers whose hottest expert alone makes the
                                 // peak of every row-shard
};

struct Plan {
  Placement placement;
  MovementReport movement;              // from the current placement to it
  std::vector<StageSchedule> transfer;  // of the same, by pipeline stage
  IncrementalStop incremental_stop = IncrementalStop::kTarget;  // kIncremental
  std::optional<Refinement> refinement;
  RowResult rows;  // without its bins
  Layout layout;   // items >= N are fillers
  uint32_t num_fillers = 0;
  std::vector<uint64_t> filler_ids;  // ids no sample has
  Evaluation evaluation;             // of the result
  Metrics baseline;                  // identity placement, length-only packing
  Metrics reorder;                   // this placement, length-only packing
  Metrics routepack;                 // the result
  ScoreBounds bounds;
  SearchReport search;
  std::vector<StageTiming> timings;
  bool truncated = false;
  std::vector<std::string> warnings;
};

// s0 / bound - 1; 0 when the bound is 0.
double Gap(int64_t slowest_shard, int64_t bound);

// Checks a plan against its window, trusting nothing in it: placement is a
// permutation, every sample in one cell, cells non-empty and within the cap,
// fillers as listed, lower bounds of the row certificate and of the score, and
// the metrics of all arms recomputed; the result no worse than `reorder`.
// INTERNAL with the first difference. RESOURCE_EXHAUSTED: no memory to check.
// An `evaluation` without rows is not stated and not compared. Where first-fit
// decreasing does not fit the rows, the length-only layout came from a search
// that the plan does not hold; then of the first two arms only cv_global and
// the bounds are checked.
// O(N L E), about 4 N L P bytes.
absl::Status ValidatePlan(const Window& window, const Plan& plan);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_PLAN_H_
