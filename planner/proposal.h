// Moves for a chain to try (RoutePack paper, section 4.1.2; spec 1.7).
//
// Under a tight cap most pairs of items cannot be swapped: about nine in ten
// uniform ones in the fewest rows. But a swap fits if and only if the cell of
// the smaller item has room for the larger, so the smaller is drawn first and
// its partner from the items, in order of occupancy, up to that room; a
// relocation draws the target cell first and then an item it has room for.
// Nearly every draw fits, none is repeated.
//
// A share `guided` of swaps takes the smaller item from a costly row-shard (the
// costlier of two drawn) and the partner from a cheap one (the cheaper of two
// drawn); and in proportion to attention's share of the cost, swaps an item of
// the cell that holds the others up with a somewhat smaller one instead. As
// many relocations go to the cheaper of two cells. Else all is uniform. These
// kinds of moves take turns as evenly as their shares allow instead of being
// drawn (choice): branches that alternate can be predicted, random ones cost as
// much as half of an evaluation.

#ifndef ROUTEPACK_PLANNER_PROPOSAL_H_
#define ROUTEPACK_PLANNER_PROPOSAL_H_

#include <cstdint>
#include <utility>

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
  // Two numbers of one draw, each below its bound.
  std::pair<uint32_t, uint32_t> Below(uint32_t first, uint32_t second) {
    const uint64_t word = random_.At(next_++);
    return {static_cast<uint32_t>(((word >> 32) * first) >> 32),
            static_cast<uint32_t>(((word & UINT32_MAX) * second) >> 32)};
  }
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

// An event that happens in a given share of its turns, as evenly as possible.
class EvenShare {
 public:
  bool Turn(double share) {
    sum_ += share;
    const bool now = sum_ >= 1;
    sum_ -= now ? 1 : 0;
    return now;
  }

 private:
  double sum_ = 0.5;
};

// `space` must outlive it.
class Proposer {
 public:
  Proposer(const SearchSpace& space, const ProposalOptions& options)
      : space_(space), options_(options) {}

  // A move that fits, or false. O(log N + D / G).
  bool Propose(const Chain& chain, DrawStream& draws, Move* move);

 private:
  bool ProposeRelocation(const Chain& chain, bool guided, DrawStream& draws,
                         Move* move) const;
  bool ProposeGuidedSwap(const Chain& chain, DrawStream& draws, Move* move);
  bool ProposeSwap(const Chain& chain, uint32_t item, bool guided,
                   DrawStream& draws, Move* move) const;
  bool ProposeRelief(const Chain& chain, uint32_t row_shard, DrawStream& draws,
                     Move* move) const;

  const SearchSpace& space_;
  ProposalOptions options_;
  EvenShare relocations_;
  EvenShare guided_relocations_;
  EvenShare guided_swaps_;
  EvenShare reliefs_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_PROPOSAL_H_
