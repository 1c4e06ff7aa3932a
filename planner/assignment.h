// Minimum-cost assignment: n rows to n columns, one each, least total cost.
//
// Rows take the columns that column and row minima give them; the rest is added
// by shortest augmenting paths with potentials, one row after the other: O(n^3)
// time at worst, O(n) memory besides the costs. Integers only, so that the
// result is exact; of equal assignments it takes the same one on every machine
// (paths of equal length end at the lowest column). Pure function, any thread.
//
// Source: R. Jonker and A. Volgenant, "A shortest augmenting path algorithm for
// dense and sparse linear assignment problems", Computing 38 (1987).
//
//   // Row 0 takes column 1 and row 1 column 0: cost 1 + 2.
//   MinCostAssignment({{4, 1, 2, 3}}, 2) == std::vector<uint32_t>{1, 0}

#ifndef ROUTEPACK_PLANNER_ASSIGNMENT_H_
#define ROUTEPACK_PLANNER_ASSIGNMENT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace routepack {

// The column of each row. `costs` is [n][n], row by row; n times the largest
// magnitude is below 2^61.
std::vector<uint32_t> MinCostAssignment(std::span<const int64_t> costs,
                                        uint32_t n);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_ASSIGNMENT_H_
