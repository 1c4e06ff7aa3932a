// What it costs to move experts (spec 1.8 and 3.1).
//
// An expert is some kinds of state. Replicated kinds (BF16 weights, scales) are
// whole on rank p of every EDP shard g; lane-owned kinds (master weights,
// moments) are there once, cut into the ranges of the EDP lanes. Moving an
// expert from slot u = (p, h) to slot v = (p', h') of a layer takes two steps:
//   1. where p' is another rank: in each shard, (g, p) sends what it holds, all
//      of a replicated kind and the lane's part of an owned one, to (g, p');
//   2. elements whose lane is a in slot h and b in slot h' go from (a, p') to
//      (b, p'). So a slot change within a rank costs owned state, too.
// A byte costs 1 inside a node, `inter_node_cost` between nodes, nothing on its
// own GPU. Costs are integers in kCostUnit-ths; see MovementModel::Create for
// the bound.
//
// MoveCost takes O(G) at worst and a few table look-ups in general. Models are
// immutable and safe to share between threads.
//
//   MovementSpec spec = DescribeExperts(3 * 7168 * 2048);
//   spec.num_layers = 58; spec.num_ranks = 64; ...
//   spec.node_of_rank = NodesOfConsecutiveRanks(2, 64, 1, 8);
//   absl::StatusOr<MovementModel> model = MovementModel::Create(spec);

#ifndef ROUTEPACK_PLANNER_MOVEMENT_H_
#define ROUTEPACK_PLANNER_MOVEMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/lane_layout.h"

namespace routepack {

struct StateKind {
  std::string name;
  uint64_t bytes = 0;       // of an expert
  bool lane_owned = false;  // bytes are then a multiple of its elements
};

// Sizes are those of one GPU: with tensor-parallel experts, of one GPU's part
// of an expert. The `gpus_per_rank` GPUs of an EP rank move alike.
struct MovementSpec {
  uint32_t num_layers = 0;      // L
  uint32_t num_shards = 1;      // G, also the number of EDP lanes
  uint32_t num_ranks = 0;       // P
  uint32_t slots_per_rank = 0;  // H
  uint32_t gpus_per_rank = 1;   // ETP
  // Pipeline stage of each layer, [L]; none: one stage. Ranks of different
  // stages are different GPUs, their nodes alike.
  std::vector<uint32_t> stage_of_layer;
  std::vector<uint32_t> node_of_rank;  // [g][p]; none: by ranks_per_node
  // Consecutive global ranks a node, see NodesOfConsecutiveRanks; 0: all in one
  // node.
  uint32_t ranks_per_node = 0;

  std::vector<StateKind> kinds;  // none: one replicated kind of 1 byte
  // Elements of an expert and who owns them; needed by lane-owned kinds.
  GradientBuffer buffer;
  std::vector<LaneRange> lane_ranges;  // instead of the buffer's layout

  double inter_node_cost = 3;  // lambda, at most 1024
  // Bytes a second, each way; 0: not known, no times are reported.
  double intra_node_bandwidth = 300e9;  // of a GPU
  double inter_node_bandwidth = 50e9;   // of a GPU
  double node_bandwidth = 0;  // of a node's uplink; 0: never the bottleneck
  // Compute time of one routed assignment on a rank; 0: not known.
  double seconds_per_assignment = 0;
};

// A spec with the state of experts of so many parameters in mixed precision
// (BF16 weights 2 bytes, FP32 master 4, exp_avg 4, exp_avg_sq 4; fc1 twice as
// large as fc2), and the time for 6 FLOP a parameter. The rest is left to the
// caller.
inline constexpr double kFlopPerSecond = 4e14;  // of a GPU in expert layers
MovementSpec DescribeExperts(uint64_t parameters,
                             double flop_per_second = kFlopPerSecond);

// [g][p] nodes of global ranks in Megatron's order (etp, ep, then shards),
// `ranks_per_node` consecutive ones a node.
std::vector<uint32_t> NodesOfConsecutiveRanks(uint32_t num_shards,
                                              uint32_t num_ranks,
                                              uint32_t gpus_per_rank,
                                              uint32_t ranks_per_node);

// Bytes of one kind that one GPU sends to another.
struct Flow {
  uint32_t kind = 0;
  uint32_t from_shard = 0, from_rank = 0;
  uint32_t to_shard = 0, to_rank = 0;
  uint64_t bytes = 0;
};

class MovementModel {
 public:
  static constexpr int64_t kCostUnit = 16;

