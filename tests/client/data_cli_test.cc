// routepackctl generate, convert and count.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "client/trace_folder.h"
#include "client/window_file.h"
#include "client/workload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/ctl.h"
#include "tests/client/temp_folder.h"

namespace routepack {
namespace {

using ::testing::HasSubstr;

std::string RawTrace() {
  return std::string(ROUTEPACK_TEST_DATA) + "/raw-trace";
}

std::string Digest(const std::string& path) {
  const absl::StatusOr<LoadedWindow> loaded = LoadWindow(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->window.digest() : "";
}

using DataCliTest = TempFolderTest;

const char kSmall[] =
    "generate --preset=tiny --samples=64 --moe_layers=3 --experts=16 "
    "--top_k=2 --ep=4 --dp=4 --token_cap=4096 --topics=4 ";

TEST_F(DataCliTest, GenerateWritesTheWindowOfTheLibrary) {
  const Outcome outcome =
      Ctl(std::string(kSmall) +
          "--seed=5 --step=3 --shape=hot-rank --hot_share=0.5 --noise=2 "
          "--distribution=bimodal --mean_tokens=300 --long_ratio=4 "
          "--long_share=0.25 --sigma=0.3 --min_tokens=8 --max_tokens=2000 "
          "--skip_last_token --tp=2 --job=mine --output=" +
          Path("w.rpw"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("w.rpw"));

  WorkloadSpec spec = *WorkloadPreset("tiny");
  spec.num_samples = 64;
  spec.num_layers = 3;
  spec.num_experts = 16;
  spec.top_k = 2;
  spec.mesh = {.tp = 2, .ep = 4, .dp = 4};
  spec.token_cap = 4096;
  spec.topics = 4;
  spec.seed = 5;
  spec.step = 3;
  spec.imbalance = Imbalance::kHotRank;
  spec.hot_share = 0.5;
  spec.noise = 2;
  spec.lengths = {.kind = LengthKind::kBimodal,
                  .mean = 300,
                  .sigma = 0.3,
                  .long_share = 0.25,
                  .long_ratio = 4,
                  .min_tokens = 8,
                  .max_tokens = 2000};
  spec.skip_last_token = true;
  const absl::StatusOr<Workload> workload = Workload::Create(spec);
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(Digest(Path("w.rpw")), workload->MakeWindow()->digest());
  const absl::StatusOr<LoadedWindow> loaded = LoadWindow(Path("w.rpw"));
  EXPECT_EQ(loaded->header.key().job_id(), "mine");
  EXPECT_EQ(loaded->header.key().step(), 3u);
}

TEST_F(DataCliTest, GenerateWritesASequenceIntoAFolder) {
  const Outcome outcome =
      Ctl(std::string(kSmall) +
          "--windows=3 --drift=0.05 --step=10 --json --output=" + Path("a/b"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("\"samples\""));
  std::set<std::string> digests;
  for (uint64_t step = 10; step < 13; ++step) {
    const std::string path = Path("a/b/tiny-" + std::to_string(step) + ".rpw");
    digests.insert(Digest(path));
    EXPECT_EQ(LoadWindow(path)->header.key().step(), step);
  }
  EXPECT_EQ(digests.size(), 3u);
}

TEST_F(DataCliTest, GenerateExplainsWrongParameters) {
  const auto run = [&](const std::string& flags) {
    return Ctl(std::string(kSmall) + flags);
  };
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(run("--shape=warm --output=x").code, 2);
  EXPECT_THAT(run("--shape=warm --output=x").output, HasSubstr("hot-rank"));
  EXPECT_THAT(run("--distribution=flat --output=x").output,
              HasSubstr("long-tail"));
  EXPECT_THAT(run("--preset=big --output=x").output, HasSubstr("flash"));
  const Outcome share =
      run("--shape=hot-experts --hot_experts=1 "
          "--hot_share=0.9 --output=" +
          Path("w.rpw"));
  EXPECT_EQ(share.code, 1);
  EXPECT_THAT(share.output, HasSubstr("hot_share 0.9"));
  EXPECT_FALSE(std::filesystem::exists(Path("w.rpw")));
}

TEST_F(DataCliTest, ConvertsATraceAndBackAndForth) {
  Outcome outcome = Ctl("convert " + RawTrace() + " --output=" + Path("t.rpw") +
                        " --ep=8 --dp=4 --tp=2 --token_cap=512 "
                        "--attention=full:1.5:2,linear:3:0 --step=7");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("16 samples"));
  EXPECT_THAT(outcome.output, HasSubstr("counts equal to the counted ids"));
  const absl::StatusOr<LoadedWindow> loaded = LoadWindow(Path("t.rpw"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->header.key().job_id(), "gsm8k-0-cut");
  EXPECT_EQ(loaded->header.key().step(), 7u);
  ASSERT_EQ(loaded->window.spec().attention.size(), 2u);
  EXPECT_EQ(loaded->window.spec().attention[0],
            (AttentionStage{.name = "full", .alpha = 1.5, .beta = 2}));
  EXPECT_EQ(loaded->window.spec().counts_origin, CountsOrigin::kReplayed);

  ASSERT_EQ(
      Ctl("convert " + Path("t.rpw") + " --output=" + Path("t.json")).code, 0);
  ASSERT_EQ(
      Ctl("convert " + Path("t.json") + " --output=" + Path("u.rpw")).code, 0);
  EXPECT_EQ(Digest(Path("t.json")), Digest(Path("t.rpw")));
  EXPECT_EQ(Digest(Path("u.rpw")), Digest(Path("t.rpw")));
}

TEST_F(DataCliTest, ConvertTakesAttentionFromAModelConfig) {
  const Outcome outcome = Ctl(
      "convert " + RawTrace() + " --output=" + Path("t.rpw") +
      " --ep=8 --dp=8 --token_cap=512 --counts=ids --predicted "
      "--attention_config=" ROUTEPACK_TEST_DATA "/configs/trace-model.json");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const absl::StatusOr<LoadedWindow> loaded = LoadWindow(Path("t.rpw"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->window.spec().attention.size(), 1u);
  // 4 x 512 x 512 per token and layer over 3 x 512 x 512 per expert, 12 layers.
  EXPECT_DOUBLE_EQ(loaded->window.spec().attention[0].alpha, 16);
  EXPECT_EQ(loaded->window.spec().counts_origin, CountsOrigin::kPredicted);
}

TEST_F(DataCliTest, ConvertExplainsWhatIsMissing) {
  const auto convert = [&](const std::string& rest) {
    return Ctl("convert " + rest + " --output=" + Path("t.rpw"));
  };
  EXPECT_EQ(convert(RawTrace()).code, 2);
  EXPECT_THAT(convert(RawTrace()).output, HasSubstr("--token_cap"));
  EXPECT_EQ(convert("/nowhere").code, 1);
  const std::string sizes = " --ep=8 --dp=8 --token_cap=512";
  EXPECT_THAT(convert(RawTrace() + sizes + " --attention=full:1").output,
              HasSubstr("NAME:ALPHA:BETA"));
  EXPECT_THAT(convert(RawTrace() + sizes + " --counts=some").output,
              HasSubstr("auto, file or ids"));
  // The written window is checked as a planner would check it.
  EXPECT_THAT(convert(RawTrace() + " --ep=7 --dp=7 --token_cap=512").output,
              HasSubstr("num_experts"));
}

TEST_F(DataCliTest, CountWritesTheCountsOfTheTrace) {
  const std::string shape = " --moe_layers=12 --experts=64 --top_k=4 ";
  for (const char* type : {"u16", "u32"}) {
    const std::string output = Path(std::string("c.") + type);
    const Outcome outcome =
        Ctl("count " + RawTrace() + "/routed_experts.u8" + shape +
            "--lengths=" + RawTrace() + "/lengths.u32 --output=" + output);
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("GB/s"));
    EXPECT_EQ(*ReadIntegers(output, type == std::string("u16") ? 2 : 4),
              *ReadIntegers(RawTrace() + "/counts.u16", 2));
  }
  const Outcome whole =
      Ctl("count " + RawTrace() + "/routed_experts.u8 --json" + shape);
  EXPECT_EQ(whole.code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("\"bytes_per_second\""));
}

TEST_F(DataCliTest, CountExplainsWrongShapes) {
  const std::string ids = "count " + RawTrace() + "/routed_experts.u8 ";
  EXPECT_EQ(Ctl(ids).code, 2);
  EXPECT_THAT(Ctl(ids + "--moe_layers=13 --experts=64 --top_k=7").output,
              HasSubstr("no multiple of layers 13"));
  EXPECT_THAT(Ctl(ids + "--moe_layers=12 --experts=8 --top_k=4").output,
              HasSubstr("routed_experts.u8"));
  EXPECT_THAT(Ctl(ids + "--moe_layers=6 --experts=64 --top_k=4 --lengths=" +
                  RawTrace() + "/lengths.u32")
                  .output,
              HasSubstr("neither all tokens nor all but the last"));
  // Sizes whose product does not fit 64 bits.
  EXPECT_EQ(Ctl(ids + "--moe_layers=2147483648 --experts=4294967295 "
                      "--top_k=2147483648 --dtype=i32")
                .code,
            2);
  EXPECT_EQ(Ctl(ids + "--moe_layers=12 --experts=64 --top_k=4 --dtype=f8").code,
            2);
  EXPECT_EQ(Ctl(ids + "--moe_layers=12 --experts=64 --top_k=4 --output=" +
                Path("c.bin"))
                .code,
            2);
}

}  // namespace
}  // namespace routepack
