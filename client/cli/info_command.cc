#include <algorithm>
#include <iostream>
#include <numeric>
#include <unordered_set>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/window_file.h"
#include "google/protobuf/struct.pb.h"
#include "planner/plan.h"
#include "planner/rows.h"

ABSL_FLAG(bool, health, false,
          "Only check that the server is serving: exit code 0 or 1.");

namespace routepack::cli {
namespace {

// Lengths: order statistics, and how many fall into each of kBins equal parts.
struct Lengths {
  static constexpr size_t kBins = 40;
  std::vector<uint32_t> sorted;
  double mean = 0;
  std::vector<double> bins;

  uint32_t at(double quantile) const {
    return sorted[static_cast<size_t>(quantile * (sorted.size() - 1))];
  }
};

Lengths LengthsOf(const Window& window) {
  Lengths lengths;
  for (const SampleInfo& sample : window.samples()) {
    lengths.sorted.push_back(sample.tokens);
  }
  std::sort(lengths.sorted.begin(), lengths.sorted.end());
  lengths.mean = static_cast<double>(window.total_tokens()) /
                 static_cast<double>(lengths.sorted.size());
  lengths.bins.assign(Lengths::kBins, 0);
  const uint64_t top = uint64_t{lengths.sorted.back()} + 1;
  for (uint32_t tokens : lengths.sorted) {
    ++lengths.bins[tokens * Lengths::kBins / top];
  }
  return lengths;
}

// How uneven one layer is, under identity placement.
struct LayerSkew {
  uint32_t layer = 0;
  double cv = 0;          // of rank loads
  double hot_rank = 0;    // busiest rank over mean rank
  uint32_t expert = 0;    // the hottest
  double hot_expert = 0;  // its load over the mean expert's
};

std::vector<LayerSkew> SkewOf(const Window& window) {
  const uint32_t num_experts = window.num_experts();
  const uint32_t num_ranks = window.spec().topology.num_ranks();
  const std::vector<uint64_t> experts = window.ExpertLoads();
  const std::vector<uint64_t> ranks = RankLoads(
      IdentityPlacement(window.num_layers(), num_experts, num_ranks), experts);
  std::vector<LayerSkew> skews;
  for (uint32_t l = 0; l < window.num_layers(); ++l) {
    const auto of_layer =
        std::span(experts).subspan(size_t{l} * num_experts, num_experts);
    const auto of_ranks =
        std::span(ranks).subspan(size_t{l} * num_ranks, num_ranks);
    const auto hottest = std::max_element(of_layer.begin(), of_layer.end());
    const double total = static_cast<double>(
        std::accumulate(of_layer.begin(), of_layer.end(), uint64_t{0}));
    LayerSkew skew{.layer = l,
                   .cv = CvGlobal(of_ranks, 1, num_ranks),
                   .expert = static_cast<uint32_t>(hottest - of_layer.begin())};
    if (total > 0) {
      skew.hot_rank = static_cast<double>(
                          *std::max_element(of_ranks.begin(), of_ranks.end())) *
                      num_ranks / total;
      skew.hot_expert = static_cast<double>(*hottest) * num_experts / total;
    }
    skews.push_back(skew);
  }
  return skews;
}

size_t NumGroups(const Window& window) {
  std::unordered_set<uint32_t> groups;
  for (const SampleInfo& sample : window.samples()) {
    groups.insert(sample.group);
  }
  return groups.size();
}

uint32_t CellsNeeded(const Window& window) {
  return CapacityBound(MakeProblem(window, 0).occupancy,
                       window.spec().token_cap);
}

void PrintSkew(std::vector<LayerSkew> skews, uint32_t num_ranks) {
  std::vector<double> cvs;
  cvs.reserve(skews.size());
  for (const LayerSkew& skew : skews) cvs.push_back(skew.cv);
  const auto [low, high] = std::minmax_element(cvs.begin(), cvs.end());
  const double mean = std::accumulate(cvs.begin(), cvs.end(), 0.0) / cvs.size();
  std::cout << "routing   CV of the loads of " << num_ranks
            << " ranks, identity placement: mean " << Fixed(mean, 4)
            << ", layers from " << Fixed(*low, 4) << " to " << Fixed(*high, 4)
            << "\n          [" << Sparkline(cvs) << "] by layer, @ is "
            << Fixed(*high, 4) << "\n\n";
  std::stable_sort(
      skews.begin(), skews.end(),
      [](const LayerSkew& a, const LayerSkew& b) { return a.cv > b.cv; });
  skews.resize(std::min<size_t>(skews.size(), 5));
  Table table({"most uneven layers", "CV", "busiest rank / mean",
               "hottest expert", "its load / mean"});
  for (const LayerSkew& skew : skews) {
    table.AddRow({absl::StrCat("layer ", skew.layer), Fixed(skew.cv, 4),
                  Fixed(skew.hot_rank, 2), absl::StrCat(skew.expert),
                  Fixed(skew.hot_expert, 2)});
  }
  std::cout << table.ToString();
}

void PrintWindow(const std::string& path, const LoadedWindow& loaded) {
  const Window& window = loaded.window;
  const WindowSpec& spec = window.spec();
  const Lengths lengths = LengthsOf(window);
  std::cout << path << ": " << KeyText(loaded.header.key()) << "\n"
            << "shape     " << WithCommas(spec.num_samples) << " samples in "
            << WithCommas(NumGroups(window)) << " groups, " << spec.num_layers
            << " MoE layers, " << spec.num_experts << " experts, top-"
            << spec.top_k << "\n"
            << "topology  " << spec.topology.num_slots() << " DP slots, "
            << spec.topology.num_ranks() << " EP ranks, "
            << spec.topology.num_shards() << " EDP shard(s)\n"
            << "lengths   " << WithCommas(window.total_tokens())
            << " tokens; mean " << Fixed(lengths.mean, 1) << ", min "
            << lengths.sorted.front() << ", median " << lengths.at(0.5)
            << ", p90 " << lengths.at(0.9) << ", max " << lengths.sorted.back()
            << "\n          [" << Sparkline(lengths.bins) << "] 0 to "
            << lengths.sorted.back() << " tokens\n"
            << "cells     cap " << WithCommas(spec.token_cap)
            << ", lengths rounded to " << spec.length_multiple << ": "
            << CellsNeeded(window) << " cells or more\n";
  std::vector<std::string> stages;
  for (const AttentionStage& stage : spec.attention) {
    stages.push_back(absl::StrCat(stage.name, " (alpha ", Fixed(stage.alpha, 3),
                                  ", beta ", Fixed(stage.beta, 3), ")"));
  }
  std::cout << "attention "
            << (stages.empty() ? "free" : absl::StrJoin(stages, ", "))
            << "\ncounts    "
            << (spec.counts_origin == CountsOrigin::kReplayed ? "replayed"
                : spec.counts_origin == CountsOrigin::kPredicted
                    ? "predicted"
                    : "origin not said");
  if (!window.imputed().empty()) {
    std::cout << "; " << window.imputed().size()
              << " samples without counts, set to the window mean";
  }
  std::cout << "\n";
  PrintSkew(SkewOf(window), spec.topology.num_ranks());
}

void PrintWindowJson(const LoadedWindow& loaded) {
  const Window& window = loaded.window;
  const WindowSpec& spec = window.spec();
  const Lengths lengths = LengthsOf(window);
  google::protobuf::Struct json;
  auto& fields = *json.mutable_fields();
  const auto number = [&](const std::string& name, double value) {
    fields[name].set_number_value(value);
  };
  fields["digest"].set_string_value(window.digest());
  number("num_samples", spec.num_samples);
  number("num_groups", static_cast<double>(NumGroups(window)));
  number("num_layers", spec.num_layers);
  number("num_experts", spec.num_experts);
  number("top_k", spec.top_k);
  number("token_cap", spec.token_cap);
  number("dp_slots", spec.topology.num_slots());
  number("ep_ranks", spec.topology.num_ranks());
  number("edp_shards", spec.topology.num_shards());
  number("tokens", static_cast<double>(window.total_tokens()));
  number("mean_length", lengths.mean);
  number("max_length", lengths.sorted.back());
  number("cells_lower_bound", CellsNeeded(window));
  number("imputed_samples", static_cast<double>(window.imputed().size()));
  auto& cvs = *fields["layer_cv"].mutable_list_value();
  for (const LayerSkew& skew : SkewOf(window)) {
    cvs.add_values()->set_number_value(skew.cv);
  }
  std::cout << ToJson(json);
}

absl::Status DescribeWindow(const std::string& path) {
  absl::StatusOr<WindowFile> file = OpenWindow(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = ApplyWindowFlags(file->header); !status.ok()) {
    return status;
  }
  absl::StatusOr<LoadedWindow> loaded = LoadWindow(path, *std::move(file));
  if (!loaded.ok()) return loaded.status();
  if (absl::GetFlag(FLAGS_json)) {
    PrintWindowJson(*loaded);
  } else {
    PrintWindow(path, *loaded);
  }
  return absl::OkStatus();
}

void PrintServer(const v1::GetServerInfoResponse& info) {
  const v1::ServerLimits& limits = info.limits();
  const v1::ServerLoad& load = info.load();
  std::cout << "routepackd " << info.version() << " at " << ServerAddress()
            << (load.draining() ? ", draining" : "") << "\n"
            << "engine    " << info.backend() << ", " << info.threads()
            << " threads, algorithms " << info.algorithm_version() << ", up "
            << info.uptime().seconds() << " s\n"
            << "load      " << load.open_windows() << " of "
            << limits.max_open_windows() << " windows open, "
            << Bytes(load.window_memory_bytes()) << " of "
            << Bytes(limits.window_memory_bytes()) << " reserved, "
            << load.stored_plans() << " of " << limits.plan_history()
            << " plans kept\n"
            << "limits    CreatePlan up to " << Bytes(limits.max_unary_bytes())
            << ", chunks up to " << Bytes(limits.max_chunk_bytes())
            << ", silent uploads dropped after "
            << limits.upload_idle_timeout().seconds() << " s\n";
}

absl::Status Run(const Args& args) {
  if (!args.empty()) return DescribeWindow(args[0]);
  if (absl::GetFlag(FLAGS_health)) {
    const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
    PlannerClient client({.target = ServerAddress(),
                          .timeout = timeout > absl::ZeroDuration()
                                         ? timeout
                                         : absl::Seconds(3)});
    absl::Status status = client.CheckHealth();
    if (status.ok()) std::cout << "serving\n";
    return status;
  }
  absl::StatusOr<PlannerClient> client = ConnectFromFlags(absl::Seconds(10));
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::GetServerInfoResponse> info = client->GetServerInfo();
  if (!info.ok()) return info.status();
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(*info);
  } else {
    PrintServer(*info);
  }
  return absl::OkStatus();
}

}  // namespace

Command InfoCommand() {
  return {.name = "info",
          .arguments = "[WINDOW]",
          .summary = "Describe a window file, or a server.",
          .examples = {"routepackctl info window.rpw",
                       "routepackctl info --server=localhost:7070",
                       "routepackctl info --health"},
          .flags = Concat({{"json", "health"}, ServerFlags(), WindowFlags()}),
          .max_args = 1,
          .run = Run};
}

}  // namespace routepack::cli
