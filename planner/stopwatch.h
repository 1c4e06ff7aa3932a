// How long a stage took, for reports.

#ifndef ROUTEPACK_PLANNER_STOPWATCH_H_
#define ROUTEPACK_PLANNER_STOPWATCH_H_

#include <chrono>
#include <utility>

#include "absl/time/time.h"

namespace routepack {

class Stopwatch {
 public:
  // Since the last lap, or the start; the next lap begins.
  absl::Duration Lap() {
    const auto now = std::chrono::steady_clock::now();
    return absl::FromChrono(now - std::exchange(lap_, now));
  }
  // Since the start.
  absl::Duration Elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point lap_ = start_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_STOPWATCH_H_
