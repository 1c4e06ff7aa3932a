// Moves for a chain to try (RoutePack paper, section 4.1.2; spec 1.7).
//
// Under a tight cap most pairs of items cannot be swapped: about nine in ten
// uniform ones in the fewest rows. But a swap fits if and only if the cell of
// the smaller item has room for the larger, so the smaller is drawn first and
// its partner from the items, in order of occupancy, up to that room; a
// relocation draws the target cell first and then an item it has room for.
// Nearly every draw fits, none is repeated.
//
// With probability `guided` the smaller item comes from a costly row-shard (the
// costlier of two drawn), the partner or target from a cheap one (the cheaper
// of two drawn); and in proportion to attention's share of the cost, an item
// of the cell that holds the others up is swapped with a somewhat smaller one
// instead. Else all is uniform.

#ifndef ROUTEPACK_PLANNER_PROPOSAL_H_
#define ROUTEPACK_PLANNER_PROPOSAL_H_

#include <cstdint>

#include "planner/chain.h"
#include "planner/counter_random.h"
#include "planner/search_space.h"

namespace routepack {

// Numbers of one chain and level, in the order of their use.
class DrawStream {
 public:
  explicit DrawStream(const CounterRandom& random) : random_(random) {}

  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>(random_.BelowAt(next_++, bound));
  }
  // In [0, 1).
  double Uniform() { return random_.UniformAt(next_++); }
  // -ln of a uniform number: mean 1.
  double Exponential();

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

struct ProposalOptions {
  double guided = 0.8;
  double relocation = 0.2;  // rho
};

// A move that fits, or false. O(log N) but for stragglers, which take up to
// four draws.
bool Propose(const SearchSpace& space, const Chain& chain,
             const ProposalOptions& options, DrawStream& draws, Move* move);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_PROPOSAL_H_
