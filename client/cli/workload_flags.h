// Flags that describe generated windows, for the commands that make some.

#ifndef ROUTEPACK_CLIENT_CLI_WORKLOAD_FLAGS_H_
#define ROUTEPACK_CLIENT_CLI_WORKLOAD_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "client/workload.h"

ABSL_DECLARE_FLAG(std::string, preset);
ABSL_DECLARE_FLAG(uint32_t, windows);

namespace routepack::cli {

// Names for Command::flags.
std::vector<std::string> WorkloadFlags();

// The preset with everything that flags say otherwise, WindowFlags included.
absl::StatusOr<WorkloadSpec> WorkloadFromFlags();

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_WORKLOAD_FLAGS_H_
