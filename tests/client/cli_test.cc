// routepackctl as people and scripts meet it: exit codes, help, files, errors.

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "client/window_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "routepack/v1/planner_service.grpc.pb.h"
#include "tests/clear_timings.h"
#include "tests/client/ctl.h"
#include "tests/client/temp_folder.h"

namespace routepack {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kCommands[] = {
    "plan", "score", "generate", "convert", "count",  "info",  "submit",
    "get",  "rank",  "list",     "watch",   "cancel", "replay"};

// 24 samples of 3 layers x 8 experts, top-2, for 2 DP slots and 4 EP ranks.
v1::Window MakeWindow() {
  std::mt19937 random(11);
  v1::Window window;
  v1::WindowHeader& header = *window.mutable_header();
  header.mutable_key()->set_job_id("job");
  header.set_num_samples(24);
  header.set_num_layers(3);
  header.set_num_experts(8);
  header.set_top_k(2);
  header.set_token_cap(256);
  v1::MeshSizes& mesh = *header.mutable_topology()->mutable_mesh();
  mesh.set_ep(4);
  mesh.set_tp(2);
  mesh.set_dp(2);
  v1::AttentionStage& stage = *header.mutable_attention()->add_stages();
  stage.set_name("full");
  stage.set_alpha(2);
  stage.set_beta(1.5);
  for (uint32_t i = 0; i < header.num_samples(); ++i) {
    v1::Sample& sample = *window.add_samples();
    sample.set_id(100 + i);
    sample.set_tokens(30 + random() % 90);
    auto& values = *sample.mutable_counts()->mutable_dense()->mutable_values();
    for (uint32_t l = 0; l < 3; ++l) {
      std::vector<uint32_t> counts(8, 0);
      for (uint32_t t = 0; t < sample.tokens(); ++t) {
        const uint32_t first = (random() % 8) * (random() % 8) / 8;
        ++counts[first];
        ++counts[(first + 1 + random() % 7) % 8];
      }
      values.Add(counts.begin(), counts.end());
    }
  }
  return window;
}

class CliTest : public TempFolderTest {
 protected:
  void SetUp() override {
    TempFolderTest::SetUp();
    window_ = Path("window.json");
    Save(window_, MakeWindow());
  }
  static void Save(const std::string& path, const v1::Window& window) {
    const auto next =
        [&window, i = 0](v1::Sample* sample) mutable -> absl::StatusOr<bool> {
      if (i == window.samples_size()) return false;
      *sample = window.samples(i++);
      return true;
    };
    ASSERT_TRUE(WriteWindow(path, window.header(), next).ok());
  }
  // The plan of the window, as --json prints it.
  v1::Plan PlanWith(const std::string& flags) const {
    const Outcome outcome =
        Ctl("plan " + window_ + " --json " + flags, "2>/dev/null");
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    v1::Plan plan;
    EXPECT_TRUE(
        google::protobuf::util::JsonStringToMessage(outcome.output, &plan).ok())
        << outcome.output;
    return plan;
  }

  std::string window_;
};

TEST_F(CliTest, HelpListsEveryCommandWithItsSummary) {
  for (const char* way : {"--help", "-h", "help"}) {
    const Outcome help = Ctl(way);
    EXPECT_EQ(help.code, 0);
    for (const char* command : kCommands) {
      EXPECT_THAT(help.output,
                  ::testing::ContainsRegex(std::string("\n  ") + command +
                                           "  *[A-Z][^\n]*\\.\n"));
    }
  }
  EXPECT_EQ(Ctl("").code, 2);
  EXPECT_THAT(Ctl("--version").output, HasSubstr("routepackctl "));
}

TEST_F(CliTest, EveryCommandHasHelpOfItsOwn) {
  for (const std::string command : kCommands) {
    const Outcome help = Ctl(command + " --help");
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.output, HasSubstr("Usage: routepackctl " + command));
    EXPECT_THAT(help.output, HasSubstr("Examples:\n  routepackctl " + command));
    EXPECT_EQ(Ctl("help " + command).output, help.output);
    // Abseil's own flags and help for all flags of the program stay out.
    EXPECT_THAT(help.output, Not(HasSubstr("flagfile")));
  }
  EXPECT_THAT(Ctl("list --help").output, Not(HasSubstr("--ep=")));
  EXPECT_THAT(Ctl("plan --help").output, HasSubstr("--ep="));
}

