#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/window_file.h"
#include "client/workload.h"
#include "google/protobuf/struct.pb.h"

ABSL_FLAG(std::string, preset, "tiny",
          "Sizes to start from: tiny, flash, long or xl.");
ABSL_FLAG(uint32_t, windows, 1,
          "Consecutive windows, steps --step and on; above 1, --output is a "
          "folder.");
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

absl::StatusOr<WorkloadSpec> SpecFromFlags() {
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

// Where window number `w` of `windows` goes.
absl::StatusOr<std::string> OutputPath(const WorkloadSpec& spec,
                                       uint32_t windows) {
  std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) {
    return UsageError(
        "--output is required: a file, or a folder for several "
        "windows");
  }
  const bool folder = windows > 1 || absl::EndsWith(output, "/");
  if (!folder) return output;
  std::error_code error;
  std::filesystem::create_directories(output, error);
  if (error) {
    return absl::UnknownError(
        absl::StrCat(output, ": cannot create: ", error.message()));
  }
  if (!absl::EndsWith(output, "/")) output += '/';
  return absl::StrCat(output, spec.name, "-", spec.step, ".rpw");
}

struct Written {
  std::string path;
  uint64_t step = 0;
  uint32_t samples = 0;
  uint64_t tokens = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

absl::StatusOr<Written> WriteOne(const WorkloadSpec& spec, uint32_t windows) {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<std::string> path = OutputPath(spec, windows);
  if (!path.ok()) return path.status();
  absl::StatusOr<Workload> workload = Workload::Create(spec);
  if (!workload.ok()) return workload.status();
  v1::WindowHeader header = workload->header();
  if (FlagChanged("job"))
    header.mutable_key()->set_job_id(absl::GetFlag(FLAGS_job));
  if (FlagChanged("run"))
    header.mutable_key()->set_run_id(absl::GetFlag(FLAGS_run));
  if (absl::Status s = WriteWindow(*path, header, workload->Source());
      !s.ok()) {
    return s;
  }
  Written written = {
      .path = *path, .step = spec.step, .samples = spec.num_samples};
  for (uint32_t i = 0; i < spec.num_samples; ++i) {
    written.tokens += workload->info(i).tokens;
  }
  std::error_code error;
  if (const auto bytes = std::filesystem::file_size(*path, error); !error) {
    written.bytes = bytes;
  }
  written.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return written;
}

void PrintJson(const Written& written) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  fields["path"].set_string_value(written.path);
  fields["step"].set_number_value(static_cast<double>(written.step));
  fields["samples"].set_number_value(written.samples);
  fields["tokens"].set_number_value(static_cast<double>(written.tokens));
  fields["bytes"].set_number_value(static_cast<double>(written.bytes));
  fields["seconds"].set_number_value(written.seconds);
  std::cout << ToJson(object, /*pretty=*/false) << "\n";
}

absl::Status Run(const Args&) {
  absl::StatusOr<WorkloadSpec> spec = SpecFromFlags();
  if (!spec.ok()) return spec.status();
  const uint32_t windows = absl::GetFlag(FLAGS_windows);
  if (windows == 0) return UsageError("--windows must be at least 1");
  const bool to_standard_output = absl::GetFlag(FLAGS_output) == "-";
  const bool json = absl::GetFlag(FLAGS_json);
  Table table({"file", "step", "samples", "tokens", "size", "time"});
  for (uint32_t w = 0; w < windows; ++w, ++spec->step) {
    absl::StatusOr<Written> written = WriteOne(*spec, windows);
    if (!written.ok()) return written.status();
    if (json && !to_standard_output) PrintJson(*written);
    table.AddRow({written->path, absl::StrCat(written->step),
                  WithCommas(written->samples), WithCommas(written->tokens),
                  Bytes(written->bytes), Milliseconds(written->seconds)});
  }
  if (!json && !to_standard_output) std::cout << table.ToString();
  return absl::OkStatus();
}

}  // namespace

Command GenerateCommand() {
  return {
      .name = "generate",
      .arguments = "",
      .summary = "Make seeded synthetic windows.",
      .description =
          "Writes windows whose lengths and routing are drawn from a model: "
          "prompt\ngroups that mix topics of Zipf popularity, or one of eight "
          "imbalance shapes.\nThe same flags give the same windows on every "
          "machine.\n\nPresets: tiny (512 samples of about 1,000 tokens, 20 "
          "layers, 128 experts,\ntop-8, EP8 DP8), flash (40 layers, 256 "
          "experts, EP16 DP16, 2 shards), long\n(1,536 samples of 32,000, 47 "
          "layers, 64 experts, top-4, EP8 DP8), xl (4,096\nsamples of 4,000, "
          "60 layers, 384 experts, top-8, EP64 DP64, 4 shards). Any\nsize can "
          "be overridden.",
      .examples =
          {"routepackctl generate --preset=flash --seed=1 --output=flash.rpw",
           "routepackctl generate --shape=hot-rank --hot_share=0.4 "
           "--output=hot.json",
           "routepackctl generate --preset=tiny --windows=5 --drift=0.05 "
           "--output=sequence/"},
      .flags = Concat({{"preset",
                        "output",
                        "seed",
                        "step",
                        "windows",
                        "drift",
                        "shape",
                        "samples",
                        "samples_per_prompt",
                        "moe_layers",
                        "experts",
                        "top_k",
                        "distribution",
                        "mean_tokens",
                        "sigma",
                        "long_share",
                        "long_ratio",
                        "tail",
                        "min_tokens",
                        "max_tokens",
                        "topics",
                        "zipf",
                        "topic_share",
                        "hot_share",
                        "hot_experts",
                        "empty_share",
                        "burst_share",
                        "noise",
                        "skip_last_token",
                        "job",
                        "run",
                        "json"},
                       WindowFlags()}),
      .run = Run};
}

}  // namespace routepack::cli
