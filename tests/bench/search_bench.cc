// Speed of the search: proposals per second on one core against the rate at
// which the memory they touch can be read at all, members on two threads, and
// whole plans of the default effort.
//
// A proposal that is evaluated to the end reads the loads of two row-shards and
// the demand of two samples. Stream* read the same bytes at the same places,
// and do nothing else but to combine them; Evaluate* and Stop* do the work.
// RunChain is the whole Metropolis step, with drawing and acceptance.
//
//   search_bench --benchmark_filter=flash
//   search_bench --plan_memory        # bytes that planning xl needs
//
// `warm` is the first temperature of a search, `cold` the last, on the state
// that it ends with.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "client/workload.h"
#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/task_arena.h"
#include "planner/anneal.h"
#include "planner/chain.h"
#include "planner/multiversion.h"
#include "planner/planner.h"
#include "planner/proposal.h"
#include "planner/search.h"
#include "planner/search_space.h"
#include "tests/bench/packing_cases.h"

namespace routepack {
namespace {

constexpr size_t kMoves = 4096;
constexpr uint32_t kLanes = 8;  // layers of a block

// A move between two row-shards, and how many blocks of layers are read until
// it cannot be accepted any more, at zero temperature.
struct Probe {
  Move move;
  uint32_t blocks = 0;
};

// A searched window with moves that fit its final state.
struct Searched {
  explicit Searched(const std::string& preset)
      : from(PresetCase(preset, 0)), space(from.problem, from.length.rows) {
    const SearchResult result = SearchLayout(from.problem, from.length,
                                             from.bounds.for_placement, {}, 0);
    layout = result.layout;
    for (const AnnealLevel& level : result.report.levels) {
      if (level.temperature == 0) continue;
      warm = std::max(warm, level.temperature);
      if (cold == 0 || level.temperature < cold) cold = level.temperature;
    }
    FindMoves();
  }
  Searched(const Searched&) = delete;

  void FindMoves();
  // How many blocks of layers show that the move makes nothing better.
  uint32_t BlocksRead(Chain& chain, const Move& move) const;

