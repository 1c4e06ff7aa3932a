#include "client/cli/flags.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/placement_flags.h"
#include "client/model_config.h"
#include "google/protobuf/util/time_util.h"

ABSL_FLAG(bool, json, false, "Print JSON for machines instead of tables.");
ABSL_FLAG(std::string, output, "",
          "File to write; .json is JSON, other extensions are binary.");
ABSL_FLAG(uint32_t, rows, 4, "Rows of the layout to print.");
ABSL_FLAG(bool, verbose, false,
          "Print how the search for the layout went, too; -v for short.");

ABSL_FLAG(std::string, server, "",
          "host:port of routepackd. Default: $ROUTEPACK_SERVER, else "
          "localhost:7070.");
ABSL_FLAG(absl::Duration, timeout, absl::ZeroDuration(),
          "Longest time a call may take, e.g. 30s; 0 means 10s for questions "
          "and no limit for planning.");

ABSL_FLAG(std::string, job, "", "job_id of the window's key.");
ABSL_FLAG(std::string, run, "", "run_id of the window's key.");
ABSL_FLAG(uint64_t, step, 0, "Optimizer step of the window's key.");
ABSL_FLAG(uint32_t, minibatch, 0, "Mini-batch of the window's key.");

ABSL_FLAG(uint32_t, ep, 0, "Expert-parallel size; 0: the window's.");
ABSL_FLAG(uint32_t, dp, 0, "Data-parallel size; 0: the window's.");
ABSL_FLAG(uint32_t, tp, 0, "Tensor-parallel size; 0: the window's.");
ABSL_FLAG(uint32_t, cp, 0, "Context-parallel size; 0: the window's.");
ABSL_FLAG(uint32_t, pp, 0, "Pipeline stages; 0: the window's.");
ABSL_FLAG(uint32_t, etp, 0,
          "Tensor-parallel size of experts; 0: the window's.");
ABSL_FLAG(std::vector<std::string>, moe_layers_per_stage, {},
          "MoE layers of each pipeline stage, e.g. 6,7,7,6, for peaks by "
          "stage; empty: the window's, or with --pp an even split.");
ABSL_FLAG(uint32_t, token_cap, 0,
          "Most tokens in a cell, per DP slot; 0: the window's.");
ABSL_FLAG(uint32_t, length_multiple, 0,
          "Round occupancies up to this multiple; 0: the window's.");
ABSL_FLAG(std::string, attention_config, "",
          "config.json of the model (Hugging Face): derive attention costs "
          "from it instead of the window's.");

ABSL_FLAG(uint32_t, min_rows, 0, "Fewest rows; 0: the window's.");
ABSL_FLAG(uint32_t, row_multiple, 0,
          "Rows are a multiple of this; 0: the window's.");
ABSL_FLAG(bool, allow_filler, false,
          "Add zero-loss filler samples when there are fewer samples than "
          "cells.");
ABSL_FLAG(std::string, row_order, "",
          "Order of rows: as_planned or light_ends; empty: the window's.");
ABSL_FLAG(std::string, effort, "",
          "How hard to search for a better packing of N samples: seeds (the "
          "best of 32 first layouts; some ms), fast (200 N proposals, within "
          "20 and 800 thousand), balanced (2,000 N, within 0.2 and 5 million; "
          "some 0.3 s for 512 samples, 5 s for the largest windows) or best "
          "(20,000 N, within 2 and 80 million: ten times as long). Never worse "
          "than length-only "
          "packing. Empty: the window's, else balanced.");
ABSL_FLAG(uint64_t, seed, 0, "Seed of random choices; 0: the window's.");
ABSL_FLAG(absl::Duration, time_limit, absl::ZeroDuration(),
          "Stop improving after this time, e.g. 2s; 0: the window's, else "
          "none.");
ABSL_FLAG(uint64_t, steps, 0,
          "Proposals of the search, all members and temperatures together; "
          "time is in proportion. 0: the window's, else the effort's.");