  // INVALID_ARGUMENT names `field`.kinds[j].bytes, .node_of_rank, ... that is
  // out of range, or when moving every expert of all layers across nodes would
  // cost 2^61 or more.
  static absl::StatusOr<MovementModel> Create(
      MovementSpec spec, std::string_view field = "movement");

  const MovementSpec& spec() const { return spec_; }
  uint32_t num_experts() const {  // E
    return spec_.num_ranks * spec_.slots_per_rank;
  }
  uint32_t stage_of_layer(uint32_t l) const {
    return spec_.stage_of_layer.empty() ? 0 : spec_.stage_of_layer[l];
  }
  uint32_t num_stages() const { return num_stages_; }
  uint32_t node(uint32_t g, uint32_t p) const {
    return nodes_[size_t{p} * spec_.num_shards + g];
  }

  // Weighted bytes, times kCostUnit, of moving an expert between two slots.
  int64_t MoveCost(uint32_t l, uint32_t from_slot, uint32_t to_slot) const;
  // Step 1 and step 2 of it: to another rank, and from a slot h of any rank to
  // slot h' of rank p.
  int64_t SendCost(uint32_t l, uint32_t from_slot, uint32_t to_rank) const;
  int64_t RepartitionCost(uint32_t l, uint32_t p, uint32_t from_h,
                          uint32_t to_h) const;
  // Whether step 2 ever costs anything in this layer.
  bool SlotsDiffer(uint32_t l) const { return slots_differ_[l] != 0; }

  // Calls f(const Flow&) for everything that a move sends.
  template <typename F>
  void ForEachFlow(uint32_t l, uint32_t from_slot, uint32_t to_slot, F f) const;

 private:
  explicit MovementModel(MovementSpec spec) : spec_(std::move(spec)) {}
  void Prepare();
  void PrepareClasses();
  int64_t ComputeRepartition(uint32_t l, uint32_t p, uint32_t from_h,
                             uint32_t to_h) const;
  uint32_t SameNodeLanes(uint32_t p, uint32_t q) const;
  uint32_t CountSameNode(uint32_t p, uint32_t q) const;

  MovementSpec spec_;
  LaneLayout lanes_;
  uint32_t num_stages_ = 1;
  int64_t inter_cost_ = 0;               // kCostUnit lambda
  uint64_t replicated_bytes_ = 0;        // of an expert, a shard
  uint64_t owned_bytes_ = 0;             // of an element
  std::vector<uint64_t> element_bytes_;  // [kind]; 0: replicated
  std::vector<uint32_t> nodes_;          // [p][g]
  std::vector<uint32_t> same_node_;      // [p][q] lanes; empty: too many
  // Ranks whose EDP groups spread over nodes in the same way are a class.
  std::vector<uint32_t> class_of_rank_;  // [p]
  std::vector<uint32_t> class_member_;   // [class] one of its ranks
  std::vector<char> slots_differ_;       // [l]
  std::vector<int64_t> repartition_;     // [l][class][h][h']; may be empty
};

template <typename F>
void MovementModel::ForEachFlow(uint32_t l, uint32_t from_slot,
                                uint32_t to_slot, F f) const {
  const uint32_t p = from_slot / spec_.slots_per_rank;
  const uint32_t q = to_slot / spec_.slots_per_rank;
  const uint32_t from_h = from_slot % spec_.slots_per_rank;
  const uint32_t to_h = to_slot % spec_.slots_per_rank;
  for (uint32_t kind = 0; kind < spec_.kinds.size(); ++kind) {
    const uint64_t element_bytes = element_bytes_[kind];
    if (element_bytes == 0) {
      for (uint32_t g = 0; p != q && g < spec_.num_shards; ++g) {
        f(Flow{kind, g, p, g, q, spec_.kinds[kind].bytes});
      }
      continue;
    }
    if (p != q) {
      for (const LaneLayout::Share& share : lanes_.shares(l, from_h)) {
        f(Flow{kind, share.lane, p, share.lane, q,
               share.elements * element_bytes});
      }
    }
    lanes_.ForEachCrossing(
        l, from_h, to_h, [&](uint32_t a, uint32_t b, uint64_t elements) {
          f(Flow{kind, a, q, b, q, elements * element_bytes});
        });
  }
}

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_MOVEMENT_H_
