// Seeded synthetic windows: what the planner is tuned, tested and measured on.
//
// A WorkloadSpec says everything; the same spec gives the same window on every
// machine, sample by sample, whatever the number of threads. Random bits come
// from counters (planner/counter_random.h), counts are rounded in integers, and
// the code is compiled without floating-point contraction; only exp, log and
// pow of the C library enter (popularity tables and lengths), which differ by
// at most the last bit between libraries.
//
// Counts are drawn per sample and layer, not per token: the expected counts
// k t p_e, normal noise of variance `noise` k t p_e, then systematic rounding
// with a random start, so that a layer's counts add up to exactly k t and none
// exceeds t. O(L E) a sample; the preset xl (94 million counts) takes seconds.
//
//   auto spec = WorkloadPreset("flash");
//   spec->seed = 1;
//   absl::StatusOr<Workload> workload = Workload::Create(*spec);
//   WriteWindow("flash.rpw", workload->header(), workload->Source());

#ifndef ROUTEPACK_CLIENT_WORKLOAD_H_
#define ROUTEPACK_CLIENT_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/count_encoding.h"
#include "client/routing_model.h"
#include "client/window_file.h"
#include "planner/topology.h"
#include "planner/window.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// Whose routing is uneven, and how. All but kTopics start from uniform
// popularity and take the names of a public list of imbalance workloads
// (NVIDIA/Megatron-LM, issue 7488).
enum class Imbalance {
  kTopics,                // prompt groups mix topics of Zipf popularity
  kBalanced,              // every expert alike
  kHotExperts,            // hot_experts random experts per layer get hot_share
  kHotRank,               // the experts of one rank (identity placement) do
  kSpreadHotExperts,      // one expert of every rank does
  kRaggedSources,         // routing alike, lengths long-tailed
  kEmptyExpertsAndRanks,  // one rank and empty_share of the rest get nothing
  kRotatingHotspot,       // hot experts move on, 8 times in a window
  kBursts,                // burst_share of the groups go to hot experts only
};

enum class LengthKind {
  kConstant,   // mean
  kLognormal,  // sigma
  kBimodal,    // long_share of the samples are long_ratio times as long
  kLongTail,   // Pareto with exponent tail
};

struct LengthSpec {
  LengthKind kind = LengthKind::kLognormal;
  double mean = 1000;       // met, after clipping, to within a token
  double sigma = 0.6;       // of the logarithm; bimodal: a third of it per mode
  double long_share = 0.2;  // in (0, 1)
  double long_ratio = 6;    // above 1
  double tail = 1.8;        // above 1; smaller is heavier
  uint32_t min_tokens = 16;
  uint32_t max_tokens = 0;  // 0: the token cap
};

struct WorkloadSpec {
  std::string name = "custom";  // becomes part of the key's job_id
  uint64_t seed = 0;
  // Position in a sequence of windows; each has samples of its own.
  uint64_t step = 0;
  // Total-variation distance of the expected routing of a layer between
  // consecutive steps, in [0, 1).
  double drift = 0;

  uint32_t num_samples = 512;       // N
  uint32_t samples_per_prompt = 8;  // consecutive samples form a group
  uint32_t num_layers = 20;         // L
  uint32_t num_experts = 128;       // E
  uint32_t top_k = 8;
  uint32_t token_cap = 8192;  // C
  uint32_t length_multiple = 1;
  MeshSizes mesh = {.ep = 8, .dp = 8};
  v1::ModelShape model;  // gives the attention stages; empty: none
  LengthSpec lengths;

  Imbalance imbalance = Imbalance::kTopics;
  // With these defaults length-only packing after LPT is about as efficient as
  // RoutePack's authors report: tiny 0.90 to 0.93 (0.891), flash 0.83 to 0.87
  // (0.844).
  uint32_t topics = 16;        // T, at least 1
  double zipf = 1.2;           // exponent; 0 is uniform
  double topic_share = 0.95;   // of a topic's own popularity, not common to all
  double hot_share = 0.3;      // of all assignments; at most hot experts / k
  uint32_t hot_experts = 4;    // kHotExperts, kRotatingHotspot, kBursts
  double empty_share = 0.25;   // of the experts that are not on the empty rank
  double burst_share = 0.125;  // of the prompt groups
  // Variance of a count over its expectation, 1 as if tokens chose
  // independently. (Samples of one prompt in recorded GSM8K routing: 0.8.)
  double noise = 1;
  // Routing of the last token is missing, as rollout engines leave it out:
  // counts add up to k (t - 1).
  bool skip_last_token = false;
};

// "tiny", "flash", "long" or "xl"; what model each assumes is said in
// workload_presets.cc. INVALID_ARGUMENT lists the names.
absl::StatusOr<WorkloadSpec> WorkloadPreset(std::string_view name);
std::span<const std::string_view> WorkloadPresetNames();

// Names as used on the command line: "hot-experts", "long-tail", ...
absl::StatusOr<Imbalance> ParseImbalance(std::string_view name);
absl::StatusOr<LengthKind> ParseLengthKind(std::string_view name);
std::span<const std::string_view> ImbalanceNames();
std::span<const std::string_view> LengthKindNames();

// One window. Immutable; all methods may be called from several threads.
class Workload {
 public:
  // INVALID_ARGUMENT names the parameter that is out of range or cannot be
  // met; UNIMPLEMENTED as Topology::FromMesh.
  static absl::StatusOr<Workload> Create(const WorkloadSpec& spec);

  const WorkloadSpec& spec() const { return spec_; }
  const RoutingModel& routing() const { return routing_; }
  const v1::WindowHeader& header() const { return header_; }
  uint32_t num_samples() const { return spec_.num_samples; }

  SampleInfo info(uint32_t i) const;
  // Counts of sample i into `counts` [L, E].
  void Counts(uint32_t i, std::span<uint32_t> counts) const;
  // The samples in order, generated ahead in parallel. The workload must
  // outlive it.
  SampleSource Source(CountsEncoding encoding = CountsEncoding::kCompact) const;
  // The decoded window, without messages in between.
  absl::StatusOr<Window> MakeWindow() const;

 private:
  Workload(const WorkloadSpec& spec, RoutingModel routing);

  WorkloadSpec spec_;
  RoutingModel routing_;
  v1::WindowHeader header_;
  std::vector<uint32_t> tokens_;  // [N]
};

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_WORKLOAD_H_
