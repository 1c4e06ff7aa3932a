// What no layout can beat (spec 3.3; RoutePack paper, equation 4).
//
// Of the primary score s0 = max_g U[g]. Attention of a row-shard is at least
// the mean over its slots; the busiest ranks of a layer add up, over rows and
// shards, to at least the busiest rank of the window (for a given placement),
// and to at least max(mean rank, hottest expert) for any placement. With
// shards of m_g slots, A the attention cost of all samples and X the expert
// floor, for every choice of weights w_g that sum to 1,
// max_g U[g] >= sum_g w_g U[g]; w_g = 1/G and w_g = m_g/D give
//   s0 >= (A / max_g m_g + X) / G   and   s0 >= (A + min_g m_g X) / D,
// equal when shards are. Each rounded cell cost may be half a unit low, which
// is subtracted.

#ifndef ROUTEPACK_PLANNER_BOUNDS_H_
#define ROUTEPACK_PLANNER_BOUNDS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/layout.h"

namespace routepack {

struct ScoreBounds {
  int64_t for_placement = 0;      // score units, lower bound of s0
  int64_t for_any_placement = 0;  // score units, lower bound of s0
  // Layers, ascending, whose hottest expert is above the mean rank: no
  // placement balances them.
  std::vector<uint32_t> hot_expert_layers;
};

// `expert_loads` [L, E] and `rank_loads` [L, P] are window loads. The problem's
// demand is not looked at.
ScoreBounds LowerBounds(const PackingProblem& problem, uint32_t rows,
                        std::span<const uint64_t> expert_loads,
                        std::span<const uint64_t> rank_loads);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_BOUNDS_H_
