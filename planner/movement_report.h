// What a change of placements moves, how long that takes and when it has paid
// for itself (spec 3.1).
//
// Links are modelled without congestion inside the fabric: every GPU has a link
// inside its node and one to other nodes, each in both directions at once; a
// node may have an uplink that its GPUs share. The transfer takes as long as
// the busiest link: a lower bound, which rounds and small messages exceed. Time
// saved is that of the busiest rank of each layer: sum_l of the fall of
// max_p load, divided by the G shards over which a rank's load is spread.
//
// O(moves (kinds G + pieces)). Values; LinkLoads is for one thread at a time.

#ifndef ROUTEPACK_PLANNER_MOVEMENT_REPORT_H_
#define ROUTEPACK_PLANNER_MOVEMENT_REPORT_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/movement.h"
#include "planner/placement.h"

namespace routepack {

struct MovementReport {
  PlacementChange change;
  std::vector<uint64_t> kind_bytes;  // [kind] that leave their GPU
  uint64_t intra_node_bytes = 0;
  uint64_t inter_node_bytes = 0;
  double weighted_bytes = 0;     // intra + lambda inter
  uint64_t peak_sum_before = 0;  // sum_l max_p load
  uint64_t peak_sum_after = 0;
  // 0 when bandwidths or the time of an assignment are not known.
  double transfer_seconds = 0;
  double saved_seconds = 0;  // a step, negative when slower
  // Steps like this one until the transfer is paid for: 0 if nothing moves,
  // infinite if nothing is saved, 0 when times are not known.
  double break_even_steps = 0;
};

// `expert_loads` [L, E]: of the step that the new placement is for. The
// placements have the model's sizes.
MovementReport ReportMovement(const MovementModel& model, const Placement& from,
                              const Placement& to,
                              std::span<const uint64_t> expert_loads);

// Whether the model knows bandwidths and the time of an assignment.
bool KnowsTimes(const MovementModel& model);
// Time that a fall of sum_l max_p load by so much saves.
double SavedSeconds(const MovementModel& model, int64_t load);

// Bytes on every link, kept up to date move by move.
class LinkLoads {
 public:
  explicit LinkLoads(const MovementModel& model);

  // O(kinds G). Remove is for a move that was added.
  void Add(uint32_t l, uint32_t from_slot, uint32_t to_slot);
  void Remove(uint32_t l, uint32_t from_slot, uint32_t to_slot);
  // Of the busiest link. O(1) after Add, O(links) after Remove.
  double Seconds();

  std::span<const uint64_t> kind_bytes() const { return kind_bytes_; }
  uint64_t intra_node_bytes() const { return intra_node_bytes_; }
  uint64_t inter_node_bytes() const { return inter_node_bytes_; }

 private:
  // Bytes out and in of each link: GPUs' inside the node, GPUs' to other
  // nodes, nodes'.
  enum Tier { kIntra, kInter, kNode };
  void Change(uint32_t l, uint32_t from_slot, uint32_t to_slot, bool add);
  void Put(Tier tier, size_t link, bool in, uint64_t bytes, bool add);

  const MovementModel& model_;
  uint32_t num_nodes_ = 0;
  std::vector<uint32_t> node_index_;            // [g][p], dense
  std::array<std::vector<uint64_t>, 3> bytes_;  // [tier][link][out, in]
  std::array<uint64_t, 3> busiest_ = {};        // [tier]
  std::array<bool, 3> stale_ = {};              // [tier]
  std::vector<uint64_t> kind_bytes_;            // [kind]
  uint64_t intra_node_bytes_ = 0;
  uint64_t inter_node_bytes_ = 0;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_MOVEMENT_REPORT_H_
