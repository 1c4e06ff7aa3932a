// The planner's stages on the generated windows flash (512 samples, 40 layers,
// 256 experts, 16 ranks, 2 shards) and xl (4,096 samples, 60 layers, 384
// experts, 64 ranks, 4 shards). Needs about 1 GB of memory for xl.
//
// tests/bench/run.py compares Lpt with tests/bench/peers.py, which makes the
// same loads.

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "client/workload.h"
#include "planner/demand.h"
#include "planner/layout.h"
#include "planner/placement.h"
#include "planner/rows.h"
#include "planner/seed.h"
#include "planner/window.h"
#include "tests/bench/packing_cases.h"

namespace routepack {
namespace {

// A window with what the stages hand on to each other. Made once, kept until
// the process ends.
struct Prepared {
  Window window;
  Placement placement;
  PackingProblem problem;
  RowResult rows;
  Layout layout;
};

Prepared Prepare(const char* preset) {
  Window window = OrExit(
      OrExit(Workload::Create(OrExit(WorkloadPreset(preset)))).MakeWindow());
  const uint32_t ranks = window.spec().topology.num_ranks();
  Placement placement = LptPlacement(window.ExpertLoads(), window.num_layers(),
                                     window.num_experts(), ranks);
  PackingProblem problem = MakeProblem(window, 0);
  problem.demand = ProjectDemand(window, placement);
  RowResult rows =
      OrExit(FewestRows(std::span(problem.occupancy).first(problem.num_samples),
                        {.num_slots = problem.topology.num_slots(),
                         .token_cap = problem.token_cap},
                        Budget{}));
  Layout layout = LengthLayout(problem, rows.rows, rows.bins);
  return {.window = std::move(window),
          .placement = std::move(placement),
          .problem = std::move(problem),
          .rows = std::move(rows),
          .layout = std::move(layout)};
}

const Prepared& Preset(int64_t index) {
  if (index == 0) {
    static const Prepared* const kFlash = new Prepared(Prepare("flash"));
    return *kFlash;
  }
  static const Prepared* const kXl = new Prepared(Prepare("xl"));
  return *kXl;
}

// [60, 384] loads on 64 ranks, Zipf-like; peers.py computes the same numbers.
std::vector<uint64_t> PeerLoads() {
  constexpr uint64_t kLayers = 60;
  constexpr uint64_t kExperts = 384;
  std::vector<uint64_t> loads(kLayers * kExperts);
  for (uint64_t l = 0; l < kLayers; ++l) {
    for (uint64_t e = 0; e < kExperts; ++e) {
      const uint64_t place = (e * 211 + l * 97) % kExperts;
      loads[l * kExperts + e] = 4'000'000 / (place + 8) + (e * 37 + l) % 101;
    }
  }
  return loads;
}

void Lpt(benchmark::State& state) {
  const std::vector<uint64_t> loads = PeerLoads();
  for (auto _ : state) {
    const Placement placement = LptPlacement(loads, 60, 384, 64);
    benchmark::DoNotOptimize(placement.slot_of_expert.data());
  }
  // So that run.py can see that both sides balance equally well.
  const std::vector<uint64_t> ranks =
      RankLoads(LptPlacement(loads, 60, 384, 64), loads);
  uint64_t peaks = 0;
  for (size_t l = 0; l < 60; ++l) {
    peaks +=
        *std::max_element(ranks.begin() + l * 64, ranks.begin() + (l + 1) * 64);
  }
  state.counters["peaks"] = static_cast<double>(peaks);
}

void DemandProjection(benchmark::State& state) {
  const Prepared& preset = Preset(state.range(0));
  for (auto _ : state) {
    const Demand demand = ProjectDemand(preset.window, preset.placement);
    benchmark::DoNotOptimize(demand.values.data());
  }
  state.SetItemsProcessed(
      state.iterations() * int64_t{preset.window.num_samples()} *
      preset.window.num_layers() * preset.window.num_experts());
}

void FullScore(benchmark::State& state) {
  const Prepared& preset = Preset(state.range(0));
  for (auto _ : state) {
    const Evaluation evaluation = EvaluateLayout(preset.problem, preset.layout);
    benchmark::DoNotOptimize(evaluation.score);
  }
}

void Rows(benchmark::State& state) {
  const PackingProblem& problem = Preset(state.range(0)).problem;
  const RowConstraints constraints = {.num_slots = problem.topology.num_slots(),
                                      .token_cap = problem.token_cap};
  uint32_t rows = 0;
  for (auto _ : state) {
    rows = OrExit(FewestRows(problem.occupancy, constraints, Budget{})).rows;
  }
  state.counters["rows"] = rows;
}

void Pair(benchmark::State& state) {
  const Prepared& preset = Preset(state.range(0));
  for (auto _ : state) {
    const Layout layout = EdpAwarePair(preset.problem, preset.layout);
    benchmark::DoNotOptimize(layout.items.data());
  }
}

void Generate(benchmark::State& state) {
  const WorkloadSpec spec =
      OrExit(WorkloadPreset(state.range(0) == 0 ? "flash" : "xl"));
  for (auto _ : state) {
    const Window window = OrExit(OrExit(Workload::Create(spec)).MakeWindow());
    benchmark::DoNotOptimize(window.total_tokens());
  }
}

// Argument xl: 0 is flash, 1 is xl.
#define ROUTEPACK_ON_BOTH(function)                                          \
  BENCHMARK(function)->ArgName("xl")->DenseRange(0, 1)->UseRealTime()->Unit( \
      benchmark::kMillisecond)

BENCHMARK(Lpt)->UseRealTime()->Unit(benchmark::kMillisecond);
ROUTEPACK_ON_BOTH(DemandProjection);
ROUTEPACK_ON_BOTH(FullScore);
ROUTEPACK_ON_BOTH(Rows);
ROUTEPACK_ON_BOTH(Pair);
ROUTEPACK_ON_BOTH(Generate);

}  // namespace
}  // namespace routepack
