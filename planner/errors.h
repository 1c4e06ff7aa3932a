// Errors that name fields. Everything in RoutePack that can go wrong on a
// caller's input is an absl::Status; input errors carry the list of offending
// fields as a payload, which proto/codec turns into google.rpc.BadRequest.
//
//   Violations bad;
//   if (token_cap == 0) bad.Add("header.token_cap", "must be at least 1");
//   if (!bad.empty()) return bad.ToStatus();

#ifndef ROUTEPACK_PLANNER_ERRORS_H_
#define ROUTEPACK_PLANNER_ERRORS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace routepack {

// One offending field, with its path in the request ("samples[3].tokens") and
// a sentence that says what is wrong and what was found.
struct FieldViolation {
  std::string field;
  std::string description;
};

// Collects violations: the first kMaxKept are kept, all are counted.
class Violations {
 public:
  static constexpr size_t kMaxKept = 100;

  void Add(std::string_view field, std::string_view description);
  // Adds those of a status that is not OK; its message, for `field`, where it
  // has none.
  void Merge(const absl::Status& status, std::string_view field);

  bool empty() const { return total_ == 0; }
  size_t total() const { return total_; }
  const std::vector<FieldViolation>& kept() const { return kept_; }

  // INVALID_ARGUMENT whose message names the first violation and the number of
  // others, with the kept ones as payload. OK when empty.
  absl::Status ToStatus() const;

 private:
  std::vector<FieldViolation> kept_;
  size_t total_ = 0;
};

// The violations a status carries; empty when it has none.
std::vector<FieldViolation> ViolationsOf(const absl::Status& status);

// A bound that a valid request cannot meet, and how far it is from it.
struct PreconditionDetail {
  std::string type;         // e.g. "CELLS_EXCEED_SAMPLES"
  std::string subject;      // e.g. "rows"
  std::string description;  // names the bound and the repair
};

// FAILED_PRECONDITION with the detail as message and payload.
absl::Status PreconditionError(const PreconditionDetail& detail);

// The detail a status carries, or one with an empty type.
PreconditionDetail PreconditionOf(const absl::Status& status);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_ERRORS_H_
