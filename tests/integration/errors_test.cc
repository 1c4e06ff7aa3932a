// Every malformed input gets its documented code and names its fields, over
// the wire, however the window is sent: raw stubs, and PlannerClient.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "client/planner_client.h"
#include "tests/integration/calls.h"
#include "tests/integration/server_process.h"
#include "tests/server/windows.h"

namespace routepack {
namespace {

using server::Chunk;
using server::Header;
using server::Key;
using server::MakeSample;
using server::MakeSeal;
using server::MakeWindow;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ErrorsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new ServerProcess(
        {"--max_unary_bytes=65536", "--max_chunk_bytes=65536"});
    ASSERT_TRUE(server_->running()) << server_->Log();
  }
  static void TearDownTestSuite() {
    server_->Terminate();
    EXPECT_EQ(server_->ExitCode(), 0);
    delete server_;
    server_ = nullptr;
  }
  static v1::PlannerService::Stub& stub() { return server_->stub(); }

  static ServerProcess* server_;
};

ServerProcess* ErrorsTest::server_ = nullptr;

struct BadWindow {
  const char* name;
  absl::StatusCode code;
  std::function<void(v1::Window&)> spoil;
  const char* field;    // among the violations; "" if there are none
  const char* message;  // part of it
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<BadWindow> BadWindows() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto alpha = [](double value) {
    return [value](v1::Window& w) {
      w.mutable_header()->mutable_attention()->add_stages()->set_alpha(value);
    };
  };
  const auto counts = [](std::string u8) {
    return [u8](v1::Window& w) {
      w.mutable_samples(2)->mutable_counts()->set_u8(u8);
    };
  };
  return {
      {"LongSample", kInvalid,
       [](auto& w) { w.mutable_samples(3)->set_tokens(65); },
       "samples[3].tokens", "65"},
      {"EmptySample", kInvalid,
       [](auto& w) { w.mutable_samples(3)->set_tokens(0); },
       "samples[3].tokens", ""},
      {"ExpertsNotDivisible", kInvalid,
       [](auto& w) {
         w.mutable_header()->mutable_topology()->mutable_mesh()->set_ep(3);
       },
       "", ""},
      {"CountAboveTokens", kInvalid,
       counts(std::string("\x0b\x09\0\0\0\x0a\x0a\0", 8)), "samples[2].counts",
       "at most the sample's tokens"},
      {"LayerSumOff", kInvalid,
       counts(std::string("\x0a\x07\0\0\0\x0a\x0a\0", 8)), "samples[2].counts",
       "add up"},
      {"CountsTooShort", kInvalid, counts("\x01\x02"), "samples[2].counts.u8",
       ""},
      {"CountsMissing", kInvalid,
       [](auto& w) { w.mutable_samples(1)->clear_counts(); },
       "samples[1].counts", "missing"},
      {"RoutedIdOutOfRange", kInvalid,
       [](auto& w) {
         w.mutable_samples(1)
             ->mutable_counts()
             ->mutable_routed_experts()
             ->set_u8(std::string(9 * 2 * 2, '\x04'));
       },
       "samples[1].counts.routed_experts.u8", ""},
      {"SparseIdOutOfRange", kInvalid,
       [](auto& w) {
         auto& sparse =
             *w.mutable_samples(1)->mutable_counts()->mutable_sparse();
         for (int l = 0; l < 2; ++l) {
           auto& layer = *sparse.add_layers();
           layer.add_experts(4);
           layer.add_counts(9);
           layer.add_experts(1);
           layer.add_counts(9);
         }
       },
       "samples[1].counts.sparse.layers[0].experts[0]", ""},
      {"ShardsDoNotPartition", kInvalid,
       [](auto& w) {
         auto& shards =
             *w.mutable_header()->mutable_topology()->mutable_shards();
         shards.set_dp_slots(2);
         shards.set_ep_ranks(2);
         shards.add_shards()->add_slots(0);
       },
       "", "slot"},
      {"NoTopology", kInvalid,
       [](auto& w) { w.mutable_header()->clear_topology(); }, "header.topology",
       ""},
      {"NanCoefficient", kInvalid, alpha(nan),
       "header.attention.stages[0].alpha", "nan"},
      {"InfiniteCoefficient", kInvalid, alpha(infinity),
       "header.attention.stages[0].alpha", "inf"},
      {"NegativeCoefficient", kInvalid, alpha(-1),
       "header.attention.stages[0].alpha", "-1"},
      {"DuplicateId", kInvalid,
       [](auto& w) { w.mutable_samples(5)->set_id(1000); }, "samples[5].id",
       "samples[0]"},
      {"SumsBeyondTheBound", kInvalid, alpha(1e300), "", "below"},
      {"NoLayers", kInvalid,
       [](auto& w) { w.mutable_header()->set_num_layers(0); },
       "header.num_layers", ""},
      {"NoCap", kInvalid, [](auto& w) { w.mutable_header()->set_token_cap(0); },
       "header.token_cap", ""},
      {"NoJob", kInvalid,
       [](auto& w) { w.mutable_header()->mutable_key()->clear_job_id(); },
       "header.key.job_id", "empty"},
      {"LongRun", kInvalid,
       [](auto& w) {
         w.mutable_header()->mutable_key()->set_run_id(std::string(129, 'x'));
       },
       "header.key.run_id", "129"},
      {"BadPlacementMap", kInvalid,
       [](auto& w) {
         auto& map =
             *w.mutable_header()->mutable_current_placement()->mutable_map();
         for (uint32_t l = 0; l < 2; ++l) {
           map.add_layers()->set_layer(l);
           for (int e = 0; e < 4; ++e) {
             map.mutable_layers(static_cast<int>(l))->add_slot_of_expert(0);
           }
         }
       },
       "header.current_placement.map.layers[1].slot_of_expert[3]", ""},
      {"BadTimeLimit", kInvalid,
       [](auto& w) {
         w.mutable_header()->mutable_options()->mutable_time_limit();
       },
       "header.options.time_limit", ""},
      {"SearchOutOfRange", kInvalid,
       [](auto& w) {
         auto& search =
             *w.mutable_header()->mutable_options()->mutable_search();
         search.set_population(1025);
       },
       "header.options.search.population", "1025"},
      {"NanProbability", kInvalid,
       [nan](auto& w) {
         auto& search =
             *w.mutable_header()->mutable_options()->mutable_search();
         search.set_guided_probability(nan);
       },
       "header.options.search.guided_probability", "nan"},
      {"UnknownEffort", kInvalid,
       [](auto& w) {
         auto& search =
             *w.mutable_header()->mutable_options()->mutable_search();
         search.set_effort(static_cast<v1::Effort>(17));
       },
       "header.options.search.effort", "17"},
      {"UnknownPlacementVersion", absl::StatusCode::kNotFound,
       [](auto& w) {
         w.mutable_header()->mutable_current_placement()->set_committed_version(
             "none");
       },
       "", "none"},
      {"NodesOfOtherRanks", kInvalid,
       [](auto& w) {
         w.mutable_header()
             ->mutable_options()
             ->mutable_movement()
             ->add_node_of_rank(0);
       },
       "header.options.movement.node_of_rank", "entries"},
      {"NegativeBudget", kInvalid,
       [](auto& w) {
         w.mutable_header()
             ->mutable_options()
             ->mutable_incremental()
             ->set_movement_budget(-1);
       },
       "header.options.incremental.movement_budget", "at least 0"},
      {"MeshWithoutPartition", absl::StatusCode::kUnimplemented,
       [](auto& w) {
         auto& mesh = *w.mutable_header()->mutable_topology()->mutable_mesh();
         mesh.set_tp(4);
         mesh.set_ep(2);
         mesh.set_dp(2);
       },
       "", "tp"},
      {"GroupsTogether", absl::StatusCode::kUnimplemented,
       [](auto& w) {
         w.mutable_header()->mutable_options()->set_keep_groups_together(true);
       },
       "", "keep_groups_together"},
      {"Replicas", absl::StatusCode::kUnimplemented,
       [](auto& w) {
         w.mutable_header()->mutable_options()->set_replica_slots(1);
       },
       "", "replica_slots"},
      {"FewerSamplesThanCells", absl::StatusCode::kFailedPrecondition,
       [](auto& w) { w.mutable_header()->mutable_options()->set_min_rows(5); },
       "", "filler"},
  };
}