ABSL_FLAG(uint32_t, levels, 0,
          "Temperatures of the annealing, in [2, 1024]. 0: the window's, else "
          "16 (fast), 32 (balanced) or 64 (best).");
ABSL_FLAG(uint32_t, population, 0,
          "Layouts annealed side by side, in [1, 1024], for more variety and "
          "fewer steps each. 0: the window's, else 2 (fast), 4 (balanced) or "
          "8 (best).");
ABSL_FLAG(uint32_t, candidates, 0,
          "First layouts to try, in [1, 65536]. 0: the window's, else 8 "
          "(fast), 16 (balanced) or 32 (seeds, best).");
ABSL_FLAG(uint32_t, choice_width, 0,
          "From how many leading choices a first layout draws, in [1, 65536]; "
          "1 is no chance at all. 0: the window's, else 4.");
ABSL_FLAG(uint32_t, projections, 0,
          "Directions in which layouts are projected to tell them apart, in "
          "[1, 1024]. 0: the window's, else 16.");
ABSL_FLAG(std::optional<double>, diversity_penalty, std::nullopt,
          "How much the excess cost of a member of the population weighs "
          "against its distance from the others, in [0, 1e6]. Empty: the "
          "window's, else 1.");
ABSL_FLAG(std::optional<double>, guided_probability, std::nullopt,
          "Part of the proposals that look for the slowest row and sample, in "
          "[0, 1]; the others are uniform. Empty: the window's, else 0.8.");
ABSL_FLAG(std::optional<double>, relocation_probability, std::nullopt,
          "Part of the proposals that move one sample instead of swapping "
          "two, in [0, 1]. Empty: the window's, else 0.2.");
ABSL_FLAG(uint32_t, threads, 0, "Planner threads; 0: one a core.");

