// Results must not depend on the number of threads.

#ifndef ROUTEPACK_TESTS_PLANNER_THREAD_COUNTS_H_
#define ROUTEPACK_TESTS_PLANNER_THREAD_COUNTS_H_

#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/task_arena.h"

namespace routepack {

// Calls f on one thread, on two and on eight, however many cores there are.
template <typename F>
void OnSeveralThreadCounts(F f) {
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism,
                                  8);
  for (int threads : {1, 2, 8}) {
    tbb::task_arena arena(threads);
    arena.execute(f);
  }
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_THREAD_COUNTS_H_
