#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/codec/movement_codec.h"
#include "proto/codec/search_codec.h"
#include "proto/codec/window_codec.h"
#include "tests/codec/test_messages.h"

namespace routepack {
namespace {

std::string DigestOf(const v1::Window& message) {
  const absl::StatusOr<Window> window = DecodeWindow(message);
  EXPECT_TRUE(window.ok()) << window.status();
  return window.ok() ? RequestDigest(*window, message.header()) : "";
}

using Change = std::function<void(v1::Window*)>;

v1::Placement* IdentityMap(v1::Window* window) {
  v1::Placement* map =
      window->mutable_header()->mutable_current_placement()->mutable_map();
  for (uint32_t l = 0; l < 2; ++l) {
    v1::LayerPlacement* layer = map->add_layers();
    layer->set_layer(l);
    for (uint32_t e = 0; e < 8; ++e) layer->add_slot_of_expert(e);
  }
  return map;
}

TEST(RequestDigest, IsThirtyTwoHexDigits) {
  const std::string digest = DigestOf(TinyWindow());
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(RequestDigest, IgnoresTheKeySpelledOutDefaultsAndEncodings) {
  const std::vector<Change> changes = {
      [](v1::Window* w) { w->mutable_header()->mutable_key()->set_step(99); },
      [](v1::Window* w) { w->mutable_header()->set_num_samples(16); },
      [](v1::Window* w) { w->mutable_header()->set_length_multiple(1); },
      [](v1::Window* w) {
        v1::PlanOptions* options = w->mutable_header()->mutable_options();
        options->set_placement(v1::PLACEMENT_POLICY_INCREMENTAL);
        options->set_min_rows(1);
        options->set_row_multiple(1);
        options->set_row_order(v1::ROW_ORDER_AS_PLANNED);
        options->set_row_search_nodes(PlanOptions{}.row_search_nodes);
        EncodePlacementOptions({}, options);
        options->mutable_movement()->set_inter_node_cost(3);
        EncodeSearchOptions(
            ResolveSearch({.effort = Effort::kFast, .levels = 4}, 16),
            options->mutable_search());
        // How many steps these are depends on the fillers.
        options->mutable_search()->clear_steps();
      },
      [](v1::Window* w) {
        w->mutable_header()->mutable_current_placement()->mutable_identity();
      },
      [](v1::Window* w) { IdentityMap(w); },
      [](v1::Window* w) {
        v1::ExplicitShards* shards =
            w->mutable_header()->mutable_topology()->mutable_shards();
        shards->set_dp_slots(4);
        shards->set_ep_ranks(4);
      },
      [](v1::Window* w) {
        v1::Counts* counts = w->mutable_samples(0)->mutable_counts();
        const auto& values = counts->dense().values();
        counts->set_u16(LittleEndian<uint16_t>(
            std::vector<uint32_t>(values.begin(), values.end())));
      },
  };
  const std::string digest = DigestOf(TinyWindow());
  for (size_t j = 0; j < changes.size(); ++j) {
    v1::Window window = TinyWindow();
    changes[j](&window);
    EXPECT_EQ(DigestOf(window), digest) << "change " << j;
  }
}

TEST(RequestDigest, DiffersWhenTheAnswerMayDiffer) {
  const auto options = [](v1::Window* w) {
    return w->mutable_header()->mutable_options();
  };
  const auto search = [&](v1::Window* w) {
    return options(w)->mutable_search();
  };
  const auto movement = [&](v1::Window* w) {
    return options(w)->mutable_movement();
  };
  const auto buffer = [&](v1::Window* w) {
    return movement(w)->mutable_buffer();
  };
  const auto incremental = [&](v1::Window* w) {
    return options(w)->mutable_incremental();
  };
  const auto transfer = [&](v1::Window* w) {
    return options(w)->mutable_transfer();
  };
  const auto ranks = [](std::vector<uint32_t> list) {
    return [list](v1::Window* w) {
      w->mutable_header()->mutable_participant_ranks()->Add(list.begin(),
                                                            list.end());
    };
  };
  const std::vector<Change> changes = {
      [](v1::Window*) {},
      [](v1::Window* w) { w->mutable_samples(0)->set_id(5); },
      [](v1::Window* w) { w->mutable_samples(0)->set_group(5); },
      [](v1::Window* w) { w->mutable_samples()->SwapElements(0, 1); },
      [](v1::Window* w) { w->mutable_header()->set_token_cap(41); },
      [](v1::Window* w) {
        w->mutable_header()->mutable_attention()->mutable_stages(1)->set_beta(
            1e-300);
      },
      [&](v1::Window* w) {
        options(w)->set_placement(v1::PLACEMENT_POLICY_IDENTITY);
      },
      [&](v1::Window* w) { options(w)->set_min_rows(2); },
      [&](v1::Window* w) { options(w)->set_row_multiple(2); },
      [&](v1::Window* w) { options(w)->set_allow_filler(true); },
      [&](v1::Window* w) {
        options(w)->set_row_order(v1::ROW_ORDER_LIGHT_ENDS);
      },
      [&](v1::Window* w) { options(w)->set_seed(8); },
      [&](v1::Window* w) { options(w)->set_row_search_nodes(1); },
      [&](v1::Window* w) { search(w)->set_effort(v1::EFFORT_SEEDS); },
      [&](v1::Window* w) { search(w)->set_effort(v1::EFFORT_BALANCED); },
      [&](v1::Window* w) { search(w)->set_effort(v1::EFFORT_BEST); },
      [&](v1::Window* w) { search(w)->set_steps(1000); },
      [&](v1::Window* w) { search(w)->set_levels(5); },
      [&](v1::Window* w) { search(w)->set_population(5); },
      [&](v1::Window* w) { search(w)->set_candidates(5); },
      [&](v1::Window* w) { search(w)->set_choice_width(5); },
      [&](v1::Window* w) { search(w)->set_projections(5); },
      [&](v1::Window* w) { search(w)->set_diversity_penalty(0); },
      [&](v1::Window* w) { search(w)->set_guided_probability(0); },
      [&](v1::Window* w) { search(w)->set_relocation_probability(0); },
      [&](v1::Window* w) { options(w)->mutable_time_limit()->set_nanos(1); },
      [&](v1::Window* w) { options(w)->set_refine_after_announce(true); },
      [&](v1::Window* w) { movement(w)->set_parameters_per_expert(3); },
      [&](v1::Window* w) {
        movement(w)->set_parameters_per_expert(3);
        movement(w)->set_flop_per_second(1);
      },
      [&](v1::Window* w) { movement(w)->add_kinds()->set_bytes(3); },
      [&](v1::Window* w) { movement(w)->add_kinds()->set_name("scales"); },
      [&](v1::Window* w) { movement(w)->add_kinds()->set_lane_owned(true); },
      [&](v1::Window* w) { buffer(w)->add_parameters()->set_elements(1); },
      [&](v1::Window* w) { buffer(w)->add_parameters()->set_buffer(1); },
      [&](v1::Window* w) { buffer(w)->set_slot_by_slot(true); },
      [&](v1::Window* w) { buffer(w)->set_ascending(true); },
      [&](v1::Window* w) { buffer(w)->set_start_alignment(1); },
      [&](v1::Window* w) { buffer(w)->set_end_multiple(1); },
      [&](v1::Window* w) { buffer(w)->set_bucket_elements(1); },
      [&](v1::Window* w) { buffer(w)->add_chunk_of_layer(0); },
      [&](v1::Window* w) { movement(w)->add_lane_ranges()->set_layer(1); },
      [&](v1::Window* w) { movement(w)->add_lane_ranges()->set_slot(1); },
      [&](v1::Window* w) { movement(w)->add_lane_ranges()->set_lane(1); },
      [&](v1::Window* w) { movement(w)->add_lane_ranges()->set_begin(1); },
      [&](v1::Window* w) { movement(w)->add_lane_ranges()->set_end(1); },
      [&](v1::Window* w) { movement(w)->set_ranks_per_node(2); },
      [&](v1::Window* w) { movement(w)->add_node_of_rank(0); },
      [&](v1::Window* w) { movement(w)->set_gpus_per_rank(2); },
      [&](v1::Window* w) { movement(w)->set_inter_node_cost(0); },
      [&](v1::Window* w) { movement(w)->set_intra_node_bandwidth(1); },
      [&](v1::Window* w) { movement(w)->set_inter_node_bandwidth(1); },
      [&](v1::Window* w) { movement(w)->set_node_bandwidth(1); },
      [&](v1::Window* w) { movement(w)->set_seconds_per_assignment(1); },
      [&](v1::Window* w) { incremental(w)->set_target_imbalance(0); },
      [&](v1::Window* w) { incremental(w)->set_movement_budget(0); },
      [&](v1::Window* w) { incremental(w)->set_break_even(false); },
      [&](v1::Window* w) { incremental(w)->set_horizon_steps(2); },
      [&](v1::Window* w) { transfer(w)->set_experts_per_round(2); },
      [&](v1::Window* w) { transfer(w)->set_max_staging(2); },
      [&](v1::Window* w) { transfer(w)->set_max_uplink(2); },
      [](v1::Window* w) {
        IdentityMap(w)
            ->mutable_layers(1)
            ->mutable_slot_of_expert()
            ->SwapElements(0, 7);
      },
      [](v1::Window* w) {
        w->mutable_header()->mutable_current_placement()->set_committed_version(
            "job/1.0@00");
      },
      ranks({0}),
      ranks({0, 1}),
  };
  std::set<std::string> digests;
  for (const Change& change : changes) {
    v1::Window window = TinyWindow();
    change(&window);
    digests.insert(DigestOf(window));
  }
  EXPECT_EQ(digests.size(), changes.size());
}

TEST(RequestDigest, ParticipantsAreASet) {
  v1::Window forward = TinyWindow();
  v1::Window backward = TinyWindow();
  for (uint32_t rank = 0; rank < 5; ++rank) {
    forward.mutable_header()->add_participant_ranks(rank);
    backward.mutable_header()->add_participant_ranks(4 - rank);
  }
  EXPECT_EQ(DigestOf(forward), DigestOf(backward));
}

}  // namespace
}  // namespace routepack
