// How many rows a window needs, with proof (RoutePack paper, section 3.2;
// spec 1.3).
//
// R rows of D cells are feasible if and only if opt <= R D <= N, where opt is
// the bin-packing optimum of the occupancies under the cap: surplus cells are
// filled by splitting cells of several samples. So the fewest rows are the
// least admissible R (R >= min_rows, R a multiple of row_multiple) with
// R D >= opt. opt is bracketed by lower bounds and first/best-fit decreasing;
// where the bracket leaves R open, an exact search (bin completion, Korf 2002)
// decides under a node limit: first downward while that is easy, then upward
// from the fewest. Deterministic; single-threaded.

#ifndef ROUTEPACK_PLANNER_ROWS_H_
#define ROUTEPACK_PLANNER_ROWS_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "planner/bin_packing.h"
#include "planner/budget.h"

namespace routepack {

struct RowConstraints {
  uint32_t num_slots = 1;     // D
  uint32_t token_cap = 0;     // C
  uint32_t min_rows = 1;      // at least 1
  uint32_t row_multiple = 1;  // at least 1
  bool allow_filler = false;
  uint64_t max_nodes = 200'000;  // limit of the exact search
};

enum class RowOutcome {
  kCertified,   // rows is the minimum; `proof` names the bound
  kBestKnown,   // rows is feasible; fewer were not excluded
  kInfeasible,  // proved: more cells than samples at the least rows
  kNotFound,    // no feasible rows found, none excluded, within the limits
};

struct RowResult {
  RowOutcome outcome = RowOutcome::kNotFound;
  uint32_t rows = 0;              // R; for kInfeasible the least R that fits,
                                  // for kNotFound one that does
  uint32_t rows_lower_bound = 0;  // fewest rows not excluded
  uint32_t bins_lower_bound = 0;  // proved: opt >= this
  uint32_t bins_upper_bound = 0;  // bins of `bins`
  // What proves the outcome: "capacity", "martello-toth-l2", "dual-feasible",
  // "exhaustive-search", "min-rows" or "row-multiple". Empty if nothing does.
  std::string proof;
  // Added (R D - N); for kInfeasible the fewest that would repair the window,
  // for kNotFound a number that would.
  uint32_t fillers = 0;
  uint64_t nodes = 0;      // visited by the exact search
  bool truncated = false;  // node limit or budget left `rows` open
  Bins bins;               // the best packing found, at most C each
};

// `occupancy` [N]. CANCELLED if the budget was cancelled. INVALID_ARGUMENT: an
// occupancy outside [1, C], or constraints of more than 2^31 cells.
absl::StatusOr<RowResult> FewestRows(std::span<const uint32_t> occupancy,
                                     const RowConstraints& constraints,
                                     const Budget& budget);

// Splits bins of several items until there are `cells` of them: always the
// fullest splittable bin (ties: lower index), into two halves of nearly equal
// occupancy. Needs bins.size() <= cells <= number of items.
void SplitToCells(std::span<const uint32_t> occupancy, uint32_t cells,
                  Bins& bins);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_ROWS_H_
