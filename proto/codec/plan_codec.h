// Plans to messages and back.

#ifndef ROUTEPACK_PROTO_CODEC_PLAN_CODEC_H_
#define ROUTEPACK_PROTO_CODEC_PLAN_CODEC_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "planner/plan.h"
#include "planner/planner.h"
#include "planner/window.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/planner_service.pb.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// Everything a Plan message says that the planner does not know.
struct PlanContext {
  v1::PlanKey key;
  v1::PlanOptions options;  // as asked; defaults are filled in from `used`
  std::string backend = "cpu";
};

// Plan to message. `used` are the options the planner ran with.
v1::Plan EncodePlan(const Window& window, const Plan& plan,
                    const PlanOptions& used, const PlanContext& context);

// Names a plan's placement, unique in its job:
// "<job>/<run>/<step>.<minibatch>@<first 12 digits of the digest>", without
// the parts of the key that are empty.
std::string PlacementVersion(const v1::PlanKey& key,
                             std::string_view placement_digest);

void EncodePlacement(const Placement& placement, v1::Placement* message);
void EncodeChange(const PlacementChange& change, v1::PlacementChange* message);
void EncodeMetrics(const Metrics& metrics, v1::Metrics* message);
v1::Progress EncodeProgress(const PlanProgress& progress);

// A Plan message back to values, checked against its window: the digest is the
// window's, every sample id known and in one cell, stated token sums right.
// For `routepackctl score`, which then recomputes all it says with
// ValidatePlan. Of the evaluation only the score is filled in; the search's
// report is taken as stated.
// INVALID_ARGUMENT lists violations with paths in Plan.
absl::StatusOr<Plan> DecodePlan(const Window& window, const v1::Plan& message);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_PLAN_CODEC_H_
