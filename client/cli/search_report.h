// How the search of a plan went, for people.

#ifndef ROUTEPACK_CLIENT_CLI_SEARCH_REPORT_H_
#define ROUTEPACK_CLIENT_CLI_SEARCH_REPORT_H_

#include <string>

#include "routepack/v1/plan.pb.h"

namespace routepack::cli {

// What the search gained and why it ended; empty for plans that do not say. One
// paragraph, or `verbose`: tables of its stages and of acceptance by
// temperature, and how the best layout converged.
std::string SearchText(const v1::Plan& plan, bool verbose);

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_SEARCH_REPORT_H_
