#include "planner/proposal.h"

#include <algorithm>
#include <span>

#include "planner/search_math.h"

namespace routepack {
namespace {

// Tries to find a partner for the item that holds attention up.
constexpr int kStragglerDraws = 4;
// They are at most 1 / kReach of all items away in order of size.
constexpr uint32_t kReach = 8;

uint32_t AnyOf(std::span<const uint32_t> values, DrawStream& draws) {
  return values[draws.Below(static_cast<uint32_t>(values.size()))];
}

uint32_t Room(const SearchSpace& space, const Chain& chain, uint32_t cell) {
  return space.problem.token_cap - chain.occupancy(cell);
}

int64_t CostAt(const SearchSpace& space, const Chain& chain, uint32_t cell) {
  return chain.row_cost(space.row_shard_of_cell[cell]);
}

// A stage drawn in proportion to its cost.
size_t CostlyStage(const SearchSpace& space, const Chain& chain,
                   uint32_t row_shard, DrawStream& draws) {
  if (space.num_stages() == 1) return 0;
  constexpr uint32_t kParts = 1 << 16;
  double left = static_cast<double>(chain.attention(row_shard)) *
                draws.Below(kParts) / kParts;
  size_t stage = 0;
  while (stage + 1 < space.num_stages()) {
    left -= static_cast<double>(chain.stage_cost(row_shard, stage));
    if (left < 0) break;
    ++stage;
  }
  return stage;
}

}  // namespace

double DrawStream::Exponential() {
  // (0, 1]: a uniform number is a multiple of 2^-53.
  return -Log(1 - random_.UniformAt(next_++));
}

bool Proposer::Propose(const Chain& chain, DrawStream& draws, Move* move) {
  if (relocations_.Turn(options_.relocation)) {
    return ProposeRelocation(chain, guided_relocations_.Turn(options_.guided),
                             draws, move);
  }
  if (guided_swaps_.Turn(options_.guided)) {
    return ProposeGuidedSwap(chain, draws, move);
  }
  return ProposeSwap(chain, draws.Below(space_.problem.num_items()), false,
                     draws, move);
}

// The target first, so that only items are drawn that it has room for.
bool Proposer::ProposeRelocation(const Chain& chain, bool guided,
                                 DrawStream& draws, Move* move) const {
  const auto [a, b] = draws.Below(space_.cells, space_.cells);
  const bool second =
      guided && CostAt(space_, chain, b) < CostAt(space_, chain, a);
  move->to = second ? b : a;
  const uint32_t fitting = space_.ItemsUpTo(Room(space_, chain, move->to));
  if (fitting == 0) return false;
  move->item = space_.by_occupancy[draws.Below(fitting)];
  move->from = chain.cell_of(move->item);
  move->back = chain.nothing();
  return chain.Fits(*move);
}

bool Proposer::ProposeGuidedSwap(const Chain& chain, DrawStream& draws,
                                 Move* move) {
  const auto [a, b] = draws.Below(space_.row_shards, space_.row_shards);
  const uint32_t source = chain.row_cost(a) < chain.row_cost(b) ? b : a;
  if (reliefs_.Turn(static_cast<double>(chain.attention(source)) /
                    static_cast<double>(chain.row_cost(source)))) {
    return ProposeRelief(chain, source, draws, move);
  }
  const uint32_t cell = AnyOf(space_.cells_of(source), draws);
  return ProposeSwap(chain, AnyOf(chain.items_of(cell), draws), true, draws,
                     move);
}

// Swaps `item` with one that is at least as large (later in the order) and that
// its cell has room for. Every swap that fits has such a smaller item.
bool Proposer::ProposeSwap(const Chain& chain, uint32_t item, bool guided,
                           DrawStream& draws, Move* move) const {
  move->item = item;
  move->from = chain.cell_of(item);
  const uint32_t place = space_.place[item];
  const uint32_t end = space_.ItemsUpTo(uint64_t{space_.occupancies[place]} +
                                        Room(space_, chain, move->from));
  const uint32_t begin = place + 1;
  if (begin >= end) return false;
  const auto [first, second] = draws.Below(end - begin, end - begin);
  const uint32_t one = space_.by_occupancy[begin + first];
  const uint32_t other = space_.by_occupancy[begin + second];
  const uint32_t one_cell = chain.cell_of(one);
  const uint32_t other_cell = chain.cell_of(other);
  const bool take_other = guided && CostAt(space_, chain, other_cell) <
                                        CostAt(space_, chain, one_cell);
  move->back = take_other ? other : one;
  move->to = take_other ? other_cell : one_cell;
  return move->from != move->to;
}

// Swaps an item of the cell that holds attention up with any smaller one whose
// cell has room for it.
bool Proposer::ProposeRelief(const Chain& chain, uint32_t row_shard,
                             DrawStream& draws, Move* move) const {
  move->from = chain.slowest_cell(row_shard,
                                  CostlyStage(space_, chain, row_shard, draws));
  move->item = AnyOf(chain.items_of(move->from), draws);
  const uint32_t place = space_.place[move->item];
  const uint32_t reach =
      std::min(place, space_.problem.num_items() / kReach + 1);
  for (int k = 0; k < kStragglerDraws && reach > 0; ++k) {
    move->back = space_.by_occupancy[place - 1 - draws.Below(reach)];
    move->to = chain.cell_of(move->back);
    if (chain.Fits(*move)) return true;
  }
  return false;
}

}  // namespace routepack
