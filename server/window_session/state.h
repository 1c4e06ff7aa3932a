// The life of a window.
//
//             header admitted
//                    │
//                    ▼      seal       a worker is free     MakePlan
//   from        UPLOADING ───────▶ QUEUED ───────▶ PLANNING ───────▶ READY
//                    │               │               │
//   CancelPlan       ├───────────────┼───────────────┼──▶ CANCELLED
//   bad record, idle,│               │               │
//   invalid window,  └───────────────┴───────────────┴──▶ FAILED
//   no plan, shutdown
//
//   state      holds                         left by
//   UPLOADING  WindowBuilder, reservation    seal; cancel; bad record or idle
//                                            timeout (forgotten)
//   QUEUED     Window (once it is checked),  worker; cancel; violations found
//   by
//              reservation                   the check (forgotten); shutdown
//   PLANNING   nothing: the worker has it    plan; error of MakePlan; cancel;
//                                            shutdown
//   READY, CANCELLED, FAILED   a PlanRecord, never left. A key whose window is
//                              CANCELLED or FAILED may be submitted anew: that
//                              is another session.

#ifndef ROUTEPACK_SERVER_WINDOW_SESSION_STATE_H_
#define ROUTEPACK_SERVER_WINDOW_SESSION_STATE_H_

#include "routepack/v1/planner_service.pb.h"

namespace routepack::server {

constexpr bool IsFinal(v1::PlanState state) {
  return state == v1::PLAN_STATE_READY || state == v1::PLAN_STATE_CANCELLED ||
         state == v1::PLAN_STATE_FAILED;
}

// Whether the table above has this arrow.
constexpr bool CanMove(v1::PlanState from, v1::PlanState to) {
  switch (from) {
    case v1::PLAN_STATE_UPLOADING:
      return to == v1::PLAN_STATE_QUEUED || to == v1::PLAN_STATE_CANCELLED ||
             to == v1::PLAN_STATE_FAILED;
    case v1::PLAN_STATE_QUEUED:
      return to == v1::PLAN_STATE_PLANNING || to == v1::PLAN_STATE_CANCELLED ||
             to == v1::PLAN_STATE_FAILED;
    case v1::PLAN_STATE_PLANNING:
      return to == v1::PLAN_STATE_READY || to == v1::PLAN_STATE_CANCELLED ||
             to == v1::PLAN_STATE_FAILED;
    default:
      return false;
  }
}

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WINDOW_SESSION_STATE_H_