TEST_F(CliTest, HelpLinesFitTheTerminal) {
  for (const std::string command : kCommands) {
    const std::string help = Ctl(command + " --help").output;
    // Examples are to be copied, and stay whole.
    std::istringstream lines(help.substr(0, help.find("\nExamples:")));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST_F(CliTest, UsageErrorsExitTwoAndSuggestTheNearestName) {
  const auto expect = [](const std::string& arguments,
                         const std::string& message) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message));
  };
  expect("paln", "unknown command 'paln'. Did you mean 'plan'?");
  expect("zzzzzz", "unknown command 'zzzzzz'.\n");
  expect("plan w --tokencap=3", "Did you mean '--token_cap'?");
  expect("list --ep=3", "unknown flag '--ep'.");
  expect("plan w --flagfile=x", "unknown flag '--flagfile'.");
  expect("plan w --ep=many", "--ep=many");
  expect("plan w --ep many", "--ep=many");
  expect("plan w --ep", "--ep needs a value");
  expect("plan w --noep", "unknown flag '--noep'.");
  expect("plan " + window_ + " --server=", "--server is empty");
  expect("plan " + window_ + " --server ''", "--server is empty");
  expect("list --server=", "--server is empty");
  expect("plan", "takes WINDOW, got 0 arguments");
  expect("score a", "takes WINDOW PLAN, got 1 argument.");
  expect("get", "--job is required");
  expect("plan " + window_ + " --placement=best",
         "lpt-relabel, keep or identity");
  expect("plan " + window_ + " --row_order=best", "as_planned or light_ends");
  expect("plan " + window_ + " --effort=bset", "seeds, fast, balanced or best");
  expect("plan " + window_ + " --guided_probability=x", "--guided_probability");
  expect("list -v", "unknown flag");
}

TEST_F(CliTest, PlansScoreInBothFormats) {
  for (const char* name : {"plan.json", "plan.rpp"}) {
    const Outcome plan = Ctl("plan " + window_ + " --output " + Path(name));
    EXPECT_EQ(plan.code, 0) << plan.output;
    EXPECT_THAT(plan.output, HasSubstr("certified minimum"));
    EXPECT_THAT(plan.output, HasSubstr("baseline"));
    EXPECT_THAT(plan.output, Not(HasSubstr("\033"))) << "colour in a pipe";
    const Outcome score = Ctl("score " + window_ + " " + Path(name));
    EXPECT_EQ(score.code, 0) << score.output;
    EXPECT_THAT(score.output, HasSubstr("\nmatch: "));
    EXPECT_THAT(score.output, Not(HasSubstr("DIFFERS")));
  }
  const Outcome json =
      Ctl("score " + window_ + " " + Path("plan.rpp") + " --json");
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.output, HasSubstr("{\"match\": true"));
}

TEST_F(CliTest, PlansDoNotDependOnThreads) {
  v1::Plan one = PlanWith("--threads=1");
  v1::Plan two = PlanWith("--threads=2");
  ClearTimings(one);
  ClearTimings(two);
  EXPECT_TRUE(MessageDifferencer::Equals(one, two));
  EXPECT_EQ(one.topology().ep_ranks(), 4u);
}

TEST_F(CliTest, FlagsOverrideTheWindow) {
  const v1::Plan plan = PlanWith(
      "--ep=2 --tp=1 --dp=4 --token_cap=300 --length_multiple=2 --min_rows=3 "
      "--placement=identity --row_order=light_ends --seed=5 --step=9");
  EXPECT_EQ(plan.topology().ep_ranks(), 2u);
  EXPECT_EQ(plan.topology().dp_slots(), 4u);
  EXPECT_EQ(plan.layout().rows(0).cells_size(), 4);
  EXPECT_GE(plan.rows().rows(), 3u);
  EXPECT_EQ(plan.options().placement(), v1::PLACEMENT_POLICY_IDENTITY);
  EXPECT_EQ(plan.options().row_order(), v1::ROW_ORDER_LIGHT_ENDS);
  EXPECT_EQ(plan.options().seed(), 5u);
  EXPECT_EQ(plan.key().job_id(), "job");
  EXPECT_EQ(plan.key().step(), 9u);

  const std::string file = Path("plan.rpp");
  ASSERT_EQ(Ctl("plan " + window_ + " --ep=2 --output=" + file).code, 0);
  EXPECT_EQ(Ctl("score " + window_ + " " + file).code, 1);
  EXPECT_EQ(Ctl("score " + window_ + " " + file + " --ep=2").code, 0);
}

