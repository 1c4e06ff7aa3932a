// Exceptions of libraries end here.

#ifndef ROUTEPACK_SERVER_GUARDED_H_
#define ROUTEPACK_SERVER_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"

namespace routepack::server {

// The status `f` returns, or one for what it throws.
template <typename F>
absl::Status Guarded(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the server is out of memory");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_GUARDED_H_
