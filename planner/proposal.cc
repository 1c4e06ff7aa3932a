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

// The cell that holds the others up in a stage, each stage drawn in proportion
// to its cost.
uint32_t AttentionStraggler(const SearchSpace& space, const Chain& chain,
                            uint32_t row_shard, DrawStream& draws) {
  double left =
      draws.Uniform() * static_cast<double>(chain.attention(row_shard));
  size_t stage = 0;
  while (stage + 1 < space.num_stages()) {
    left -= static_cast<double>(chain.stage_cost(row_shard, stage));
    if (left < 0) break;
    ++stage;
  }
  return chain.slowest_cell(row_shard, stage);
}

// Number of occupancies that are at most `most`: binary search without
// branches, which would be mispredicted half of the time.
uint32_t CountUpTo(const SearchSpace& space, uint32_t most) {
  const uint32_t* first = space.occupancies.data();
  auto size = static_cast<uint32_t>(space.occupancies.size());
  while (size > 1) {
    const uint32_t half = size / 2;
    first += first[half - 1] <= most ? half : 0;
    size -= half;
  }
  return static_cast<uint32_t>(first - space.occupancies.data()) +
         (*first <= most ? 1 : 0);
}

uint32_t Room(const SearchSpace& space, const Chain& chain, uint32_t cell) {
  return space.problem.token_cap - chain.occupancy(cell);
}

int64_t CostAt(const SearchSpace& space, const Chain& chain, uint32_t cell) {
  return chain.row_cost(space.row_shard_of_cell[cell]);
}

uint32_t CheaperCell(const SearchSpace& space, const Chain& chain,
                     DrawStream& draws) {
  const uint32_t a = draws.Below(space.cells);
  const uint32_t b = draws.Below(space.cells);
  return CostAt(space, chain, a) <= CostAt(space, chain, b) ? a : b;
}

// The target first, so that only items are drawn that it has room for.
bool ProposeRelocation(const SearchSpace& space, const Chain& chain,
                       bool guided, DrawStream& draws, Move* move) {
  move->to =
      guided ? CheaperCell(space, chain, draws) : draws.Below(space.cells);
  const uint32_t fitting = CountUpTo(space, Room(space, chain, move->to));
  if (fitting == 0) return false;
  move->item = space.by_occupancy[draws.Below(fitting)];
  move->from = chain.cell_of(move->item);
  move->back = chain.nothing();
  return chain.Fits(*move);
}

// Swaps `item` with one that is at least as large (later in the order) and that
// its cell has room for. Every swap that fits has such a smaller item.
bool ProposeSwap(const SearchSpace& space, const Chain& chain, uint32_t item,
                 bool guided, DrawStream& draws, Move* move) {
  move->item = item;
  move->from = chain.cell_of(item);
  const uint32_t place = space.place[item];
  const uint32_t end = CountUpTo(
      space, space.occupancies[place] + Room(space, chain, move->from));
  const uint32_t begin = place + 1;
  if (begin >= end) return false;
  const auto partner = [&] {
    return space.by_occupancy[begin + draws.Below(end - begin)];
  };
  move->back = partner();
  if (guided) {
    const uint32_t other = partner();
    if (CostAt(space, chain, chain.cell_of(other)) <
        CostAt(space, chain, chain.cell_of(move->back))) {
      move->back = other;
    }
  }
  move->to = chain.cell_of(move->back);
  return move->from != move->to;
}

// Swaps an item of the cell that holds attention up with any smaller one whose
// cell has room for it.
bool ProposeRelief(const SearchSpace& space, const Chain& chain, uint32_t item,
                   DrawStream& draws, Move* move) {
  move->item = item;
  move->from = chain.cell_of(item);
  const uint32_t place = space.place[item];
  const uint32_t reach =
      std::min(place, space.problem.num_items() / kReach + 1);
  for (int k = 0; k < kStragglerDraws && reach > 0; ++k) {
    move->back = space.by_occupancy[place - 1 - draws.Below(reach)];
    move->to = chain.cell_of(move->back);
    if (chain.Fits(*move)) return true;
  }
  return false;
}

bool ProposeGuidedSwap(const SearchSpace& space, const Chain& chain,
                       DrawStream& draws, Move* move) {
  const uint32_t a = draws.Below(space.row_shards);
  const uint32_t b = draws.Below(space.row_shards);
  const uint32_t source = chain.row_cost(a) >= chain.row_cost(b) ? a : b;
  const double share = static_cast<double>(chain.attention(source)) /
                       static_cast<double>(chain.row_cost(source));
  if (draws.Uniform() < share) {
    const uint32_t cell = AttentionStraggler(space, chain, source, draws);
    return ProposeRelief(space, chain, AnyOf(chain.items_of(cell), draws),
                         draws, move);
  }
  const uint32_t cell = AnyOf(space.cells_of_row_shard[source], draws);
  return ProposeSwap(space, chain, AnyOf(chain.items_of(cell), draws), true,
                     draws, move);
}

}  // namespace

double DrawStream::Exponential() {
  // (0, 1]: a uniform number is a multiple of 2^-53.
  return -Log(1 - Uniform());
}

bool Propose(const SearchSpace& space, const Chain& chain,
             const ProposalOptions& options, DrawStream& draws, Move* move) {
  const bool guided = draws.Uniform() < options.guided;
  if (draws.Uniform() < options.relocation) {
    return ProposeRelocation(space, chain, guided, draws, move);
  }
  if (guided) return ProposeGuidedSwap(space, chain, draws, move);
  return ProposeSwap(space, chain, draws.Below(space.problem.num_items()),
                     false, draws, move);
}

}  // namespace routepack
