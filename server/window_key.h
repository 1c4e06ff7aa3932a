// A PlanKey as a value that sorts and hashes.

#ifndef ROUTEPACK_SERVER_WINDOW_KEY_H_
#define ROUTEPACK_SERVER_WINDOW_KEY_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "routepack/v1/window.pb.h"

namespace routepack::server {

struct WindowKey {
  std::string job_id;
  std::string run_id;
  uint64_t step = 0;
  uint32_t minibatch = 0;

  static WindowKey Of(const v1::PlanKey& key) {
    return {key.job_id(), key.run_id(), key.step(), key.minibatch()};
  }
  // For people: "job/run/12.0".
  std::string ToString() const {
    return absl::StrCat(job_id, "/", run_id, "/", step, ".", minibatch);
  }

  friend auto operator<=>(const WindowKey&, const WindowKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const WindowKey& k) {
    return H::combine(std::move(h), k.job_id, k.run_id, k.step, k.minibatch);
  }
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WINDOW_KEY_H_
