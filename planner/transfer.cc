#include "planner/transfer.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "oneapi/tbb/parallel_for.h"
#include "planner/edge_coloring.h"

namespace routepack {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
// Moves that the greedy schedule chooses a round from.
constexpr size_t kGreedyWindow = 1024;

// Moves of some layers. Slots of layer number j of them count from j E.
struct MoveSet {
  uint32_t num_experts = 0;
  uint32_t slots_per_rank = 0;
  uint32_t num_ranks = 0;
  std::vector<SlotMove> moves;
  std::vector<size_t> from;     // [move] slot
  std::vector<size_t> to;       // [move] slot
  std::vector<uint32_t> leave;  // [slot] move that leaves it
  std::vector<uint32_t> enter;  // [slot] move that enters it

  MoveSet(const Placement& before, const Placement& after,
          std::span<const uint32_t> layers)
      : num_experts(before.num_experts),
        slots_per_rank(before.slots_per_rank()),
        num_ranks(before.num_ranks),
        leave(layers.size() * num_experts, kNone),
        enter(layers.size() * num_experts, kNone) {
    for (size_t j = 0; j < layers.size(); ++j) {
      const size_t row = size_t{layers[j]} * num_experts;
      for (uint32_t e = 0; e < num_experts; ++e) {
        const uint32_t u = before.slot_of_expert[row + e];
        const uint32_t v = after.slot_of_expert[row + e];
        if (u == v) continue;
        const auto move = static_cast<uint32_t>(moves.size());
        moves.push_back({layers[j], e, u, v});
        from.push_back(j * num_experts + u);
        to.push_back(j * num_experts + v);
        leave[from.back()] = move;
        enter[to.back()] = move;
      }
    }
  }

  uint32_t source(uint32_t move) const {
    return moves[move].from_slot / slots_per_rank;
  }
  uint32_t target(uint32_t move) const {
    return moves[move].to_slot / slots_per_rank;
  }
  bool local(uint32_t move) const { return source(move) == target(move); }

  // The largest number of sends, or of receipts, of a rank.
  uint32_t Degree() const {
    std::vector<uint32_t> out(num_ranks, 0);
    std::vector<uint32_t> in(num_ranks, 0);
    uint32_t degree = 0;
    for (uint32_t move = 0; move < moves.size(); ++move) {
      if (local(move)) continue;
      degree = std::max({degree, ++out[source(move)], ++in[target(move)]});
    }
    return degree;
  }
};

using Rounds = std::vector<std::vector<uint32_t>>;  // moves of each round

// What happens to slots and staging buffers as rounds are made.
class Executor {
 public:
  explicit Executor(const MoveSet& set)
      : set_(set),
        free_(set.leave.size(), 0),
        parked_(set.moves.size(), 0),
        staged_(set.num_ranks, 0) {
    schedule_.send_begin.push_back(0);
    schedule_.copy_begin.push_back(0);
  }

  bool IsFree(uint32_t move) const { return free_[set_.to[move]] != 0; }
  uint32_t staged(uint32_t rank) const { return staged_[rank]; }
  uint32_t peak() const { return schedule_.peak_staging; }

  // A send of the round that is open.
  void Send(uint32_t move) {
    schedule_.sends.push_back(set_.moves[move]);
    schedule_.sends.back().direct = IsFree(move);
    sent_.push_back(move);
    if (IsFree(move)) {
      free_[set_.to[move]] = 0;
    } else {
      Stage(set_.target(move));
      parked_[move] = 1;
    }
  }

  void EndRound() {
    for (const uint32_t move : sent_) Release(set_.from[move]);
    sent_.clear();
    schedule_.send_begin.push_back(schedule_.sends.size());
    schedule_.copy_begin.push_back(schedule_.copies.size());
  }

  StageSchedule Finish() {
    std::vector<char> seen(set_.moves.size(), 0);
    for (uint32_t move = 0; move < set_.moves.size(); ++move) {
      if (!seen[move]) LocalCycle(move, seen);
    }
    schedule_.copy_begin.push_back(schedule_.copies.size());
    return std::move(schedule_);
  }

 private:
  void Stage(uint32_t rank) {
    schedule_.peak_staging = std::max(schedule_.peak_staging, ++staged_[rank]);
  }

