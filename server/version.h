// The version of the build, from the project() of the top CMakeLists.txt.

#ifndef ROUTEPACK_SERVER_VERSION_H_
#define ROUTEPACK_SERVER_VERSION_H_

#include "absl/strings/string_view.h"

namespace routepack::server {

inline constexpr absl::string_view kVersion = ROUTEPACK_VERSION;

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_VERSION_H_
