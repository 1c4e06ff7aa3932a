// Counting of routed experts against the copy of the same bytes and the plain
// nested loop. Compare lines of one shape within one run: bytes per second of
// thread CPU time with one thread, of wall time with two.

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/task_arena.h"
#include "planner/histogram.h"

namespace routepack {
namespace {

struct Trace {
  RoutingShape shape;
  size_t tokens = 0;
  std::vector<uint8_t> bytes;  // ids [T, L, k], u8 or u16
  bool wide = false;

  ExpertIds ids() const {
    if (!wide) return std::span<const uint8_t>(bytes);
    return std::span(reinterpret_cast<const uint16_t*>(bytes.data()),
                     bytes.size() / 2);
  }
};

// Distinct ids in each token and layer, a quarter of the experts taken more
// often.
template <typename Id>
Trace MakeTrace(size_t tokens, const RoutingShape& shape) {
  std::mt19937_64 rng(1);
  std::vector<Id> ids(tokens * shape.num_layers * shape.top_k);
  for (size_t i = 0; i < ids.size(); i += shape.top_k) {
    const uint32_t range =
        rng() % 3 == 0 ? shape.num_experts / 4 : shape.num_experts;
    const uint32_t first = static_cast<uint32_t>(rng() % range);
    const uint32_t step = 1 + 2 * static_cast<uint32_t>(rng() % (range / 2));
    for (uint32_t j = 0; j < shape.top_k; ++j) {
      ids[i + j] = static_cast<Id>((first + j * step) % range);
    }
  }
  Trace trace = {.shape = shape, .tokens = tokens, .wide = sizeof(Id) == 2};
  trace.bytes.resize(ids.size() * sizeof(Id));
  std::memcpy(trace.bytes.data(), ids.data(), trace.bytes.size());
  return trace;
}

const Trace& TraceOf(int64_t index) {
  static const std::vector<Trace>* const kTraces = new std::vector<Trace>{
      MakeTrace<uint8_t>(262'144, {47, 64, 4}),
      MakeTrace<uint8_t>(8192, {94, 128, 8}),
      MakeTrace<uint8_t>(1000, {20, 128, 8}),
      MakeTrace<uint16_t>(4000, {60, 384, 8}),
  };
  return (*kTraces)[index];
}

void Report(benchmark::State& state, const Trace& trace) {
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(trace.bytes.size()));
}

void Copy(benchmark::State& state) {
  const Trace& trace = TraceOf(state.range(0));
  std::vector<uint8_t> copy(trace.bytes.size());
  for (auto _ : state) {
    std::memcpy(copy.data(), trace.bytes.data(), copy.size());
    benchmark::DoNotOptimize(copy.data());
    benchmark::ClobberMemory();
  }
  Report(state, trace);
}

template <typename Id>
void CountPlainly(const Id* ids, const Trace& trace, uint32_t* counts) {
  const auto [num_layers, num_experts, top_k] = trace.shape;
  for (size_t t = 0; t < trace.tokens; ++t) {
    for (size_t l = 0; l < num_layers; ++l) {
      for (size_t j = 0; j < top_k; ++j) {
        ++counts[l * num_experts + ids[(t * num_layers + l) * top_k + j]];
      }
    }
  }
}

void PlainLoop(benchmark::State& state) {
  const Trace& trace = TraceOf(state.range(0));
  std::vector<uint32_t> counts(size_t{trace.shape.num_layers} *
                               trace.shape.num_experts);
  for (auto _ : state) {
    std::visit(
        [&](auto ids) { CountPlainly(ids.data(), trace, counts.data()); },
        trace.ids());
    benchmark::DoNotOptimize(counts.data());
    benchmark::ClobberMemory();
  }
  Report(state, trace);
}

void Count(benchmark::State& state, int threads) {
  const Trace& trace = TraceOf(state.range(0));
  std::vector<uint32_t> counts(size_t{trace.shape.num_layers} *
                               trace.shape.num_experts);
  tbb::task_arena arena(threads);
  for (auto _ : state) {
    const absl::Status status = arena.execute(
        [&] { return CountRoutedExperts(trace.ids(), trace.shape, counts); });
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    benchmark::DoNotOptimize(counts.data());
  }
  Report(state, trace);
}

void CountOneThread(benchmark::State& state) { Count(state, 1); }
void CountTwoThreads(benchmark::State& state) { Count(state, 2); }

// Shapes: 0 = 262,144 tokens (eight samples of 32,768: more bytes than caches
// hold, as traces are when they are counted), 47 layers, 64 experts, top-4, u8;
// 1 = 8192, 94, 128, top-8, u8; 2 = 1000, 20, 128, top-8, u8 (fits a cache);
// 3 = 4000, 60, 384, top-8, u16. On machines that are not idle, add
// --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true.
BENCHMARK(Copy)->ArgName("shape")->DenseRange(0, 3);
BENCHMARK(PlainLoop)->ArgName("shape")->DenseRange(0, 3);
BENCHMARK(CountOneThread)->ArgName("shape")->DenseRange(0, 3);
BENCHMARK(CountTwoThreads)->ArgName("shape")->DenseRange(0, 3)->UseRealTime();

}  // namespace
}  // namespace routepack
