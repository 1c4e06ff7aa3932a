// Other ways to pack a window into the same rows and under the same cap,
// written from their published descriptions.

#ifndef ROUTEPACK_TESTS_BENCH_PACKING_PEERS_H_
#define ROUTEPACK_TESTS_BENCH_PACKING_PEERS_H_

#include <cstdint>
#include <vector>

#include "planner/layout.h"
#include "planner/search_space.h"

namespace routepack {

struct PeerLayout {
  Layout layout;
  bool repaired = false;  // samples had to be moved to meet cap or rows
  bool failed = false;    // could not be repaired: `length` instead
};

// AReaL's default allocator ("ffd"): samples by decreasing length. The first
// R D open a cell each; every other goes to the cell with the fewest samples
// among those with room, of several to the emptiest. It would open another
// cell where none has room: here the sample goes to the emptiest all the same,
// and the cap is repaired. Cells in the order they were opened, row by row.
PeerLayout FewestSamplesDecreasing(const PackingProblem& problem,
                                   const Layout& length);

// Karmarkar and Karp's largest differencing for R D sets, as verl and slime
// balance micro-batches, by what a token costs on average: w(t) = (sum of
// alphas + routed assignments a token) t + (sum of betas) t^2 / C. It knows no
// cap, which is repaired. Cells by decreasing workload, row by row, so that
// those of a row are alike.
PeerLayout LargestDifferencing(const PackingProblem& problem,
                               const Layout& length);

// Until no cell is over the cap: the move or swap between an overfull cell and
// any other that lowers the tokens over the cap most, and where there is none,
// a few random swaps that do not raise them. False after 2,000 such rounds.
bool RepairCap(const PackingProblem& problem,
               std::vector<std::vector<uint32_t>>& cells);

// Simulated annealing of one chain from `length`: a uniformly random sample is
// swapped with another or, with probability 0.2, moved to a uniformly random
// cell; what does not fit is drawn again, `draws` times in all, before the step
// counts as spent. Levels and temperatures as in planner/anneal.h, with T_0
// found from its own proposals, times `scale`; the scores and the energy are
// the planner's too.
struct PlainOptions {
  uint64_t steps = 0;
  uint32_t levels = 32;  // at least 3
  int draws = 1;
  double scale = 1;
};
Layout PlainAnnealing(const SearchSpace& space, const Layout& length,
                      const PlainOptions& options, uint64_t seed);

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_BENCH_PACKING_PEERS_H_