TEST_F(CliTest, SearchFlagsReachThePlan) {
  EXPECT_EQ(PlanWith("").options().search().effort(), v1::EFFORT_BALANCED);
  EXPECT_EQ(PlanWith("").options().search().steps(), 200'000u);
  const v1::SearchOptions search =
      PlanWith(
          "--effort=best --steps=5000 --levels=5 --population=3 "
          "--candidates=9 --choice_width=2 --projections=7 "
          "--diversity_penalty=0.5 --guided_probability=0 "
          "--relocation_probability=1")
          .options()
          .search();
  EXPECT_EQ(search.effort(), v1::EFFORT_BEST);
  EXPECT_EQ(search.steps(), 5000u);
  EXPECT_EQ(search.levels(), 5u);
  EXPECT_EQ(search.population(), 3u);
  EXPECT_EQ(search.candidates(), 9u);
  EXPECT_EQ(search.choice_width(), 2u);
  EXPECT_EQ(search.projections(), 7u);
  EXPECT_EQ(search.diversity_penalty(), 0.5);
  EXPECT_TRUE(search.has_guided_probability());
  EXPECT_EQ(search.guided_probability(), 0);
  EXPECT_EQ(search.relocation_probability(), 1);

  // Flags override what the file says, field by field.
  v1::Window window = MakeWindow();
  v1::SearchOptions& own =
      *window.mutable_header()->mutable_options()->mutable_search();
  own.set_effort(v1::EFFORT_FAST);
  own.set_levels(6);
  Save(window_, window);
  const v1::SearchOptions both = PlanWith("--levels=4").options().search();
  EXPECT_EQ(both.effort(), v1::EFFORT_FAST);
  EXPECT_EQ(both.levels(), 4u);

  const Outcome bad =
      Ctl("plan " + window_ + " --population=2000 --guided_probability=nan");
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.output, HasSubstr("header.options.search.population"));
  EXPECT_THAT(bad.output,
              HasSubstr("header.options.search.guided_probability"));
}

TEST_F(CliTest, PlansSayInALineWhatTheSearchGained) {
  const std::string text = Ctl("plan " + window_ + " --effort=fast").output;
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "\nsearch +closed [0-9.]+% of what length-only "
                        "packing left above the bound: [0-9,]+ proposals in "
                        "[0-9.]+ ms \\([0-9.]+ [kM]/s\\); ended because "));
  EXPECT_THAT(text, Not(HasSubstr("cut short")));
  EXPECT_THAT(Ctl("plan " + window_ + " --effort=seeds").output,
              HasSubstr("first layouts in "));
}

TEST_F(CliTest, VerbosePlansShowHowTheSearchWent) {
  const std::string command =
      "plan " + window_ + " --steps=20000 --levels=40 --population=3 ";
  for (const char* flag : {"-v", "--verbose"}) {
    const std::string text = Ctl(command + flag).output;
    for (const char* row : {"length-only", "paired", "best seed", "annealed"}) {
      EXPECT_THAT(text, HasSubstr(std::string("\n  ") + row + " "));
    }
    EXPECT_THAT(text,
                HasSubstr("effort balanced, seed 0; 16 first layouts tried, "));
    EXPECT_THAT(text, HasSubstr("population 3, mean distance "));
    EXPECT_THAT(text, ::testing::ContainsRegex(
                          "\nended +The search ended because [^\n]*\\.\n"));
    // Forty temperatures, or as many as there were, in twelve rows at most.
    std::istringstream lines(text.substr(text.find("\n  temperature") + 1));
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    int rows = 0;
    for (; std::getline(lines, line) && !line.empty(); ++rows) {
      EXPECT_LE(line.size(), 80u) << line;
    }
    EXPECT_GT(rows, 2);
    EXPECT_LE(rows, 12);
  }
  const std::string seeds =
      Ctl("plan " + window_ + " --effort=seeds -v").output;
  EXPECT_THAT(seeds, HasSubstr("no annealing was asked for"));
  EXPECT_THAT(seeds, Not(HasSubstr("cut short")));
}

