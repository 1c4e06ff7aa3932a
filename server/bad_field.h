// INVALID_ARGUMENT about one field of a request.

#ifndef ROUTEPACK_SERVER_BAD_FIELD_H_
#define ROUTEPACK_SERVER_BAD_FIELD_H_

#include <string>

#include "absl/status/status.h"
#include "planner/errors.h"

namespace routepack::server {

inline absl::Status BadField(const std::string& field,
                             const std::string& description) {
  Violations bad;
  bad.Add(field, description);
  return bad.ToStatus();
}

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_BAD_FIELD_H_
