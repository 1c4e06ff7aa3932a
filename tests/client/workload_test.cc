#include "client/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "oneapi/tbb/global_control.h"
#include "planner/counter_random.h"
#include "planner/rows.h"
#include "proto/codec/codec.h"

namespace routepack {
namespace {

using ::testing::HasSubstr;

WorkloadSpec Small(Imbalance imbalance = Imbalance::kTopics) {
  WorkloadSpec spec;
  spec.num_samples = 96;
  spec.samples_per_prompt = 4;
  spec.num_layers = 3;
  spec.num_experts = 32;
  spec.top_k = 4;
  spec.token_cap = 2048;
  spec.mesh = {.ep = 4, .dp = 4};
  spec.lengths.mean = 300;
  spec.topics = 6;
  spec.imbalance = imbalance;
  spec.seed = 7;
  return spec;
}

Workload Make(const WorkloadSpec& spec) {
  absl::StatusOr<Workload> workload = Workload::Create(spec);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

std::vector<uint32_t> CountsOf(const Workload& workload, uint32_t i) {
  std::vector<uint32_t> counts(size_t{workload.spec().num_layers} *
                               workload.spec().num_experts);
  workload.Counts(i, counts);
  return counts;
}

// [L][E] sums over the samples [begin, end).
std::vector<std::vector<double>> Loads(const Workload& workload,
                                       uint32_t begin = 0,
                                       uint32_t end = UINT32_MAX) {
  const WorkloadSpec& spec = workload.spec();
  std::vector<std::vector<double>> loads(spec.num_layers,
                                         std::vector<double>(spec.num_experts));
  for (uint32_t i = begin; i < std::min(end, spec.num_samples); ++i) {
    const std::vector<uint32_t> counts = CountsOf(workload, i);
    for (size_t n = 0; n < counts.size(); ++n) {
      loads[n / spec.num_experts][n % spec.num_experts] += counts[n];
    }
  }
  return loads;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double TotalVariation(const std::vector<double>& a,
                      const std::vector<double>& b) {
  double distance = 0;
  for (size_t i = 0; i < a.size(); ++i) distance += std::abs(a[i] - b[i]);
  return distance / 2;
}

TEST(CounterRandomTest, NormalHasUnitVarianceAndUniformIsInRange) {
  const CounterRandom random(3, 1, 4, 1);
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.NormalAt(i);
    sum += z;
    squares += z * z;
    const double u = random.UniformAt(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ASSERT_LT(random.BelowAt(i, 7), 7u);
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.03);
  EXPECT_NEAR(squares / kDraws, 1, 0.05);
}

TEST(CounterRandomTest, PermutationHoldsEveryIndexOnce) {
  std::vector<uint32_t> order = CounterRandom(5).Permutation(50);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (uint32_t i = 0; i < 50; ++i) EXPECT_EQ(order[i], i);
}

TEST(CounterRandomTest, StreamsDiffer) {
  std::set<uint64_t> first;
  for (uint64_t stream = 0; stream < 4; ++stream) {
    for (uint64_t a = 0; a < 4; ++a) {
      for (uint64_t b = 0; b < 4; ++b) {
        first.insert(CounterRandom(1, stream, a, b).At(0));
      }
    }
  }
  EXPECT_EQ(first.size(), 64u);
}

class EveryShapeTest : public ::testing::TestWithParam<int> {};

TEST_P(EveryShapeTest, CountsAddUpExactlyAndStayWithinTheTokens) {
  WorkloadSpec spec = Small(static_cast<Imbalance>(GetParam()));
  for (const bool skip_last : {false, true}) {
    spec.skip_last_token = skip_last;
    spec.noise = skip_last ? 25 : 1;  // caps are met, sums must hold
    spec.lengths.min_tokens = 2;
    const Workload workload = Make(spec);
    for (uint32_t i = 0; i < spec.num_samples; ++i) {
      const uint32_t routed = workload.info(i).tokens - skip_last;
      const std::vector<uint32_t> counts = CountsOf(workload, i);
      for (uint32_t l = 0; l < spec.num_layers; ++l) {
        uint64_t sum = 0;
        for (uint32_t e = 0; e < spec.num_experts; ++e) {
          const uint32_t count = counts[l * spec.num_experts + e];
          ASSERT_LE(count, routed) << i << " " << l << " " << e;
          sum += count;
        }
        ASSERT_EQ(sum, uint64_t{spec.top_k} * routed) << i << " " << l;
      }
    }
  }
}

TEST_P(EveryShapeTest, MakesAValidWindowEqualToItsSamples) {
  const Workload workload = Make(Small(static_cast<Imbalance>(GetParam())));
  const absl::StatusOr<Window> window = workload.MakeWindow();
  ASSERT_TRUE(window.ok()) << window.status();

  v1::Window message;
  *message.mutable_header() = workload.header();
  for (const auto encoding :
       {CountsEncoding::kCompact, CountsEncoding::kFixedWidth}) {
    message.clear_samples();
    const SampleSource next = workload.Source(encoding);
    for (v1::Sample sample;;) {
      const absl::StatusOr<bool> more = next(&sample);
      ASSERT_TRUE(more.ok());
      if (!*more) break;
      *message.add_samples() = sample;
    }
    ASSERT_EQ(message.samples_size(), 96);
    const absl::StatusOr<Window> decoded = DecodeWindow(message);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->digest(), window->digest());
  }
}

TEST_P(EveryShapeTest, ExpectedRoutingIsADistributionWithinTopK) {
  const WorkloadSpec spec = Small(static_cast<Imbalance>(GetParam()));
  const Workload workload = Make(spec);
  for (uint32_t l = 0; l < spec.num_layers; ++l) {
    const std::vector<double> expected = workload.routing().Expected(l);
    EXPECT_NEAR(Sum(expected), 1, 1e-9);
    for (const double p : expected) {
      EXPECT_GE(p, 0);
      EXPECT_LE(p, 1.0 / spec.top_k + 1e-9);
    }
  }
}

TEST_P(EveryShapeTest, WindowLoadsFollowTheExpectedRouting) {
  WorkloadSpec spec = Small(static_cast<Imbalance>(GetParam()));
  spec.num_samples = 1600;  // 400 groups: class shares near their weights
  spec.num_layers = 1;
  spec.burst_share = 0.5;
  const Workload workload = Make(spec);
  std::vector<double> loads = Loads(workload)[0];
  const double total = Sum(loads);
  for (double& load : loads) load /= total;
  EXPECT_LT(TotalVariation(loads, workload.routing().Expected(0)), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EveryShapeTest, ::testing::Range(0, 9),
                         [](const auto& info) {
                           std::string name(ImbalanceNames()[info.param]);
                           std::erase(name, '-');
                           return name;
                         });

TEST(WorkloadTest, CountsAreUnbiased) {
  // Mean over many samples of one prompt against the group's own mixture.
  WorkloadSpec spec = Small();
  spec.num_samples = 4000;
  spec.samples_per_prompt = 4000;
  spec.num_layers = 1;
  spec.topics = 1;
  spec.zipf = 1.5;  // some experts expect well below one token
  spec.lengths.kind = LengthKind::kConstant;
  spec.lengths.mean = 40;
  const Workload workload = Make(spec);
  const std::vector<double> loads = Loads(workload)[0];
  const std::vector<double> expected = workload.routing().Expected(0);
  for (uint32_t e = 0; e < spec.num_experts; ++e) {
    const double want = 4 * 40 * expected[e];
    EXPECT_NEAR(loads[e] / 4000, want, 0.03 + 0.02 * want) << e;
  }
}

TEST(WorkloadTest, NoiseIsTheVarianceOverTheExpectation) {
  WorkloadSpec spec = Small();
  spec.num_samples = 4000;
  spec.samples_per_prompt = 4000;
  spec.num_layers = 1;
  spec.num_experts = 64;
  spec.topics = 1;
  spec.zipf = 0;
  spec.lengths.kind = LengthKind::kConstant;
  spec.lengths.mean = 1000;  // 62.5 assignments an expert
  for (const double noise : {0.25, 1.0, 4.0}) {
    spec.noise = noise;
    const Workload workload = Make(spec);
    double squares = 0;
    for (uint32_t i = 0; i < spec.num_samples; ++i) {
      const uint32_t count = CountsOf(workload, i)[11];
      squares += (count - 62.5) * (count - 62.5);
    }
    // Rounding adds up to 1/4, the fixed sum takes away 1/64.
    EXPECT_NEAR(squares / 4000 / 62.5, noise, 0.1 * noise + 0.01);
  }
}

TEST(WorkloadTest, SameSpecSameWindowWhateverTheThreads) {
  const WorkloadSpec spec = Small();
  std::optional<std::string> digest;
  for (const size_t threads : {1u, 2u, 4u}) {
    tbb::global_control control(tbb::global_control::max_allowed_parallelism,
                                threads);
    const absl::StatusOr<Window> window = Make(spec).MakeWindow();
    ASSERT_TRUE(window.ok());
    if (!digest) digest = window->digest();
    EXPECT_EQ(window->digest(), *digest);
  }
}

TEST(WorkloadTest, SeedAndStepChangeTheWindow) {
  std::set<std::string> digests;
  for (const uint64_t seed : {1, 2}) {
    for (const uint64_t step : {0, 1}) {
      WorkloadSpec spec = Small();
      spec.seed = seed;
      spec.step = step;
      const Workload workload = Make(spec);
      EXPECT_EQ(workload.header().key().step(), step);
      digests.insert(workload.MakeWindow()->digest());
    }
  }
  EXPECT_EQ(digests.size(), 4u);
}

// Pins the generator: other numbers mean that recorded results and seeds in
// reports no longer name the same windows.
TEST(WorkloadTest, FirstCountsOfASeedNeverChange) {
  const Workload workload = Make(Small());
  EXPECT_EQ(workload.info(0).tokens, 786u);
  const std::vector<uint32_t> counts = CountsOf(workload, 0);
  EXPECT_THAT(std::vector<uint32_t>(counts.begin(), counts.begin() + 8),
              ::testing::ElementsAre(31, 110, 97, 80, 31, 22, 44, 122));
}

TEST(LengthTest, MeanIsMetAfterClipping) {
  for (size_t kind = 0; kind < LengthKindNames().size(); ++kind) {
    WorkloadSpec spec = Small();
    spec.num_samples = 1000;
    spec.lengths.kind = static_cast<LengthKind>(kind);
    spec.lengths.mean = 500;
    spec.lengths.max_tokens = 1500;
    const Workload workload = Make(spec);
    double total = 0;
    for (uint32_t i = 0; i < 1000; ++i) {
      const uint32_t tokens = workload.info(i).tokens;
      EXPECT_GE(tokens, spec.lengths.min_tokens);
      EXPECT_LE(tokens, 1500u);
      total += tokens;
    }
    EXPECT_NEAR(total / 1000, 500, 1) << LengthKindNames()[kind];
  }
}

TEST(LengthTest, DistributionsHaveTheirForm) {
  const auto draw = [](LengthKind kind) {
    WorkloadSpec spec = Small();
    spec.num_samples = 4000;
    spec.token_cap = 1 << 20;
    spec.lengths.kind = kind;
    spec.lengths.mean = 1000;
    const Workload workload = Make(spec);
    std::vector<double> lengths;
    for (uint32_t i = 0; i < 4000; ++i) {
      lengths.push_back(workload.info(i).tokens);
    }
    std::sort(lengths.begin(), lengths.end());
    return lengths;
  };
  const std::vector<double> constant = draw(LengthKind::kConstant);
  EXPECT_EQ(constant.front(), constant.back());

  // The logarithms of a lognormal are symmetric with deviation sigma 0.6: one
  // deviation is at 84 %.
  const std::vector<double> lognormal = draw(LengthKind::kLognormal);
  EXPECT_NEAR(std::log(lognormal[3365] / lognormal[2000]), 0.6, 0.05);
  EXPECT_NEAR(std::log(lognormal[2000] / lognormal[634]), 0.6, 0.05);

  // 80 % around 500, 20 % around 3000, and next to nothing in between.
  const std::vector<double> bimodal = draw(LengthKind::kBimodal);
  const auto between = std::upper_bound(bimodal.begin(), bimodal.end(), 1700) -
                       std::lower_bound(bimodal.begin(), bimodal.end(), 1000);
  EXPECT_LT(between, 120);
  EXPECT_NEAR(bimodal[3600] / bimodal[1600], 6, 0.5);

  // Pareto: the survival function falls as x^-1.8.
  const std::vector<double> tail = draw(LengthKind::kLongTail);
  EXPECT_NEAR(std::log(tail[3600] / tail[2000]), std::log(5.0) / 1.8, 0.1);
  EXPECT_GT(tail.back(), 10 * tail[2000]);
}

TEST(LengthTest, OccupancyStaysWithinTheCap) {
  WorkloadSpec spec = Small();
  spec.token_cap = 2000;
  spec.length_multiple = 64;  // 31 x 64 = 1984
  spec.lengths.kind = LengthKind::kLongTail;
  const Workload workload = Make(spec);
  ASSERT_TRUE(workload.MakeWindow().ok());
  uint32_t longest = 0;
  for (uint32_t i = 0; i < 96; ++i) {
    longest = std::max(longest, workload.info(i).tokens);
  }
  EXPECT_LE(longest, 1984u);
}

class DriftTest : public ::testing::TestWithParam<double> {};

TEST_P(DriftTest, ConsecutiveWindowsDifferByTheStatedDistance) {
  for (const std::string preset : {"tiny", "flash", "long", "xl"}) {
    WorkloadSpec spec = *WorkloadPreset(preset);
    spec.num_layers = 4;  // layers are independent
    spec.num_samples = 64;
    spec.drift = GetParam();
    std::vector<std::vector<double>> before;
    for (uint64_t step = 0; step < 4; ++step) {
      spec.step = step;
      const Workload workload = Make(spec);
      std::vector<std::vector<double>> now;
      for (uint32_t l = 0; l < spec.num_layers; ++l) {
        now.push_back(workload.routing().Expected(l));
        if (step > 0) {
          EXPECT_NEAR(TotalVariation(before[l], now[l]), GetParam(), 1e-9)
              << preset << " step " << step << " layer " << l;
        }
      }
      before = std::move(now);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Distances, DriftTest,
                         ::testing::Values(0.01, 0.05, 0.2));

TEST(DriftSequenceTest, PopularityKeepsItsShape) {
  WorkloadSpec spec = Small();
  spec.drift = 0.1;
  const auto concentration = [&](uint64_t step) {
    spec.step = step;
    double squares = 0;
    for (const double p : Make(spec).routing().Expected(0)) squares += p * p;
    return squares * spec.num_experts;
  };
  EXPECT_NEAR(concentration(100), concentration(0), 0.1 * concentration(0));
}

TEST(DriftSequenceTest, RefusesADriftThatPopularityDoesNotAllow) {
  WorkloadSpec spec = Small(Imbalance::kBalanced);
  spec.drift = 0.05;
  spec.step = 1;
  EXPECT_THAT(Workload::Create(spec).status().message(),
              HasSubstr("drift 0.05 is beyond"));
}

TEST(ShapeTest, TopicsMakeGroupsAlikeAndDifferentFromEachOther) {
  WorkloadSpec spec = Small();
  spec.num_layers = 1;
  const Workload workload = Make(spec);
  double inside = 0;
  double across = 0;
  const auto share = [&](uint32_t i) {
    std::vector<double> result;
    for (const uint32_t count : CountsOf(workload, i)) {
      result.push_back(count / (4.0 * workload.info(i).tokens));
    }
    return result;
  };
  for (uint32_t i = 0; i + 4 < 96; i += 4) {
    inside += TotalVariation(share(i), share(i + 1));
    across += TotalVariation(share(i), share(i + 4));
  }
  EXPECT_LT(1.5 * inside, across);
}

TEST(ShapeTest, HotExpertsTakeTheirShare) {
  const Workload workload = Make(Small(Imbalance::kHotExperts));
  for (std::vector<double> load : Loads(workload)) {
    const double total = Sum(load);
    std::sort(load.rbegin(), load.rend());
    EXPECT_NEAR((load[0] + load[1] + load[2] + load[3]) / total, 0.3, 0.01);
    EXPECT_GT(load[3], 2 * load[4]);
  }
}

// [P] loads of the ranks under identity placement, as shares.
std::vector<double> RankShares(const Workload& workload,
                               const std::vector<double>& load) {
  const uint32_t ranks = workload.spec().mesh.ep;
  std::vector<double> shares(ranks);
  for (size_t e = 0; e < load.size(); ++e) {
    shares[e * ranks / load.size()] += load[e] / Sum(load);
  }
  return shares;
}

TEST(ShapeTest, HotRankIsTheSameRankInAllLayers) {
  WorkloadSpec spec = Small(Imbalance::kHotRank);
  spec.hot_share = 0.6;
  const Workload workload = Make(spec);
  std::set<size_t> hot;
  for (const std::vector<double>& load : Loads(workload)) {
    const std::vector<double> shares = RankShares(workload, load);
    const auto most = std::max_element(shares.begin(), shares.end());
    EXPECT_NEAR(*most, 0.6, 0.01);
    hot.insert(most - shares.begin());
  }
  EXPECT_EQ(hot.size(), 1u);
}

TEST(ShapeTest, SpreadHotExpertsLeaveRanksEven) {
  const Workload workload = Make(Small(Imbalance::kSpreadHotExperts));
  for (const std::vector<double>& load : Loads(workload)) {
    for (const double share : RankShares(workload, load)) {
      EXPECT_NEAR(share, 0.25, 0.01);
    }
    EXPECT_GT(*std::max_element(load.begin(), load.end()),
              2 * Sum(load) / load.size());
  }
}

TEST(ShapeTest, EmptyExpertsAndOneEmptyRankGetNothing) {
  const Workload workload = Make(Small(Imbalance::kEmptyExpertsAndRanks));
  for (const std::vector<double>& load : Loads(workload)) {
    // One rank of 8 experts and a quarter of the other 24.
    EXPECT_EQ(std::count(load.begin(), load.end(), 0.0), 8 + 6);
    const std::vector<double> shares = RankShares(workload, load);
    EXPECT_EQ(std::count(shares.begin(), shares.end(), 0.0), 1);
  }
}

TEST(ShapeTest, RaggedSourcesHaveLongTailedLengthsAndEvenRouting) {
  const Workload workload = Make(Small(Imbalance::kRaggedSources));
  std::vector<uint32_t> lengths;
  for (uint32_t i = 0; i < 96; ++i) {
    lengths.push_back(workload.info(i).tokens);
  }
  std::sort(lengths.begin(), lengths.end());
  EXPECT_GT(lengths.back(), 5 * lengths[48]);
  for (const double p : workload.routing().Expected(0)) {
    EXPECT_DOUBLE_EQ(p, 1.0 / 32);
  }
}

TEST(ShapeTest, RotatingHotspotMovesOnInsideTheWindow) {
  const Workload workload = Make(Small(Imbalance::kRotatingHotspot));
  std::set<size_t> hottest;
  for (uint32_t segment = 0; segment < 8; ++segment) {
    const std::vector<double> load =
        Loads(workload, 12 * segment, 12 * (segment + 1))[0];
    hottest.insert(std::max_element(load.begin(), load.end()) - load.begin());
  }
  EXPECT_GE(hottest.size(), 4u);
}

TEST(ShapeTest, BurstsHitSomeGroupsOnly) {
  WorkloadSpec spec = Small(Imbalance::kBursts);
  spec.num_samples = 400;
  spec.hot_share = 0.9;
  const Workload workload = Make(spec);
  int bursts = 0;
  for (uint32_t group = 0; group < 100; ++group) {
    std::vector<double> load = Loads(workload, 4 * group, 4 * group + 4)[0];
    const double total = Sum(load);
    std::sort(load.rbegin(), load.rend());
    const double hot = (load[0] + load[1] + load[2] + load[3]) / total;
    EXPECT_TRUE(hot < 0.3 || hot > 0.8) << hot;
    bursts += hot > 0.8;
  }
  EXPECT_GE(bursts, 4);
  EXPECT_LE(bursts, 24);
}

TEST(PresetTest, RowsAreAsIntended) {
  const auto rows = [](const char* preset) {
    const WorkloadSpec spec = *WorkloadPreset(preset);
    const Workload workload = Make(spec);
    std::vector<uint32_t> lengths;
    for (uint32_t i = 0; i < spec.num_samples; ++i) {
      lengths.push_back(workload.info(i).tokens);
    }
    return FewestRows(lengths,
                      {.num_slots = spec.mesh.dp, .token_cap = spec.token_cap},
                      Budget{})
        ->rows;
  };
  EXPECT_EQ(rows("tiny"), 8u);
  EXPECT_EQ(rows("flash"), 4u);
  EXPECT_EQ(rows("xl"), 16u);
  EXPECT_NEAR(rows("long"), 94, 4);
}

TEST(PresetTest, TopologiesHaveTheStatedShards) {
  const std::vector<std::pair<const char*, uint32_t>> shards = {
      {"tiny", 1}, {"flash", 2}, {"long", 1}, {"xl", 4}};
  for (const auto& [preset, number] : shards) {
    const Workload workload = Make(*WorkloadPreset(preset));
    const absl::StatusOr<WindowSpec> spec = DecodeSpec(workload.header());
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->topology.num_shards(), number) << preset;
    EXPECT_FALSE(spec->attention.empty());
  }
}

TEST(SpecTest, ErrorsNameTheParameterAndItsValue) {
  const auto message = [](auto&& change) {
    WorkloadSpec spec = Small();
    change(spec);
    const absl::Status status = Workload::Create(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message([](auto& s) { s.num_samples = 0; }),
              HasSubstr("samples 0"));
  EXPECT_THAT(message([](auto& s) { s.num_experts = 30; }),
              HasSubstr("experts 30"));
  EXPECT_THAT(message([](auto& s) { s.top_k = 33; }), HasSubstr("top_k 33"));
  EXPECT_THAT(message([](auto& s) { s.topic_share = 1.5; }),
              HasSubstr("topic_share 1.5"));
  EXPECT_THAT(message([](auto& s) { s.zipf = std::nan(""); }),
              HasSubstr("zipf nan"));
  EXPECT_THAT(message([](auto& s) { s.lengths.mean = 5000; }),
              HasSubstr("mean_tokens 5000"));
  EXPECT_THAT(message([](auto& s) { s.lengths.tail = 1; }),
              HasSubstr("tail 1"));
  EXPECT_THAT(message([](auto& s) {
                s.imbalance = Imbalance::kHotExperts;
                s.hot_experts = 1;
                s.hot_share = 0.5;
              }),
              HasSubstr("hot_share 0.5 is not possible"));
  EXPECT_THAT(message([](auto& s) {
                s.imbalance = Imbalance::kEmptyExpertsAndRanks;
                s.empty_share = 1;
              }),
              HasSubstr("empty_share 1 leaves 0 experts"));
  EXPECT_THAT(message([](auto& s) { s.mesh.dp = 3; }), HasSubstr("dp"));
}

TEST(SpecTest, NamesRoundTripAndUnknownOnesListAll) {
  for (size_t i = 0; i < ImbalanceNames().size(); ++i) {
    EXPECT_EQ(*ParseImbalance(ImbalanceNames()[i]), static_cast<Imbalance>(i));
  }
  for (size_t i = 0; i < LengthKindNames().size(); ++i) {
    EXPECT_EQ(*ParseLengthKind(LengthKindNames()[i]),
              static_cast<LengthKind>(i));
  }
  EXPECT_THAT(ParseImbalance("warm").status().message(), HasSubstr("hot-rank"));
  EXPECT_THAT(WorkloadPreset("huge").status().message(), HasSubstr("flash"));
}

}  // namespace
}  // namespace routepack