  void Copy(uint32_t move, uint32_t from_slot, uint32_t to_slot) {
    const SlotMove& moved = set_.moves[move];
    schedule_.copies.push_back({moved.layer, moved.expert, from_slot, to_slot});
  }

  // The expert of a slot has left it: whoever waits in the rank moves in.
  void Release(size_t slot) {
    while (true) {
      const uint32_t move = set_.enter[slot];
      const SlotMove& next = set_.moves[move];
      if (set_.local(move)) {
        Copy(move, next.from_slot, next.to_slot);
        slot = set_.from[move];
        continue;
      }
      if (parked_[move]) {
        Copy(move, kStagingSlot, next.to_slot);
        parked_[move] = 0;
        --staged_[set_.target(move)];
      } else {
        free_[slot] = 1;
      }
      return;
    }
  }

  // Copies a cycle of moves inside a rank, if this is part of one.
  void LocalCycle(uint32_t first, std::vector<char>& seen) {
    std::vector<uint32_t> cycle;
    for (uint32_t move = first;;) {
      if (!set_.local(move)) return;
      seen[move] = 1;
      cycle.push_back(move);
      move = set_.enter[set_.from[move]];
      if (move == first) break;
    }
    // The first expert waits; each slot then takes the one that enters it.
    Stage(set_.target(first));
    Copy(first, set_.moves[first].from_slot, kStagingSlot);
    for (size_t k = 1; k < cycle.size(); ++k) {
      const SlotMove& move = set_.moves[cycle[k]];
      Copy(cycle[k], move.from_slot, move.to_slot);
    }
    Copy(first, kStagingSlot, set_.moves[first].to_slot);
    --staged_[set_.target(first)];
  }

  const MoveSet& set_;
  std::vector<char> free_;        // [slot] and waiting for a send
  std::vector<char> parked_;      // [move] received, its slot is taken
  std::vector<uint32_t> staged_;  // [rank]
  std::vector<uint32_t> sent_;
  StageSchedule schedule_;
};

// Least rounds; the staging is what it is.
uint32_t FewestRounds(uint32_t degree, uint32_t experts_per_round) {
  return degree == 0 ? 0 : (degree - 1) / experts_per_round + 1;
}

Rounds ColoredRounds(const MoveSet& set, uint32_t degree,
                     uint32_t experts_per_round) {
  EdgeColoring coloring(set.num_ranks, degree);
  std::vector<uint32_t> edge_of_move(set.moves.size(), kNone);
  std::vector<uint32_t> move_of_edge;
  const auto add = [&](uint32_t move, uint32_t wish) {
    coloring.Add(set.source(move), set.target(move), wish);
    edge_of_move[move] = static_cast<uint32_t>(move_of_edge.size());
    move_of_edge.push_back(move);
    return coloring.color(edge_of_move[move]);
  };
  // Around each cycle of slots, against the direction of the moves, so that an
  // expert comes in the round in which its slot is freed, or soon after.
  for (uint32_t first = 0; first < set.moves.size(); ++first) {
    if (set.local(first) || edge_of_move[first] != kNone) continue;
    uint32_t wish = 0;
    for (uint32_t move = first;;) {
      if (!set.local(move)) wish = add(move, wish);
      move = set.enter[set.from[move]];
      if (move == first) break;
    }
  }
  Rounds rounds(FewestRounds(degree, experts_per_round));
  for (uint32_t edge = 0; edge < move_of_edge.size(); ++edge) {
    rounds[coloring.color(edge) / experts_per_round].push_back(
        move_of_edge[edge]);
  }
  for (std::vector<uint32_t>& round : rounds) std::ranges::sort(round);
  return rounds;
}

// Experts that cross the uplinks of nodes in a round.
class Uplinks {
 public:
  Uplinks(const TransferOptions& options, uint32_t num_ranks)
      : limit_(options.max_uplink), ranks_(num_ranks) {
    if (limit_ == 0) return;
    std::map<uint32_t, uint32_t> index;
    for (const uint32_t node : options.node_of_rank) {
      const auto next = static_cast<uint32_t>(index.size());
      nodes_.push_back(index.try_emplace(node, next).first->second);
    }
    load_.resize(2 * index.size());
    more_.resize(2 * index.size(), 0);
  }