  PackingCase from;
  SearchSpace space;
  Layout layout;
  double warm = 0;
  double cold = 0;
  std::vector<Probe> whole;    // evaluated to the end
  std::vector<Probe> stopped;  // early
  double disagreement = 0;     // of BlocksRead with the chain, share
};

const Searched& Of(int64_t preset) {
  static constexpr std::array<const char*, 3> kPresets = {"tiny", "flash",
                                                          "xl"};
  static std::array<Searched*, 3> searched = {};
  auto& entry = searched[static_cast<size_t>(preset)];
  if (entry == nullptr) {
    entry = new Searched(kPresets[static_cast<size_t>(preset)]);
  }
  return *entry;
}

void Searched::FindMoves() {
  Chain chain(space, layout);
  DrawStream draws(CounterRandom(0, 1));
  Proposer proposer(space, {});
  size_t tried = 0;
  size_t wrong = 0;
  for (uint64_t k = 0; k < 100 * kMoves; ++k) {
    if (whole.size() == kMoves && stopped.size() == kMoves) break;
    Probe probe;
    if (!proposer.Propose(chain, draws, &probe.move) ||
        space.row_shard_of_cell[probe.move.from] ==
            space.row_shard_of_cell[probe.move.to]) {
      continue;
    }
    // The state must stay as it is.
    if (chain.ScoreAfter(probe.move) < chain.score()) continue;
    if (whole.size() < kMoves) {
      whole.push_back({probe.move, space.demand.num_blocks()});
    }
    if (stopped.size() == kMoves) continue;
    probe.blocks = BlocksRead(chain, probe.move);
    const Chain::Verdict verdict = chain.Try(probe.move, 0);
    if (verdict == Chain::Verdict::kAccepted) chain = Chain(space, layout);
    ++tried;
    const bool stops = verdict == Chain::Verdict::kStopped;
    wrong += stops != (probe.blocks < space.demand.num_blocks());
    if (stops) stopped.push_back(probe);
  }
  disagreement = static_cast<double>(wrong) / static_cast<double>(tried);
}

// Written again from planner/chain.h's description with scalar sums: what the
// two row-shards may cost together, and the first block whose peaks, with the
// mean loads of those that follow, exceed it.
uint32_t Searched::BlocksRead(Chain& chain, const Move& move) const {
  const Demand& demand = from.problem.demand;
  const uint32_t rg[2] = {space.row_shard_of_cell[move.from],
                          space.row_shard_of_cell[move.to]};
  const auto of = [&](uint32_t item, size_t at) -> int64_t {
    return item == chain.nothing() ? 0 : demand.item(item)[at];
  };
  const uint32_t num_blocks = space.demand.num_blocks();
  std::vector<int64_t> peaks(num_blocks);   // of both, after
  std::vector<int64_t> totals(num_blocks);  // loads of both
  int64_t before = 0;
  for (uint32_t l = 0; l < demand.num_layers; ++l) {
    int64_t old_peak[2] = {};
    int64_t new_peak[2] = {};
    for (uint32_t p = 0; p < demand.num_ranks; ++p) {
      const size_t at = size_t{l} * demand.stride + p;
      const int64_t gain = of(move.back, at) - of(move.item, at);
      for (int k = 0; k < 2; ++k) {
        int64_t load = 0;
        for (uint32_t c : space.cells_of(rg[k])) {
          for (uint32_t i : chain.items_of(c)) load += of(i, at);
        }
        const int64_t after = load + (k == 0 ? gain : -gain);
        old_peak[k] = std::max(old_peak[k], load);
        new_peak[k] = std::max(new_peak[k], after);
        totals[l / kLanes] += load;
      }
    }
    before += old_peak[0] + old_peak[1];
    peaks[l / kLanes] += new_peak[0] + new_peak[1];
  }
  int64_t after = 0;
  for (int64_t peak : peaks) after += peak;
  const Score& now = chain.score();
  // What changes besides peaks is attention.
  const int64_t attention_growth =
      chain.ScoreAfter(move).total - now.total - kScoreScale * (after - before);
  std::vector<int64_t> shard_costs(space.shards);
  for (uint32_t k = 0; k < space.row_shards; ++k) {
    shard_costs[k % space.shards] += chain.row_cost(k);
  }
  int64_t others = 0;
  for (uint32_t g = 0; g < space.shards; ++g) {
    if (g == rg[0] % space.shards || g == rg[1] % space.shards) continue;
    others = std::max(others, shard_costs[g]);
  }
  const bool same = rg[0] % space.shards == rg[1] % space.shards;
  const double share = same ? 1 : 0.5;
  const auto slowest = static_cast<double>(now.slowest_shard);
  const double room =
      slowest - static_cast<double>(shard_costs[rg[0] % space.shards] +
                                    shard_costs[rg[1] % space.shards]) /
                    2;
  const double other_room = slowest - static_cast<double>(others);
  const double slack =
      space.weights.worst_row * static_cast<double>(now.worst_row);
  const double growth =
      std::max(std::min((slack + room) / (share + space.weights.total),
                        (slack + other_room) / space.weights.total),
               other_room > 0 ? room / share : 0);
  const double limit =
      static_cast<double>(before) +
      (growth - static_cast<double>(attention_growth)) / kScoreScale + 1;
  double rest = 0;
  for (int64_t total : totals) rest += static_cast<double>(total);
  double sum = 0;
  if (limit < 0) return 0;
  const size_t between =
      space.demand.narrow() ? LaneLoads::kValuesBetweenLooks : 1;
  size_t next_look = between;
  for (uint32_t k = 0; k < num_blocks; ++k) {
    sum += static_cast<double>(peaks[k]);
    rest -= static_cast<double>(totals[k]);
    const size_t read = (k + 1) * space.demand.block_size();
    if (read < next_look) continue;
    next_look = read + between;
    if (sum + rest / demand.num_ranks > limit) return k + 1;
  }
  return num_blocks;
}

// --- what memory allows ------------------------------------------------------

using Vector = uint64_t __attribute__((vector_size(32)));

// Four runs of memory side by side, as the chain reads them.
[[gnu::always_inline]] inline Vector Combined(
    const std::array<const uint8_t*, 4>& runs, size_t bytes) {
  Vector sums[4] = {};
  for (size_t at = 0; at + sizeof(Vector) <= bytes; at += sizeof(Vector)) {
    for (size_t k = 0; k < 4; ++k) {
      Vector value;
      std::memcpy(&value, runs[k] + at, sizeof(value));
      sums[k] ^= value;
    }
  }
  return (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
}

// Loads and demand as the search holds them, for reading only.
struct Memory {
  explicit Memory(const Searched& searched)
      : run_bytes(searched.space.demand.value_bytes() *
                  searched.space.demand.item_size()),
        num_blocks(searched.space.demand.num_blocks()),
        loads(searched.space.row_shards * run_bytes),
        items((searched.space.demand.nothing() + size_t{1}) * run_bytes) {
    for (size_t k = 0; k < loads.size(); ++k) {
      loads[k] = static_cast<uint8_t>(k * 37);
    }
    for (size_t k = 0; k < items.size(); ++k) {
      items[k] = static_cast<uint8_t>(k * 41);
    }
  }

  // Of each of the four runs.
  size_t BytesOf(const Probe& probe) const {
    return run_bytes / num_blocks * probe.blocks;
  }

  size_t run_bytes;  // of an item or a row-shard
  uint32_t num_blocks;
  AlignedVector<uint8_t> loads;
  AlignedVector<uint8_t> items;
};

ROUTEPACK_MULTIVERSION
uint64_t ReadAll(const Memory& memory, const SearchSpace& space,
                 const std::vector<Probe>& probes) {
  Vector all{};
  const size_t size = memory.run_bytes;
  const uint8_t* const loads = memory.loads.data();
  const uint8_t* const items = memory.items.data();
  for (const Probe& probe : probes) {
    const Move& move = probe.move;
    all ^= Combined({loads + space.row_shard_of_cell[move.from] * size,
                     loads + space.row_shard_of_cell[move.to] * size,
                     items + move.item * size, items + move.back * size},
                    memory.BytesOf(probe));
  }
  return all[0] ^ all[1] ^ all[2] ^ all[3];
}

void Stream(benchmark::State& state, const Searched& searched,
            const std::vector<Probe>& probes) {
  const Memory memory(searched);
  for (auto _ : state) {
    benchmark::DoNotOptimize(ReadAll(memory, searched.space, probes));
  }
  size_t bytes = 0;
  for (const Probe& probe : probes) bytes += 4 * memory.BytesOf(probe);
  state.SetItemsProcessed(state.iterations() * std::ssize(probes));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void StreamWhole(benchmark::State& state) {
  const Searched& searched = Of(state.range(0));
  Stream(state, searched, searched.whole);
}
void StreamStopped(benchmark::State& state) {
  const Searched& searched = Of(state.range(0));
  Stream(state, searched, searched.stopped);
}

// --- what the search needs ---------------------------------------------------

void EvaluateWhole(benchmark::State& state) {
  const Searched& searched = Of(state.range(0));
  Chain chain(searched.space, searched.layout);
  for (auto _ : state) {
    for (const Probe& probe : searched.whole) {
      benchmark::DoNotOptimize(chain.ScoreAfter(probe.move));
    }
  }
  state.SetItemsProcessed(state.iterations() * std::ssize(searched.whole));
}

void TryStopped(benchmark::State& state) {
  const Searched& searched = Of(state.range(0));
  if (searched.disagreement > 0.01) {
    state.SkipWithError("the bytes touched are not counted as the chain does");
    return;
  }
  Chain chain(searched.space, searched.layout);
  for (auto _ : state) {
    for (const Probe& probe : searched.stopped) {
      benchmark::DoNotOptimize(chain.Try(probe.move, 0));
    }
  }
  double blocks = 0;
  for (const Probe& probe : searched.stopped) blocks += probe.blocks;
  state.SetItemsProcessed(state.iterations() * std::ssize(searched.stopped));
  state.counters["blocks_read"] =
      blocks / static_cast<double>(searched.stopped.size());
  state.counters["blocks"] = searched.space.demand.num_blocks();
}

void RunAt(benchmark::State& state, double temperature) {
  constexpr uint64_t kSteps = 20'000;
  const Searched& searched = Of(state.range(0));
  Chain chain(searched.space, searched.layout);
  uint64_t stream = 0;
  const auto run = [&] {
    return RunChain(searched.space, chain, kSteps, temperature, {},
                    CounterRandom(1, stream++), {});
  };
  // To where this temperature leads.
  for (int k = 0; k < 5; ++k) run();
  ProposalCounts counts;
  for (auto _ : state) counts += run();
  const auto rate = [&](uint64_t count) {
    return benchmark::Counter(static_cast<double>(count),
                              benchmark::Counter::kIsRate);
  };
  const auto share = [&](uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(counts.steps);
  };
  state.counters["steps_per_second"] = rate(counts.steps);
  // Feasible ones that were evaluated, to the end or until they could not be
  // accepted.
  state.SetItemsProcessed(
      static_cast<int64_t>(counts.evaluated + counts.stopped_early));
  state.counters["evaluated"] = share(counts.evaluated);
  state.counters["stopped_early"] = share(counts.stopped_early);
  state.counters["infeasible"] = share(counts.infeasible);
  state.counters["accepted"] = share(counts.accepted);
}

void RunChainWarm(benchmark::State& state) {
  RunAt(state, Of(state.range(0)).warm);
}
void RunChainCold(benchmark::State& state) {
  RunAt(state, Of(state.range(0)).cold);
}

// Two members on one thread and on two.
void AnnealOn(benchmark::State& state, int threads) {
  constexpr uint64_t kSteps = 400'000;
  const Searched& searched = Of(state.range(0));
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism,
                                  2);
  tbb::task_arena arena(threads);
  const std::vector<Chain> members(2,
                                   Chain(searched.space, searched.from.length));
  uint64_t steps = 0;
  for (auto _ : state) {
    arena.execute([&] {
      const AnnealResult result = AnnealPopulation(
          searched.space, members, {.steps = kSteps, .levels = 8}, 1, {});
      for (const AnnealLevel& level : result.levels) {
        steps += level.proposals.steps;
      }
    });
  }
  state.SetItemsProcessed(static_cast<int64_t>(steps));
}

void AnnealOneThread(benchmark::State& state) { AnnealOn(state, 1); }
void AnnealTwoThreads(benchmark::State& state) { AnnealOn(state, 2); }

Window GeneratedWindow(const char* preset) {
  return OrExit(
      OrExit(Workload::Create(OrExit(WorkloadPreset(preset)))).MakeWindow());
}

Plan PlanOf(const Window& window) {
  return OrExit(
      MakePlan(window,
               IdentityPlacement(window.num_layers(), window.num_experts(),
                                 window.spec().topology.num_ranks()),
               PlanOptions{}));
}

void BalancedPlan(benchmark::State& state) {
  const Window window = GeneratedWindow(state.range(0) == 1 ? "flash" : "xl");
  for (auto _ : state) {
    const Plan plan = PlanOf(window);
    benchmark::DoNotOptimize(plan.layout.items.data());
  }
}

// --- memory ------------------------------------------------------------------

// A line of /proc/self/status in bytes: VmRSS, VmHWM (its peak).
double Resident(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == name + ":") {
      double kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

// In a process of its own, so that no memory freed before is used again.
int PrintPlanMemory() {
  const Window window = GeneratedWindow("xl");
  malloc_trim(0);
  const double before = Resident("VmRSS");
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins here
  const Plan plan = PlanOf(window);
  std::cout << Resident("VmHWM") - before << "\n";
  return plan.layout.rows > 0 ? 0 : 1;
}

void PlanMemory(benchmark::State& state) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  double bytes = 0;
  for (auto _ : state) {
    if (size <= 0) break;
    path[size] = '\0';
    FILE* output =
        popen(absl::StrCat("'", path, "' --plan_memory").c_str(), "r");
    if (output == nullptr || fscanf(output, "%lf", &bytes) != 1) bytes = 0;
    if (output != nullptr) pclose(output);
  }
  if (bytes == 0) state.SkipWithError("the process that plans xl failed");
  state.counters["bytes"] = bytes;
}

// Argument preset: 0 is tiny, 1 is flash, 2 is xl.
#define ROUTEPACK_ON_PRESETS(function, first) \
  BENCHMARK(function)->ArgName("preset")->DenseRange(first, 2)->UseRealTime()

ROUTEPACK_ON_PRESETS(StreamWhole, 0);
ROUTEPACK_ON_PRESETS(EvaluateWhole, 0);
// tiny's few values are all read before the first look at the limit.
ROUTEPACK_ON_PRESETS(StreamStopped, 1);
ROUTEPACK_ON_PRESETS(TryStopped, 1);
ROUTEPACK_ON_PRESETS(RunChainWarm, 0);
ROUTEPACK_ON_PRESETS(RunChainCold, 0);
BENCHMARK(AnnealOneThread)->ArgName("preset")->Arg(1)->UseRealTime();
BENCHMARK(AnnealTwoThreads)->ArgName("preset")->Arg(1)->UseRealTime();
BENCHMARK(BalancedPlan)
    ->ArgName("preset")
    ->DenseRange(1, 2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK(PlanMemory)->UseRealTime()->Iterations(1);

}  // namespace
}  // namespace routepack

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--plan_memory") {
    return routepack::PrintPlanMemory();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
