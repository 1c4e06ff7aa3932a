// Small random windows for tests, the same for a seed on every platform.
//
//   Window window = RandomWindow({.seed = 3, .num_samples = 40});

#ifndef ROUTEPACK_TESTS_PLANNER_TEST_WINDOWS_H_
#define ROUTEPACK_TESTS_PLANNER_TEST_WINDOWS_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "planner/layout.h"
#include "planner/topology.h"
#include "planner/window.h"

namespace routepack {

class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : engine_(seed) {}

  // Uniform enough in [0, n).
  uint32_t Below(uint64_t n) { return static_cast<uint32_t>(engine_() % n); }
  // In [low, high].
  uint32_t Between(uint32_t low, uint32_t high) {
    return low + Below(uint64_t{high} - low + 1);
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t k = values.size(); k > 1; --k) {
      std::swap(values[k - 1], values[Below(k)]);
    }
  }

 private:
  std::mt19937_64 engine_;  // its output is fixed by the standard
};

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << std::endl;
    std::abort();
  }
  return *std::move(value);
}

// Slots in `num_shards` shards of random, mostly unequal sizes and members.
inline Topology RandomTopology(TestRandom& random, uint32_t slots,
                               uint32_t ranks, uint32_t num_shards) {
  std::vector<uint32_t> order(slots);
  std::iota(order.begin(), order.end(), 0);
  random.Shuffle(order);
  std::vector<std::vector<uint32_t>> shards(num_shards);
  for (uint32_t k = 0; k < slots; ++k) {
    shards[k < num_shards ? k : random.Below(num_shards)].push_back(order[k]);
  }
  return ValueOrDie(Topology::FromShards(slots, ranks, shards));
}

struct RandomWindowOptions {
  uint64_t seed = 1;
  uint32_t num_samples = 24;
  uint32_t num_layers = 3;
  uint32_t num_experts = 12;
  uint32_t top_k = 2;
  uint32_t num_ranks = 4;
  uint32_t num_slots = 4;
  uint32_t num_shards = 2;
  uint32_t token_cap = 100;
  uint32_t length_multiple = 1;
  uint32_t min_tokens = 1;
  uint32_t max_tokens = 60;
  std::vector<AttentionStage> attention = {
      {.name = "linear", .alpha = 1.37},
      {.name = "mla", .alpha = 0.71, .beta = 2.9}};
  CountsOrigin counts_origin = CountsOrigin::kReplayed;
  uint32_t num_stages = 0;  // of a pipeline; layers in any of them
};

// Routing of t tokens: every token chooses k different experts, low ids of a
// layer-dependent order more often.
inline std::vector<uint32_t> RandomCounts(TestRandom& random,
                                          const RandomWindowOptions& options,
                                          uint32_t tokens) {
  const uint32_t num_experts = options.num_experts;
  std::vector<uint32_t> counts(options.num_layers * num_experts);
  std::vector<bool> chosen(num_experts);
  for (uint32_t l = 0; l < options.num_layers; ++l) {
    for (uint32_t t = 0; t < tokens; ++t) {
      std::fill(chosen.begin(), chosen.end(), false);
      for (uint32_t k = 0; k < options.top_k;) {
        const uint32_t popular =
            std::min(random.Below(num_experts), random.Below(num_experts));
        const uint32_t e = (popular * 5 + l * 7) % num_experts;
        if (chosen[e]) {
          // Walk on, so that few popular experts do not stall the draw.
          uint32_t next = random.Below(num_experts);
          while (chosen[next]) next = (next + 1) % num_experts;
          chosen[next] = true;
          ++counts[l * num_experts + next];
        } else {
          chosen[e] = true;
          ++counts[l * num_experts + e];
        }
        ++k;
      }
    }
  }
  return counts;
}

