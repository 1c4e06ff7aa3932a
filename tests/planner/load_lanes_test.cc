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

// Two row-shards, as lanes and as plain arrays.
struct Pair {
  const LaneDemand& lanes;
  AlignedVector<uint32_t> a;
  AlignedVector<uint32_t> b;
  Loads plain_a;
  Loads plain_b;
};

std::vector<uint64_t> RestOf(const LaneDemand& lanes,
                             const std::vector<uint32_t>& items) {
  std::vector<uint64_t> rest(lanes.num_blocks() + 1);
  for (uint32_t k = lanes.num_blocks(); k-- > 0;) {
    rest[k] = rest[k + 1];
    for (uint32_t i : items) rest[k] += lanes.totals(i)[k];
  }
  return rest;
}

void CompareExchanges(uint32_t layers, uint32_t ranks, uint32_t largest) {
  TestRandom random(layers * 1000 + ranks);
  const uint32_t items = 12;
  const Demand demand = RandomDemand(random, items, layers, ranks, largest);
  const LaneDemand lanes(demand);
  ASSERT_EQ(lanes.item_bytes(),
            lanes.item_size() * (LargestOf(demand) > 65535 ? 4 : 2));
  Pair pair{.lanes = lanes,
            .a = AlignedVector<uint32_t>(lanes.item_size()),
            .b = AlignedVector<uint32_t>(lanes.item_size()),
            .plain_a = Loads(layers, std::vector<uint32_t>(ranks)),
            .plain_b = Loads(layers, std::vector<uint32_t>(ranks))};
  std::vector<uint32_t> in_a;
  std::vector<uint32_t> in_b;
  for (uint32_t i = 0; i < items; ++i) {
    lanes.Add(i, i % 2 == 0 ? pair.a.data() : pair.b.data());
    AddTo(demand, i, 1, i % 2 == 0 ? pair.plain_a : pair.plain_b);
    (i % 2 == 0 ? in_a : in_b).push_back(i);
  }
  EXPECT_EQ(lanes.Peaks(pair.a.data()), PeaksOf(pair.plain_a));

  for (uint32_t in : {in_b[0], in_b[3], lanes.nothing()}) {
    const uint32_t out = in_a[2];
    Loads plain_a = pair.plain_a;
    Loads plain_b = pair.plain_b;
    AddTo(demand, out, -1, plain_a);
    AddTo(demand, out, 1, plain_b);
    AddTo(demand, in, 1, plain_a);
    AddTo(demand, in, -1, plain_b);
    const uint64_t exact = PeaksOf(plain_a) + PeaksOf(plain_b);
    const std::vector<uint64_t> rest_a = RestOf(lanes, in_a);
    const std::vector<uint64_t> rest_b = RestOf(lanes, in_b);
    const auto after = [&](uint64_t limit) {
      return lanes.PeaksAfter(out, in, pair.a.data(), pair.b.data(),
                              rest_a.data(), rest_b.data(), limit);
    };
    for (uint64_t limit : {exact, exact + 1, exact * 2 + 1}) {
      const ExchangePeaks peaks = after(limit);
      ASSERT_TRUE(peaks.complete);
      EXPECT_EQ(peaks.a, PeaksOf(plain_a));
      EXPECT_EQ(peaks.b, PeaksOf(plain_b));
    }
    // Far below what the loads must add up to: stops at the first block.
    if (lanes.num_blocks() > 1) {
      EXPECT_FALSE(after(exact / 100).complete);
    }

    AlignedVector<uint32_t> a = pair.a;
    AlignedVector<uint32_t> b = pair.b;
    lanes.Exchange(out, in, a.data(), b.data());
    EXPECT_EQ(lanes.Peaks(a.data()), PeaksOf(plain_a));
    EXPECT_EQ(lanes.Peaks(b.data()), PeaksOf(plain_b));
  }
}

TEST(LoadLanesTest, ExchangesEqualPlainArithmetic) {
  for (uint32_t layers : {1u, 7u, 8u, 9u, 20u, 40u}) {
    for (uint32_t ranks : {1u, 2u, 3u, 8u, 17u}) {
      for (uint32_t largest : {3u, 65'535u, 70'000u, 90'000'000u}) {
        SCOPED_TRACE(testing::Message() << layers << " layers, " << ranks
                                        << " ranks, up to " << largest);
        CompareExchanges(layers, ranks, largest);
      }
    }
  }
}

}  // namespace
}  // namespace routepack