  void Clear() { std::ranges::fill(load_, 0); }

  // Adds a move to the round, if there is room for it.
  bool Take(uint32_t source, uint32_t target) {
    touched_.clear();
    for (size_t g = 0; g < nodes_.size(); g += ranks_) {
      const uint32_t from = nodes_[g + source];
      const uint32_t to = nodes_[g + target];
      if (from == to) continue;
      for (const uint32_t link : {2 * from, 2 * to + 1}) {
        if (more_[link]++ == 0) touched_.push_back(link);
      }
    }
    const bool fits = std::ranges::all_of(touched_, [&](uint32_t link) {
      return load_[link] == 0 || load_[link] + more_[link] <= limit_;
    });
    for (const uint32_t link : touched_) {
      if (fits) load_[link] += more_[link];
      more_[link] = 0;
    }
    return fits;
  }

 private:
  uint32_t limit_;
  uint32_t ranks_;
  std::vector<uint32_t> nodes_;    // [g][p], dense
  std::vector<uint32_t> load_;     // [node][out, in] of the round
  std::vector<uint32_t> more_;     // [node][out, in] of a move
  std::vector<uint32_t> touched_;  // links of the move
};

// Round by round what fits. A move into a free slot needs no staging, and when
// no slot is free no staging is in use, so that every round makes a move.
class GreedyScheduler {
 public:
  GreedyScheduler(const MoveSet& set, const TransferOptions& options)
      : set_(set),
        options_(options),
        executor_(set),
        uplinks_(options, set.num_ranks),
        left_{std::vector<uint32_t>(set.num_ranks, 0),
              std::vector<uint32_t>(set.num_ranks, 0)},
        chosen_(set.moves.size(), 0) {
    for (uint32_t move = 0; move < set.moves.size(); ++move) {
      if (set.local(move)) continue;
      pending_.push_back(move);
      ++left_[0][set.source(move)];
      ++left_[1][set.target(move)];
    }
  }

  Rounds Run() {
    Rounds rounds;
    while (!pending_.empty()) {
      rounds.emplace_back();
      MakeRound(rounds.back());
      assert(!rounds.back().empty());
      std::erase_if(pending_, [&](uint32_t move) { return chosen_[move]; });
      executor_.EndRound();
    }
    return rounds;
  }

 private:
  // Moves that may be made, those of the busiest ranks first.
  std::vector<uint32_t> Window() const {
    const size_t size = std::min(
        pending_.size(), std::max(kGreedyWindow, size_t{4} * set_.num_ranks));
    std::vector<uint32_t> window(
        pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(size));
    std::ranges::stable_sort(window, std::ranges::greater{},
                             [&](uint32_t move) {
                               return std::max(left_[0][set_.source(move)],
                                               left_[1][set_.target(move)]);
                             });
    return window;
  }

  void MakeRound(std::vector<uint32_t>& round) {
    uplinks_.Clear();
    used_[0].assign(set_.num_ranks, 0);
    used_[1].assign(set_.num_ranks, 0);
    const std::vector<uint32_t> window = Window();
    // Into free slots; where the expert of the slot leaves in this round; and
    // then whatever there is staging for.
    for (const uint32_t move : window) {
      if (executor_.IsFree(move)) Try(move, round);
    }
    for (const uint32_t move : window) {
      const uint32_t occupant = set_.leave[set_.to[move]];
      const bool leaves = chosen_[occupant] != 0;
      if (leaves && !chosen_[move]) Try(move, round);
    }
    for (const uint32_t move : window) {
      if (!chosen_[move]) Try(move, round);
    }
    if (!round.empty()) return;
    // Slots that are free wait for moves beyond the window.
    for (const uint32_t move : pending_) Try(move, round);
  }

  void Try(uint32_t move, std::vector<uint32_t>& round) {
    const uint32_t p = set_.source(move);
    const uint32_t q = set_.target(move);
    if (used_[0][p] == options_.experts_per_round ||
        used_[1][q] == options_.experts_per_round) {
      return;
    }
    if (!executor_.IsFree(move) &&
        executor_.staged(q) >= options_.max_staging) {
      return;
    }
    if (!uplinks_.Take(p, q)) return;
    ++used_[0][p];
    ++used_[1][q];
    --left_[0][p];
    --left_[1][q];
    chosen_[move] = 1;
    executor_.Send(move);
    round.push_back(move);
  }

