#include "planner/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/planner/thread_counts.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUTEPACK_SANITIZED 1
#else
#define ROUTEPACK_SANITIZED 0
#endif

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Counts = std::vector<uint32_t>;

struct TestSample {
  SampleInfo info;
  std::optional<Counts> counts;
};

Topology OneShard(uint32_t slots, uint32_t ranks) {
  return Topology::FromShards(slots, ranks, {}).value();
}

// 2 layers, 4 experts on 2 ranks, top-2, 4 slots, cap 100.
WindowSpec SmallSpec(uint32_t num_samples) {
  return {.num_samples = num_samples,
          .num_layers = 2,
          .num_experts = 4,
          .top_k = 2,
          .token_cap = 100,
          .topology = OneShard(4, 2)};
}

absl::StatusOr<Window> Build(const WindowSpec& spec,
                             const std::vector<TestSample>& samples) {
  auto builder = WindowBuilder::Create(spec);
  if (!builder.ok()) return builder.status();
  for (const TestSample& sample : samples) {
    builder->AddSample(sample.info, sample.counts);
  }
  return std::move(*builder).Seal();
}

// Routes token by token: each picks top_k different experts.
Counts RouteTokens(std::mt19937& random, const WindowSpec& spec,
                   uint32_t tokens) {
  Counts counts(size_t{spec.num_layers} * spec.num_experts);
  for (uint32_t l = 0; l < spec.num_layers; ++l) {
    for (uint32_t t = 0; t < tokens; ++t) {
      std::set<uint32_t> chosen;
      while (chosen.size() < spec.top_k) {
        chosen.insert(random() % spec.num_experts);
      }
      for (uint32_t e : chosen) ++counts[l * spec.num_experts + e];
    }
  }
  return counts;
}

std::vector<TestSample> RandomSamples(std::mt19937& random,
                                      const WindowSpec& spec) {
  std::vector<TestSample> samples;
  for (uint32_t i = 0; i < spec.num_samples; ++i) {
    const uint32_t tokens = 1 + random() % 50;
    const uint32_t routed = tokens - random() % 2;
    samples.push_back({{.id = i * 7 + 3, .tokens = tokens, .group = i / 2},
                       RouteTokens(random, spec, routed)});
  }
  return samples;
}

// "field: description" of every violation.
std::vector<std::string> Listed(const absl::Status& status) {
  std::vector<std::string> lines;
  for (const FieldViolation& violation : ViolationsOf(status)) {
    lines.push_back(violation.field + ": " + violation.description);
  }
  return lines;
}

const Counts kFiveTokens = {5, 5, 0, 0, 2, 3, 1, 4};  // sums 10 and 10

TEST(Window, HoldsWhatWasAdded) {
  for (uint32_t cap : {100u, 70'000u}) {  // stored in 16 and in 32 bits
    std::mt19937 random(1);
    WindowSpec spec = SmallSpec(9);
    spec.token_cap = cap;
    const auto samples = RandomSamples(random, spec);
    const auto window = Build(spec, samples);
    ASSERT_TRUE(window.ok()) << window.status();
    ASSERT_EQ(window->num_samples(), 9u);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < 9; ++i) {
      EXPECT_EQ(window->samples()[i].id, samples[i].info.id);
      EXPECT_EQ(window->samples()[i].group, samples[i].info.group);
      EXPECT_EQ(window->tokens(i), samples[i].info.tokens);
      tokens += samples[i].info.tokens;
      for (uint32_t l = 0; l < 2; ++l) {
        for (uint32_t e = 0; e < 4; ++e) {
          EXPECT_EQ(window->count(i, l, e), (*samples[i].counts)[l * 4 + e]);
        }
      }
    }
    EXPECT_EQ(window->total_tokens(), tokens);
    EXPECT_THAT(window->imputed(), IsEmpty());
  }
}

