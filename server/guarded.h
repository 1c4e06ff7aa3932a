// Exceptions of libraries end here.
//
// Everything that gRPC or a queue calls goes through Guarded, or lets its
// calls do so: a call always ends, and no window stays where it is.

#ifndef ROUTEPACK_SERVER_GUARDED_H_
#define ROUTEPACK_SERVER_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"

namespace routepack::server {

// The exception that is being handled as a status: inside `catch` only.
inline absl::Status CaughtStatus() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the server is out of memory");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  } catch (...) {
    return absl::InternalError("unknown exception");
  }
}

// The status `f` returns, or one for what it throws.
template <typename F>
absl::Status Guarded(F&& f) {
  try {
    return f();
  } catch (...) {
    return CaughtStatus();
  }
}

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_GUARDED_H_
