#include "planner/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planner/errors.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;

ModelShape Qwen3_30B_A3B() {
  return {.hidden_size = 2048,
          .moe_intermediate_size = 768,
          .attention = {{.name = "gqa",
                         .layers = 48,
                         .num_heads = 32,
                         .num_kv_heads = 4,
                         .qk_head_dim = 128}},
          .num_moe_layers = 48};
}

ModelShape DeepSeekV3() {
  return {.hidden_size = 7168,
          .moe_intermediate_size = 2048,
          .attention = {{.name = "mla",
                         .kind = AttentionKind::kMla,
                         .layers = 61,
                         .num_heads = 128,
                         .qk_head_dim = 128,
                         .v_head_dim = 128,
                         .qk_rope_head_dim = 64,
                         .q_lora_rank = 1536,
                         .kv_lora_rank = 512}},
          .shared_expert_intermediate_size = 2048,
          .num_dense_layers = 3,
          .dense_intermediate_size = 18432,
          .num_moe_layers = 58};
}

std::vector<AttentionStage> Derive(const ModelShape& shape, uint32_t cap) {
  auto stages = DeriveAttention(shape, cap);
  EXPECT_TRUE(stages.ok()) << stages.status();
  return stages.ok() ? *std::move(stages) : std::vector<AttentionStage>();
}

std::vector<std::string> BadFields(const ModelShape& shape, uint32_t cap) {
  std::vector<std::string> fields;
  for (const auto& violation :
       ViolationsOf(DeriveAttention(shape, cap).status())) {
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(DeriveAttention, Qwen3WorkedOutByHand) {
  // One assignment: 3 * 2048 * 768 = 4,718,592 MACs.
  // A layer per token: q and out 2 * 2048 * 32 * 128 = 16,777,216, k and v
  // 2 * 2048 * 4 * 128 = 2,097,152; together 18,874,368 = 4 assignments.
  // A layer per t^2: 32 * (128 + 128) / 2 = 4,096 MACs, so that beta is
  // 48 * 4,096 * 8,192 / 4,718,592 = 1,024 / 3.
  const auto stages = Derive(Qwen3_30B_A3B(), 8192);
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages[0].name, "gqa");
  EXPECT_DOUBLE_EQ(stages[0].alpha, 48 * 4);
  EXPECT_DOUBLE_EQ(stages[0].beta, 1024.0 / 3);
}

TEST(DeriveAttention, DeepSeekV3WorkedOutByHand) {
  // One assignment: 3 * 7168 * 2048 = 44,040,192 MACs.
  // A layer per token: q 7168 * 1536 + 1536 * 128 * 192 = 48,758,784, kv
  // 7168 * 576 + 512 * 128 * 256 = 20,905,984, out 128 * 128 * 7168 =
  // 117,440,512; together 187,105,280.
  // A layer per t^2: 128 * (128 + 64 + 128) / 2 = 20,480.
  // Shared and dense: (58 * 2048 + 3 * 18432) / 2048 = 85 assignments.
  const auto stages = Derive(DeepSeekV3(), 4096);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "mla");
  EXPECT_DOUBLE_EQ(stages[0].alpha, 61 * 187105280.0 / 44040192.0);
  EXPECT_DOUBLE_EQ(stages[0].beta, 61 * 20480.0 * 4096 / 44040192.0);
  EXPECT_EQ(stages[1].name, "dense");
  EXPECT_DOUBLE_EQ(stages[1].alpha, 85);
  EXPECT_EQ(stages[1].beta, 0);
}

TEST(DeriveAttention, UncompressedQueriesOfMla) {
  // q: 2 * 1 * (2 + 1) = 6, kv: 2 * (4 + 1) + 4 * 1 * (2 + 3) = 30, out:
  // 1 * 3 * 2 = 6; one assignment: 3 * 2 * 1 = 6.
  const auto stages = Derive({.hidden_size = 2,
                              .moe_intermediate_size = 1,
                              .attention = {{.kind = AttentionKind::kMla,
                                             .layers = 1,
                                             .num_heads = 1,
                                             .qk_head_dim = 2,
                                             .v_head_dim = 3,
                                             .qk_rope_head_dim = 1,
                                             .kv_lora_rank = 4}}},
                             10);
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_DOUBLE_EQ(stages[0].alpha, 42.0 / 6);
  EXPECT_DOUBLE_EQ(stages[0].beta, (2 + 1 + 3) / 2.0 * 10 / 6);
}