TEST_F(CliTest, ScoreTakesTheSearchAsStated) {
  const std::string file = Path("plan.rpp");
  v1::Plan plan = PlanWith("--effort=fast");
  ASSERT_TRUE(plan.has_search_report());
  // As an older version wrote it.
  v1::Plan old = plan;
  old.clear_search_report();
  old.mutable_options()->clear_search();
  ASSERT_TRUE(WritePlan(file, old).ok());
  EXPECT_EQ(Ctl("score " + window_ + " " + file).code, 0);
  // Costs that contradict their own exact score are no statement.
  plan.mutable_search_report()->mutable_stages(0)->set_joint(1);
  ASSERT_TRUE(WritePlan(file, plan).ok());
  const Outcome outcome = Ctl("score " + window_ + " " + file);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("search_report.stages[0].joint"));
}

TEST_F(CliTest, PlansTellWhatTheyMove) {
  const std::string file = Path("plan.rpp");
  const std::string movement =
      " --parameters_per_expert=3000 --ranks_per_node=4";
  Outcome outcome = Ctl("plan " + window_ + " --placement=lpt" + movement +
                        " --output=" + file);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("between nodes; takes "));
  EXPECT_THAT(outcome.output, HasSubstr(" are needed), at most "));
  EXPECT_THAT(outcome.output, Not(HasSubstr("stopped")));
  EXPECT_EQ(Ctl("score " + window_ + " " + file).code, 0);

  outcome = Ctl("plan " + window_ + movement +
                " --break_even=false --movement_budget=0");
  EXPECT_THAT(outcome.output, HasSubstr("stopped at the movement budget"));
  EXPECT_THAT(outcome.output, HasSubstr("0 of 24 experts change rank"));

  // Bytes are not shown where an expert's are not known.
  outcome =
      Ctl("plan " + window_ + " --refine_after_announce --output=" + file);
  EXPECT_THAT(outcome.output, Not(HasSubstr("between nodes")));
  EXPECT_THAT(outcome.output, HasSubstr("once the packing was known"));
  EXPECT_EQ(Ctl("score " + window_ + " " + file).code, 0);

  outcome =
      Ctl("plan " + window_ + " --placement=keep --refine_after_announce");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output,
              HasSubstr("header.options.refine_after_announce"));
  outcome = Ctl("plan " + window_ + " --placement=best");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("--placement=best: must be"));
}

TEST_F(CliTest, MovementFlagsReachThePlan) {
  const v1::PlanOptions options =
      PlanWith(
          "--parameters_per_expert=300 --ranks_per_node=2 "
          "--inter_node_cost=2.5 --intra_node_bandwidth=1e11 "
          "--inter_node_bandwidth=2e10 --node_bandwidth=4e10 "
          "--target_imbalance=0.02 --movement_budget=1e6 --break_even=false "
          "--horizon_steps=8 --experts_per_round=2 --max_staging=3 "
          "--max_uplink=5")
          .options();
  const v1::MovementOptions& movement = options.movement();
  EXPECT_EQ(movement.parameters_per_expert(), 300u);
  EXPECT_EQ(movement.ranks_per_node(), 2u);
  EXPECT_EQ(movement.inter_node_cost(), 2.5);
  EXPECT_EQ(movement.intra_node_bandwidth(), 1e11);
  EXPECT_EQ(movement.inter_node_bandwidth(), 2e10);
  EXPECT_EQ(movement.node_bandwidth(), 4e10);
  EXPECT_EQ(options.incremental().target_imbalance(), 0.02);
  EXPECT_EQ(options.incremental().movement_budget(), 1e6);
  EXPECT_FALSE(options.incremental().break_even());
  EXPECT_EQ(options.incremental().horizon_steps(), 8);
  EXPECT_EQ(options.transfer().experts_per_round(), 2u);
  EXPECT_EQ(options.transfer().max_staging(), 3u);
  EXPECT_EQ(options.transfer().max_uplink(), 5u);
  // Without a flag about movement nothing is said of it.
  EXPECT_FALSE(PlanWith("").options().has_movement());
}

