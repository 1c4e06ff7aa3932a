// Flags about where experts live and what moving them costs.

#ifndef ROUTEPACK_CLIENT_CLI_PLACEMENT_FLAGS_H_
#define ROUTEPACK_CLIENT_CLI_PLACEMENT_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "routepack/v1/window.pb.h"

namespace routepack::cli {

// Names for Command::flags; part of OptionFlags.
std::vector<std::string> PlacementFlags();

// Applies them to the header's options. Where movement is described without the
// experts' size, that of the header's model is filled in.
absl::Status ApplyPlacementFlags(v1::WindowHeader& header);

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_PLACEMENT_FLAGS_H_
