// Whether what a client sends is the window that its key already has.
//
// ALREADY_EXISTS says what differs. Content digests differ where both are
// given; what the header says otherwise is compared as it was sent (StreamPlan)
// or by its meaning (CreatePlan, which has the samples).

#ifndef ROUTEPACK_SERVER_SAME_WINDOW_H_
#define ROUTEPACK_SERVER_SAME_WINDOW_H_

#include "absl/status/status.h"
#include "planner/window.h"
#include "routepack/v1/window.pb.h"
#include "server/window_session/session.h"

namespace routepack::server {

absl::Status CheckSameContent(const WindowSession& session,
                              const v1::WindowHeader& header);
// CheckSameContent included.
absl::Status CheckSameHeader(const WindowSession& session,
                             const v1::WindowHeader& header);
// For sessions whose request_digest is known.
absl::Status CheckSameWindow(const WindowSession& session,
                             const v1::WindowHeader& header,
                             const Window& window);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_SAME_WINDOW_H_
