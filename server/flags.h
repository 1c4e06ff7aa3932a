// The command line of routepackd.

#ifndef ROUTEPACK_SERVER_FLAGS_H_
#define ROUTEPACK_SERVER_FLAGS_H_

#include "absl/status/statusor.h"
#include "server/options.h"

namespace routepack::server {

// Parses and validates. --help and --version, and errors inside a --flagfile,
// end the process, as Abseil does. INVALID_ARGUMENT: unknown flags, values that
// cannot be read or are out of range, arguments that are not flags.
absl::StatusOr<ServerOptions> ParseFlags(int argc, char** argv);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_FLAGS_H_