TEST_F(CliTest, ExpertsAreAsLargeAsTheModelSays) {
  v1::Window window = MakeWindow();
  v1::ModelShape& model =
      *window.mutable_header()->mutable_attention()->mutable_model();
  window.mutable_header()->mutable_attention()->clear_stages();
  model.set_hidden_size(64);
  model.set_moe_intermediate_size(32);
  v1::AttentionLayers& layers = *model.add_attention();
  layers.set_name("full");
  layers.set_kind(v1::ATTENTION_KIND_FULL);
  layers.set_layers(1);
  layers.set_num_heads(1);
  layers.set_qk_head_dim(64);
  v1::MeshSizes& mesh =
      *window.mutable_header()->mutable_topology()->mutable_mesh();
  mesh.set_dp(4);
  mesh.set_etp(2);
  Save(window_, window);
  const v1::MovementOptions movement =
      PlanWith("--ranks_per_node=8").options().movement();
  EXPECT_EQ(movement.parameters_per_expert(), 3u * 64 * 32 / 2);
  EXPECT_EQ(movement.gpus_per_rank(), 2u);
}

TEST_F(CliTest, StagesAreShownAndScored) {
  EXPECT_THAT(Ctl("plan " + window_).output, Not(HasSubstr("MoE layers")));
  // An even split, since 3 divides the layers.
  EXPECT_EQ(PlanWith("--pp=3").routepack().stages_size(), 3);

  const std::string flags = " --pp=2 --moe_layers_per_stage=1,2";
  const std::string file = Path("plan.rpp");
  const Outcome planned = Ctl("plan " + window_ + flags + " --output=" + file);
  EXPECT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(planned.output, HasSubstr("MoE layers"));
  const v1::Plan plan = PlanWith(flags);
  ASSERT_EQ(plan.routepack().stages_size(), 2);
  EXPECT_EQ(plan.routepack().stages(1).num_layers(), 2u);

  const Outcome score = Ctl("score " + window_ + " " + file + flags);
  EXPECT_EQ(score.code, 0) << score.output;
  EXPECT_THAT(score.output, HasSubstr("stage 1 tail peak"));
  EXPECT_EQ(Ctl("score " + window_ + " " + file).code, 1);
  v1::Plan bad = plan;
  bad.mutable_baseline()->mutable_stages(0)->set_tail_peak(1);
  ASSERT_TRUE(WritePlan(file, bad).ok());
  EXPECT_THAT(Ctl("score " + window_ + " " + file + flags).output,
              HasSubstr("baseline.stages[0].tail_peak"));

  EXPECT_THAT(Ctl("plan " + window_ + " --moe_layers_per_stage=1,2").output,
              HasSubstr("header.topology.moe_layers_per_stage"));
  EXPECT_EQ(Ctl("plan " + window_ + " --moe_layers_per_stage=1,x").code, 2);
}

TEST_F(CliTest, WindowsComeFromStandardInput) {
  const Outcome outcome = Ctl("plan - --output=- < " + window_);
  EXPECT_EQ(outcome.code, 0);
  v1::Plan plan;
  EXPECT_TRUE(
      google::protobuf::util::JsonStringToMessage(outcome.output, &plan).ok())
      << outcome.output;
}

