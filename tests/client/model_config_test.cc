#include "client/model_config.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"

namespace routepack {
namespace {

using ::testing::HasSubstr;

std::string ReadConfig(const std::string& name) {
  std::ifstream in(std::string(ROUTEPACK_TEST_DATA) + "/configs/" + name +
                   ".json");
  EXPECT_TRUE(in.good()) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

ModelConfig Parse(const std::string& name) {
  absl::StatusOr<ModelConfig> config = ParseModelConfig(ReadConfig(name));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig{};
}

void ExpectMoe(const ModelConfig& config, uint32_t layers, uint32_t experts,
               uint32_t top_k) {
  EXPECT_EQ(config.num_layers, layers);
  EXPECT_EQ(config.num_experts, experts);
  EXPECT_EQ(config.top_k, top_k);
  EXPECT_EQ(config.shape.num_moe_layers(), layers);
}

void ExpectWidths(const v1::ModelShape& shape, uint32_t hidden, uint32_t expert,
                  uint32_t shared) {
  EXPECT_EQ(shape.hidden_size(), hidden);
  EXPECT_EQ(shape.moe_intermediate_size(), expert);
  EXPECT_EQ(shape.shared_expert_intermediate_size(), shared);
}

void ExpectDense(const v1::ModelShape& shape, uint32_t layers, uint32_t width) {
  EXPECT_EQ(shape.num_dense_layers(), layers);
  EXPECT_EQ(shape.dense_intermediate_size(), width);
}

void ExpectFull(const v1::AttentionLayers& stage, uint32_t layers,
                uint32_t heads, uint32_t kv_heads, uint32_t head_dim) {
  EXPECT_EQ(stage.kind(), v1::ATTENTION_KIND_FULL);
  EXPECT_EQ(stage.layers(), layers);
  EXPECT_EQ(stage.num_heads(), heads);
  EXPECT_EQ(stage.num_kv_heads(), kv_heads);
  EXPECT_EQ(stage.qk_head_dim(), head_dim);
}

void ExpectLinear(const v1::AttentionLayers& stage, uint32_t layers,
                  uint32_t heads, uint32_t head_dim) {
  EXPECT_EQ(stage.kind(), v1::ATTENTION_KIND_LINEAR);
  EXPECT_EQ(stage.layers(), layers);
  EXPECT_EQ(stage.num_heads(), heads);
  EXPECT_EQ(stage.num_kv_heads(), 0u);  // as many as heads
  EXPECT_EQ(stage.qk_head_dim(), head_dim);
}

// All of them have kv rank 512, heads of 128 and rope heads of 64.
void ExpectMla(const v1::AttentionLayers& stage, uint32_t layers,
               uint32_t heads, uint32_t q_lora_rank) {
  EXPECT_EQ(stage.kind(), v1::ATTENTION_KIND_MLA);
  EXPECT_EQ(stage.layers(), layers);
  EXPECT_EQ(stage.num_heads(), heads);
  EXPECT_EQ(stage.q_lora_rank(), q_lora_rank);
  EXPECT_EQ(stage.kv_lora_rank(), 512u);
  EXPECT_EQ(stage.qk_head_dim(), 128u);
  EXPECT_EQ(stage.qk_rope_head_dim(), 64u);
  EXPECT_EQ(stage.v_head_dim(), 128u);
}

TEST(ModelConfigTest, Qwen3Moe) {
  const ModelConfig config = Parse("qwen3-30b-a3b");
  ExpectMoe(config, 48, 128, 8);
  ExpectWidths(config.shape, 2048, 768, 0);
  ExpectDense(config.shape, 0, 0);
  ASSERT_EQ(config.shape.attention_size(), 1);
  ExpectFull(config.shape.attention(0), 48, 32, 4, 128);
}

TEST(ModelConfigTest, Qwen3NextMixesFullAndGatedDeltaNet) {
  const ModelConfig config = Parse("qwen3-next-80b-a3b");
  ExpectMoe(config, 48, 512, 10);
  ExpectWidths(config.shape, 2048, 512, 512);
  ASSERT_EQ(config.shape.attention_size(), 2);
  ExpectFull(config.shape.attention(0), 12, 16, 2, 256);
  ExpectLinear(config.shape.attention(1), 36, 32, 128);
  EXPECT_EQ(config.shape.attention(1).v_head_dim(), 128u);
}

TEST(ModelConfigTest, DeepSeekV3HasCompressedQueriesAndThreeDenseLayers) {
  const ModelConfig config = Parse("deepseek-v3");
  ExpectMoe(config, 58, 256, 8);
  ExpectWidths(config.shape, 7168, 2048, 2048);
  ExpectDense(config.shape, 3, 18432);
  ASSERT_EQ(config.shape.attention_size(), 1);
  ExpectMla(config.shape.attention(0), 61, 128, 1536);
}

TEST(ModelConfigTest, MoonlightHasTwoSharedExpertsAndPlainQueries) {
  const ModelConfig config = Parse("moonlight-16b-a3b");
  ExpectMoe(config, 26, 64, 6);
  ExpectWidths(config.shape, 2048, 1408, 2816);
  ExpectDense(config.shape, 1, 11264);
  ASSERT_EQ(config.shape.attention_size(), 1);
  ExpectMla(config.shape.attention(0), 27, 16, 0);
}

TEST(ModelConfigTest, Ling) {
  const ModelConfig mini = Parse("ling-mini-2.0");
  ExpectMoe(mini, 19, 256, 8);
  ExpectWidths(mini.shape, 2048, 512, 512);
  ExpectDense(mini.shape, 1, 5120);
  ASSERT_EQ(mini.shape.attention_size(), 1);
  ExpectFull(mini.shape.attention(0), 20, 16, 4, 128);

  const ModelConfig flash = Parse("ling-flash-2.0");
  ExpectMoe(flash, 31, 256, 8);
  ExpectWidths(flash.shape, 4096, 1024, 1024);
  ASSERT_EQ(flash.shape.attention_size(), 1);
  ExpectFull(flash.shape.attention(0), 32, 32, 4, 128);
}

TEST(ModelConfigTest, RingLinearHasOneFullLayerInAGroup) {
  const ModelConfig config = Parse("ring-mini-linear-2.0");
  ExpectMoe(config, 19, 256, 8);
  ASSERT_EQ(config.shape.attention_size(), 2);
  ExpectFull(config.shape.attention(0), 4, 16, 4, 128);
  ExpectLinear(config.shape.attention(1), 16, 16, 128);
}

TEST(ModelConfigTest, LayersBeyondTheLastWholeGroupAreFull) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(
      R"({"num_hidden_layers": 12, "layer_group_size": 5, "num_experts": 8,
          "num_experts_per_tok": 2, "hidden_size": 64,
          "moe_intermediate_size": 32, "num_attention_heads": 4,
          "kv_lora_rank": 16, "qk_nope_head_dim": 16, "v_head_dim": 16})");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->shape.attention_size(), 2);
  EXPECT_EQ(config->shape.attention(0).kind(), v1::ATTENTION_KIND_MLA);
  EXPECT_EQ(config->shape.attention(0).layers(), 4u);
  ExpectLinear(config->shape.attention(1), 8, 4, 16);
}

TEST(ModelConfigTest, KimiLinearMixesMlaAndKda) {
  const ModelConfig config = Parse("kimi-linear-48b-a3b");
  ExpectMoe(config, 26, 256, 8);
  ExpectWidths(config.shape, 2304, 1024, 1024);
  ExpectDense(config.shape, 1, 9216);
  ASSERT_EQ(config.shape.attention_size(), 2);
  ExpectMla(config.shape.attention(0), 7, 32, 0);
  ExpectLinear(config.shape.attention(1), 20, 32, 128);
}

TEST(ModelConfigTest, EveryShippedConfigDerivesAttention) {
  for (const char* name :
       {"qwen3-30b-a3b", "qwen3-next-80b-a3b", "deepseek-v3",
        "moonlight-16b-a3b", "ling-mini-2.0", "ling-flash-2.0",
        "ring-mini-linear-2.0", "kimi-linear-48b-a3b", "trace-model"}) {
    const ModelConfig config = Parse(name);
    v1::WindowHeader header;
    header.set_num_samples(8);
    header.set_num_layers(config.num_layers);
    header.set_num_experts(config.num_experts);
    header.set_top_k(config.top_k);
    header.set_token_cap(4096);
    header.mutable_topology()->mutable_mesh()->set_ep(8);
    header.mutable_topology()->mutable_mesh()->set_dp(8);
    *header.mutable_attention()->mutable_model() = config.shape;
    const absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.status();
    EXPECT_GE(spec->attention.size(), 1u) << name;
    for (const AttentionStage& stage : spec->attention) {
      EXPECT_GT(stage.alpha, 0) << name << " " << stage.name;
    }
  }
}

// 0-based layers 0 .. 7; dense: 1 and those whose index + 1 is odd.
TEST(ModelConfigTest, SparseStepAndDenseListOfQwen) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(
      R"({"num_hidden_layers": 8, "num_experts": 8, "num_experts_per_tok": 2,
          "hidden_size": 64, "intermediate_size": 128,
          "moe_intermediate_size": 32, "num_attention_heads": 4,
          "decoder_sparse_step": 2, "mlp_only_layers": [1]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_layers, 3u);
  ExpectDense(config->shape, 5, 128);
  ExpectFull(config->shape.attention(0), 8, 4, 4, 16);
}

