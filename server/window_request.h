// What a header asks for, decoded and checked before anything is uploaded.

#ifndef ROUTEPACK_SERVER_WINDOW_REQUEST_H_
#define ROUTEPACK_SERVER_WINDOW_REQUEST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/placement.h"
#include "planner/plan.h"
#include "planner/window.h"
#include "routepack/v1/window.pb.h"
#include "server/plan_store.h"

namespace routepack::server {

struct WindowRequest {
  v1::WindowHeader header;
  std::string header_digest;
  WindowSpec spec;
  PlanOptions options;
  std::vector<uint32_t> participants;  // as listed, maybe repeated
  // LoadCurrent fills them in.
  Placement current;
  std::shared_ptr<const v1::Placement> current_message;  // both directions
};

// Digest of a header as sent, field by field, but without content_digest:
// tells whether a stream goes on with the window it began. 32 hex digits.
std::string HeaderDigest(const v1::WindowHeader& header);

// All but the current placement, which takes memory by the header's word
// alone; it takes none but what the header has. INVALID_ARGUMENT with every
// violation of the header; UNIMPLEMENTED for meshes and features that are not
// available.
absl::StatusOr<WindowRequest> DecodeRequest(const v1::WindowHeader& header);

// The current placement, once the window is admitted. INVALID_ARGUMENT: a bad
// map. NOT_FOUND: no committed placement of the job.
absl::Status LoadCurrent(const PlanStore& store, WindowRequest& request);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WINDOW_REQUEST_H_
