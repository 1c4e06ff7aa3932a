#include "proto/codec/search_codec.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "tests/codec/test_messages.h"
#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

SearchOptions Decoded(const v1::SearchOptions& message) {
  Violations bad;
  const SearchOptions options = DecodeSearchOptions(message, bad);
  EXPECT_TRUE(bad.empty()) << bad.ToStatus();
  return options;
}

std::vector<std::string> FieldsOf(const v1::SearchOptions& message) {
  Violations bad;
  (void)DecodeSearchOptions(message, bad);
  return Fields(bad.ToStatus());
}

TEST(SearchOptions, ThoseOfAnEmptyMessageAreTheDefaults) {
  EXPECT_EQ(Decoded({}), SearchOptions{});
}

TEST(SearchOptions, EveryFieldComesBack) {
  for (const Effort effort :
       {Effort::kSeeds, Effort::kFast, Effort::kBalanced, Effort::kBest}) {
    const SearchOptions options{.effort = effort,
                                .steps = uint64_t{1} << 40,
                                .levels = 1024,
                                .population = 1023,
                                .candidates = 1 << 16,
                                .choice_width = 65'535,
                                .projections = 3,
                                .diversity_penalty = 1e6,
                                .guided_probability = 1,
                                .relocation_probability = 0.25};
    v1::SearchOptions message;
    EncodeSearchOptions(options, &message);
    v1::SearchOptions received;
    ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
    EXPECT_EQ(Decoded(received), options);
  }
}

TEST(SearchOptions, AProbabilityOfZeroIsNotAnAbsentOne) {
  v1::SearchOptions message;
  EncodeSearchOptions({.guided_probability = 0.0}, &message);
  EXPECT_TRUE(message.has_guided_probability());
  EXPECT_FALSE(message.has_relocation_probability());
  const SearchOptions options = Decoded(message);
  EXPECT_EQ(options.guided_probability, 0.0);
  EXPECT_EQ(options.relocation_probability, std::nullopt);
  EXPECT_EQ(options.diversity_penalty, std::nullopt);
}

struct BadOption {
  const char* name;
  std::function<void(v1::SearchOptions&)> spoil;
  const char* field;
};