void Check(const absl::Status& status, const BadWindow& bad, const char* how) {
  EXPECT_EQ(status.code(), bad.code) << bad.name << ' ' << how << ' ' << status;
  if (*bad.field != '\0') {
    EXPECT_THAT(Fields(status), Contains(bad.field)) << bad.name << ' ' << how;
  } else if (bad.code == kInvalid) {
    EXPECT_FALSE(Fields(status).empty()) << bad.name << ' ' << how;
  }
  EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message))
      << bad.name << ' ' << how;
}

TEST_F(ErrorsTest, EveryBadWindowGetsItsAnswerOverTheWire) {
  PlannerClient client({.target = server_->target()});
  uint64_t step = 0;
  for (const BadWindow& bad : BadWindows()) {
    v1::Window window = MakeWindow(Key(++step), 8);
    bad.spoil(window);
    Check(CreatePlan(stub(), window).status(), bad, "CreatePlan");

    window = MakeWindow(Key(++step), 8);
    bad.spoil(window);
    PlanCall call(stub());
    v1::SampleChunk chunk;
    *chunk.mutable_samples() = window.samples();
    // Writes fail once the server has refused the header.
    if (call.Send(window.header()) && call.Send(chunk)) call.Send(MakeSeal(1));
    Check(call.Finish(), bad, "StreamPlan");

    window = MakeWindow(Key(++step), 8);
    bad.spoil(window);
    Check(client.CreatePlan(window).status(), bad, "client's CreatePlan");
    window.mutable_header()->mutable_key()->set_step(++step);
    const auto open = [&]() -> absl::StatusOr<SampleSource> {
      return
          [&window, i = 0](v1::Sample* sample) mutable -> absl::StatusOr<bool> {
            if (i == window.samples_size()) return false;
            *sample = window.samples(i++);
            return true;
          };
    };
    Check(client.StreamPlan(window.header(), open).status(), bad,
          "client's StreamPlan");
    // Invalid windows leave no trace.
    if (bad.code == kInvalid) {
      const absl::Status gone = GetPlan(stub(), Key(step)).status();
      EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound) << bad.name;
    }
  }
}

