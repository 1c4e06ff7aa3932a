// The command line of routepackd.

#ifndef ROUTEPACK_SERVER_FLAGS_H_
#define ROUTEPACK_SERVER_FLAGS_H_

#include "absl/status/statusor.h"
#include "server/options.h"

namespace routepack::server {

// Parses and validates. --help, --version and unknown flags end the process,
// as Abseil does. INVALID_ARGUMENT: a value out of range, or arguments that
// are not flags.
absl::StatusOr<ServerOptions> ParseFlags(int argc, char** argv);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_FLAGS_H_
