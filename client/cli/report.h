// Plans, windows and events as text for people, and messages as JSON.

#ifndef ROUTEPACK_CLIENT_CLI_REPORT_H_
#define ROUTEPACK_CLIENT_CLI_REPORT_H_

#include <cstdint>
#include <string>

#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/planner_service.pb.h"

namespace routepack::cli {

// What a plan says: rows with certificate, balance before and after, the three
// arms, bounds and gaps, the search, changes, timings, warnings, and the first
// `rows_shown` rows. `token_cap` 0 means unknown: no fill levels. `verbose`:
// how the search went.
std::string PlanReport(const v1::Plan& plan, uint32_t token_cap,
                       uint32_t rows_shown, bool verbose);

// A line of a report: the label in bold, then the text.
std::string Line(const std::string& label, const std::string& text);
double Seconds(const google::protobuf::Duration& duration);

// "8 rows, certified minimum: ...".
std::string RowsText(const v1::Plan& plan);

// One line; empty for events without text.
std::string EventText(const v1::PlanEvent& event);

// "ready" for PLAN_STATE_READY.
std::string StateText(v1::PlanState state);

// JSON with the field names of the .proto; on one line unless `pretty`.
std::string ToJson(const google::protobuf::Message& message,
                   bool pretty = true);

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_REPORT_H_
