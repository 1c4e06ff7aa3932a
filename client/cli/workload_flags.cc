#include "client/cli/workload_flags.h"

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"

ABSL_FLAG(std::string, preset, "tiny",
          "Sizes to start from: tiny, flash, long or xl.");
ABSL_FLAG(uint32_t, windows, 1,
          "Consecutive windows, steps --step and on; above 1, generate's "
          "--output is a folder.");
ABSL_FLAG(double, drift, 0,
          "Total-variation distance of the expected routing of a layer between "
          "consecutive steps, e.g. 0.05.");
ABSL_FLAG(std::string, shape, "topics",
          "Whose routing is uneven: topics, balanced, hot-experts, hot-rank, "
          "spread-hot, ragged-sources, empty, rotating-hotspot or bursts.");
// What a preset gives; empty leaves it.
ABSL_FLAG(std::optional<uint32_t>, samples, std::nullopt, "Samples, N.");
ABSL_FLAG(std::optional<uint32_t>, samples_per_prompt, std::nullopt,
          "Samples that share a prompt and its topics (default 8).");
ABSL_FLAG(std::optional<uint32_t>, moe_layers, std::nullopt, "MoE layers, L.");
ABSL_FLAG(std::optional<uint32_t>, experts, std::nullopt,
          "Experts per layer, E.");
ABSL_FLAG(std::optional<uint32_t>, top_k, std::nullopt,
          "Experts that each token is routed to.");
ABSL_FLAG(std::string, distribution, "",
          "Length distribution: constant, lognormal, bimodal or long-tail "
          "(default lognormal).");
ABSL_FLAG(std::optional<double>, mean_tokens, std::nullopt,
          "Mean length, met after clipping.");
ABSL_FLAG(std::optional<double>, sigma, std::nullopt,
          "Deviation of the logarithm of lengths; bimodal: a third of it in "
          "each mode.");
ABSL_FLAG(std::optional<double>, long_share, std::nullopt,
          "Bimodal: share of long samples (default 0.2).");
ABSL_FLAG(std::optional<double>, long_ratio, std::nullopt,
          "Bimodal: how much longer they are (default 6).");
ABSL_FLAG(std::optional<double>, tail, std::nullopt,
          "Long-tail: Pareto exponent, above 1 (default 1.8).");
ABSL_FLAG(std::optional<uint32_t>, min_tokens, std::nullopt,
          "Shortest sample (default 16).");
ABSL_FLAG(std::optional<uint32_t>, max_tokens, std::nullopt,
          "Longest sample (default: the token cap).");
ABSL_FLAG(std::optional<uint32_t>, topics, std::nullopt,
          "Topics that prompts mix (default 16).");
ABSL_FLAG(std::optional<double>, zipf, std::nullopt,
          "Zipf exponent of expert popularity (default 1.2).");
ABSL_FLAG(std::optional<double>, topic_share, std::nullopt,
          "Share of a topic's own popularity; the rest is common to all "
          "(default 0.95).");
ABSL_FLAG(std::optional<double>, hot_share, std::nullopt,
          "Share of all assignments that hot experts take (default 0.3).");
ABSL_FLAG(std::optional<uint32_t>, hot_experts, std::nullopt,
          "Hot experts per layer (default 4).");
ABSL_FLAG(std::optional<double>, empty_share, std::nullopt,
          "Share of unused experts outside the empty rank (default 0.25).");
ABSL_FLAG(std::optional<double>, burst_share, std::nullopt,
          "Share of prompts in bursts (default 0.125).");
ABSL_FLAG(std::optional<double>, noise, std::nullopt,
          "Variance of a count over its expectation (default 1).");
ABSL_FLAG(bool, skip_last_token, false,
          "Leave the routing of each sample's last token out, as rollout "
          "engines do.");

