// Logarithm and exponential of the search. The C library's differ in the last
// bit from platform to platform; these use only operations that IEEE 754
// defines to the bit, so that plans are the same everywhere. Relative error
// below 1e-14.

#ifndef ROUTEPACK_PLANNER_SEARCH_MATH_H_
#define ROUTEPACK_PLANNER_SEARCH_MATH_H_

namespace routepack {

// ln x for normal x > 0.
double Log(double x);

// e^x for x <= 0; 0 below -700.
double ExpOfNegative(double x);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_SEARCH_MATH_H_
