// What differs between two runs that make the same plan.

#ifndef ROUTEPACK_TESTS_CLEAR_TIMINGS_H_
#define ROUTEPACK_TESTS_CLEAR_TIMINGS_H_

#include "routepack/v1/plan.pb.h"

namespace routepack {

inline void ClearTimings(v1::Plan& plan) {
  plan.clear_timings();
  if (!plan.has_search_report()) return;
  v1::SearchReport& report = *plan.mutable_search_report();
  for (v1::SearchStage& stage : *report.mutable_stages()) {
    stage.clear_duration();
  }
  report.clear_proposals_per_second();
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_CLEAR_TIMINGS_H_