inline Pipeline RandomPipeline(TestRandom& random, uint32_t num_layers,
                               uint32_t num_stages) {
  Pipeline pipeline{.num_stages = num_stages};
  if (num_stages == 0) return pipeline;
  for (uint32_t l = 0; l < num_layers; ++l) {
    pipeline.stage_of_layer.push_back(random.Below(num_stages));
  }
  return pipeline;
}

inline Window RandomWindow(const RandomWindowOptions& options) {
  TestRandom random(options.seed);
  TestRandom stages(options.seed + 1);
  WindowBuilder builder = ValueOrDie(WindowBuilder::Create(
      {.num_samples = options.num_samples,
       .num_layers = options.num_layers,
       .num_experts = options.num_experts,
       .top_k = options.top_k,
       .token_cap = options.token_cap,
       .length_multiple = options.length_multiple,
       .topology = RandomTopology(random, options.num_slots, options.num_ranks,
                                  options.num_shards),
       .pipeline =
           RandomPipeline(stages, options.num_layers, options.num_stages),
       .attention = options.attention,
       .counts_origin = options.counts_origin}));
  for (uint32_t i = 0; i < options.num_samples; ++i) {
    const uint32_t tokens =
        random.Between(options.min_tokens, options.max_tokens);
    builder.AddSample({.id = 100 + 3 * uint64_t{i}, .tokens = tokens},
                      RandomCounts(random, options, tokens));
  }
  return ValueOrDie(std::move(builder).Seal());
}

// A window of varied shape; small enough for slow oracles.
inline RandomWindowOptions RandomShape(uint64_t seed) {
  TestRandom random(seed * 7919 + 17);
  RandomWindowOptions options{.seed = seed};
  options.num_slots = random.Between(1, 6);
  options.num_shards = random.Between(1, options.num_slots);
  options.num_ranks = random.Between(1, 9);
  options.num_experts = options.num_ranks * random.Between(1, 3);
  options.top_k = random.Between(1, std::min(3u, options.num_experts));
  options.num_layers = random.Between(1, 5);
  options.num_samples = random.Between(2 * options.num_slots, 60);
  options.length_multiple = random.Between(1, 4);
  options.token_cap = random.Between(64, 200);
  if (random.Below(4) == 0) options.attention.clear();
  if (random.Below(3) == 0) {
    options.attention.push_back({.name = "dense", .alpha = 0.013});
  }
  if (random.Below(2) == 0) options.num_stages = random.Between(2, 4);
  return options;
}

// Every item in some cell, no cell empty; the cap is not looked at.
inline Layout RandomLayout(TestRandom& random, uint32_t rows, uint32_t slots,
                           uint32_t num_items) {
  std::vector<uint32_t> items(num_items);
  std::iota(items.begin(), items.end(), 0);
  random.Shuffle(items);
  std::vector<std::vector<uint32_t>> cells(rows * slots);
  for (uint32_t k = 0; k < num_items; ++k) {
    cells[k < cells.size() ? k : random.Below(cells.size())].push_back(
        items[k]);
  }
  return LayoutFromCells(rows, slots, cells);
}

// {5, 3, 2} and {4, 3, 3} fill bins of 10, twice each: two rows of two slots.
// First-fit decreasing puts the fives together and opens a fifth bin.
inline Window FirstFitMissesWindow() {
  WindowBuilder builder = ValueOrDie(WindowBuilder::Create(
      {.num_samples = 12,
       .num_layers = 1,
       .num_experts = 4,
       .top_k = 1,
       .token_cap = 10,
       .topology = ValueOrDie(Topology::FromShards(2, 2, {}))}));
  uint64_t id = 0;
  for (uint32_t t : {5, 3, 2, 5, 3, 2, 4, 3, 3, 4, 3, 3}) {
    builder.AddSample({.id = id++, .tokens = t},
                      std::vector<uint32_t>{t - 2, 1, 1, 0});
  }
  return ValueOrDie(std::move(builder).Seal());
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_TEST_WINDOWS_H_
