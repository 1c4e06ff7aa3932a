// The part of a plan that one trainer rank needs: the rows of its DP slot, the
// dispatcher tables of its layers, and the experts that come and go.

#ifndef ROUTEPACK_PROTO_CODEC_RANK_PLAN_H_
#define ROUTEPACK_PROTO_CODEC_RANK_PLAN_H_

#include "absl/status/statusor.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/planner_service.pb.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// `current` is the placement before the plan, complete as in Plan.placement.
// Moves are sorted by layer, then by the slot they take (incoming) or leave
// (outgoing). O(R samples + L E).
// INVALID_ARGUMENT: slot, rank or layers out of range, or a layer twice.
// INTERNAL: `current` has other sizes than the plan.
absl::StatusOr<v1::RankPlan> MakeRankPlan(
    const v1::Plan& plan, const v1::Placement& current,
    const v1::GetRankPlanRequest& request);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_RANK_PLAN_H_