TEST_F(ErrorsTest, PlanningErrorsAreKeptAndKeysMayBeUsedAgain) {
  v1::Window window = MakeWindow(Key(1, "kept"), 8);
  window.mutable_header()->mutable_options()->set_min_rows(5);
  const absl::Status status = CreatePlan(stub(), window).status();
  EXPECT_EQ(PreconditionOf(status).type, "CELLS_EXCEED_SAMPLES") << status;
  const auto kept = GetPlan(stub(), Key(1, "kept"));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->summary().state(), v1::PLAN_STATE_FAILED);
  EXPECT_EQ(kept->summary().error(), status.message());
  const auto rank = Unary(&v1::PlannerService::Stub::GetRankPlan, stub(),
                          ForKey<v1::GetRankPlanRequest>(Key(1, "kept")));
  EXPECT_EQ(rank.status().code(), absl::StatusCode::kFailedPrecondition);
  window.mutable_header()->mutable_options()->set_allow_filler(true);
  const auto plan = CreatePlan(stub(), window);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout().filler_sample_ids_size(), 2);
}

// What goes wrong between records, and the field that is named.
TEST_F(ErrorsTest, BadSequencesOfRecordsAreRefused) {
  struct Sequence {
    const char* field;
    std::function<void(PlanCall&, const v1::PlanKey&)> send;
  };
  const auto header = [](PlanCall& call, const v1::PlanKey& key) {
    ASSERT_TRUE(call.Send(Header(key, 8)));
    ASSERT_TRUE(call.Read().has_accepted());
  };
  const std::vector<Sequence> sequences = {
      {"header", [](auto& call, auto&) { call.Send(Chunk(0, 0, 8)); }},
      {"header", [](auto& call, auto&) { call.Send(MakeSeal(0)); }},
      {"header", [](auto& call, auto&) { call.SendEmpty(); }},
      {"header", [](auto& call, auto&) { call.HalfClose(); }},
      {"header.num_samples",
       [](auto& call, auto& key) { call.Send(Header(key, 0)); }},
      {"header",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Header(key, 8));
       }},
      {"record",
       [&](auto& call, auto& key) {
         header(call, key);
         call.SendEmpty();
       }},
      {"chunk.index",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Chunk(1, 0, 8));
       }},
      {"chunk.index",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Chunk(0, 0, 4));
         call.Send(Chunk(0, 4, 4));
       }},
      {"chunk.samples",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Chunk(0, 0, 0));
       }},
      {"chunk.samples",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Chunk(0, 0, 9));
       }},
      {"chunk",
       [&](auto& call, auto& key) {
         header(call, key);
         v1::SampleChunk large = Chunk(0, 0, 1);
         large.mutable_samples(0)->mutable_counts()->set_u8(
             std::string(70000, '\0'));
         call.Send(large);
       }},
      {"seal",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Chunk(0, 0, 4));
         call.Send(MakeSeal(1));
       }},
      {"seal.num_chunks",
       [&](auto& call, auto& key) {
         header(call, key);
         call.Send(Chunk(0, 0, 8));
         call.Send(MakeSeal(2));
       }},
  };
  uint64_t step = 0;
  for (const Sequence& sequence : sequences) {
    const v1::PlanKey key = Key(++step, "sequences");
    PlanCall call(stub());
    sequence.send(call, key);
    const absl::Status status = call.Finish();
    EXPECT_EQ(status.code(), kInvalid) << step << ' ' << status;
    EXPECT_THAT(Fields(status), ElementsAre(sequence.field)) << step;
    EXPECT_EQ(GetPlan(stub(), key).status().code(), absl::StatusCode::kNotFound)
        << step;
  }
}