TEST_F(CliTest, ScoreDetectsEveryCorruption) {
  const v1::Plan good = PlanWith("");
  const std::string file = Path("bad.rpp");
  const std::vector<std::function<void(v1::Plan&)>> corruptions = {
      [](v1::Plan& p) {
        auto& score = *p.mutable_routepack()->mutable_score();
        score.set_slowest_shard(score.slowest_shard() - 1);
      },
      [](v1::Plan& p) {
        p.mutable_routepack()->set_ep_peak_sum(p.routepack().ep_peak_sum() - 1);
      },
      [](v1::Plan& p) { p.mutable_reorder()->set_tail_peak(1); },
      [](v1::Plan& p) { p.mutable_baseline()->set_cv_global(0.5); },
      [](v1::Plan& p) { p.mutable_routepack()->set_joint(1); },
      [](v1::Plan& p) { p.mutable_bounds()->set_joint_for_placement(1); },
      [](v1::Plan& p) {
        auto& slots =
            *p.mutable_placement()->mutable_layers(0)->mutable_slot_of_expert();
        slots.Set(0, slots.Get(1));
      },
      [](v1::Plan& p) {
        p.mutable_layout()->mutable_rows(0)->mutable_cells(0)->set_sample_ids(
            0, 100 + 23);
        p.mutable_layout()->mutable_rows(0)->mutable_cells(1)->set_sample_ids(
            0, 100 + 23);
      },
      [](v1::Plan& p) {
        auto& row = *p.mutable_layout()->mutable_rows(0);
        row.mutable_cells(0)->mutable_sample_ids()->SwapElements(0, 0);
        row.mutable_cells(0)->add_sample_ids(
            row.cells(1).sample_ids(row.cells(1).sample_ids_size() - 1));
        row.mutable_cells(1)->mutable_sample_ids()->RemoveLast();
      },
      [](v1::Plan& p) { p.mutable_layout()->mutable_rows()->RemoveLast(); },
      [](v1::Plan& p) { p.set_window_digest(std::string(32, '0')); },
  };
  for (size_t i = 0; i < corruptions.size(); ++i) {
    v1::Plan bad = good;
    corruptions[i](bad);
    ASSERT_TRUE(WritePlan(file, bad).ok());
    const Outcome outcome = Ctl("score " + window_ + " " + file);
    EXPECT_EQ(outcome.code, 1) << "corruption " << i << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("is not a plan of this window"));
  }
  ASSERT_TRUE(WritePlan(file, good).ok());
  EXPECT_EQ(Ctl("score " + window_ + " " + file).code, 0);
}

TEST_F(CliTest, TooFewSamplesNameTheRepair) {
  const Outcome outcome = Ctl("plan " + window_ + " --dp=32");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("24 samples"));
  EXPECT_THAT(outcome.output, HasSubstr("--allow_filler"));
  const v1::Plan plan = PlanWith("--dp=32 --allow_filler");
  EXPECT_EQ(plan.layout().filler_sample_ids_size(), 8);
}

TEST_F(CliTest, EveryViolationIsListed) {
  v1::Window window = MakeWindow();
  window.mutable_samples(3)->set_tokens(1000);
  window.mutable_samples(5)->set_id(100);
  Save(Path("bad.rpw"), window);
  const Outcome outcome = Ctl("plan " + Path("bad.rpw"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("bad.rpw"));
  EXPECT_THAT(outcome.output, HasSubstr("\n  samples[3].tokens: "));
  EXPECT_THAT(outcome.output, HasSubstr("\n  samples[5].id: "));
}

TEST_F(CliTest, MissingFilesAreErrorsNotUsage) {
  const Outcome outcome = Ctl("plan " + Path("none.rpw"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("none.rpw"));
  EXPECT_EQ(Ctl("score " + window_ + " " + Path("none.rpp")).code, 1);
}

TEST_F(CliTest, InfoDescribesAWindow) {
  const Outcome text = Ctl("info " + window_);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.output, HasSubstr("24 samples"));
  EXPECT_THAT(text.output, HasSubstr("CV of the loads of 4 ranks"));
  const Outcome json = Ctl("info " + window_ + " --json --ep=2");
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.output, HasSubstr("\"ep_ranks\": 2"));
}

TEST_F(CliTest, WithoutServerTheErrorSaysWhatToDo) {
  for (const std::string& command :
       {std::string("info"), std::string("list"), std::string("cancel --job=x"),
        "submit " + window_}) {
    const Outcome outcome = Ctl(command + " --timeout=200ms");
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_THAT(outcome.output,
                HasSubstr("no routepackd answers at 127.0.0.1:1"));
    EXPECT_THAT(outcome.output, HasSubstr("--server=host:port"));
  }
}

