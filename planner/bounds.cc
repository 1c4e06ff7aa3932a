#include "planner/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace routepack {
namespace {

__extension__ using Wide = __int128;

// At most the attention cost, in score units, that all cells and stages of any
// layout of `num_cells` cells add up to.
Wide AttentionFloor(const PackingProblem& problem, uint64_t num_cells) {
  Wide sum_t = 0;
  Wide sum_t2 = 0;
  for (uint32_t t : problem.tokens) {
    sum_t += t;
    sum_t2 += Wide{t} * t;
  }
  // Every operation, here and in CellCost, is off by at most half an epsilon,
  // relative to a result that is not negative; there are less than 16.
  constexpr double kSafety = 1 - 16 * std::numeric_limits<double>::epsilon();
  Wide floor = 0;
  for (const AttentionStage& stage : problem.attention) {
    const double cost =
        static_cast<double>(kScoreScale) *
        (stage.alpha * static_cast<double>(sum_t) +
         stage.beta * static_cast<double>(sum_t2) / problem.token_cap);
    // CellCost rounds to the nearest integer: half a unit a cell.
    const Wide exact = static_cast<Wide>(cost * kSafety);
    floor += std::max<Wide>(0, exact - static_cast<Wide>(num_cells + 1) / 2);
  }
  return floor;
}

Wide DivideUp(Wide a, Wide b) { return (a + b - 1) / b; }

// The header's two weightings of max_g U[g] >= sum_g w_g U[g].
int64_t Combine(const Topology& topology, Wide attention, Wide expert) {
  Wide smallest = topology.num_slots();
  Wide largest = 0;
  for (uint32_t g = 0; g < topology.num_shards(); ++g) {
    const Wide slots = static_cast<Wide>(topology.slots_of_shard(g).size());
    smallest = std::min(smallest, slots);
    largest = std::max(largest, slots);
  }
  const Wide equal_weights =
      DivideUp(attention + largest * expert, largest * topology.num_shards());
  const Wide weights_by_slots =
      DivideUp(attention + smallest * expert, topology.num_slots());
  return static_cast<int64_t>(std::max(equal_weights, weights_by_slots));
}

}  // namespace

ScoreBounds LowerBounds(const PackingProblem& problem, uint32_t rows,
                        std::span<const uint64_t> expert_loads,
                        std::span<const uint64_t> rank_loads) {
  const uint32_t num_ranks = problem.topology.num_ranks();
  const size_t num_layers = rank_loads.size() / num_ranks;
  const size_t num_experts = expert_loads.size() / num_layers;

  ScoreBounds bounds;
  Wide for_placement = 0;
  Wide for_any_placement = 0;
  for (size_t l = 0; l < num_layers; ++l) {
    const auto experts = expert_loads.subspan(l * num_experts, num_experts);
    const auto ranks = rank_loads.subspan(l * num_ranks, num_ranks);
    const uint64_t total =
        std::accumulate(experts.begin(), experts.end(), uint64_t{0});
    const uint64_t mean = total / num_ranks + (total % num_ranks != 0);
    const uint64_t hottest = *std::max_element(experts.begin(), experts.end());
    for_placement += *std::max_element(ranks.begin(), ranks.end());
    for_any_placement += std::max(mean, hottest);
    if (Wide{hottest} * num_ranks > total) {
      bounds.hot_expert_layers.push_back(static_cast<uint32_t>(l));
    }
  }

  const Wide attention =
      AttentionFloor(problem, uint64_t{rows} * problem.topology.num_slots());
  bounds.for_placement =
      Combine(problem.topology, attention, kScoreScale * for_placement);
  bounds.for_any_placement =
      Combine(problem.topology, attention, kScoreScale * for_any_placement);
  return bounds;
}

}  // namespace routepack
