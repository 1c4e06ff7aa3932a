// The one translation between messages (proto/routepack/v1) and planner
// values. Server, client and command line all go through it, so a window means
// the same everywhere.
//
// Errors carry field violations with paths as in the messages
// ("header.topology.mesh.ep", "samples[3].counts.u16").

#ifndef ROUTEPACK_PROTO_CODEC_CODEC_H_
#define ROUTEPACK_PROTO_CODEC_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/plan.h"
#include "planner/planner.h"
#include "planner/window.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/planner_service.pb.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// Header to spec; derives topology and attention. INVALID_ARGUMENT with every
// violation; UNIMPLEMENTED for meshes without EDP partition.
absl::StatusOr<WindowSpec> DecodeSpec(const v1::WindowHeader& header);

// Options with defaults filled in. UNIMPLEMENTED names a reserved feature that
// was asked for.
absl::StatusOr<PlanOptions> DecodeOptions(const v1::PlanOptions& options);

// A map of the window's sizes; expert_of_slot may be absent in the message.
absl::StatusOr<Placement> DecodePlacement(const v1::Placement& placement,
                                          uint32_t num_layers,
                                          uint32_t num_experts,
                                          uint32_t num_ranks,
                                          std::string_view field);

// Decodes one sample of any encoding into the builder. `scratch` is reused
// between calls.
void DecodeSample(const v1::Sample& sample, WindowBuilder& builder,
                  std::vector<uint32_t>& scratch);

// A whole window message.
absl::StatusOr<Window> DecodeWindow(const v1::Window& message);

// Everything a Plan message says that the planner does not know.
struct PlanContext {
  v1::PlanKey key;
  v1::PlanOptions options;  // as asked; defaults are filled in from `used`
  std::string backend = "cpu";
};

// Plan to message. `used` are the options the planner ran with.
v1::Plan EncodePlan(const Window& window, const Plan& plan,
                    const PlanOptions& used, const PlanContext& context);

void EncodePlacement(const Placement& placement, v1::Placement* message);
void EncodeChange(const PlacementChange& change, v1::PlacementChange* message);
v1::Progress EncodeProgress(const PlanProgress& progress);

// A Plan message back to values, checked against its window: every sample id
// known, cells complete. For `routepackctl score`, which then recomputes all
// it says with ValidatePlan.
absl::StatusOr<Plan> DecodePlan(const Window& window, const v1::Plan& message);

// The part of a plan that one rank needs. INVALID_ARGUMENT: slot, rank or
// layers out of range. `current` is the placement before the plan.
absl::StatusOr<v1::RankPlan> MakeRankPlan(const v1::Plan& plan,
                                          const v1::Placement& current,
                                          const v1::GetRankPlanRequest& request);

// The digest that identifies a request: window and options. 32 hex digits.
std::string RequestDigest(const Window& window, const v1::WindowHeader& header);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_CODEC_H_