const std::vector<BadOption>& BadOptions() {
  using S = v1::SearchOptions;
  static const auto* const options = new std::vector<BadOption>{
      {"Effort", [](S& s) { s.set_effort(static_cast<v1::Effort>(9)); },
       "effort"},
      {"Steps", [](S& s) { s.set_steps((uint64_t{1} << 40) + 1); }, "steps"},
      {"OneLevel", [](S& s) { s.set_levels(1); }, "levels"},
      {"Levels", [](S& s) { s.set_levels(1025); }, "levels"},
      {"Population", [](S& s) { s.set_population(1025); }, "population"},
      {"Candidates", [](S& s) { s.set_candidates(65'537); }, "candidates"},
      {"Width", [](S& s) { s.set_choice_width(65'537); }, "choice_width"},
      {"Projections", [](S& s) { s.set_projections(1025); }, "projections"},
      {"Penalty", [](S& s) { s.set_diversity_penalty(2e6); },
       "diversity_penalty"},
      {"NegativePenalty", [](S& s) { s.set_diversity_penalty(-0.5); },
       "diversity_penalty"},
      {"InfinitePenalty", [](S& s) { s.set_diversity_penalty(kInfinity); },
       "diversity_penalty"},
      {"Guided", [](S& s) { s.set_guided_probability(1.5); },
       "guided_probability"},
      {"NanGuided", [](S& s) { s.set_guided_probability(kNan); },
       "guided_probability"},
      {"NegativeRelocation",
       [](S& s) { s.set_relocation_probability(-1e-300); },
       "relocation_probability"},
      {"InfiniteRelocation",
       [](S& s) { s.set_relocation_probability(-kInfinity); },
       "relocation_probability"}};
  return *options;
}

TEST(SearchOptions, EveryValueOutOfRangeIsNamed) {
  for (const BadOption& bad : BadOptions()) {
    SCOPED_TRACE(bad.name);
    v1::PlanOptions message;
    bad.spoil(*message.mutable_search());
    const absl::Status status = DecodeOptions(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Fields(status),
                ElementsAre(std::string("header.options.search.") + bad.field));
  }
}

TEST(SearchOptions, AllThatIsOutOfRangeIsNamedAtOnce) {
  v1::SearchOptions message;
  message.set_effort(static_cast<v1::Effort>(-1));
  message.set_population(1u << 31);
  message.set_guided_probability(kNan);
  EXPECT_THAT(FieldsOf(message),
              ElementsAre("header.options.search.effort",
                          "header.options.search.population",
                          "header.options.search.guided_probability"));
}

// A report with something in every field.
SearchReport MakeReport(TestRandom& random) {
  const auto counts = [&] {
    return ProposalCounts{.steps = random.Below(1 << 30),
                          .infeasible = random.Below(1 << 20),
                          .stopped_early = random.Below(1 << 20),
                          .evaluated = random.Below(1 << 20),
                          .accepted = random.Below(1 << 20)};
  };
  SearchReport report{.proposals = counts(),
                      .candidates = random.Between(1, 100),
                      .distinct = random.Between(1, 100),
                      .population = random.Between(1, 100),
                      .restarts = random.Between(1, 100),
                      .diversity = 1.0 / random.Between(1, 1000),
                      .end = static_cast<SearchEnd>(random.Below(6))};
  for (const char* name : {"length-only", "best seed", "annealed"}) {
    report.stages.push_back(
        {.name = name,
         .score = {.slowest_shard = int64_t{random.Below(1u << 31)} << 20,
                   .total = random.Below(1u << 31),
                   .worst_row = random.Below(1u << 31)},
         .duration = absl::Nanoseconds(random.Between(1, 1u << 31))});
  }
  for (uint32_t l = 0; l < random.Between(1, 70); ++l) {
    report.levels.push_back(
        {.temperature = 1e-3 / random.Between(1, 1000),
         .proposals = counts(),
         .incumbent = {.slowest_shard = int64_t{random.Below(1u << 31)} << 19},
         .lowest_terminal = int64_t{random.Below(1u << 31)} << 18,
         .surviving_members = random.Between(1, 100)});
  }
  return report;
}

void ExpectSameCounts(const ProposalCounts& a, const ProposalCounts& b) {
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.infeasible, b.infeasible);
  EXPECT_EQ(a.stopped_early, b.stopped_early);
  EXPECT_EQ(a.evaluated, b.evaluated);
  EXPECT_EQ(a.accepted, b.accepted);
}

TEST(SearchReport, EveryFieldComesBack) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  TestRandom random(5);
  for (int round = 0; round < 50; ++round) {
    const SearchReport report = MakeReport(random);
    v1::SearchReport message;
    EncodeSearchReport(window, report, &message);
    v1::SearchReport received;
    ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
    Violations bad;
    const SearchReport back = DecodeSearchReport(window, received, bad);
    ASSERT_TRUE(bad.empty()) << bad.ToStatus();

    ASSERT_EQ(back.stages.size(), report.stages.size());
    for (size_t j = 0; j < back.stages.size(); ++j) {
      EXPECT_EQ(back.stages[j].name, report.stages[j].name);
      EXPECT_EQ(back.stages[j].score, report.stages[j].score);
      EXPECT_EQ(back.stages[j].duration, report.stages[j].duration);
    }
    ASSERT_EQ(back.levels.size(), report.levels.size());
    for (size_t j = 0; j < back.levels.size(); ++j) {
      const AnnealLevel& a = back.levels[j];
      const AnnealLevel& b = report.levels[j];
      EXPECT_EQ(a.temperature, b.temperature);
      ExpectSameCounts(a.proposals, b.proposals);
      EXPECT_EQ(a.incumbent, b.incumbent);
      EXPECT_EQ(a.lowest_terminal, b.lowest_terminal);
      EXPECT_EQ(a.surviving_members, b.surviving_members);
    }
    ExpectSameCounts(back.proposals, report.proposals);
    EXPECT_EQ(back.candidates, report.candidates);
    EXPECT_EQ(back.distinct, report.distinct);
    EXPECT_EQ(back.population, report.population);
    EXPECT_EQ(back.restarts, report.restarts);
    EXPECT_EQ(back.diversity, report.diversity);
    EXPECT_EQ(back.end, report.end);

    v1::SearchReport again;
    EncodeSearchReport(window, back, &again);
    EXPECT_TRUE(MessageDifferencer::Equals(again, message));
  }
}

TEST(SearchReport, CostsAreInTokenCapUnitsAndTheRateIsThatOfAnnealing) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));  // C = 40
  SearchReport report{
      .stages = {{.name = "best seed",
                  .score = {.slowest_shard = 2 * 256 * 40},
                  .duration = absl::Seconds(9)},
                 {.name = "annealed", .duration = absl::Milliseconds(500)}},
      .levels = {{.incumbent = {.slowest_shard = 256 * 40},
                  .lowest_terminal = 3 * 256 * 40}},
      .proposals = {.steps = 1000}};
  v1::SearchReport message;
  EncodeSearchReport(window, report, &message);
  EXPECT_EQ(message.stages(0).joint(), 2);
  EXPECT_EQ(message.levels(0).joint(), 1);
  EXPECT_EQ(message.levels(0).lowest_terminal_joint(), 3);
  EXPECT_EQ(message.proposals_per_second(), 2000);
  // In a joint search other stages follow and both searches count.
  report.stages = {{.name = "attention first", .duration = absl::Seconds(3)},
                   {.name = "placement", .duration = absl::Seconds(7)},
                   {.name = "annealed", .duration = absl::Seconds(1)},
                   {.name = "placement", .duration = absl::Seconds(7)}};
  message.Clear();
  EncodeSearchReport(window, report, &message);
  EXPECT_EQ(message.proposals_per_second(), 250);
  // Without annealing there is no rate.
  report.levels.clear();
  EncodeSearchReport(window, report, &message);
  EXPECT_EQ(message.proposals_per_second(), 0);
}

TEST(SearchReport, WhatCannotBeReadIsNamed) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  const auto fields = [&](const std::function<void(v1::SearchReport&)>& spoil) {
    v1::SearchReport message;
    message.set_end(v1::SEARCH_END_STEPS_SPENT);
    message.add_stages();
    message.add_levels();
    message.add_levels();
    spoil(message);
    Violations bad;
    (void)DecodeSearchReport(window, message, bad);
    return Fields(bad.ToStatus());
  };
  EXPECT_THAT(fields([](auto&) {}), ElementsAre());
  EXPECT_THAT(fields([](auto& r) { r.clear_end(); }),
              ElementsAre("search_report.end"));
  EXPECT_THAT(fields([](auto& r) {
                r.mutable_stages(0)->mutable_duration()->set_nanos(-1);
                r.mutable_stages(0)->mutable_duration()->set_seconds(1);
              }),
              ElementsAre("search_report.stages[0].duration"));
  EXPECT_THAT(fields([](auto& r) { r.mutable_levels(1)->set_joint(kNan); }),
              ElementsAre("search_report.levels[1].joint"));
  EXPECT_THAT(fields([](auto& r) {
                r.mutable_levels(0)->set_lowest_terminal_joint(-1);
              }),
              ElementsAre("search_report.levels[0].lowest_terminal_joint"));
}

