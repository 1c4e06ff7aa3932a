// Opaque page tokens of ListPlans: where the next page begins, bound to the
// filter of the list they came from.

#ifndef ROUTEPACK_SERVER_PAGE_TOKEN_H_
#define ROUTEPACK_SERVER_PAGE_TOKEN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/plan_store.h"

namespace routepack::server {

std::string EncodePageToken(uint64_t before, const PlanFilter& filter);

// Nothing when the token is none of ours or belongs to another filter.
std::optional<uint64_t> DecodePageToken(absl::string_view token,
                                        const PlanFilter& filter);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_PAGE_TOKEN_H_