TEST(ModelConfigTest, LayerTypesAndNestedTextConfig) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(
      R"({"model_type": "sees_images", "text_config": {
          "num_hidden_layers": 4, "num_local_experts": 32,
          "num_experts_per_tok": 4, "hidden_size": 64,
          "intermediate_size": 96, "num_attention_heads": 8,
          "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 128,
          "layer_types": ["sliding_attention", "full_attention",
                          "sliding_attention", "full_attention"]}})");
  ASSERT_TRUE(config.ok()) << config.status();
  ExpectMoe(*config, 4, 32, 4);
  ExpectWidths(config->shape, 64, 96, 0);
  ASSERT_EQ(config->shape.attention_size(), 2);
  ExpectFull(config->shape.attention(0), 2, 8, 2, 16);
  EXPECT_EQ(config->shape.attention(1).kind(),
            v1::ATTENTION_KIND_SLIDING_WINDOW);
  EXPECT_EQ(config->shape.attention(1).window(), 128u);
}

TEST(ModelConfigTest, ErrorsNameTheKeyAndTheModelType) {
  const std::string whole = ReadConfig("deepseek-v3");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const absl::Status status =
        ParseModelConfig(text.replace(at, from.size(), to)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << to;
    EXPECT_THAT(status.message(), HasSubstr("deepseek_v3"));
    return std::string(status.message());
  };
  EXPECT_THAT(error("\"n_routed_experts\"", "\"x\""),
              HasSubstr("n_routed_experts or num_local_experts is missing"));
  EXPECT_THAT(error("\"hidden_size\": 7168", "\"hidden_size\": 0"),
              HasSubstr("hidden_size is 0"));
  EXPECT_THAT(error("\"num_hidden_layers\": 61", "\"num_hidden_layers\": 6.5"),
              HasSubstr("num_hidden_layers is not a whole number"));
  EXPECT_THAT(
      error("\"num_hidden_layers\": 61", "\"num_hidden_layers\": 4000000000"),
      HasSubstr("num_hidden_layers 4000000000 is above"));
  EXPECT_THAT(error("\"kv_lora_rank\": 512", "\"kv_lora_rank\": \"512\""),
              HasSubstr("kv_lora_rank is not a whole number"));
  EXPECT_THAT(
      error("\"first_k_dense_replace\": 3", "\"first_k_dense_replace\": 61"),
      HasSubstr("no layer has experts"));
  EXPECT_THAT(
      error("\"num_experts_per_tok\": 8", "\"num_experts_per_tok\": 257"),
      HasSubstr("above the number of experts"));
}

TEST(ModelConfigTest, RefusesWhatIsNotAnObject) {
  for (const char* text : {"", "[1]", "{", "null", "{\"a\":}"}) {
    EXPECT_EQ(ParseModelConfig(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace routepack
