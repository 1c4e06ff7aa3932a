// Do items fit into a given number of bins? Exact search by bin completion
// (Korf, "A new algorithm for optimal bin packing", AAAI 2002; "An improved
// algorithm", IJCAI 2003).
//
// Fills one bin at a time: the largest item left opens it, and the search
// branches over the sets of items that complete it, fullest first, leaving out
// sets that another dominates (Martello and Toth). A branch ends when its waste
// passes max_bins C - sum, or when the L2 bound of the items left passes the
// bins left. The search runs with few completions per bin first, which finds
// packings, then with more, which proves that there are none.
//
// Worst case exponential, hence the node limit. A node is a bin opened, or 64
// items tried on the way, and costs a few microseconds whatever the problem.
// Memory is O(items) plus the completions of all open bins, at most about
// 130 MB (40 MB within the default limit of nodes were seen). Deterministic;
// single-threaded.
//
//   PackingAttempt attempt = PackIntoBins(lengths, 8192, 64, 200'000, budget);
//   if (attempt.fit == Fit::kYes) Use(attempt.bins);

#ifndef ROUTEPACK_PLANNER_BIN_COMPLETION_H_
#define ROUTEPACK_PLANNER_BIN_COMPLETION_H_

#include <cstdint>
#include <span>

#include "planner/bin_packing.h"
#include "planner/budget.h"

namespace routepack {

enum class Fit {
  kYes,
  kNo,       // proved
  kUnknown,  // the node limit or the budget ended the search
};

struct PackingAttempt {
  Fit fit = Fit::kUnknown;
  Bins bins;  // kYes: at most max_bins, none empty
  uint64_t nodes = 0;
};

// Sizes in [1, capacity].
PackingAttempt PackIntoBins(std::span<const uint32_t> sizes, uint32_t capacity,
                            uint64_t max_bins, uint64_t max_nodes,
                            const Budget& budget);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_BIN_COMPLETION_H_