TEST(Window, HoldsCountsAbove16Bits) {
  WindowSpec spec = SmallSpec(1);
  spec.token_cap = 1 << 20;
  const uint32_t t = 100'000;
  const auto window =
      Build(spec, {{{.id = 1, .tokens = t}, Counts{t, t, 0, 0, 0, t, 0, t}}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(window->count(0, 1, 3), t);
}

TEST(Window, ExpertLoadsAddUpSamples) {
  for (uint32_t cap : {100u, 70'000u}) {
    std::mt19937 random(2);
    WindowSpec spec = SmallSpec(40);
    spec.num_layers = 3;
    spec.num_experts = 1000;  // more columns than one task takes
    spec.token_cap = cap;
    const auto samples = RandomSamples(random, spec);
    const auto window = Build(spec, samples);
    ASSERT_TRUE(window.ok()) << window.status();
    std::vector<uint64_t> expected(3000);
    for (const TestSample& sample : samples) {
      for (size_t j = 0; j < 3000; ++j) expected[j] += (*sample.counts)[j];
    }
    OnSeveralThreadCounts([&] { EXPECT_EQ(window->ExpertLoads(), expected); });
  }
}

TEST(Window, ExpertLoadsPass32Bits) {
  // 70,000 samples of 65,535 tokens, all to experts 0 and 1.
  WindowSpec spec = SmallSpec(70'000);
  spec.num_layers = 1;
  spec.token_cap = 65'535;
  auto builder = WindowBuilder::Create(spec);
  ASSERT_TRUE(builder.ok()) << builder.status();
  const Counts counts = {65'535, 65'535, 0, 0};
  for (uint32_t i = 0; i < spec.num_samples; ++i) {
    builder->AddSample({.id = i, .tokens = 65'535}, counts);
  }
  const auto window = std::move(*builder).Seal();
  ASSERT_TRUE(window.ok()) << window.status();
  const uint64_t load = uint64_t{70'000} * 65'535;
  EXPECT_THAT(window->ExpertLoads(), ElementsAre(load, load, 0, 0));
}

TEST(Window, OccupancyIsRoundedUp) {
  WindowSpec spec = SmallSpec(2);
  spec.length_multiple = 8;
  spec.num_layers = 1;
  const auto window =
      Build(spec, {{{.id = 1, .tokens = 5}, Counts{5, 5, 0, 0}},
                   {{.id = 2, .tokens = 96}, Counts{96, 96, 0, 0}}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(window->occupancy(0), 8u);
  EXPECT_EQ(window->occupancy(1), 96u);
}

TEST(WindowCounts, AcceptTheLastTokenUnrouted) {
  // 4 of 5 tokens routed, in one layer or in both.
  EXPECT_TRUE(
      Build(SmallSpec(1), {{{.tokens = 5}, Counts{4, 4, 0, 0, 2, 2, 1, 3}}})
          .ok());
  EXPECT_TRUE(Build(SmallSpec(1), {{{.tokens = 1}, Counts(8, 0)}}).ok());
}

TEST(WindowCounts, RefuseOtherSums) {
  const auto window = Build(
      SmallSpec(2), {{{.id = 1, .tokens = 5}, kFiveTokens},
                     {{.id = 2, .tokens = 5}, Counts{4, 5, 0, 0, 5, 5, 1, 0}}});
  EXPECT_EQ(window.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      Listed(window.status()),
      ElementsAre("samples[1].counts: layer 0: must add up to top_k * tokens "
                  "= 10 or top_k * (tokens - 1) = 8, is 9",
                  "samples[1].counts: layer 1: must add up to top_k * tokens "
                  "= 10 or top_k * (tokens - 1) = 8, is 11"));
}

TEST(WindowCounts, MayAddUpToLessWhenPartial) {
  WindowSpec spec = SmallSpec(1);
  spec.partial_counts = true;
  EXPECT_TRUE(
      Build(spec, {{{.tokens = 5}, Counts{1, 2, 0, 0, 0, 0, 0, 0}}}).ok());
  EXPECT_TRUE(Build(spec, {{{.tokens = 5}, kFiveTokens}}).ok());
  const auto window =
      Build(spec, {{{.tokens = 5}, Counts{5, 5, 1, 0, 0, 0, 0, 0}}});
  EXPECT_THAT(Listed(window.status()),
              ElementsAre("samples[0].counts: layer 0: must add up to at most "
                          "top_k * tokens = 10, is 11"));
}

TEST(WindowCounts, RefuseACountAboveTheTokens) {
  for (uint32_t count :
       {6u, 0x7FFFFFFFu, 0x80000000u, 0x80000006u, 0xFFFFFFFFu}) {
    for (size_t e = 0; e < 4; ++e) {
      Counts counts = kFiveTokens;
      counts[4 + e] = count;
      const auto window = Build(SmallSpec(1), {{{.tokens = 5}, counts}});
      EXPECT_THAT(Listed(window.status()),
                  ElementsAre("samples[0].counts: layer 1, expert " +
                              std::to_string(e) +
                              ": must be at most the sample's tokens = 5, is " +
                              std::to_string(count)));
    }
  }
}

TEST(WindowCounts, RefuseSumsThatAreRightOnlyModulo32Bits) {
  // 2^32 + 2 * 2^26 = 66 * 2^26.
  WindowSpec spec = SmallSpec(1);
  spec.num_layers = 1;
  spec.num_experts = 128;
  spec.token_cap = kMaxTokenCap;
  const uint32_t t = kMaxTokenCap;
  Counts counts(128, 0);
  std::fill_n(counts.begin(), 66, t);
  const auto window = Build(spec, {{{.tokens = t}, counts}});
  ASSERT_EQ(Listed(window.status()).size(), 1u);
  EXPECT_THAT(Listed(window.status())[0], HasSubstr("is 4429185024"));
}

TEST(WindowCounts, RefuseAnotherSize) {
  for (size_t size : {0, 7, 9}) {
    const auto window = Build(SmallSpec(1), {{{.tokens = 5}, Counts(size, 0)}});
    EXPECT_THAT(Listed(window.status()),
                ElementsAre("samples[0].counts: must have num_layers * "
                            "num_experts = 2 * 4 = 8 entries, has " +
                            std::to_string(size)));
  }
}

TEST(WindowSamples, MustFitTheCap) {
  const Counts full(4, 50);
  WindowSpec spec = SmallSpec(1);
  spec.num_layers = 1;
  const auto fits = Build(spec, {{{.tokens = 100}, full}});
  EXPECT_TRUE(fits.ok()) << fits.status();
  EXPECT_THAT(
      Listed(Build(spec, {{{.tokens = 101}, Counts{50, 50, 50, 52}}}).status()),
      ElementsAre("samples[0].tokens: must be at most token_cap = 100, is "
                  "101"));
  spec.length_multiple = 16;
  EXPECT_THAT(
      Listed(Build(spec, {{{.tokens = 97}, Counts{50, 50, 47, 47}}}).status()),
      ElementsAre("samples[0].tokens: must be at most token_cap = 100, is 97 "
                  "(112 rounded up to a multiple of 16)"));
}

TEST(WindowSamples, MustHaveTokens) {
  EXPECT_THAT(
      Listed(Build(SmallSpec(1), {{{.tokens = 0}, Counts(8, 0)}}).status()),
      ElementsAre("samples[0].tokens: must be at least 1, is 0"));
}

TEST(WindowSamples, HugeLengthsAreRefusedOnce) {
  const auto window =
      Build(SmallSpec(1),
            {{{.tokens = std::numeric_limits<uint32_t>::max()}, Counts(8, 1)}});
  EXPECT_THAT(Listed(window.status()),
              ElementsAre("samples[0].tokens: must be at most token_cap = 100, "
                          "is 4294967295"));
}

TEST(WindowSamples, MustHaveDifferentIds) {
  const auto window =
      Build(SmallSpec(5), {{{.id = 9, .tokens = 5}, kFiveTokens},
                           {{.id = 4, .tokens = 5}, kFiveTokens},
                           {{.id = 9, .tokens = 5}, kFiveTokens},
                           {{.id = 4, .tokens = 5}, kFiveTokens},
                           {{.id = 9, .tokens = 5}, kFiveTokens}});
  EXPECT_THAT(
      Listed(window.status()),
      ElementsAre(
          "samples[2].id: must be unique, 9 is also the id of samples[0]",
          "samples[3].id: must be unique, 4 is also the id of samples[1]",
          "samples[4].id: must be unique, 9 is also the id of samples[0]"));
}

TEST(WindowSamples, MustBeAsManyAsAnnounced) {
  EXPECT_THAT(
      Listed(Build(SmallSpec(2), {{{.tokens = 5}, kFiveTokens}}).status()),
      ElementsAre("samples: must be header.num_samples = 2, are 1"));
  EXPECT_THAT(
      Listed(Build(SmallSpec(1), {{{.id = 1, .tokens = 5}, kFiveTokens},
                                  {{.id = 2, .tokens = 5}, kFiveTokens},
                                  {{.id = 3, .tokens = 5}, kFiveTokens}})
                 .status()),
      ElementsAre("samples: more than header.num_samples = 1"));
}

TEST(WindowSamples, ViolationsFoundWhileDecodingAreListed) {
  auto builder = WindowBuilder::Create(SmallSpec(2));
  ASSERT_TRUE(builder.ok());
  builder->AddSample({.id = 1, .tokens = 5}, kFiveTokens);
  builder->AddBadSample({.id = 2, .tokens = 200}, ".counts.u16",
                        "must have 16 bytes, has 15");
  EXPECT_EQ(builder->num_added(), 2u);
  EXPECT_EQ(builder->violations().total(), 2u);
  EXPECT_THAT(Listed(std::move(*builder).Seal().status()),
              ElementsAre("samples[1].counts.u16: must have 16 bytes, has 15",
                          "samples[1].tokens: must be at most token_cap = 100, "
                          "is 200"));
}

TEST(WindowSamples, EveryViolationIsCounted) {
  auto builder = WindowBuilder::Create(SmallSpec(20'000));
  ASSERT_TRUE(builder.ok());
  for (uint32_t i = 0; i < 20'000; ++i) {
    builder->AddSample({.id = 1, .tokens = 5}, Counts(8, 1));
  }
  EXPECT_EQ(builder->violations().total(), 40'000u);  // two layers each
  const absl::Status status = std::move(*builder).Seal().status();
  EXPECT_EQ(ViolationsOf(status).size(), Violations::kMaxKept);
  EXPECT_THAT(std::string(status.message()), HasSubstr("and 59998 more"));
}

struct BadHeader {
  std::function<void(WindowSpec&)> spoil;
  std::vector<std::string> listed;
};

TEST(WindowHeader, NamesEachFieldOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<BadHeader> cases = {
      {[](WindowSpec& s) { s.num_samples = 0; },
       {"header.num_samples: must be in [1, 16777216], is 0"}},
      {[](WindowSpec& s) { s.num_samples = kMaxSamples + 1; },
       {"header.num_samples: must be in [1, 16777216], is 16777217"}},
      {[](WindowSpec& s) { s.num_layers = 0; },
       {"header.num_layers: must be in [1, 4096], is 0"}},
      {[](WindowSpec& s) { s.num_layers = kMaxLayers + 1; },
       {"header.num_layers: must be in [1, 4096], is 4097"}},
      {[](WindowSpec& s) { s.num_experts = 0; },
       {"header.num_experts: must be in [1, 65536], is 0",
        "header.top_k: must be in [1, 1], is 2"}},
      {[](WindowSpec& s) { s.num_experts = kMaxExperts + 2; },
       {"header.num_experts: must be in [1, 65536], is 65538"}},
      {[](WindowSpec& s) { s.num_experts = 5; },
       {"header.num_experts: must be a multiple of the EP size 2, is 5"}},
      {[](WindowSpec& s) { s.top_k = 0; },
       {"header.top_k: must be in [1, 4], is 0"}},
      {[](WindowSpec& s) { s.top_k = 5; },
       {"header.top_k: must be in [1, 4], is 5"}},
      {[](WindowSpec& s) { s.token_cap = 0; },
       {"header.token_cap: must be in [1, 67108864], is 0"}},
      {[](WindowSpec& s) { s.token_cap = kMaxTokenCap + 1; },
       {"header.token_cap: must be in [1, 67108864], is 67108865"}},
      {[](WindowSpec& s) { s.length_multiple = 0; },
       {"header.length_multiple: must be in [1, 100], is 0"}},
      {[](WindowSpec& s) { s.length_multiple = 101; },
       {"header.length_multiple: must be in [1, 100], is 101"}},
      {[&](WindowSpec& s) {
         s.attention = {{"a", nan, -0.5}};
       },
       {"header.attention.stages[0].alpha: must be finite and at least 0, is "
        "nan",
        "header.attention.stages[0].beta: must be finite and at least 0, is "
        "-0.5"}},
      {[&](WindowSpec& s) {
         s.attention = {{"a", 1, 1}, {"b", 1, inf}};
       },
       {"header.attention.stages[1].beta: must be finite and at least 0, is "
        "inf"}},
      {[](WindowSpec& s) {
         s.pipeline = {.num_stages = 2, .stage_of_layer = {0}};
       },
       {"header.topology.moe_layers_per_stage: must give a stage to 2 layers, "
        "gives 1"}},
      {[](WindowSpec& s) {
         s.pipeline = {.num_stages = 2, .stage_of_layer = {0, 2}};
       },
       {"header.topology.moe_layers_per_stage: layer 1 must be in a stage "
        "below 2, is in 2"}},
      {[](WindowSpec& s) {
         s.pipeline = {.num_stages = kMaxStages + 1, .stage_of_layer = {0, 1}};
       },
       {"header.topology.moe_layers_per_stage: must be at most 4096 stages, "
        "are 4097"}},
  };
  for (const BadHeader& bad : cases) {
    WindowSpec spec = SmallSpec(1);
    bad.spoil(spec);
    const auto builder = WindowBuilder::Create(spec);
    EXPECT_EQ(builder.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Listed(builder.status()),
                ::testing::ElementsAreArray(bad.listed));
  }
}

TEST(WindowHeader, ListsAllFieldsAtOnce) {
  WindowSpec spec = SmallSpec(0);
  spec.num_layers = 0;
  spec.token_cap = 0;
  EXPECT_EQ(Listed(WindowBuilder::Create(spec).status()).size(), 3u);
}

TEST(WindowHeader, BoundsTheLoadOfARank) {
  // Shards of 16 and 48 slots: 48 * 2^25 * 2 = 3 * 2^30 fits 32 bits, top-3
  // does not, and with 16 slots it still does.
  std::vector<std::vector<uint32_t>> shards(2);
  for (uint32_t d = 0; d < 64; ++d) shards[d >= 16].push_back(d);
  WindowSpec spec = SmallSpec(1);
  spec.topology = Topology::FromShards(64, 2, shards).value();
  spec.token_cap = 1 << 25;
  EXPECT_TRUE(WindowBuilder::Create(spec).ok());
  spec.top_k = 3;
  EXPECT_THAT(
      Listed(WindowBuilder::Create(spec).status()),
      ElementsAre("header.token_cap: slots * token_cap * top_k of EDP shard 1 "
                  "must be below 2^32, is 48 * 33554432 * 3"));
}

TEST(WindowHeader, BoundsThePlacement) {
  WindowSpec spec = SmallSpec(1);
  spec.num_layers = 64;
  spec.num_experts = 1 << 16;
  EXPECT_TRUE(WindowBuilder::Create(spec).ok());
  spec.num_layers = 65;
  EXPECT_THAT(Listed(WindowBuilder::Create(spec).status()),
              ElementsAre("header.num_experts: num_layers * num_experts must "
                          "be at most 4194304, is 65 * 65536"));
}

TEST(WindowHeader, BoundsTheScore) {
  // 256 (alpha 100 + 2 layers * 2 * 100) < 2^53.
  const std::vector<TestSample> samples = {{{.tokens = 100}, Counts(8, 50)}};
  const double work = std::ldexp(1.0, 45);
  WindowSpec spec = SmallSpec(1);
  spec.attention = {{"a", (work - 4096) / 100, 0}};
  EXPECT_TRUE(Build(spec, samples).ok());
  spec.attention[0].alpha = work / 100;
  EXPECT_THAT(Listed(Build(spec, samples).status()),
              ElementsAre(HasSubstr("must be below 2^45 routed assignments")));
  // beta sum t^2 / C = 100 beta.
  spec.attention[0] = {"a", 0, (work - 4096) / 100};
  EXPECT_TRUE(Build(spec, samples).ok());
  spec.attention[0].beta = std::numeric_limits<double>::max();
  EXPECT_FALSE(Build(spec, samples).ok());
}

TEST(WindowHeader, RefusesWindowsBeyondATebibyte) {
  WindowSpec spec = SmallSpec(kMaxSamples);
  spec.num_layers = kMaxLayerExperts / kMaxExperts;
  spec.num_experts = kMaxExperts;
  EXPECT_THAT(Listed(WindowBuilder::Create(spec).status()),
              ElementsAre("header.num_samples: the window's counts take "
                          "140737756790784 bytes, the limit is "
                          "1099511627776"));
}

TEST(WindowBytes, CountsAndSamples) {
  EXPECT_EQ(WindowBytes(10, 3, 8, 65'535), 10u * 3 * 8 * 2 + 10 * 16);
  EXPECT_EQ(WindowBytes(10, 3, 8, 65'536), 10u * 3 * 8 * 4 + 10 * 16);
  EXPECT_EQ(WindowBytes(0, 3, 8, 100), 0u);
}

TEST(WindowBytes, Saturates) {
  const uint64_t max = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(WindowBytes(max, max, max, 100), max);
  EXPECT_EQ(WindowBytes(1, 1, max, 100), max);
  EXPECT_EQ(WindowBytes(2, max / 4, 1, 100), max);
  EXPECT_EQ(WindowBytes(1, max / 4, 1, 100), max / 4 * 2 + 16);
}

#if !ROUTEPACK_SANITIZED  // sanitizers have an address space of their own
TEST(WindowMemory, IsNotResidentBeforeSamplesCome) {
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    uint64_t total = 0, pages = 0;
    statm >> total >> pages;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  };
  WindowSpec spec = SmallSpec(1 << 14);
  spec.num_layers = 64;
  spec.num_experts = 256;  // 512 MiB
  const uint64_t before = resident();
  const auto builder = WindowBuilder::Create(spec);
  ASSERT_TRUE(builder.ok()) << builder.status();
  EXPECT_LT(resident(), before + (16 << 20));
}

[[noreturn]] void CreateInOneGibibyte() {
  const rlimit limit = {1u << 30, 1u << 30};
  setrlimit(RLIMIT_AS, &limit);
  WindowSpec spec = SmallSpec(1 << 20);
  spec.num_layers = 64;
  spec.num_experts = 256;  // 32 GiB
  const absl::Status status = WindowBuilder::Create(spec).status();
  _exit(status.code() == absl::StatusCode::kResourceExhausted ? 0 : 1);
}

TEST(WindowMemory, LackOfItIsResourceExhausted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(CreateInOneGibibyte(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(MissingCounts, AreAnErrorByDefault) {
  const auto window =
      Build(SmallSpec(2), {{{.id = 1, .tokens = 5}, kFiveTokens},
                           {{.id = 2, .tokens = 5}, std::nullopt}});
  ASSERT_EQ(Listed(window.status()).size(), 1u);
  EXPECT_THAT(Listed(window.status())[0],
              HasSubstr("samples[1].counts: is missing"));
}

WindowSpec MeanSpec(uint32_t num_samples) {
  WindowSpec spec = SmallSpec(num_samples);
  spec.missing_counts = MissingCounts::kWindowMean;
  return spec;
}

Counts CountsOf(const Window& window, uint32_t i) {
  return window.VisitCounts(
      i, [](auto counts) { return Counts(counts.begin(), counts.end()); });
}

TEST(MissingCounts, TakeTheWindowMean) {
  // Layer 0: loads 6, 3, 2, 1 of 12; 7 tokens have 14 assignments: 7, 3.5,
  // 2.33, 1.17. The largest remainder is expert 1's.
  // Layer 1: loads 3 each; 3.5 each: ties go to the lower ids.
  const Counts six_tokens = {6, 3, 2, 1, 3, 3, 3, 3};
  const auto window =
      Build(MeanSpec(3), {{{.id = 1, .tokens = 7}, std::nullopt},
                          {{.id = 2, .tokens = 6}, six_tokens},
                          {{.id = 3, .tokens = 1}, std::nullopt}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_THAT(window->imputed(), ElementsAre(0, 2));
  EXPECT_THAT(CountsOf(*window, 0), ElementsAre(7, 4, 2, 1, 4, 4, 3, 3));
  EXPECT_EQ(CountsOf(*window, 1), six_tokens);
  // 2 assignments: 1, 0.5, 0.33, 0.17, and 0.5 each.
  EXPECT_THAT(CountsOf(*window, 2), ElementsAre(1, 1, 0, 0, 1, 1, 0, 0));
}

TEST(MissingCounts, NeverPassTheTokens) {
  // Partial counts, expert 0 took all: it gets all 4 tokens, and the second
  // assignment of each is spread over experts nobody chose.
  WindowSpec spec = MeanSpec(2);
  spec.num_layers = 1;
  spec.partial_counts = true;
  const auto window = Build(spec, {{{.id = 1, .tokens = 9}, Counts{9, 0, 0, 0}},
                                   {{.id = 2, .tokens = 4}, std::nullopt}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_THAT(CountsOf(*window, 1), ElementsAre(4, 2, 1, 1));
}

TEST(MissingCounts, AreUniformWhereNothingWasRouted) {
  WindowSpec spec = MeanSpec(2);
  const auto window = Build(spec, {{{.id = 1, .tokens = 1}, Counts(8, 0)},
                                   {{.id = 2, .tokens = 4}, std::nullopt}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(CountsOf(*window, 1), Counts(8, 2));
}

TEST(MissingCounts, NeedOneSampleWithCounts) {
  const auto window =
      Build(MeanSpec(2), {{{.id = 1, .tokens = 5}, std::nullopt},
                          {{.id = 2, .tokens = 5}, std::nullopt}});
  EXPECT_THAT(Listed(window.status()),
              ElementsAre("samples: none has counts, so that there is no "
                          "window mean"));
}

TEST(MissingCounts, StayWithinOneOfTheirShare) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    WindowSpec spec = MeanSpec(12);
    spec.num_experts = 16;
    spec.top_k = 1 + random() % 4;
    spec.token_cap = trial % 2 == 0 ? 100 : 70'000;
    auto samples = RandomSamples(random, spec);
    for (TestSample& sample : samples) {
      if (random() % 3 == 0) sample.counts.reset();
    }
    samples[0].counts = RouteTokens(random, spec, samples[0].info.tokens);
    const auto window = Build(spec, samples);
    ASSERT_TRUE(window.ok()) << window.status();
    std::vector<uint64_t> loads(2 * 16);
    for (const TestSample& sample : samples) {
      if (!sample.counts.has_value()) continue;
      for (size_t j = 0; j < 32; ++j) loads[j] += (*sample.counts)[j];
    }
    for (uint32_t i : window->imputed()) {
      EXPECT_FALSE(samples[i].counts.has_value());
      const uint32_t t = samples[i].info.tokens;
      for (uint32_t l = 0; l < 2; ++l) {
        double all = 0;
        for (uint32_t e = 0; e < 16; ++e) all += loads[l * 16 + e];
        uint64_t sum = 0;
        for (uint32_t e = 0; e < 16; ++e) {
          const uint32_t count = window->count(i, l, e);
          const double share = spec.top_k * t * (loads[l * 16 + e] / all);
          EXPECT_LE(count, t);
          EXPECT_GT(count, std::min<double>(share, t) - 1);
          if (spec.top_k == 1) {
            EXPECT_LT(count, share + 1);
          }
          sum += count;
        }
        EXPECT_EQ(sum, spec.top_k * t);
      }
    }
  }
}

TEST(MissingCounts, DoNotDependOnThreads) {
  std::mt19937 random(8);
  WindowSpec spec = MeanSpec(30);
  spec.num_experts = 64;
  auto samples = RandomSamples(random, spec);
  for (size_t i = 1; i < samples.size(); i += 2) samples[i].counts.reset();
  std::set<std::string> digests;
  OnSeveralThreadCounts(
      [&] { digests.insert(Build(spec, samples)->digest()); });
  EXPECT_EQ(digests.size(), 1u);
}

struct Input {
  WindowSpec spec = SmallSpec(2);
  std::vector<TestSample> samples = {
      {{.id = 1, .tokens = 5, .group = 1}, kFiveTokens},
      {{.id = 2, .tokens = 5, .group = 1}, kFiveTokens}};
};

std::string DigestOf(const Input& input) {
  const auto window = Build(input.spec, input.samples);
  EXPECT_TRUE(window.ok()) << window.status();
  return window.ok() ? window->digest() : "";
}

TEST(WindowDigest, NeverChanges) {
  Input input;
  input.spec.attention = {{"gqa", 192, 341.25}};
  EXPECT_EQ(DigestOf(input), "1d578ed23596ce7afaf25f389c93aaf6");
}

TEST(WindowDigest, TellsEveryFieldApart) {
  const std::vector<std::function<void(Input&)>> changes = {
      [](Input&) {},
      [](Input& in) {
        in.spec.num_samples = 3;
        in.samples.push_back({{.id = 3, .tokens = 5, .group = 1}, kFiveTokens});
      },
      [](Input& in) {
        in.spec.num_layers = 1;
        for (auto& sample : in.samples) sample.counts->resize(4);
      },
      [](Input& in) {
        in.spec.num_layers = 1;
        in.spec.num_experts = 8;
        in.spec.partial_counts = true;
        for (auto& sample : in.samples) sample.counts = Counts(8, 1);
      },
      [](Input& in) {
        in.spec.num_layers = 4;
        in.spec.num_experts = 2;
        in.spec.partial_counts = true;
        for (auto& sample : in.samples) sample.counts = Counts(8, 1);
      },
      [](Input& in) {
        in.spec.partial_counts = true;
        for (auto& sample : in.samples) sample.counts = Counts(8, 1);
      },
      [](Input& in) {
        in.spec.partial_counts = true;
        in.spec.top_k = 3;
        for (auto& sample : in.samples) sample.counts = Counts(8, 1);
      },
      [](Input& in) { in.spec.token_cap = 99; },
      [](Input& in) { in.spec.token_cap = 70'000; },
      [](Input& in) { in.spec.length_multiple = 2; },
      [](Input& in) { in.spec.topology = OneShard(5, 2); },
      [](Input& in) { in.spec.topology = OneShard(4, 4); },
      [](Input& in) {
        in.spec.topology = Topology::FromShards(4, 2, {{0, 1}, {2, 3}}).value();
      },
      [](Input& in) {
        in.spec.topology = Topology::FromShards(4, 2, {{2, 3}, {0, 1}}).value();
      },
      [](Input& in) {
        in.spec.attention = {{"a", 1, 2}};
      },
      [](Input& in) {
        in.spec.attention = {{"b", 1, 2}};
      },
      [](Input& in) {
        in.spec.attention = {{"a", 2, 1}};
      },
      [](Input& in) {
        in.spec.attention = {{"a", 1, 2.0000000000000004}};
      },
      [](Input& in) {
        in.spec.attention = {{"a", 1, 2}, {"", 0, 0}};
      },
      [](Input& in) {
        in.spec.pipeline = {.num_stages = 2, .stage_of_layer = {0, 1}};
      },
      [](Input& in) {
        in.spec.pipeline = {.num_stages = 2, .stage_of_layer = {1, 0}};
      },
      [](Input& in) {
        in.spec.pipeline = {.num_stages = 3, .stage_of_layer = {0, 1}};
      },
      [](Input& in) { in.spec.counts_origin = CountsOrigin::kReplayed; },
      [](Input& in) { in.spec.counts_origin = CountsOrigin::kPredicted; },
      [](Input& in) { in.spec.partial_counts = true; },
      [](Input& in) { in.spec.missing_counts = MissingCounts::kWindowMean; },
      [](Input& in) {
        in.spec.missing_counts = MissingCounts::kWindowMean;
        in.samples[1].counts.reset();
      },
      [](Input& in) { in.samples[1].info.id = 3; },
      [](Input& in) { in.samples[1].info.group = 2; },
      [](Input& in) { in.samples[1].info.tokens = 6; },
      [](Input& in) {
        std::swap((*in.samples[1].counts)[6], (*in.samples[1].counts)[7]);
      },
      [](Input& in) { std::swap(in.samples[0], in.samples[1]); },
  };
  std::set<std::string> digests;
  for (size_t c = 0; c < changes.size(); ++c) {
    Input input;
    changes[c](input);
    const std::string digest = DigestOf(input);
    EXPECT_EQ(digest.size(), 32u);
    EXPECT_TRUE(digests.insert(digest).second) << "change " << c;
  }
}

TEST(WindowDigest, IsTheSameForTheSameWindow) {
  EXPECT_EQ(DigestOf(Input()), DigestOf(Input()));
}

}  // namespace
}  // namespace routepack
