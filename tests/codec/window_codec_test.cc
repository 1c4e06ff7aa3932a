#include "proto/codec/window_codec.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codec/test_messages.h"

namespace routepack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

v1::WindowHeader TinyHeader() { return TinyWindow().header(); }

TEST(DecodeSpec, ReadsEveryField) {
  v1::WindowHeader header = TinyHeader();
  header.set_num_samples(16);
  header.set_length_multiple(4);
  header.mutable_counts()->set_partial_counts(true);
  header.mutable_counts()->set_missing(v1::MISSING_COUNTS_WINDOW_MEAN);
  const absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_samples, 16u);
  EXPECT_EQ(spec->num_layers, 2u);
  EXPECT_EQ(spec->num_experts, 8u);
  EXPECT_EQ(spec->top_k, 2u);
  EXPECT_EQ(spec->token_cap, 40u);
  EXPECT_EQ(spec->length_multiple, 4u);
  EXPECT_EQ(spec->topology, *Topology::FromMesh({.ep = 4, .dp = 4}));
  EXPECT_THAT(spec->attention, ElementsAre(AttentionStage{"mla", 0.5, 2},
                                           AttentionStage{"kda", 0.75, 0}));
  EXPECT_EQ(spec->counts_origin, CountsOrigin::kReplayed);
  EXPECT_TRUE(spec->partial_counts);
  EXPECT_EQ(spec->missing_counts, MissingCounts::kWindowMean);
}

TEST(DecodeSpec, ZeroMeansOneForSizesAndMultiples) {
  v1::WindowHeader header = TinyHeader();
  header.mutable_topology()->mutable_mesh()->Clear();
  const absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->length_multiple, 1u);
  EXPECT_EQ(spec->topology.num_ranks(), 1u);
  EXPECT_EQ(spec->topology.num_slots(), 1u);
}

TEST(DecodeSpec, ExplicitShardsEqualTheMeshTheyDescribe) {
  v1::WindowHeader header = TinyHeader();
  v1::ExplicitShards* shards = header.mutable_topology()->mutable_shards();
  shards->set_dp_slots(4);
  shards->set_ep_ranks(2);
  for (uint32_t g = 0; g < 2; ++g) {
    v1::EdpShard* shard = shards->add_shards();
    shard->add_slots(2 * g + 1);
    shard->add_slots(2 * g);
  }
  const absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->topology, *Topology::FromMesh({.ep = 2, .dp = 4}));
}

TEST(DecodeSpec, StagesComeFromTheListOrTheMesh) {
  v1::WindowHeader header = TinyHeader();
  EXPECT_EQ(DecodeSpec(header)->pipeline, Pipeline{});
  v1::Topology& topology = *header.mutable_topology();
  topology.mutable_mesh()->set_pp(2);
  const Pipeline even = {.num_stages = 2, .stage_of_layer = {0, 1}};
  EXPECT_EQ(DecodeSpec(header)->pipeline, even);
  topology.add_moe_layers_per_stage(0);
  topology.add_moe_layers_per_stage(2);
  const Pipeline uneven = {.num_stages = 2, .stage_of_layer = {1, 1}};
  EXPECT_EQ(DecodeSpec(header)->pipeline, uneven);
  // Explicit shards say nothing of stages: the list alone does.
  topology.mutable_shards()->set_dp_slots(4);
  topology.mutable_shards()->set_ep_ranks(4);
  EXPECT_EQ(DecodeSpec(header)->pipeline, uneven);
  topology.clear_moe_layers_per_stage();
  EXPECT_EQ(DecodeSpec(header)->pipeline, Pipeline{});
}

struct BadHeader {
  const char* name;
  std::function<void(v1::WindowHeader*)> spoil;
  const char* field;
};

class MalformedHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(MalformedHeader, IsNamedExactly) {
  v1::WindowHeader header = TinyHeader();
  GetParam().spoil(&header);
  const absl::Status status = DecodeSpec(header).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(Fields(status), ElementsAre(GetParam().field)) << status;
}

v1::AttentionLayers* OneModel(v1::WindowHeader* header) {
  header->mutable_attention()->clear_stages();
  v1::ModelShape* model = header->mutable_attention()->mutable_model();
  model->set_hidden_size(64);
  model->set_moe_intermediate_size(32);
  v1::AttentionLayers* layers = model->add_attention();
  layers->set_name("full");
  layers->set_kind(v1::ATTENTION_KIND_FULL);
  layers->set_layers(2);
  layers->set_num_heads(4);
  layers->set_qk_head_dim(16);
  return layers;
}