  const MoveSet& set_;
  const TransferOptions& options_;
  Executor executor_;
  Uplinks uplinks_;
  std::vector<uint32_t> left_[2];  // [out, in][rank] moves not made
  std::vector<uint32_t> used_[2];  // [out, in][rank] of this round
  std::vector<char> chosen_;       // [move]
  std::vector<uint32_t> pending_;
};

StageSchedule Execute(const MoveSet& set, const Rounds& rounds) {
  Executor executor(set);
  for (const std::vector<uint32_t>& round : rounds) {
    for (const uint32_t move : round) executor.Send(move);
    executor.EndRound();
  }
  return executor.Finish();
}

// Puts `tail` after a schedule of other layers.
void Append(StageSchedule&& tail, StageSchedule& schedule) {
  if (schedule.send_begin.size() <= 1) {
    // No rounds yet: what was copied after them comes after those of the tail.
    tail.copies.insert(tail.copies.end(), schedule.copies.begin(),
                       schedule.copies.end());
    tail.copy_begin.back() = tail.copies.size();
    tail.peak_staging = std::max(schedule.peak_staging, tail.peak_staging);
    schedule = std::move(tail);
    return;
  }
  // After the last round no expert is staged, so that the copies that come
  // after all of them may as well come with its own.
  schedule.copy_begin.erase(schedule.copy_begin.end() - 2);
  for (size_t r = 1; r < tail.send_begin.size(); ++r) {
    schedule.send_begin.push_back(schedule.sends.size() + tail.send_begin[r]);
  }
  for (size_t r = 1; r < tail.copy_begin.size(); ++r) {
    schedule.copy_begin.push_back(schedule.copies.size() + tail.copy_begin[r]);
  }
  schedule.sends.insert(schedule.sends.end(), tail.sends.begin(),
                        tail.sends.end());
  schedule.copies.insert(schedule.copies.end(), tail.copies.begin(),
                         tail.copies.end());
  schedule.peak_staging = std::max(schedule.peak_staging, tail.peak_staging);
}

void ScheduleLayers(const Placement& from, const Placement& to,
                    std::span<const uint32_t> layers,
                    const TransferOptions& options, StageSchedule& schedule) {
  const MoveSet set(from, to, layers);
  if (options.max_uplink == 0) {
    StageSchedule least = Execute(
        set, ColoredRounds(set, set.Degree(), options.experts_per_round));
    if (least.peak_staging <= options.max_staging) {
      return Append(std::move(least), schedule);
    }
    if (layers.size() > 1) {
      const size_t half = layers.size() / 2;
      ScheduleLayers(from, to, layers.first(half), options, schedule);
      return ScheduleLayers(from, to, layers.subspan(half), options, schedule);
    }
  }
  Append(Execute(set, GreedyScheduler(set, options).Run()), schedule);
}

}  // namespace

std::vector<StageSchedule> ScheduleTransfer(
    const Placement& from, const Placement& to,
    std::span<const uint32_t> stage_of_layer, const TransferOptions& options) {
  assert(from.slot_of_expert.size() == to.slot_of_expert.size());
  std::vector<std::vector<uint32_t>> layers(1);
  for (uint32_t l = 0; l < from.num_layers; ++l) {
    const uint32_t stage = stage_of_layer.empty() ? 0 : stage_of_layer[l];
    if (stage >= layers.size()) layers.resize(size_t{stage} + 1);
    layers[stage].push_back(l);
  }
  std::vector<StageSchedule> schedules(layers.size());
  tbb::parallel_for(size_t{0}, layers.size(), [&](size_t stage) {
    StageSchedule& schedule = schedules[stage];
    ScheduleLayers(from, to, layers[stage], options, schedule);
    const uint32_t degree = MoveSet(from, to, layers[stage]).Degree();
    schedule.min_rounds = FewestRounds(degree, options.experts_per_round);
  });
  return schedules;
}

}  // namespace routepack
