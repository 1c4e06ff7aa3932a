// Placement and packing searched in turn (spec 3.2): each is tuned to the
// other, so that what one of them leaves the other can still gain.
//
// A packing that is optimal for its placement has little to gain from better
// placement, and the other way round. So the first search weighs attention
// half as much again (choice, measured): attention depends on the packing
// alone, while the experts' peaks will fall when placement follows. Then
// placement is refined for this packing, the packing is searched again from
// where it is, and so on; the best pair of placement and packing is the result.
//
// Where the hottest expert of most layers is above the mean rank, placement
// cannot follow and all steps go to the packing (spec 3.3).

#ifndef ROUTEPACK_PLANNER_JOINT_SEARCH_H_
#define ROUTEPACK_PLANNER_JOINT_SEARCH_H_

#include <cstdint>
#include <functional>

#include "planner/bounds.h"
#include "planner/budget.h"
#include "planner/layout.h"
#include "planner/placement.h"
#include "planner/row_aware.h"
#include "planner/search.h"
#include "planner/window.h"

namespace routepack {

struct JointSearchResult {
  SearchResult packing;  // for `placement`
  Placement placement;
  bool refined = false;       // `placement` is not the first one
  uint32_t floor_layers = 0;  // see RowAwareResult, of the last refinement
};

// As SearchLayout, with the placement free. `problem` has the demand of
// `placement`, and afterwards that of the result. Never worse than `length`
// with `placement`; with `price`, the score counts what moves cost.
JointSearchResult SearchJointly(
    const Window& window, PackingProblem& problem, const Layout& length,
    const Placement& placement, const ScoreBounds& bounds,
    const SearchOptions& options, const SlotPrice& price, uint64_t seed,
    const Budget& budget = {},
    const std::function<void(const SearchProgress&)>& on_progress = {});

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_JOINT_SEARCH_H_