TEST_F(CliTest, HealthIsAnExitCode) {
  grpc::EnableDefaultHealthCheckService(true);
  int port = 0;
  v1::PlannerService::Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string check =
      "info --health --timeout=200ms --server=127.0.0.1:" +
      std::to_string(port);
  EXPECT_EQ(Ctl(check).code, 0);
  server->GetHealthCheckService()->SetServingStatus(false);
  EXPECT_EQ(Ctl(check).code, 1);
  server->Shutdown();
  EXPECT_EQ(Ctl(check).code, 1);
}

// With a routepackd of its own on loopback.
class CliServerTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    const std::string port_file = Path("port");
    const std::string flag = "--port_file=" + port_file;
    server_ = fork();
    if (server_ == 0) {
      execl(ROUTEPACKD, ROUTEPACKD, "--listen=127.0.0.1:0", flag.c_str(),
            "--log_level=off", static_cast<char*>(nullptr));
      _exit(127);
    }
    std::string port;
    for (int i = 0; i < 2000 && port.empty(); ++i) {
      usleep(10'000);
      std::ifstream(port_file) >> port;
    }
    ASSERT_FALSE(port.empty()) << "routepackd did not start";
    at_ = " --server=127.0.0.1:" + port;
  }
  void TearDown() override {
    if (server_ > 0) {
      kill(server_, SIGTERM);
      waitpid(server_, nullptr, 0);
    }
    CliTest::TearDown();
  }
  // Runs a command against the server, expecting success.
  std::string Ask(const std::string& arguments) const {
    const Outcome outcome = Ctl(arguments + at_);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.output;
    return outcome.output;
  }

  pid_t server_ = -1;
  std::string at_;
};

TEST_F(CliServerTest, AWindowGoesThroughItsWholeLife) {
  const std::string key = " --job=j --run=r --step=3";
  EXPECT_THAT(Ask("submit " + window_ + key), HasSubstr("j/r step 3: "));
  EXPECT_THAT(Ask("watch" + key), HasSubstr("certified minimum"));
  EXPECT_THAT(Ask("submit " + window_ + key), HasSubstr("j/r step 3: ready"));
  EXPECT_THAT(Ask("list"), HasSubstr("j/r step 3  ready"));
  EXPECT_THAT(Ask("list --job=other"), HasSubstr("no plans"));
  EXPECT_THAT(Ask("get" + key + " --output=" + Path("p.rpp")),
              HasSubstr("plan written"));
  EXPECT_EQ(Ctl("score " + window_ + " " + Path("p.rpp")).code, 0);
  EXPECT_THAT(Ask("get" + key), Not(HasSubstr("cut short")));
  EXPECT_THAT(Ask("get -v" + key), HasSubstr("The search ended because"));
  EXPECT_THAT(Ask("rank --dp_slot=1 --ep_rank=3" + key),
              HasSubstr("j/r step 3: "));
  EXPECT_THAT(Ask("cancel" + key), HasSubstr("j/r step 3: ready"));
  EXPECT_THAT(Ask("info"), HasSubstr("1 of 128 plans kept"));
  EXPECT_EQ(Ctl("info --health" + at_).code, 0);
}

TEST_F(CliServerTest, ServerAndLocalPlansAreTheSame) {
  v1::Plan local = PlanWith("");
  v1::Plan served = PlanWith(at_);
  ClearTimings(local);
  ClearTimings(served);
  EXPECT_TRUE(MessageDifferencer::Equals(local, served));
}

TEST_F(CliServerTest, ErrorsOfTheServerSayWhatToDo) {
  Ask("submit " + window_ + " --job=j --wait");
  const Outcome other = Ctl("submit " + window_ + " --job=j --seed=4" + at_);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, HasSubstr("Take another --run"));
  const Outcome unknown = Ctl("get --job=k" + at_);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.output, HasSubstr("'routepackctl list'"));
  const Outcome slot = Ctl("rank --job=j --dp_slot=7" + at_);
  EXPECT_EQ(slot.code, 1);
  EXPECT_THAT(slot.output, HasSubstr("dp_slot"));
  const Outcome cells = Ctl("plan " + window_ + " --dp=32" + at_);
  EXPECT_EQ(cells.code, 1);
  EXPECT_THAT(cells.output, HasSubstr("--allow_filler adds"));
}

}  // namespace
}  // namespace routepack
