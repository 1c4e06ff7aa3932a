#include "tests/bench/packing_cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/window_file.h"
#include "client/workload.h"
#include "planner/bin_packing.h"
#include "planner/rows.h"
#include "planner/seed.h"

namespace routepack {
namespace {

constexpr size_t kGenerated = 5;

// How recorded windows are run.
struct Setting {
  const char* name;
  MeshSizes mesh;
  uint32_t token_cap;
};

constexpr Setting kSettings[] = {
    {"recorded, EP8 D8 G1 C2048", {.ep = 8, .dp = 8}, 2048},
    {"recorded, EP8 D8 G1 C4096", {.ep = 8, .dp = 8}, 4096},
    {"recorded, EP16 D16 G2 C2048", {.tp = 2, .ep = 16, .dp = 16}, 2048},
    {"recorded, EP16 D16 G2 C4096", {.tp = 2, .ep = 16, .dp = 16}, 4096},
    {"recorded, EP8 D8 G2 C4096", {.tp = 2, .ep = 8, .dp = 8}, 4096},
};

constexpr const char* kRecorded[] = {"gsm8k-0", "gsm8k-1", "gsm8k-2", "gsm8k-3",
                                     "gsm8k-4", "mixed-0", "mixed-1"};

PackingCase MakeCase(const std::string& setting, const std::string& name,
                     Window&& recorded) {
  const auto samples = std::make_shared<const Window>(std::move(recorded));
  const Window& window = *samples;
  const Topology& topology = window.spec().topology;
  const std::vector<uint64_t> expert_loads = window.ExpertLoads();
  const Placement placement =
      LptPlacement(expert_loads, window.num_layers(), window.num_experts(),
                   topology.num_ranks());
  const std::vector<uint64_t> rank_loads = RankLoads(placement, expert_loads);
  PackingCase out{.setting = setting,
                  .window = name,
                  .samples = samples,
                  .placement = placement,
                  .problem = MakeProblem(window, 0)};
  out.problem.demand = ProjectDemand(window, placement);
  RowResult rows = OrExit(FewestRows(
      out.problem.occupancy,
      {.num_slots = topology.num_slots(), .token_cap = out.problem.token_cap},
      Budget{}));
  // As the planner does: first-fit decreasing where it fits.
  Bins bins = FirstFitDecreasing(out.problem.occupancy, out.problem.token_cap);
  if (bins.size() > size_t{rows.rows} * topology.num_slots()) {
    bins = std::move(rows.bins);
  }
  out.length = LengthLayout(out.problem, rows.rows, std::move(bins));
  out.bounds = LowerBounds(out.problem, rows.rows, expert_loads, rank_loads);
  // A row's peak is that of its slowest shard: at least their mean.
  uint64_t peaks = 0;
  const uint32_t ranks = topology.num_ranks();
  for (uint32_t l = 0; l < window.num_layers(); ++l) {
    const auto begin = rank_loads.begin() + size_t{l} * ranks;
    peaks += *std::max_element(begin, begin + ranks);
  }
  out.peak_floor = peaks / topology.num_shards();
  return out;
}

PackingCase RecordedCase(const Setting& setting, const std::string& data,
                         const std::string& name) {
  const std::string path = absl::StrCat(data, "/", name, ".rpw");
  WindowFile file = OrExit(OpenWindow(path));
  v1::MeshSizes* mesh = file.header.mutable_topology()->mutable_mesh();
  mesh->Clear();
  mesh->set_tp(setting.mesh.tp);
  mesh->set_ep(setting.mesh.ep);
  mesh->set_dp(setting.mesh.dp);
  file.header.set_token_cap(setting.token_cap);
  return MakeCase(setting.name, name,
                  OrExit(LoadWindow(path, std::move(file))).window);
}

}  // namespace

PackingCase PresetCase(const std::string& preset, uint64_t step) {
  WorkloadSpec spec = OrExit(WorkloadPreset(preset));
  spec.step = step;
  const Workload workload = OrExit(Workload::Create(spec));
  Window window = OrExit(workload.MakeWindow());
  const uint32_t shards = window.spec().topology.num_shards();
  return MakeCase(absl::StrCat(preset, ", EP", spec.mesh.ep, " D", spec.mesh.dp,
                               " G", shards, " C", spec.token_cap),
                  absl::StrCat(preset, "-", step), std::move(window));
}

std::vector<PackingCase> PackingCases(const std::string& data, size_t windows) {
  std::vector<PackingCase> cases;
  for (const Setting& setting : kSettings) {
    for (size_t k = 0; k < std::min(windows, std::size(kRecorded)); ++k) {
      cases.push_back(RecordedCase(setting, data, kRecorded[k]));
    }
  }
  for (const char* preset : {"tiny", "flash"}) {
    for (uint64_t step = 0; step < std::min(windows, kGenerated); ++step) {
      cases.push_back(PresetCase(preset, step));
    }
  }
  return cases;
}

}  // namespace routepack