v1::Plan PlanOf(const Window& window, const PlanOptions& options) {
  const Placement identity =
      IdentityPlacement(window.num_layers(), window.num_experts(),
                        window.spec().topology.num_ranks());
  return EncodePlan(window, ValueOrDie(MakePlan(window, identity, options)),
                    options, {});
}

TEST(SearchReport, PlansStateTheOptionsThatWereUsed) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  const v1::Plan plan =
      PlanOf(window, {.min_rows = 5,
                      .allow_filler = true,
                      .search = {.effort = Effort::kFast, .levels = 3}});
  // 16 samples and 4 slots: 20 cells want 4 fillers, which are items too.
  ASSERT_EQ(plan.layout().filler_sample_ids_size(), 4);
  const v1::SearchOptions& used = plan.options().search();
  EXPECT_EQ(used.effort(), v1::EFFORT_FAST);
  EXPECT_EQ(used.levels(), 3u);
  const SearchOptions expected =
      ResolveSearch({.effort = Effort::kFast, .levels = 3}, 20);
  EXPECT_EQ(Decoded(used), expected);
  EXPECT_GT(used.steps(), 0u);
  // What a plan states can be asked for again.
  EXPECT_EQ(ResolveSearch(Decoded(used), 20), expected);
}

TEST(SearchReport, PlansSayHowTheSearchWent) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  const v1::Plan plan =
      PlanOf(window, {.search = {.steps = 400, .levels = 2, .population = 3}});
  const v1::SearchReport& report = plan.search_report();
  ASSERT_GE(report.stages_size(), 3);
  EXPECT_TRUE(MessageDifferencer::Equals(report.stages(0).score(),
                                         plan.reorder().score()));
  for (int j = 1; j < report.stages_size(); ++j) {
    EXPECT_LE(report.stages(j).joint(), report.stages(j - 1).joint());
  }
  EXPECT_EQ(report.stages(report.stages_size() - 1).joint(),
            plan.routepack().joint());
  EXPECT_LE(report.proposals().steps(), 400u);
  EXPECT_NE(report.end(), v1::SEARCH_END_UNSPECIFIED);

  const v1::Plan seeds = PlanOf(window, {.search = {.effort = Effort::kSeeds}});
  EXPECT_EQ(seeds.search_report().end(), v1::SEARCH_END_SEEDS_ONLY);
  EXPECT_EQ(seeds.search_report().levels_size(), 0);
  EXPECT_GE(seeds.routepack().joint(), plan.bounds().joint_for_placement());
}

TEST(SearchReport, IsAbsentWhenThereWasNoSearch) {
  const Window window = ValueOrDie(DecodeWindow(TinyWindow()));
  const Placement identity = IdentityPlacement(2, 8, 4);
  Plan plan = ValueOrDie(MakePlan(window, identity, {}));
  plan.search = {};
  const v1::Plan message = EncodePlan(window, plan, {}, {});
  EXPECT_FALSE(message.has_search_report());
  const absl::StatusOr<Plan> back = DecodePlan(window, message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->search.stages.empty());
}

}  // namespace
}  // namespace routepack