TEST_F(ErrorsTest, AKeyBelongsToOneWindow) {
  const v1::PlanKey key = Key(1, "owner");
  ASSERT_TRUE(CreatePlan(stub(), MakeWindow(key, 8)).ok());
  const absl::StatusCode exists = absl::StatusCode::kAlreadyExists;
  EXPECT_EQ(CreatePlan(stub(), MakeWindow(key, 9)).status().code(), exists);
  v1::Window other = MakeWindow(key, 8);
  *other.mutable_samples(3) = MakeSample(11);
  const absl::Status samples = CreatePlan(stub(), other).status();
  EXPECT_EQ(samples.code(), exists);
  const std::string known = GetPlan(stub(), key)->plan().window_digest();
  EXPECT_THAT(std::string(samples.message()), HasSubstr(known));
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(Header(key, 9)));
  EXPECT_EQ(call.Finish().code(), exists);

  PlanCall open(stub());
  ASSERT_TRUE(open.Send(Header(Key(2, "owner"), 8)));
  ASSERT_TRUE(open.Read().has_accepted());
  PlanCall second(stub());
  ASSERT_TRUE(second.Send(Header(Key(2, "owner"), 7)));
  EXPECT_EQ(second.Finish().code(), exists);
  EXPECT_EQ(CreatePlan(stub(), MakeWindow(Key(2, "owner"), 8)).status().code(),
            exists);
}

TEST_F(ErrorsTest, ContentDigestsTellSamplesApartBeforeTheUpload) {
  const auto refused = [&](const v1::WindowHeader& header) {
    PlanCall call(stub());
    EXPECT_TRUE(call.Send(header));
    const absl::Status status = call.Finish();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    return std::string(status.message());
  };
  v1::WindowHeader header = Header(Key(1, "content"), 8);
  header.set_content_digest("first");
  v1::WindowHeader other = header;
  other.set_content_digest("second");
  // While it is uploaded: nobody with other samples goes on with it.
  PlanCall upload(stub());
  ASSERT_TRUE(upload.Send(header));
  EXPECT_EQ(upload.Read().accepted().window_digest(), "");
  ASSERT_TRUE(upload.Send(Chunk(0, 0, 4)));
  EXPECT_THAT(refused(other),
              testing::AllOf(HasSubstr("\"first\""), HasSubstr("\"second\"")));
  ASSERT_TRUE(upload.Send(Chunk(1, 4, 4)));
  ASSERT_TRUE(upload.Send(MakeSeal(2)));
  ASSERT_TRUE(upload.Finish().ok());

  // And once it is planned.
  const auto plan = GetPlan(stub(), header.key());
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(refused(other), HasSubstr(plan->plan().window_digest()));
  v1::Window window = MakeWindow(header.key(), 8);
  *window.mutable_header() = other;
  const absl::Status unary = CreatePlan(stub(), window).status();
  EXPECT_EQ(unary.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(unary.message()), HasSubstr("\"second\""));
  other = header;
  other.set_token_cap(63);
  EXPECT_THAT(refused(other), HasSubstr("another header"));
  // The same one, with or without its digest.
  for (const char* digest : {"first", ""}) {
    header.set_content_digest(digest);
    PlanCall call(stub());
    ASSERT_TRUE(call.Send(header));
    EXPECT_EQ(call.Read().accepted().window_digest(),
              plan->plan().window_digest());
    EXPECT_TRUE(call.Finish().ok());
  }
}

