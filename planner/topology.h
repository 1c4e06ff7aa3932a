// Which DP slots share an EP communicator (spec: RoutePack paper, section
// 2.2 and equation 13).
//
// D DP slots are partitioned into G EDP shards; the slots of a shard send
// their routed tokens to the same P EP ranks, so expert load is summed inside
// a shard and attention is not. Immutable, safe to share between threads.
//
//   // 2 EP communicators of 8 ranks; slots 0-3 use the first, 4-7 the second.
//   auto topology = Topology::FromMesh({.tp = 2, .ep = 8, .dp = 8});

#ifndef ROUTEPACK_PLANNER_TOPOLOGY_H_
#define ROUTEPACK_PLANNER_TOPOLOGY_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace routepack {

// Megatron-style parallel sizes, all at least 1, in the order
// tp-cp-ep-dp-pp. The world has tp cp pp dp ranks.
struct MeshSizes {
  uint32_t tp = 1;   // tensor parallel, attention
  uint32_t cp = 1;   // context parallel
  uint32_t pp = 1;   // pipeline stages
  uint32_t ep = 1;   // expert parallel, P
  uint32_t etp = 1;  // tensor parallel, experts
  uint32_t dp = 1;   // data parallel, D
};

class Topology {
 public:
  static constexpr uint32_t kMaxSlots = 1 << 16;
  static constexpr uint32_t kMaxRanks = 1 << 14;
  static constexpr uint32_t kMaxDegree = 1 << 16;  // of tp, cp, pp and etp

  // P = ep, G = tp cp dp / (etp ep); shard g owns the m = etp ep / (tp cp)
  // consecutive slots from g m.
  // INVALID_ARGUMENT: a size is 0 or out of range, or a pipeline stage's
  // tp cp dp ranks do not divide into EP communicators of etp ep.
  // UNIMPLEMENTED: m is not a whole number, so that one slot's tokens span
  // several EP communicators and no EDP partition exists.
  static absl::StatusOr<Topology> FromMesh(const MeshSizes& mesh);

  // Shards stated slot by slot; none means one shard of all slots.
  // INVALID_ARGUMENT: sizes out of range, or the shards do not hold every slot
  // exactly once. `field` prefixes the paths of violations, which name
  // dp_slots, ep_ranks and shards[g].slots[j] below it.
  static absl::StatusOr<Topology> FromShards(
      uint32_t dp_slots, uint32_t ep_ranks,
      const std::vector<std::vector<uint32_t>>& shards,
      std::string_view field = "header.topology.shards");

  uint32_t num_slots() const {  // D
    return static_cast<uint32_t>(shard_of_slot_.size());
  }
  uint32_t num_ranks() const { return num_ranks_; }  // P
  uint32_t num_shards() const {                      // G
    return static_cast<uint32_t>(slots_of_shard_.size());
  }
  uint32_t shard_of_slot(uint32_t slot) const { return shard_of_slot_[slot]; }
  // Slots of a shard, ascending.
  std::span<const uint32_t> slots_of_shard(uint32_t shard) const {
    return slots_of_shard_[shard];
  }

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  Topology(uint32_t num_ranks, uint32_t num_slots,
           std::vector<std::vector<uint32_t>> slots_of_shard);

  uint32_t num_ranks_;
  std::vector<uint32_t> shard_of_slot_;                // [D]
  std::vector<std::vector<uint32_t>> slots_of_shard_;  // [G][slots]
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_TOPOLOGY_H_
