#include "planner/load_lanes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using Loads = std::vector<std::vector<uint32_t>>;  // [l][p]

Demand RandomDemand(TestRandom& random, uint32_t items, uint32_t layers,
                    uint32_t ranks, uint32_t largest) {
  Demand demand{.num_items = items,
                .num_layers = layers,
                .num_ranks = ranks,
                .stride = DemandStride(ranks)};
  demand.values.resize(items * demand.item_size());
  for (uint32_t row = 0; row < items * layers; ++row) {
    for (uint32_t p = 0; p < ranks; ++p) {
      demand.values[size_t{row} * demand.stride + p] =
          random.Between(0, largest);
    }
  }
  return demand;
}

uint32_t LargestOf(const Demand& demand) {
  return *std::max_element(demand.values.begin(), demand.values.end());
}

void AddTo(const Demand& demand, uint32_t item, int sign, Loads& loads) {
  if (item >= demand.num_items) return;
  for (uint32_t l = 0; l < demand.num_layers; ++l) {
    for (uint32_t p = 0; p < demand.num_ranks; ++p) {
      loads[l][p] += sign * demand.item(item)[l * demand.stride + p];
    }
  }
}

uint64_t PeaksOf(const Loads& loads) {
  uint64_t sum = 0;
  for (const std::vector<uint32_t>& layer : loads) {
    sum += *std::max_element(layer.begin(), layer.end());
  }
  return sum;
}

// Random exchanges between three row-shards, lanes against plain arrays.
void CompareExchanges(uint32_t layers, uint32_t ranks, uint32_t largest) {
  TestRandom random(layers * 1000 + ranks);
  constexpr uint32_t kItems = 12;
  constexpr uint32_t kRowShards = 3;
  const Demand demand = RandomDemand(random, kItems, layers, ranks, largest);
  const LaneDemand lanes(demand);
  ASSERT_EQ(lanes.narrow(), LargestOf(demand) <= LaneDemand::kMostNarrow);
  std::vector<uint32_t> row_shard_of(kItems);
  std::vector<Loads> plain(kRowShards,
                           Loads(layers, std::vector<uint32_t>(ranks)));
  for (uint32_t i = 0; i < kItems; ++i) {
    row_shard_of[i] = i % kRowShards;
    AddTo(demand, i, 1, plain[i % kRowShards]);
  }
  LaneLoads loads(lanes, kRowShards, row_shard_of);
  for (uint32_t rg = 0; rg < kRowShards; ++rg) {
    ASSERT_EQ(loads.Peaks(rg), PeaksOf(plain[rg]));
  }
  for (int step = 0; step < 30; ++step) {
    const uint32_t out = random.Below(kItems);
    uint32_t in = random.Below(kItems + 1);
    if (in < kItems && row_shard_of[in] == row_shard_of[out]) {
      in = lanes.nothing();
    }
    const uint32_t a = row_shard_of[out];
    const uint32_t b = in < kItems ? row_shard_of[in] : (a + 1) % kRowShards;
    for (int sign : {-1, 1}) {
      AddTo(demand, out, sign, plain[sign < 0 ? a : b]);
      AddTo(demand, in, sign, plain[sign < 0 ? b : a]);
    }
    const uint64_t exact_a = PeaksOf(plain[a]);
    const uint64_t exact_b = PeaksOf(plain[b]);
    const uint64_t exact = exact_a + exact_b;
    for (uint64_t limit : {exact, exact + 1, exact * 2 + 1}) {
      const ExchangePeaks peaks = loads.PeaksAfter(out, in, a, b, limit);
      ASSERT_TRUE(peaks.complete);
      ASSERT_EQ(peaks.a, exact_a);
      ASSERT_EQ(peaks.b, exact_b);
    }
    const auto stops = [&](uint64_t limit) {
      return !loads.PeaksAfter(out, in, a, b, limit).complete;
    };
    // Far below what the loads must add up to: stops early, if there is much to
    // look at.
    if (lanes.num_blocks() > 4 && ranks >= 8) {
      ASSERT_TRUE(stops(exact / 100));
    }

    loads.Exchange(out, in, a, b);
    row_shard_of[out] = b;
    if (in < kItems) row_shard_of[in] = a;
    ASSERT_EQ(loads.Peaks(a), exact_a);
    ASSERT_EQ(loads.Peaks(b), exact_b);
  }
}

TEST(LoadLanesTest, ExchangesEqualPlainArithmetic) {
  for (uint32_t layers : {1u, 7u, 8u, 9u, 20u, 40u}) {
    for (uint32_t ranks : {1u, 2u, 3u, 8u, 17u}) {
      for (uint32_t largest : {3u, LaneDemand::kMostNarrow,
                               LaneDemand::kMostNarrow + 1, 90'000'000u}) {
        SCOPED_TRACE(testing::Message() << layers << " layers, " << ranks
                                        << " ranks, up to " << largest);
        CompareExchanges(layers, ranks, largest);
      }
    }
  }
}

}  // namespace
}  // namespace routepack
