// routepackctl replay.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/window_file.h"
#include "client/workload.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "planner/planner.h"
#include "tests/client/ctl.h"
#include "tests/client/temp_folder.h"

namespace routepack {
namespace {

using ::testing::HasSubstr;

const char kSmall[] =
    "--preset=tiny --samples=64 --moe_layers=3 --experts=16 --top_k=2 --ep=4 "
    "--dp=4 --token_cap=4096 --topics=4 --windows=4 --drift=0.2 ";

// The objects of the lines that were printed.
std::vector<google::protobuf::Struct> Objects(const std::string& output) {
  std::vector<google::protobuf::Struct> objects;
  for (const auto line : absl::StrSplit(output, '\n', absl::SkipEmpty())) {
    google::protobuf::Struct& object = objects.emplace_back();
    EXPECT_TRUE(
        google::protobuf::util::JsonStringToMessage(std::string(line), &object)
            .ok())
        << line;
  }
  return objects;
}

double Number(const google::protobuf::Struct& object, const char* name) {
  const auto found = object.fields().find(name);
  EXPECT_NE(found, object.fields().end()) << name;
  return found == object.fields().end() ? -1 : found->second.number_value();
}

using ReplayCliTest = TempFolderTest;

TEST_F(ReplayCliTest, CarriesThePlacementFromWindowToWindow) {
  const Outcome outcome = Ctl(
      absl::StrCat("replay ", kSmall, "--steps=2000 --placement=lpt --json"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const auto steps = Objects(outcome.output);
  ASSERT_EQ(steps.size(), 4);

  WorkloadSpec spec = *WorkloadPreset("tiny");
  spec.num_samples = 64;
  spec.num_layers = 3;
  spec.num_experts = 16;
  spec.top_k = 2;
  spec.mesh = {.ep = 4, .dp = 4};
  spec.token_cap = 4096;
  spec.topics = 4;
  spec.drift = 0.2;
  Placement current = IdentityPlacement(3, 16, 4);
  for (const google::protobuf::Struct& step : steps) {
    const Window window = *Workload::Create(spec)->MakeWindow();
    ++spec.step;
    const Plan plan = *MakePlan(
        window, current,
        {.placement = PlacementPolicy::kLpt, .search = {.steps = 2000}});
    EXPECT_EQ(Number(step, "experts_to_other_rank"),
              plan.movement.change.experts_to_other_rank);
    EXPECT_EQ(Number(step, "joint"), plan.routepack.joint);
    EXPECT_EQ(Number(step, "cv"), plan.routepack.cv_global);
    current = plan.placement;
  }
}

TEST_F(ReplayCliTest, ComparesPolicies) {
  const Outcome outcome =
      Ctl(absl::StrCat("replay ", kSmall, "--steps=2000 --policies=all"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  for (const char* name :
       {"identity", "keep", "lpt", "lpt-relabel", "incremental"}) {
    EXPECT_THAT(outcome.output, HasSubstr(absl::StrCat("  ", name)));
  }
  EXPECT_THAT(outcome.output, HasSubstr("mean of 3 steps after the first"));
}

TEST_F(ReplayCliTest, ReadsFilesInOrder) {
  ASSERT_EQ(
      Ctl(absl::StrCat("generate ", kSmall, "--output=", Path("windows"))).code,
      0);
  const Outcome outcome = Ctl(
      absl::StrCat("replay ", Path("windows"), "/tiny-1.rpw ", Path("windows"),
                   "/tiny-0.rpw --steps=2000 --policies=keep,lpt --json"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const auto steps = Objects(outcome.output);
  ASSERT_EQ(steps.size(), 4);
  EXPECT_THAT(steps[0].fields().at("window").string_value(),
              HasSubstr("tiny-1.rpw"));
  EXPECT_EQ(Number(steps[0], "weighted_bytes"), 0);  // keep
  EXPECT_GT(Number(steps[2], "weighted_bytes"), 0);  // lpt
}

TEST_F(ReplayCliTest, RefusesWhatItCannotReplay) {
  EXPECT_EQ(Ctl("replay").code, 2);
  Outcome outcome = Ctl(absl::StrCat("replay ", kSmall, "--policies=best"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("'best' is not one of"));
  ASSERT_EQ(Ctl(absl::StrCat("generate ", kSmall,
                             "--windows=1 --output=", Path("a.rpw")))
                .code,
            0);
  ASSERT_EQ(
      Ctl(absl::StrCat("generate ", kSmall,
                       "--windows=1 --experts=32 --output=", Path("b.rpw")))
          .code,
      0);
  outcome = Ctl(absl::StrCat("replay ", Path("a.rpw"), " ", Path("b.rpw")));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("b.rpw: has other layers"));
}

}  // namespace
}  // namespace routepack