TEST(DeriveAttention, LinearAndSlidingLayersHaveNoPairTerm) {
  // Projections: q and k 4 * 2 * 3, v and out 4 * 2 * 5, together 128;
  // one assignment: 3 * 4 * 2 = 24. State: 2 * 2 * 3 * 5 = 60.
  // Window of 6: 2 * (3 + 5) * 6 = 96.
  AttentionLayers linear = {.name = "kda",
                            .kind = AttentionKind::kLinear,
                            .layers = 3,
                            .num_heads = 2,
                            .qk_head_dim = 3,
                            .v_head_dim = 5};
  AttentionLayers sliding = linear;
  sliding.name = "swa";
  sliding.kind = AttentionKind::kSlidingWindow;
  sliding.layers = 1;
  sliding.window = 6;
  const auto stages = Derive({.hidden_size = 4,
                              .moe_intermediate_size = 2,
                              .attention = {linear, sliding}},
                             1000);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_DOUBLE_EQ(stages[0].alpha, 3 * (128 + 60) / 24.0);
  EXPECT_EQ(stages[0].beta, 0);
  EXPECT_DOUBLE_EQ(stages[1].alpha, (128 + 96) / 24.0);
  EXPECT_EQ(stages[1].beta, 0);
}

TEST(DeriveAttention, SplitsAttentionOverTpAndCpAndExpertsOverEtp) {
  const auto base = Derive(DeepSeekV3(), 8192);
  ModelShape split = DeepSeekV3();
  split.tp = 2;
  split.cp = 4;
  const auto eighth = Derive(split, 8192);
  split.etp = 8;
  const auto balanced = Derive(split, 8192);
  ASSERT_EQ(base.size(), 2u);
  ASSERT_EQ(eighth.size(), 2u);
  ASSERT_EQ(balanced.size(), 2u);
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_DOUBLE_EQ(eighth[s].alpha, base[s].alpha / 8);
    EXPECT_DOUBLE_EQ(eighth[s].beta, base[s].beta / 8);
    EXPECT_DOUBLE_EQ(balanced[s].alpha, base[s].alpha);
    EXPECT_DOUBLE_EQ(balanced[s].beta, base[s].beta);
  }
}

TEST(DeriveAttention, OnlyThePairTermGrowsWithTheCap) {
  const auto base = Derive(Qwen3_30B_A3B(), 4096);
  const auto longer = Derive(Qwen3_30B_A3B(), 16384);
  EXPECT_DOUBLE_EQ(longer[0].alpha, base[0].alpha);
  EXPECT_DOUBLE_EQ(longer[0].beta, 4 * base[0].beta);
}

TEST(DeriveAttention, ZeroWidthsTakeTheirDefaults) {
  ModelShape shape = Qwen3_30B_A3B();
  shape.attention[0].num_kv_heads = 0;
  ModelShape explicit_shape = shape;
  explicit_shape.attention[0].num_kv_heads = 32;
  explicit_shape.attention[0].v_head_dim = 128;
  EXPECT_EQ(Derive(shape, 8192), Derive(explicit_shape, 8192));
}

TEST(DeriveAttention, NamesEveryMissingField) {
  EXPECT_THAT(
      BadFields({.attention = {{},
                               {.kind = AttentionKind::kMla,
                                .layers = 1,
                                .num_heads = 1,
                                .qk_head_dim = 1}},
                 .shared_expert_intermediate_size = 1,
                 .num_dense_layers = 1,
                 .tp = 0,
                 .cp = 0,
                 .etp = 0},
                0),
      ElementsAre("header.attention.model.hidden_size",
                  "header.attention.model.moe_intermediate_size",
                  "header.attention.model.attention[0].layers",
                  "header.attention.model.attention[0].num_heads",
                  "header.attention.model.attention[0].qk_head_dim",
                  "header.attention.model.attention[1].kv_lora_rank",
                  "header.attention.model.num_moe_layers",
                  "header.attention.model.dense_intermediate_size",
                  "header.attention.model.tp", "header.attention.model.cp",
                  "header.attention.model.etp", "header.token_cap"));
  ModelShape sliding = Qwen3_30B_A3B();
  sliding.attention[0].kind = AttentionKind::kSlidingWindow;
  EXPECT_THAT(BadFields(sliding, 1),
              ElementsAre("header.attention.model.attention[0].window"));
}

}  // namespace
}  // namespace routepack