v1::ExplicitShards* TwoShards(v1::WindowHeader* header) {
  v1::ExplicitShards* shards = header->mutable_topology()->mutable_shards();
  shards->set_dp_slots(4);
  shards->set_ep_ranks(4);
  for (uint32_t d = 0; d < 4; ++d) {
    if (d % 2 == 0) shards->add_shards();
    shards->mutable_shards()->rbegin()->add_slots(d);
  }
  return shards;
}

INSTANTIATE_TEST_SUITE_P(
    All, MalformedHeader,
    testing::Values(
        BadHeader{"NoTopology",
                  [](v1::WindowHeader* h) { h->clear_topology(); },
                  "header.topology"},
        BadHeader{
            "EmptyTopology",
            [](v1::WindowHeader* h) { h->mutable_topology()->clear_kind(); },
            "header.topology"},
        BadHeader{"MeshDoesNotDivide",
                  [](v1::WindowHeader* h) {
                    h->mutable_topology()->mutable_mesh()->set_dp(6);
                  },
                  "header.topology.mesh.ep"},
        BadHeader{"MeshTooLarge",
                  [](v1::WindowHeader* h) {
                    h->mutable_topology()->mutable_mesh()->set_ep(1u << 31);
                  },
                  "header.topology.mesh.ep"},
        BadHeader{"StagesOfOtherLayers",
                  [](v1::WindowHeader* h) {
                    h->mutable_topology()->mutable_mesh()->set_pp(2);
                    h->mutable_topology()->add_moe_layers_per_stage(1);
                    h->mutable_topology()->add_moe_layers_per_stage(2);
                  },
                  "header.topology.moe_layers_per_stage"},
        BadHeader{"StagesOfOtherPipeline",
                  [](v1::WindowHeader* h) {
                    h->mutable_topology()->mutable_mesh()->set_pp(3);
                    h->mutable_topology()->add_moe_layers_per_stage(1);
                    h->mutable_topology()->add_moe_layers_per_stage(1);
                  },
                  "header.topology.moe_layers_per_stage"},
        // Refused before a stage is given to each.
        BadHeader{"StagesOfTooManyLayers",
                  [](v1::WindowHeader* h) {
                    h->set_num_layers(kMaxLayers + 1);
                    h->mutable_topology()->mutable_mesh()->set_pp(2);
                    h->mutable_topology()->add_moe_layers_per_stage(kMaxLayers);
                    h->mutable_topology()->add_moe_layers_per_stage(1);
                  },
                  "header.num_layers"},
        BadHeader{"SlotInTwoShards",
                  [](v1::WindowHeader* h) {
                    TwoShards(h)->mutable_shards(1)->add_slots(1);
                  },
                  "header.topology.shards.shards[1].slots[2]"},
        BadHeader{
            "SlotInNoShard",
            [](v1::WindowHeader* h) {
              TwoShards(h)->mutable_shards(1)->mutable_slots()->RemoveLast();
            },
            "header.topology.shards.shards"},
        BadHeader{"SlotOutOfRange",
                  [](v1::WindowHeader* h) {
                    TwoShards(h)->mutable_shards(0)->add_slots(4);
                  },
                  "header.topology.shards.shards[0].slots[2]"},
        BadHeader{"NoSlots",
                  [](v1::WindowHeader* h) {
                    h->mutable_topology()->mutable_shards()->set_ep_ranks(4);
                  },
                  "header.topology.shards.dp_slots"},
        BadHeader{"ExpertsDoNotDivide",
                  [](v1::WindowHeader* h) { h->set_num_experts(10); },
                  "header.num_experts"},
        BadHeader{"NoLayers", [](v1::WindowHeader* h) { h->set_num_layers(0); },
                  "header.num_layers"},
        BadHeader{"TopKAboveExperts",
                  [](v1::WindowHeader* h) { h->set_top_k(9); }, "header.top_k"},
        BadHeader{"NoCap", [](v1::WindowHeader* h) { h->set_token_cap(0); },
                  "header.token_cap"},
        BadHeader{"CapTooLarge",
                  [](v1::WindowHeader* h) { h->set_token_cap(1u << 27); },
                  "header.token_cap"},
        BadHeader{"TooManySamples",
                  [](v1::WindowHeader* h) { h->set_num_samples(1u << 30); },
                  "header.num_samples"},
        BadHeader{"NanAlpha",
                  [](v1::WindowHeader* h) {
                    h->mutable_attention()->mutable_stages(0)->set_alpha(
                        std::numeric_limits<double>::quiet_NaN());
                  },
                  "header.attention.stages[0].alpha"},
        BadHeader{"InfiniteBeta",
                  [](v1::WindowHeader* h) {
                    h->mutable_attention()->mutable_stages(1)->set_beta(
                        std::numeric_limits<double>::infinity());
                  },
                  "header.attention.stages[1].beta"},
        BadHeader{"NegativeAlpha",
                  [](v1::WindowHeader* h) {
                    h->mutable_attention()->mutable_stages(1)->set_alpha(-1);
                  },
                  "header.attention.stages[1].alpha"},
        BadHeader{"StagesAndModel",
                  [](v1::WindowHeader* h) {
                    OneModel(h);
                    h->mutable_attention()->add_stages()->set_name("more");
                  },
                  "header.attention"},
        BadHeader{"AttentionKindUnspecified",
                  [](v1::WindowHeader* h) {
                    OneModel(h)->set_kind(v1::ATTENTION_KIND_UNSPECIFIED);
                  },
                  "header.attention.model.attention[0].kind"},
        BadHeader{"AttentionKindUnknown",
                  [](v1::WindowHeader* h) {
                    OneModel(h)->set_kind(static_cast<v1::AttentionKind>(77));
                  },
                  "header.attention.model.attention[0].kind"},
        BadHeader{"ModelWithoutWidth",
                  [](v1::WindowHeader* h) {
                    OneModel(h);
                    h->mutable_attention()->mutable_model()->set_hidden_size(0);
                  },
                  "header.attention.model.hidden_size"},
        BadHeader{"OriginUnknown",
                  [](v1::WindowHeader* h) {
                    h->mutable_counts()->set_origin(
                        static_cast<v1::CountsOrigin>(9));
                  },
                  "header.counts.origin"},
        BadHeader{"MissingUnknown",
                  [](v1::WindowHeader* h) {
                    h->mutable_counts()->set_missing(
                        static_cast<v1::MissingCounts>(-3));
                  },
                  "header.counts.missing"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DecodeSpec, ListsViolationsOfAllPartsAtOnce) {
  v1::WindowHeader header = TinyHeader();
  header.clear_topology();
  header.set_top_k(0);
  header.set_token_cap(0);
  header.mutable_attention()->mutable_stages(0)->set_beta(-2);
  header.mutable_counts()->set_origin(static_cast<v1::CountsOrigin>(9));
  EXPECT_THAT(Fields(DecodeSpec(header).status()),
              UnorderedElementsAre(
                  "header.topology", "header.top_k", "header.token_cap",
                  "header.attention.stages[0].beta", "header.counts.origin"));
}

TEST(DecodeSpec, MeshWithoutEdpPartitionIsUnimplemented) {
  v1::WindowHeader header = TinyHeader();
  v1::MeshSizes* mesh = header.mutable_topology()->mutable_mesh();
  mesh->set_tp(8);  // one slot of 8 GPUs spans two communicators of 4
  const absl::Status status = DecodeSpec(header).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("header.topology.mesh"));
  // What can be mended is named first.
  header.set_top_k(0);
  EXPECT_THAT(Fields(DecodeSpec(header).status()), ElementsAre("header.top_k"));
}

TEST(DecodeSpec, ModelSizesDefaultToTheMesh) {
  v1::WindowHeader header = TinyHeader();
  OneModel(&header);
  v1::MeshSizes* mesh = header.mutable_topology()->mutable_mesh();
  mesh->set_tp(2);
  mesh->set_cp(2);
  mesh->set_etp(2);
  v1::WindowHeader explicit_header = header;
  v1::ModelShape* model = explicit_header.mutable_attention()->mutable_model();
  model->set_tp(2);
  model->set_cp(2);
  model->set_etp(2);
  model->set_num_moe_layers(2);
  const absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
  const absl::StatusOr<WindowSpec> stated = DecodeSpec(explicit_header);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(spec->attention, stated->attention);
  ASSERT_EQ(spec->attention.size(), 1u);
  EXPECT_GT(spec->attention[0].alpha, 0);
  model->set_tp(1);
  EXPECT_NE(spec->attention, DecodeSpec(explicit_header)->attention);
}

TEST(DecodeOptions, FillsInDefaults) {
  const absl::StatusOr<PlanOptions> options = DecodeOptions({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->placement, PlacementPolicy::kIncremental);
  EXPECT_EQ(options->min_rows, 1u);
  EXPECT_EQ(options->row_multiple, 1u);
  EXPECT_FALSE(options->allow_filler);
  EXPECT_EQ(options->row_order, RowOrder::kAsPlanned);
  EXPECT_EQ(options->row_search_nodes, PlanOptions{}.row_search_nodes);
  EXPECT_EQ(options->time_limit, absl::InfiniteDuration());
  EXPECT_EQ(options->search, SearchOptions{});
}

TEST(DecodeOptions, ReadsEveryField) {
  v1::PlanOptions message;
  message.set_placement(v1::PLACEMENT_POLICY_KEEP);
  message.set_min_rows(3);
  message.set_row_multiple(2);
  message.set_allow_filler(true);
  message.set_row_order(v1::ROW_ORDER_LIGHT_ENDS);
  message.set_seed(99);
  message.set_row_search_nodes(5);
  message.mutable_time_limit()->set_nanos(250'000'000);
  message.mutable_search()->set_effort(v1::EFFORT_BEST);
  const absl::StatusOr<PlanOptions> options = DecodeOptions(message);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->placement, PlacementPolicy::kKeep);
  EXPECT_EQ(options->min_rows, 3u);
  EXPECT_EQ(options->row_multiple, 2u);
  EXPECT_TRUE(options->allow_filler);
  EXPECT_EQ(options->row_order, RowOrder::kLightEnds);
  EXPECT_EQ(options->seed, 99u);
  EXPECT_EQ(options->row_search_nodes, 5u);
  EXPECT_EQ(options->time_limit, absl::Milliseconds(250));
  EXPECT_EQ(options->search.effort, Effort::kBest);
}

TEST(DecodeOptions, NamesWhatIsWrong) {
  v1::PlanOptions message;
  message.set_placement(static_cast<v1::PlacementPolicy>(42));
  message.set_row_order(static_cast<v1::RowOrder>(42));
  message.mutable_time_limit();
  message.mutable_search()->set_levels(1);
  EXPECT_THAT(
      Fields(DecodeOptions(message).status()),
      ElementsAre("header.options.placement", "header.options.row_order",
                  "header.options.time_limit", "header.options.search.levels"));
  message.Clear();
  message.mutable_time_limit()->set_seconds(1);
  message.mutable_time_limit()->set_nanos(-1);
  EXPECT_THAT(Fields(DecodeOptions(message).status()),
              ElementsAre("header.options.time_limit"));
}

TEST(DecodeOptions, ReservedFeaturesAreUnimplementedByName) {
  v1::PlanOptions message;
  message.set_keep_groups_together(true);
  absl::Status status = DecodeOptions(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("header.options.keep_groups_together"));
  message.Clear();
  message.set_replica_slots(2);
  status = DecodeOptions(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("header.options.replica_slots"));
}

v1::PlanKey Key(const std::string& job, const std::string& run = "") {
  v1::PlanKey key;
  key.set_job_id(job);
  key.set_run_id(run);
  return key;
}

TEST(ValidateKey, AcceptsPrintableNames) {
  EXPECT_TRUE(ValidateKey(Key("a"), "key").ok());
  EXPECT_TRUE(ValidateKey(Key("grpo/qwen3 30b @ é 模型", "run-1"), "key").ok());
  std::string wide;
  for (int j = 0; j < 128; ++j) wide += "é";  // 128 characters, 256 bytes
  EXPECT_TRUE(ValidateKey(Key(wide, std::string(128, 'x')), "key").ok());
}

TEST(ValidateKey, RefusesEmptyLongAndControl) {
  const auto fields = [](const v1::PlanKey& key) {
    return Fields(ValidateKey(key, "header.key"));
  };
  EXPECT_THAT(fields(Key("")), ElementsAre("header.key.job_id"));
  EXPECT_THAT(fields(Key(std::string(129, 'x'))),
              ElementsAre("header.key.job_id"));
  EXPECT_THAT(fields(Key("a", std::string(129, 'x'))),
              ElementsAre("header.key.run_id"));
  for (const std::string& bad : std::vector<std::string>{
           "a\nb", "\t", "\x7f", "a\xc2\x85", std::string("a\0b", 3)}) {
    EXPECT_THAT(fields(Key(bad)), ElementsAre("header.key.job_id")) << bad;
  }
  EXPECT_THAT(fields(Key("", "\r")),
              ElementsAre("header.key.job_id", "header.key.run_id"));
  EXPECT_THAT(fields(Key("\xc2\xa0")), IsEmpty());  // no-break space
}

v1::Placement OneLayer(const std::vector<uint32_t>& slots,
                       const std::vector<uint32_t>& experts = {}) {
  v1::Placement placement;
  v1::LayerPlacement* layer = placement.add_layers();
  layer->mutable_slot_of_expert()->Add(slots.begin(), slots.end());
  layer->mutable_expert_of_slot()->Add(experts.begin(), experts.end());
  return placement;
}

TEST(DecodePlacement, FillsInTheInverse) {
  const absl::StatusOr<Placement> placement =
      DecodePlacement(OneLayer({2, 0, 3, 1}), 1, 4, 2, "map");
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_THAT(placement->slot_of_expert, ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(placement->expert_of_slot, ElementsAre(1, 3, 0, 2));
  EXPECT_EQ(placement->num_ranks, 2u);
  const absl::StatusOr<Placement> both =
      DecodePlacement(OneLayer({2, 0, 3, 1}, {1, 3, 0, 2}), 1, 4, 2, "map");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(*both, *placement);
}

TEST(DecodePlacement, NamesTheEntry) {
  const auto fields = [](const v1::Placement& placement, uint32_t layers = 1) {
    return Fields(DecodePlacement(placement, layers, 4, 2, "map").status());
  };
  EXPECT_THAT(fields(OneLayer({0, 1, 2, 3}), 2), ElementsAre("map.layers"));
  EXPECT_THAT(fields(OneLayer({0, 1, 2})),
              ElementsAre("map.layers[0].slot_of_expert"));
  EXPECT_THAT(fields(OneLayer({0, 1, 2, 4})),
              ElementsAre("map.layers[0].slot_of_expert[3]"));
  EXPECT_THAT(fields(OneLayer({0, 1, 1, 3})),
              ElementsAre("map.layers[0].slot_of_expert[2]"));
  EXPECT_THAT(fields(OneLayer({0, 1, 2, 3}, {0, 1, 2})),
              ElementsAre("map.layers[0].expert_of_slot"));
  EXPECT_THAT(fields(OneLayer({0, 1, 2, 3}, {0, 1, 3, 2})),
              ElementsAre("map.layers[0].expert_of_slot[2]",
                          "map.layers[0].expert_of_slot[3]"));
  v1::Placement shifted = OneLayer({0, 1, 2, 3});
  shifted.mutable_layers(0)->set_layer(7);
  EXPECT_THAT(fields(shifted), ElementsAre("map.layers[0].layer"));
}

TEST(DecodeWindow, CountsTheSamplesItself) {
  v1::Window message = TinyWindow();
  const absl::StatusOr<Window> open = DecodeWindow(message);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->num_samples(), 16u);
  message.mutable_header()->set_num_samples(16);
  const absl::StatusOr<Window> stated = DecodeWindow(message);
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(open->digest(), stated->digest());
}

TEST(DecodeWindow, RefusesAnotherNumberOfSamples) {
  v1::Window message = TinyWindow();
  message.mutable_header()->set_num_samples(17);
  message.mutable_samples(4)->set_tokens(0);
  EXPECT_THAT(Fields(DecodeWindow(message).status()),
              ElementsAre("header.num_samples", "samples[4].tokens"));
  message.clear_samples();
  message.mutable_header()->set_num_samples(0);
  EXPECT_THAT(Fields(DecodeWindow(message).status()),
              ElementsAre("header.num_samples"));
}

TEST(DecodeWindow, AnEmptyMessageIsAListOfViolations) {
  const absl::Status status = DecodeWindow({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(status),
              UnorderedElementsAre("header.topology", "header.num_layers",
                                   "header.num_experts", "header.top_k",
                                   "header.token_cap"));
}

TEST(DecodeWindow, MissingCountsTakeTheWindowMean) {
  v1::Window message = TinyWindow();
  message.mutable_header()->mutable_counts()->set_missing(
      v1::MISSING_COUNTS_WINDOW_MEAN);
  message.mutable_samples(6)->clear_counts();
  const absl::StatusOr<Window> window = DecodeWindow(message);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_THAT(window->imputed(), ElementsAre(6));
}

}  // namespace
}  // namespace routepack
