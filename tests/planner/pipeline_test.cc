#include "planner/pipeline.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/errors.h"

namespace routepack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Pipeline Make(uint32_t num_layers, uint32_t num_stages,
              const std::vector<uint32_t>& counts) {
  const absl::StatusOr<Pipeline> pipeline =
      MakePipeline(num_layers, num_stages, counts);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return pipeline.value_or(Pipeline{});
}

TEST(MakePipelineTest, CountsConsecutiveLayers) {
  const Pipeline pipeline = Make(6, 3, {1, 3, 2});
  EXPECT_EQ(pipeline.num_stages, 3u);
  EXPECT_THAT(pipeline.stage_of_layer, ElementsAre(0, 1, 1, 1, 2, 2));
}

TEST(MakePipelineTest, StagesMayHaveNoMoeLayer) {
  const Pipeline pipeline = Make(3, 4, {0, 1, 2, 0});
  EXPECT_EQ(pipeline.num_stages, 4u);
  EXPECT_THAT(pipeline.stage_of_layer, ElementsAre(1, 2, 2));
}

// Two virtual stages each: stage 0 has layers 0 and 3-4, stage 1 the others.
TEST(MakePipelineTest, MoreCountsThanStagesInterleave) {
  const Pipeline pipeline = Make(6, 2, {1, 2, 2, 1});
  EXPECT_EQ(pipeline.num_stages, 2u);
  EXPECT_THAT(pipeline.stage_of_layer, ElementsAre(0, 1, 1, 0, 0, 1));
}

TEST(MakePipelineTest, CountsAloneTellTheStages) {
  const Pipeline pipeline = Make(5, 0, {2, 3});
  EXPECT_EQ(pipeline.num_stages, 2u);
  EXPECT_THAT(pipeline.stage_of_layer, ElementsAre(0, 0, 1, 1, 1));
}

TEST(MakePipelineTest, WithoutCountsTheSplitIsEvenOrUnknown) {
  EXPECT_THAT(Make(6, 3, {}).stage_of_layer, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_EQ(Make(7, 3, {}), Pipeline{});
  EXPECT_EQ(Make(2, 4, {}), Pipeline{});
  EXPECT_EQ(Make(6, 0, {}), Pipeline{});
}

TEST(MakePipelineTest, OneStageNeedsNone) {
  EXPECT_EQ(Make(6, 1, {}), Pipeline{});
  EXPECT_EQ(Make(6, 1, {6}), Pipeline{});
  EXPECT_EQ(Make(6, 0, {6}), Pipeline{});
}

TEST(MakePipelineTest, NamesEachDefect) {
  const auto error = [](uint32_t num_layers, uint32_t num_stages,
                        const std::vector<uint32_t>& counts) {
    const absl::Status status =
        MakePipeline(num_layers, num_stages, counts).status();
    const std::vector<FieldViolation> list = ViolationsOf(status);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(list.size(), 1u);
    if (list.empty()) return std::string();
    EXPECT_EQ(list[0].field, "header.topology.moe_layers_per_stage");
    return list[0].description;
  };
  EXPECT_THAT(error(6, 3, {1, 3, 1}), HasSubstr("num_layers = 6, is 5"));
  EXPECT_THAT(error(6, 3, {3, 3}), HasSubstr("of the 3 stages, has 2"));
  EXPECT_THAT(error(6, 3, {1, 1, 1, 3}), HasSubstr("of the 3 stages, has 4"));
  EXPECT_THAT(error(6, 1, {3, 3}), HasSubstr("mesh.pp"));
  // Would be 6 modulo 2^32.
  EXPECT_THAT(error(6, 2, {~uint32_t{0}, 7}), HasSubstr("is 4294967302"));
  EXPECT_THAT(error(6, 0, std::vector<uint32_t>(kMaxStages + 1, 0)),
              HasSubstr("4097 entries"));
}

}  // namespace
}  // namespace routepack