namespace routepack::cli {
namespace {

template <typename Flag, typename T>
void Override(const Flag& flag, T& value) {
  if (const auto given = absl::GetFlag(flag)) value = *given;
}

void ApplyRoutingFlags(WorkloadSpec& spec) {
  Override(FLAGS_topics, spec.topics);
  Override(FLAGS_zipf, spec.zipf);
  Override(FLAGS_topic_share, spec.topic_share);
  Override(FLAGS_hot_share, spec.hot_share);
  Override(FLAGS_hot_experts, spec.hot_experts);
  Override(FLAGS_empty_share, spec.empty_share);
  Override(FLAGS_burst_share, spec.burst_share);
  Override(FLAGS_noise, spec.noise);
  spec.skip_last_token = absl::GetFlag(FLAGS_skip_last_token);
  spec.drift = absl::GetFlag(FLAGS_drift);
}

void ApplyLengthFlags(LengthSpec& lengths) {
  Override(FLAGS_mean_tokens, lengths.mean);
  Override(FLAGS_sigma, lengths.sigma);
  Override(FLAGS_long_share, lengths.long_share);
  Override(FLAGS_long_ratio, lengths.long_ratio);
  Override(FLAGS_tail, lengths.tail);
  Override(FLAGS_min_tokens, lengths.min_tokens);
  Override(FLAGS_max_tokens, lengths.max_tokens);
}

// Takes what the flags shared with other commands do to a header over into
// the spec.
absl::Status ApplyHeaderFlags(WorkloadSpec& spec) {
  v1::WindowHeader header;
  header.set_num_layers(spec.num_layers);
  header.set_token_cap(spec.token_cap);
  header.set_length_multiple(spec.length_multiple);
  v1::MeshSizes& mesh = *header.mutable_topology()->mutable_mesh();
  mesh.set_tp(spec.mesh.tp);
  mesh.set_cp(spec.mesh.cp);
  mesh.set_pp(spec.mesh.pp);
  mesh.set_ep(spec.mesh.ep);
  mesh.set_etp(spec.mesh.etp);
  mesh.set_dp(spec.mesh.dp);
  *header.mutable_attention()->mutable_model() = spec.model;
  if (absl::Status s = ApplyWindowFlags(header); !s.ok()) return s;
  const v1::MeshSizes& used = header.topology().mesh();
  spec.mesh = {.tp = used.tp(),
               .cp = used.cp(),
               .pp = used.pp(),
               .ep = used.ep(),
               .etp = used.etp(),
               .dp = used.dp()};
  spec.token_cap = header.token_cap();
  spec.length_multiple = header.length_multiple();
  spec.model = header.attention().model();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkloadSpec> WorkloadFromFlags() {
  absl::StatusOr<WorkloadSpec> spec =
      WorkloadPreset(absl::GetFlag(FLAGS_preset));
  if (!spec.ok()) return UsageError(std::string(spec.status().message()));
  absl::StatusOr<Imbalance> imbalance =
      ParseImbalance(absl::GetFlag(FLAGS_shape));
  if (!imbalance.ok()) {
    return UsageError(std::string(imbalance.status().message()));
  }
  spec->imbalance = *imbalance;
  if (const std::string kind_name = absl::GetFlag(FLAGS_distribution);
      !kind_name.empty()) {
    absl::StatusOr<LengthKind> kind = ParseLengthKind(kind_name);
    if (!kind.ok()) return UsageError(std::string(kind.status().message()));
    spec->lengths.kind = *kind;
  }
  Override(FLAGS_samples, spec->num_samples);
  Override(FLAGS_samples_per_prompt, spec->samples_per_prompt);
  Override(FLAGS_moe_layers, spec->num_layers);
  Override(FLAGS_experts, spec->num_experts);
  Override(FLAGS_top_k, spec->top_k);
  ApplyLengthFlags(spec->lengths);
  ApplyRoutingFlags(*spec);
  spec->seed = absl::GetFlag(FLAGS_seed);
  spec->step = absl::GetFlag(FLAGS_step);
  if (absl::Status s = ApplyHeaderFlags(*spec); !s.ok()) return s;
  return spec;
}

std::vector<std::string> WorkloadFlags() {
  return {"preset",      "seed",        "step",       "windows",
          "drift",       "shape",       "samples",    "samples_per_prompt",
          "moe_layers",  "experts",     "top_k",      "distribution",
          "mean_tokens", "sigma",       "long_share", "long_ratio",
          "tail",        "min_tokens",  "max_tokens", "topics",
          "zipf",        "topic_share", "hot_share",  "hot_experts",
          "empty_share", "burst_share", "noise",      "skip_last_token"};
}

}  // namespace routepack::cli
