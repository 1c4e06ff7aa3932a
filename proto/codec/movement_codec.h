// Movement, transfer and refinement to messages and back.

#ifndef ROUTEPACK_PROTO_CODEC_MOVEMENT_CODEC_H_
#define ROUTEPACK_PROTO_CODEC_MOVEMENT_CODEC_H_

#include <cstdint>
#include <span>
#include <vector>

#include "google/protobuf/repeated_ptr_field.h"
#include "planner/errors.h"
#include "planner/plan.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// The placement's part of the options: movement, incremental, transfer and
// refine_after_announce. Adds a violation for every value that says nothing,
// with paths below "header.options"; MakePlan checks ranges.
void DecodePlacementOptions(const v1::PlanOptions& message,
                            PlanOptions& options, Violations& bad);
// Fills in the defaults of what is stated.
void EncodePlacementOptions(const PlanOptions& options,
                            v1::PlanOptions* message);

void EncodeMovement(const MovementReport& report, v1::MovementReport* message);
// All but the change, which is a message of its own.
MovementReport DecodeMovement(const v1::MovementReport& message);

void EncodeTransfer(
    std::span<const StageSchedule> stages,
    google::protobuf::RepeatedPtrField<v1::StageTransfer>* message);
std::vector<StageSchedule> DecodeTransfer(
    const google::protobuf::RepeatedPtrField<v1::StageTransfer>& message);

v1::IncrementalStop EncodeStop(IncrementalStop stop);
// UNSPECIFIED and what is unknown: kTarget.
IncrementalStop DecodeStop(v1::IncrementalStop stop);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_MOVEMENT_CODEC_H_