namespace routepack::cli {
namespace {

constexpr char kDefaultServer[] = "localhost:7070";

bool MeshFlagGiven() {
  for (const char* name : {"ep", "dp", "tp", "cp", "pp", "etp"}) {
    if (FlagChanged(name)) return true;
  }
  return false;
}

void ApplyMeshFlags(v1::WindowHeader& header) {
  if (!MeshFlagGiven()) return;
  v1::MeshSizes mesh = header.topology().mesh();
  if (header.topology().has_shards()) {
    mesh.set_dp(header.topology().shards().dp_slots());
    mesh.set_ep(header.topology().shards().ep_ranks());
  }
  Override(FLAGS_ep, [&](uint32_t value) { mesh.set_ep(value); });
  Override(FLAGS_dp, [&](uint32_t value) { mesh.set_dp(value); });
  Override(FLAGS_tp, [&](uint32_t value) { mesh.set_tp(value); });
  Override(FLAGS_cp, [&](uint32_t value) { mesh.set_cp(value); });
  Override(FLAGS_pp, [&](uint32_t value) { mesh.set_pp(value); });
  Override(FLAGS_etp, [&](uint32_t value) { mesh.set_etp(value); });
  *header.mutable_topology()->mutable_mesh() = mesh;
}

absl::Status ApplyStageFlag(v1::Topology& topology) {
  const std::vector<std::string> counts =
      absl::GetFlag(FLAGS_moe_layers_per_stage);
  if (!counts.empty() || FlagChanged("pp")) {
    topology.clear_moe_layers_per_stage();
  }
  for (const std::string& count : counts) {
    uint32_t layers = 0;
    if (!absl::SimpleAtoi(count, &layers)) {
      return UsageError(absl::StrCat("--moe_layers_per_stage: '", count,
                                     "' is no number of layers"));
    }
    topology.add_moe_layers_per_stage(layers);
  }
  return absl::OkStatus();
}

absl::Status ApplyEffortFlag(v1::SearchOptions& search) {
  const std::string effort = absl::GetFlag(FLAGS_effort);
  if (effort.empty()) return absl::OkStatus();
  if (effort == "seeds") {
    search.set_effort(v1::EFFORT_SEEDS);
  } else if (effort == "fast") {
    search.set_effort(v1::EFFORT_FAST);
  } else if (effort == "balanced") {
    search.set_effort(v1::EFFORT_BALANCED);
  } else if (effort == "best") {
    search.set_effort(v1::EFFORT_BEST);
  } else {
    return UsageError(absl::StrCat("--effort=", effort,
                                   ": must be seeds, fast, balanced or best"));
  }
  return absl::OkStatus();
}

absl::Status ApplySearchFlags(v1::SearchOptions& search) {
  Override(FLAGS_steps, [&](uint64_t value) { search.set_steps(value); });
  Override(FLAGS_levels, [&](uint32_t value) { search.set_levels(value); });
  Override(FLAGS_population,
           [&](uint32_t value) { search.set_population(value); });
  Override(FLAGS_candidates,
           [&](uint32_t value) { search.set_candidates(value); });
  Override(FLAGS_choice_width,
           [&](uint32_t value) { search.set_choice_width(value); });
  Override(FLAGS_projections,
           [&](uint32_t value) { search.set_projections(value); });
  if (const auto value = absl::GetFlag(FLAGS_diversity_penalty)) {
    search.set_diversity_penalty(*value);
  }
  if (const auto value = absl::GetFlag(FLAGS_guided_probability)) {
    search.set_guided_probability(*value);
  }
  if (const auto value = absl::GetFlag(FLAGS_relocation_probability)) {
    search.set_relocation_probability(*value);
  }
  return ApplyEffortFlag(search);
}

absl::Status ApplyAttentionConfig(const std::string& path,
                                  v1::WindowHeader& header) {
  std::ifstream in(path);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot read"));
  }
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text.str());
  if (!config.ok()) {
    return absl::Status(config.status().code(),
                        absl::StrCat(path, ": ", config.status().message()));
  }
  // Costs are relative to the experts' work, so that another number of MoE
  // layers would shift the weight between the two.
  if (config->num_layers != header.num_layers()) {
    std::cerr << "warning: " << path << " has " << config->num_layers
              << " MoE layers, the window " << header.num_layers()
              << ": attention weighs as in the whole model\n";
  }
  header.clear_attention();
  *header.mutable_attention()->mutable_model() = config->shape;
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ServerFlags() { return {"server", "timeout"}; }
std::vector<std::string> KeyFlags() {
  return {"job", "run", "step", "minibatch"};
}
std::vector<std::string> WindowFlags() {
  return {"ep",
          "dp",
          "tp",
          "cp",
          "pp",
          "etp",
          "moe_layers_per_stage",
          "token_cap",
          "length_multiple",
          "attention_config"};
}
std::vector<std::string> OptionFlags() {
  return Concat(
      {PlacementFlags(),
       {"min_rows", "row_multiple", "allow_filler", "row_order", "effort",
        "seed", "time_limit", "steps", "levels", "population", "candidates",
        "choice_width", "projections", "diversity_penalty",
        "guided_probability", "relocation_probability"}});
}

std::vector<std::string> Concat(
    std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

bool FlagChanged(const std::string& name) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && flag->CurrentValue() != flag->DefaultValue();
}

absl::Status ApplyWindowFlags(v1::WindowHeader& header) {
  ApplyMeshFlags(header);
  if (absl::Status status = ApplyStageFlag(*header.mutable_topology());
      !status.ok()) {
    return status;
  }
  Override(FLAGS_token_cap,
           [&](uint32_t value) { header.set_token_cap(value); });
  Override(FLAGS_length_multiple,
           [&](uint32_t value) { header.set_length_multiple(value); });
  const std::string config = absl::GetFlag(FLAGS_attention_config);
  if (config.empty()) return absl::OkStatus();
  return ApplyAttentionConfig(config, header);
}

absl::Status ApplyOptionFlags(v1::WindowHeader& header) {
  v1::PlanOptions& options = *header.mutable_options();
  if (absl::Status status = ApplyPlacementFlags(header); !status.ok()) {
    return status;
  }
  const std::string row_order = absl::GetFlag(FLAGS_row_order);
  if (row_order == "as_planned") {
    options.set_row_order(v1::ROW_ORDER_AS_PLANNED);
  } else if (row_order == "light_ends") {
    options.set_row_order(v1::ROW_ORDER_LIGHT_ENDS);
  } else if (!row_order.empty()) {
    return UsageError(absl::StrCat("--row_order=", row_order,
                                   ": must be as_planned or light_ends"));
  }
  Override(FLAGS_min_rows,
           [&](uint32_t value) { options.set_min_rows(value); });
  Override(FLAGS_row_multiple,
           [&](uint32_t value) { options.set_row_multiple(value); });
  if (absl::GetFlag(FLAGS_allow_filler)) options.set_allow_filler(true);
  if (FlagChanged("seed")) options.set_seed(absl::GetFlag(FLAGS_seed));
  if (const absl::Duration limit = absl::GetFlag(FLAGS_time_limit);
      limit < absl::ZeroDuration()) {
    return UsageError("--time_limit: must not be negative");
  } else if (limit > absl::ZeroDuration() && limit < absl::InfiniteDuration()) {
    *options.mutable_time_limit() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(
            absl::ToInt64Nanoseconds(limit));
  }
  // A message without fields would make the header another one.
  v1::SearchOptions search = options.search();
  if (absl::Status status = ApplySearchFlags(search); !status.ok()) {
    return status;
  }
  if (search.ByteSizeLong() != 0) *options.mutable_search() = search;
  return absl::OkStatus();
}

void ApplyKeyFlags(v1::PlanKey& key) {
  if (FlagChanged("job")) key.set_job_id(absl::GetFlag(FLAGS_job));
  if (FlagChanged("run")) key.set_run_id(absl::GetFlag(FLAGS_run));
  if (FlagChanged("step")) key.set_step(absl::GetFlag(FLAGS_step));
  if (FlagChanged("minibatch")) {
    key.set_minibatch(absl::GetFlag(FLAGS_minibatch));
  }
}

absl::StatusOr<v1::PlanKey> KeyFromFlags() {
  v1::PlanKey key;
  ApplyKeyFlags(key);
  if (key.job_id().empty()) {
    return UsageError(
        "--job is required (and --run, --step, --minibatch where "
        "they are not empty or 0)");
  }
  return key;
}

std::string KeyText(const v1::PlanKey& key) {
  std::string text = key.job_id().empty() ? "(no job)" : key.job_id();
  if (!key.run_id().empty()) absl::StrAppend(&text, "/", key.run_id());
  absl::StrAppend(&text, " step ", key.step());
  if (key.minibatch() != 0) absl::StrAppend(&text, ".", key.minibatch());
  return text;
}

std::string ServerAddress() {
  if (std::string flag = absl::GetFlag(FLAGS_server); !flag.empty()) {
    return flag;
  }
  const char* variable = std::getenv("ROUTEPACK_SERVER");
  return variable != nullptr && *variable != '\0' ? variable : kDefaultServer;
}

absl::StatusOr<PlannerClient> ConnectFromFlags(absl::Duration default_timeout) {
  const std::string address = ServerAddress();
  absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (timeout < absl::ZeroDuration()) {
    return UsageError("--timeout: must not be negative");
  }
  if (timeout == absl::ZeroDuration()) timeout = default_timeout;
  PlannerClient probe(
      {.target = address, .timeout = std::min(timeout, absl::Seconds(3))});
  if (absl::StatusOr<v1::GetServerInfoResponse> info = probe.GetServerInfo();
      !info.ok()) {
    return absl::Status(info.status().code(),
                        absl::StrCat("no routepackd answers at ", address, " (",
                                     info.status().message(), ")"));
  }
  return PlannerClient({.target = address, .timeout = timeout});
}

}  // namespace routepack::cli
