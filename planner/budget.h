// When to stop. Searches count steps or nodes first, which is deterministic,
// and look at a budget's clock and stop token between them.

#ifndef ROUTEPACK_PLANNER_BUDGET_H_
#define ROUTEPACK_PLANNER_BUDGET_H_

#include <stop_token>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace routepack {

struct Budget {
  // Cancels: the result is not wanted any more.
  std::stop_token stop;
  // Ends the search: the best result so far is wanted.
  absl::Time deadline = absl::InfiniteFuture();

  bool Cancelled() const { return stop.stop_requested(); }
  bool OutOfTime() const {
    return deadline != absl::InfiniteFuture() && absl::Now() >= deadline;
  }
  bool Exhausted() const { return Cancelled() || OutOfTime(); }
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_BUDGET_H_
