// Small packing problems with a feasible layout, for tests of the search.

#ifndef ROUTEPACK_TESTS_PLANNER_SEARCH_PROBLEMS_H_
#define ROUTEPACK_TESTS_PLANNER_SEARCH_PROBLEMS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/bounds.h"
#include "planner/chain.h"
#include "planner/placement.h"
#include "planner/rows.h"
#include "planner/seed.h"
#include "tests/planner/test_windows.h"

namespace routepack {

struct SearchCase {
  PackingProblem problem;
  Layout length;
  int64_t bound = 0;
};

// LPT placement, fewest rows, fillers where they are needed.
inline SearchCase MakeSearchCase(const Window& window) {
  const uint32_t ranks = window.spec().topology.num_ranks();
  const std::vector<uint64_t> loads = window.ExpertLoads();
  const Placement placement =
      LptPlacement(loads, window.num_layers(), window.num_experts(), ranks);
  SearchCase out{.problem = MakeProblem(window, 0)};
  RowResult rows =
      ValueOrDie(FewestRows(out.problem.occupancy,
                            {.num_slots = window.spec().topology.num_slots(),
                             .token_cap = window.spec().token_cap,
                             .allow_filler = true},
                            Budget{}));
  out.problem = MakeProblem(window, rows.fillers);
  out.problem.demand = ProjectDemand(window, placement, rows.fillers);
  out.length = LengthLayout(out.problem, rows.rows, std::move(rows.bins));
  out.bound = LowerBounds(out.problem, out.length.rows, loads,
                          RankLoads(placement, loads))
                  .for_placement;
  return out;
}

inline SearchCase MakeSearchCase(const RandomWindowOptions& options) {
  return MakeSearchCase(RandomWindow(options));
}

inline SearchCase RandomSearchCase(uint64_t seed) {
  return MakeSearchCase(RandomShape(seed));
}

// 9 to 12 samples in 4 to 6 cells of at least two rows, 4 to 6 layers, one or
// two shards, no fillers.
inline SearchCase SmallSearchCase(uint64_t seed) {
  TestRandom random(seed * 104'729 + 5);
  while (true) {
    RandomWindowOptions options{.seed = random.Below(1u << 30)};
    options.num_samples = random.Between(9, 12);
    options.num_layers = random.Between(4, 6);
    options.num_ranks = random.Between(2, 4);
    options.num_experts = options.num_ranks * random.Between(2, 3);
    options.num_slots = random.Between(1, 3);
    options.num_shards = random.Between(1, std::min(2u, options.num_slots));
    options.token_cap = random.Between(75, 140);
    options.min_tokens = 5;
    SearchCase out = MakeSearchCase(options);
    const uint32_t cells = out.length.num_cells();
    if (cells >= 4 && cells <= 6 && out.length.rows >= 2 &&
        out.problem.num_items() == out.problem.num_samples) {
      return out;
    }
  }
}

// Any move, whether it fits or not: a swap, or a relocation every third time.
inline Move RandomMove(TestRandom& random, const Chain& chain,
                       const Layout& layout) {
  const auto num_items = static_cast<uint32_t>(layout.items.size());
  Move move{.item = random.Below(num_items)};
  move.from = chain.cell_of(move.item);
  if (random.Below(3) == 0) {
    move.to = random.Below(layout.num_cells());
    move.back = chain.nothing();
  } else {
    move.back = random.Below(num_items);
    move.to = chain.cell_of(move.back);
  }
  return move;
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_SEARCH_PROBLEMS_H_
