// Attention coefficients, given or derived from a model's shape (RoutePack
// paper, equations 2 and 12).
//
// The unit of cost is one routed assignment: the work of one token in one
// expert of one MoE layer on one GPU, 3 hidden moe_intermediate / etp
// multiply-accumulates (gate, up and down projection), divided by C. A stage
// whose layers together cost x units per token has alpha = x; one that costs y
// units per token pair (i, j), counted t^2 per sample, has beta = y C.
//
// Per layer, in multiply-accumulates per token and per t^2, before the division
// by tp cp (heads are split over TP, tokens over CP); h = hidden size, n heads,
// n_kv key-value heads, d and d_v widths of a query and a value head, d_r rope
// width, q_r and kv_r compression ranks:
//   FULL     h (n d + n_kv d + n_kv d_v) + n d_v h      n (d + d_v) / 2
//   MLA      q: h n (d + d_r), or h q_r + q_r n (d + d_r) when compressed;
//            kv: h (kv_r + d_r) + kv_r n (d + d_v); out: n d_v h
//                                                       n (d + d_r + d_v) / 2
//   LINEAR   as FULL, plus 2 n d d_v to write and read the state      0
//   SLIDING  as FULL, plus n (d + d_v) window                         0
// The halves are causal masking. Shared experts and dense feed-forward layers
// run per DP slot too, 3 h times their width per token, and form a stage
// "dense" without pair term. Choices: the backward pass costs the same multiple
// of every forward term; MLA's down-projections are split over TP, as with
// sequence parallelism; gates, chunking and kernel efficiency are left out.
// Calibrated coefficients are better when known.
//
// Example: Qwen3-30B-A3B (h 2048, n 32, n_kv 4, d 128, experts of 768, 48
// layers), C 8192, no TP or CP: alpha = 48 * 4 = 192, beta = 341.3.

#ifndef ROUTEPACK_PLANNER_ATTENTION_H_
#define ROUTEPACK_PLANNER_ATTENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace routepack {

// Stage type s: a cell costs alpha sum(t) / C + beta sum(t^2) / C^2.
struct AttentionStage {
  std::string name;
  double alpha = 0;  // >= 0, finite
  double beta = 0;   // >= 0, finite

  friend bool operator==(const AttentionStage&,
                         const AttentionStage&) = default;
};

enum class AttentionKind { kFull, kMla, kLinear, kSlidingWindow };

// Layers that share one kind of attention. Widths are per head, in elements.
struct AttentionLayers {
  std::string name;
  AttentionKind kind = AttentionKind::kFull;
  uint32_t layers = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;      // 0: num_heads
  uint32_t qk_head_dim = 0;       // MLA: without the rope part
  uint32_t v_head_dim = 0;        // 0: qk_head_dim
  uint32_t qk_rope_head_dim = 0;  // MLA
  uint32_t q_lora_rank = 0;       // MLA; 0: not compressed
  uint32_t kv_lora_rank = 0;      // MLA
  uint32_t window = 0;            // sliding window, tokens
};

struct ModelShape {
  uint32_t hidden_size = 0;
  uint32_t moe_intermediate_size = 0;
  std::vector<AttentionLayers> attention;
  uint32_t shared_expert_intermediate_size = 0;  // sum over shared experts
  uint32_t num_dense_layers = 0;
  uint32_t dense_intermediate_size = 0;
  uint32_t num_moe_layers = 0;  // layers with shared experts
  uint32_t tp = 1;
  uint32_t cp = 1;
  uint32_t etp = 1;
};

// One stage per entry of shape.attention, then "dense" if it costs anything.
// INVALID_ARGUMENT names the field below `header.attention.model` that is
// missing or zero.
absl::StatusOr<std::vector<AttentionStage>> DeriveAttention(
    const ModelShape& shape, uint32_t token_cap);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_ATTENTION_H_
