// In which order experts travel (spec 3.5).
//
// Moves between ranks are made in rounds. In a round a rank sends at most k
// experts and receives at most k. All sends of a round are read before anything
// that it receives is written to a live slot, and no slot is overwritten before
// its expert has left:
//   - an expert whose slot was free before the round is received into it;
//   - otherwise it is received into a staging buffer of its rank, and copied
//     into the slot at the end of the round after which that is free.
// Slot changes within a rank are copies at the end of the round that frees
// their slot; cycles of them run through a staging buffer after the last round.
// No rank ever uses more than `max_staging` buffers of one expert.
//
// Rounds are the colours of the multigraph of rank pairs, grouped by k:
// ceil(degree / k), the minimum, for all layers of a stage together if the
// staging they need is within the bound; if it is not, for each half of the
// layers in turn, and so on. A single layer that still needs too much, or any
// transfer with a limit of uplinks, is scheduled greedily, move by move within
// the bounds, in more rounds.
//
// Pipeline stages are different GPUs: each has its own rounds. O(m log L) for m
// moves besides the colouring (edge_coloring.h). Pure, deterministic.

#ifndef ROUTEPACK_PLANNER_TRANSFER_H_
#define ROUTEPACK_PLANNER_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/placement.h"

namespace routepack {

struct TransferOptions {
  uint32_t experts_per_round = 1;  // k, at least 1
  uint32_t max_staging = 4;        // experts a rank, at least 1
  // Experts that leave, and that enter, a node in a round, the copies of all
  // shards counted; one move alone may be more. 0: no limit.
  uint32_t max_uplink = 0;
  // For the uplinks: nodes of ranks, [g][p].
  std::vector<uint32_t> node_of_rank;
};

inline constexpr uint32_t kStagingSlot = ~uint32_t{0};

struct SlotMove {
  uint32_t layer = 0;
  uint32_t expert = 0;
  uint32_t from_slot = 0;
  uint32_t to_slot = 0;
  // Of a send: whether it is received into the slot, not into staging.
  bool direct = false;

  friend bool operator==(const SlotMove&, const SlotMove&) = default;
};

struct StageSchedule {
  // Sends between ranks, by round.
  std::vector<SlotMove> sends;
  std::vector<size_t> send_begin;  // [rounds + 1]
  // Copies inside ranks, in order, after each round; the last group is made
  // after all of them. One of the slots may be kStagingSlot.
  std::vector<SlotMove> copies;
  std::vector<size_t> copy_begin;  // [rounds + 2]
  uint32_t min_rounds = 0;         // that any schedule needs
  uint32_t peak_staging = 0;       // buffers of the rank that uses most

  uint32_t rounds() const {
    return static_cast<uint32_t>(send_begin.size() - 1);
  }
  std::span<const SlotMove> SendsOf(uint32_t round) const {
    return std::span(sends).subspan(send_begin[round],
                                    send_begin[round + 1] - send_begin[round]);
  }
  // `round` may be rounds().
  std::span<const SlotMove> CopiesAfter(uint32_t round) const {
    return std::span(copies).subspan(copy_begin[round],
                                     copy_begin[round + 1] - copy_begin[round]);
  }
};

// One schedule a stage. `stage_of_layer` [L]; empty: all layers are one stage.
// The placements have the same sizes.
std::vector<StageSchedule> ScheduleTransfer(
    const Placement& from, const Placement& to,
    std::span<const uint32_t> stage_of_layer, const TransferOptions& options);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_TRANSFER_H_
