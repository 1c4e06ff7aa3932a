// One-dimensional bin packing: heuristics and lower bounds (Martello and Toth,
// "Knapsack Problems", 1990, chapter 8; Fekete and Schepers, "New classes of
// fast lower bounds for bin packing problems", 2001; Carlier, Clautiaux and
// Moukrim, 2007).
//
// Sizes are integers in [1, capacity]. Packing costs O(n log n); so do the
// bounds, but for the dual-feasible ones, whose cost is capped (see below).
// Pure functions, safe to call from any thread.
//
//   Bins bins = FirstFitDecreasing(lengths, 8192);
//   bool proved_optimal = bins.size() == MartelloTothL2(lengths, 8192);

#ifndef ROUTEPACK_PLANNER_BIN_PACKING_H_
#define ROUTEPACK_PLANNER_BIN_PACKING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace routepack {

// A packing into bins: item indices, bin by bin.
using Bins = std::vector<std::vector<uint32_t>>;

// Items of one size. Groups of a problem are in decreasing order of size.
struct SizeGroup {
  uint32_t size = 0;
  uint32_t count = 0;
};

// The distinct sizes, largest first.
std::vector<SizeGroup> GroupBySize(std::span<const uint32_t> sizes);

// Item indices by decreasing size (ties: lower index).
std::vector<uint32_t> DecreasingOrder(std::span<const uint32_t> sizes);

// Items by decreasing size into the first bin with room.
Bins FirstFitDecreasing(std::span<const uint32_t> sizes, uint32_t capacity);

// Items by decreasing size into the fullest bin with room (ties: lower bin).
Bins BestFitDecreasing(std::span<const uint32_t> sizes, uint32_t capacity);

// Lower bounds on the bins that `sizes` need.

// ceil(sum / capacity).
uint32_t CapacityBound(std::span<const uint32_t> sizes, uint32_t capacity);

// For every threshold k <= capacity / 2: items above capacity - k fill a bin
// each, those above capacity / 2 open one each, and those in [k, capacity / 2]
// go into the room the latter leave and into new bins.
uint32_t MartelloTothL2(std::span<const uint32_t> sizes, uint32_t capacity);
uint32_t MartelloTothL2(std::span<const SizeGroup> groups, uint32_t capacity);

// The best of two families of dual-feasible functions, which map sizes so that
// no bin's total passes 1: u^(k) for k <= 20 after U^(eps), O(20 n), and the
// function f_eps of Carlier et al., O(n) for each eps. Where there are many
// distinct sizes, evenly spaced eps are tried, some million evaluations in all.
uint32_t DualFeasibleBound(std::span<const uint32_t> sizes, uint32_t capacity);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_BIN_PACKING_H_