TEST_F(ErrorsTest, ErrorsOfAStreamLeaveTheUploadOfItsSuccessor) {
  const v1::WindowHeader header = Header(Key(1, "successor"), 8);
  PlanCall old(stub());
  ASSERT_TRUE(old.Send(header));
  ASSERT_TRUE(old.Read().has_accepted());
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(header));
  ASSERT_TRUE(call.Read().has_accepted());
  // Refused, unless the stream has been ended before.
  old.Send(header);
  EXPECT_FALSE(old.Finish().ok());
  ASSERT_TRUE(call.Send(Chunk(0, 0, 8)));
  ASSERT_TRUE(call.Send(MakeSeal(1)));
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(ErrorsTest, LongTextsAreRefusedAndNotEchoed) {
  v1::Window window = MakeWindow(Key(1, "long"), 8);
  window.mutable_header()->set_content_digest(std::string(129, 'd'));
  window.mutable_header()->mutable_current_placement()->set_committed_version(
      std::string(5000, 'v'));
  const absl::Status status = CreatePlan(stub(), window).status();
  EXPECT_THAT(Fields(status),
              ElementsAre("header.content_digest",
                          "header.current_placement.committed_version"));
  EXPECT_LT(status.message().size(), 1000);
  ASSERT_TRUE(CreatePlan(stub(), MakeWindow(Key(1, "long"), 8)).ok());
  auto report = ForKey<v1::ReportApplyRequest>(Key(1, "long"));
  report.set_placement_version(std::string(5000, 'v'));
  report.set_digest(std::string(257, 'd'));
  const absl::Status bad =
      Unary(&v1::PlannerService::Stub::ReportApply, stub(), report).status();
  EXPECT_THAT(Fields(bad), ElementsAre("placement_version", "digest"));
  EXPECT_LT(bad.message().size(), 1000);
}

TEST_F(ErrorsTest, LargeUnaryRequestsAreRefusedByTheHandler) {
  v1::Window window = MakeWindow(Key(1, "large"), 8);
  window.mutable_samples(0)->mutable_counts()->set_u8(
      std::string(5 << 20, '\0'));
  const absl::Status status = CreatePlan(stub(), window).status();
  EXPECT_EQ(status.code(), kInvalid) << status;
  EXPECT_THAT(Fields(status), ElementsAre("window"));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("65536"), HasSubstr("StreamPlan")));
  // The client looks before it sends.
  PlannerClient client({.target = server_->target()});
  const absl::Status unsent = client.CreatePlan(window).status();
  EXPECT_THAT(std::string(unsent.message()),
              testing::AllOf(HasSubstr("65536"), HasSubstr("StreamPlan")));
}

TEST_F(ErrorsTest, UnknownWindowsAreNotFound) {
  const v1::PlanKey key = Key(1, "unknown");
  const absl::StatusCode missing = absl::StatusCode::kNotFound;
  EXPECT_EQ(GetPlan(stub(), key).status().code(), missing);
  EXPECT_EQ(CancelPlan(stub(), key).status().code(), missing);
  EXPECT_EQ(Unary(&v1::PlannerService::Stub::GetRankPlan, stub(),
                  ForKey<v1::GetRankPlanRequest>(key))
                .status()
                .code(),
            missing);
  EXPECT_EQ(Unary(&v1::PlannerService::Stub::ReportApply, stub(),
                  ForKey<v1::ReportApplyRequest>(key))
                .status()
                .code(),
            missing);
  PlannerClient client({.target = server_->target()});
  EXPECT_EQ(client.WatchPlan(key, {}).status().code(), missing);
}

TEST_F(ErrorsTest, KeysAreChecked) {
  const absl::Status status = GetPlan(stub(), Key(1, "")).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(Fields(status), ElementsAre("key.job_id"));
}

TEST_F(ErrorsTest, RankPlansCheckTheirRank) {
  ASSERT_TRUE(CreatePlan(stub(), MakeWindow(Key(1, "ranks"), 8)).ok());
  auto request = ForKey<v1::GetRankPlanRequest>(Key(1, "ranks"));
  request.set_dp_slot(2);
  request.set_ep_rank(2);
  request.add_layers(2);
  const absl::Status status =
      Unary(&v1::PlannerService::Stub::GetRankPlan, stub(), request).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(Fields(status), ElementsAre("dp_slot", "ep_rank", "layers[0]"));
}

TEST_F(ErrorsTest, ReportsNeedAPlan) {
  PlanCall call(stub());
  ASSERT_TRUE(call.Send(Header(Key(1, "reports"), 8)));
  ASSERT_TRUE(call.Read().has_accepted());
  auto report = ForKey<v1::ReportApplyRequest>(Key(1, "reports"));
  report.set_state(v1::APPLY_STATE_NEW);
  const auto early =
      Unary(&v1::PlannerService::Stub::ReportApply, stub(), report);
  EXPECT_EQ(PreconditionOf(early.status()).type, "PLAN_NOT_READY");
}

TEST_F(ErrorsTest, PageTokensAreChecked) {
  v1::ListPlansRequest request;
  request.set_page_token("nonsense");
  const absl::Status status =
      Unary(&v1::PlannerService::Stub::ListPlans, stub(), request).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(Fields(status), ElementsAre("page_token"));
}

}  // namespace
}  // namespace routepack
