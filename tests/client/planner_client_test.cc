#include "client/planner_client.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "planner/errors.h"
#include "proto/codec/status.h"
#include "routepack/v1/planner_service.grpc.pb.h"

namespace routepack {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Stream =
    grpc::ServerReaderWriter<v1::StreamPlanResponse, v1::StreamPlanRequest>;
using Watch = grpc::ServerWriter<v1::WatchPlanResponse>;

grpc::Status OnTheWire(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()), StatusToWire(status));
}

grpc::Status Unavailable() {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone for a moment");
}

// A server whose answers the test decides.
class FakeService final : public v1::PlannerService::Service {
 public:
  std::function<grpc::Status(const v1::CreatePlanRequest&,
                             v1::CreatePlanResponse*)>
      on_create;
  std::function<grpc::Status(int call, grpc::ServerContext*, Stream*)>
      on_stream;
  std::function<grpc::Status(int call, v1::GetServerInfoResponse*)> on_info;
  std::function<grpc::Status(int call, Watch*)> on_watch;
  std::atomic<int> create_calls = 0;
  std::atomic<int> stream_calls = 0;
  std::atomic<int> info_calls = 0;
  std::atomic<int> watch_calls = 0;

  grpc::Status CreatePlan(grpc::ServerContext*,
                          const v1::CreatePlanRequest* request,
                          v1::CreatePlanResponse* response) override {
    ++create_calls;
    return on_create ? on_create(*request, response) : grpc::Status::OK;
  }
  grpc::Status StreamPlan(grpc::ServerContext* context,
                          Stream* stream) override {
    return on_stream(stream_calls++, context, stream);
  }
  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    const int call = info_calls++;
    return on_info ? on_info(call, response) : grpc::Status::OK;
  }
  grpc::Status WatchPlan(grpc::ServerContext*, const v1::WatchPlanRequest*,
                         Watch* writer) override {
    return on_watch(watch_calls++, writer);
  }
  grpc::Status GetRankPlan(grpc::ServerContext*,
                           const v1::GetRankPlanRequest* request,
                           v1::GetRankPlanResponse* response) override {
    *response->mutable_rank_plan()->mutable_key() = request->key();
    return grpc::Status::OK;
  }
};

class PlannerClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::EnableDefaultHealthCheckService(true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    target_ = absl::StrCat("127.0.0.1:", port);
  }
  void TearDown() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  PlannerClient Client(absl::Duration timeout = absl::Seconds(20)) const {
    return PlannerClient({.target = target_,
                          .timeout = timeout,
                          .initial_backoff = absl::Milliseconds(1),
                          .max_backoff = absl::Milliseconds(4)});
  }

  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

std::vector<v1::Sample> MakeSamples(int n) {
  std::vector<v1::Sample> samples(n);
  for (int i = 0; i < n; ++i) {
    samples[i].set_id(i);
    samples[i].set_tokens(10 + i);
    samples[i].mutable_counts()->set_u8(std::string(20 + i % 12, 'c'));
  }
  return samples;
}

PlannerClient::SampleSourceFactory FactoryOf(
    const std::vector<v1::Sample>& samples, int* opened) {
  return [&samples, opened]() -> absl::StatusOr<SampleSource> {
    ++*opened;
    return [&samples, next = size_t{0}](
               v1::Sample* sample) mutable -> absl::StatusOr<bool> {
      if (next == samples.size()) return false;
      *sample = samples[next++];
      return true;
    };
  };
}

v1::StreamPlanResponse AcceptedAt(
    uint32_t next_chunk, v1::PlanState state = v1::PLAN_STATE_UPLOADING) {
  v1::StreamPlanResponse response;
  v1::Accepted& accepted = *response.mutable_event()->mutable_accepted();
  accepted.set_next_chunk(next_chunk);
  accepted.set_max_chunk_bytes(100);
  accepted.set_state(state);
  return response;
}

v1::StreamPlanResponse Sealed() {
  v1::StreamPlanResponse response;
  response.mutable_event()->mutable_sealed()->set_window_digest("d1");
  return response;
}

v1::StreamPlanResponse PlanOf(uint32_t rows) {
  v1::StreamPlanResponse response;
  response.mutable_event()->mutable_plan()->mutable_rows()->set_rows(rows);
  return response;
}

v1::WindowHeader Header() {
  v1::WindowHeader header;
  header.mutable_key()->set_job_id("job");
  return header;
}

TEST_F(PlannerClientTest, UnavailableIsTriedAgainUntilItWorks) {
  service_.on_info = [](int call, v1::GetServerInfoResponse* response) {
    if (call < 3) return Unavailable();
    response->set_version("7");
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  absl::StatusOr<v1::GetServerInfoResponse> info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version(), "7");
  EXPECT_EQ(service_.info_calls, 4);
}

TEST_F(PlannerClientTest, UnavailableEndsAtTheDeadline) {
  service_.on_info = [](int, v1::GetServerInfoResponse*) {
    return Unavailable();
  };
  PlannerClient client = Client(absl::Milliseconds(400));
  const absl::Status status = client.GetServerInfo().status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))
      << status;
  EXPECT_GT(service_.info_calls, 1);
}

TEST_F(PlannerClientTest, FinalErrorsArriveOnceWithTheirViolations) {
  service_.on_info = [](int, v1::GetServerInfoResponse*) {
    Violations bad;
    bad.Add("header.token_cap", "must be at least 1");
    bad.Add("samples[3].tokens", "is 0");
    return OnTheWire(bad.ToStatus());
  };
  PlannerClient client = Client();
  const absl::Status status = client.GetServerInfo().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(ViolationsOf(status).size(), 2u);
  EXPECT_EQ(ViolationsOf(status)[1].field, "samples[3].tokens");
  EXPECT_EQ(service_.info_calls, 1);
}

TEST_F(PlannerClientTest, DetailsAboveEightKilobytesArrive) {
  google::rpc::BadRequest bad;
  for (int i = 0; i < 100; ++i) {
    auto* violation = bad.add_field_violations();
    violation->set_field(absl::StrCat("samples[", i, "].tokens"));
    violation->set_description(std::string(150, 'x'));
  }
  google::rpc::Status wire;
  wire.set_code(3);
  wire.set_message("many");
  wire.add_details()->PackFrom(bad);
  const std::string details = wire.SerializeAsString();
  ASSERT_GT(details.size(), 16u << 10);
  service_.on_info = [&](int, v1::GetServerInfoResponse*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "many", details);
  };
  PlannerClient client = Client();
  const absl::Status status = client.GetServerInfo().status();
  EXPECT_EQ(ViolationsOf(status).size(), 100u) << status;
}

TEST_F(PlannerClientTest, ResourceExhaustedWaitsAsLongAsTheServerSays) {
  std::vector<absl::Time> times;
  service_.on_info = [&](int call, v1::GetServerInfoResponse*) {
    times.push_back(absl::Now());
    return call > 0 ? grpc::Status::OK
                    : OnTheWire(
                          RetryableError(absl::StatusCode::kResourceExhausted,
                                         "queue full", absl::Milliseconds(30)));
  };
  PlannerClient client = Client();
  ASSERT_TRUE(client.GetServerInfo().ok());
  ASSERT_EQ(times.size(), 2u);
  EXPECT_GE(times[1] - times[0], absl::Milliseconds(30));
}

TEST_F(PlannerClientTest, DelaysBeyondTheDeadlineAreNotWaitedFor) {
  service_.on_info = [&](int, v1::GetServerInfoResponse*) {
    return OnTheWire(RetryableError(absl::StatusCode::kResourceExhausted,
                                    "queue full", absl::Hours(1)));
  };
  PlannerClient client = Client();
  const absl::Status status = client.GetServerInfo().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelayOf(status), absl::Hours(1));
  EXPECT_EQ(service_.info_calls, 1);
}

TEST_F(PlannerClientTest, ResourceExhaustedWithoutDelayIsFinal) {
  service_.on_info = [&](int, v1::GetServerInfoResponse*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too large");
  };
  PlannerClient client = Client();
  EXPECT_FALSE(client.GetServerInfo().ok());
  EXPECT_EQ(service_.info_calls, 1);
}

// The question for the limit uses up nearly all of the time; what is left is
// too short for the plan, which one more timeout would not be.
TEST_F(PlannerClientTest, CreatePlanHasOneDeadlineForBothItsCalls) {
  constexpr absl::Duration kTimeout = absl::Milliseconds(400);
  service_.on_info = [&](int, v1::GetServerInfoResponse*) {
    absl::SleepFor(kTimeout - absl::Milliseconds(50));
    return grpc::Status::OK;
  };
  service_.on_create = [&](const v1::CreatePlanRequest&,
                           v1::CreatePlanResponse*) {
    absl::SleepFor(absl::Milliseconds(150));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Client(kTimeout).CreatePlan({}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PlannerClientTest, CreatePlanChecksTheUnaryLimitBeforeSending) {
  service_.on_info = [](int, v1::GetServerInfoResponse* response) {
    response->mutable_limits()->set_max_unary_bytes(200);
    return grpc::Status::OK;
  };
  service_.on_create = [](const v1::CreatePlanRequest& request,
                          v1::CreatePlanResponse* response) {
    response->mutable_plan()->mutable_rows()->set_rows(
        request.window().samples_size());
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  v1::Window large;
  for (const v1::Sample& sample : MakeSamples(30)) {
    *large.add_samples() = sample;
  }
  for (int round = 0; round < 2; ++round) {
    const absl::Status status = client.CreatePlan(large).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("at most 200"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("StreamPlan"));
  }
  EXPECT_EQ(service_.create_calls, 0);
  v1::Window small;
  *small.add_samples() = MakeSamples(1)[0];
  absl::StatusOr<v1::Plan> plan = client.CreatePlan(small);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows().rows(), 1u);
  EXPECT_EQ(service_.info_calls, 1);
}

// Reads records until the seal; false if the stream ended first.
bool ReadToSeal(Stream* stream, std::vector<v1::SampleChunk>* chunks) {
  v1::StreamPlanRequest request;
  while (stream->Read(&request)) {
    if (request.record().has_seal()) {
      return request.record().seal().num_chunks() ==
             (chunks->empty() ? 0 : chunks->back().index() + 1);
    }
    chunks->push_back(request.record().chunk());
  }
  return false;
}

std::vector<v1::SampleChunk> ChunksOf(const std::vector<v1::Sample>& samples) {
  int opened = 0;
  std::vector<v1::SampleChunk> chunks;
  EXPECT_TRUE(ForEachChunk(*FactoryOf(samples, &opened)(), 100,
                           [&](v1::SampleChunk&& chunk) {
                             chunks.push_back(std::move(chunk));
                             return absl::OkStatus();
                           })
                  .ok());
  return chunks;
}

void ExpectSameChunks(const std::vector<v1::SampleChunk>& found,
                      const std::vector<v1::SampleChunk>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t c = 0; c < found.size(); ++c) {
    EXPECT_TRUE(MessageDifferencer::Equals(found[c], expected[c])) << c;
  }
}

TEST_F(PlannerClientTest, StreamPlanUploadsChunksWithinTheServersLimit) {
  const std::vector<v1::Sample> samples = MakeSamples(12);
  std::vector<v1::SampleChunk> received;
  std::atomic<int> opened_before = -1;
  int opened = 0;
  service_.on_stream = [&](int, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    EXPECT_TRUE(stream->Read(&request));
    EXPECT_EQ(request.record().header().key().job_id(), "job");
    opened_before = opened;
    stream->Write(AcceptedAt(0));
    EXPECT_TRUE(ReadToSeal(stream, &received));
    stream->Write(Sealed());
    stream->Write(PlanOf(5));
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  std::vector<int> events;
  absl::StatusOr<v1::Plan> plan = client.StreamPlan(
      Header(), FactoryOf(samples, &opened), [&](const v1::PlanEvent& event) {
        events.push_back(event.event_case());
      });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows().rows(), 5u);
  EXPECT_THAT(events,
              ElementsAre(v1::PlanEvent::kAccepted, v1::PlanEvent::kSealed,
                          v1::PlanEvent::kPlan));
  EXPECT_EQ(opened_before, 0);
  EXPECT_EQ(opened, 1);
  ExpectSameChunks(received, ChunksOf(samples));
  for (const v1::SampleChunk& chunk : received) {
    EXPECT_LE(chunk.ByteSizeLong(), 100u);
  }
}

TEST_F(PlannerClientTest, BrokenUploadGoesOnAtTheNextChunk) {
  const std::vector<v1::Sample> samples = MakeSamples(12);
  std::vector<v1::SampleChunk> received;
  service_.on_stream = [&](int call, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    EXPECT_TRUE(stream->Read(&request));
    EXPECT_TRUE(request.record().has_header());
    stream->Write(AcceptedAt(static_cast<uint32_t>(received.size())));
    if (call < 2) {
      for (int c = 0; c < 2 && stream->Read(&request); ++c) {
        received.push_back(request.record().chunk());
      }
      return Unavailable();
    }
    EXPECT_TRUE(ReadToSeal(stream, &received));
    stream->Write(PlanOf(6));
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  int opened = 0;
  absl::StatusOr<v1::Plan> plan =
      client.StreamPlan(Header(), FactoryOf(samples, &opened));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows().rows(), 6u);
  EXPECT_EQ(service_.stream_calls, 3);
  EXPECT_EQ(opened, 3);
  ExpectSameChunks(received, ChunksOf(samples));
}

TEST_F(PlannerClientTest, StreamIsTakenUpAgainWhilePlanning) {
  const std::vector<v1::Sample> samples = MakeSamples(3);
  service_.on_stream = [&](int call, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    EXPECT_TRUE(stream->Read(&request));
    if (call == 0) {
      stream->Write(AcceptedAt(0));
      std::vector<v1::SampleChunk> chunks;
      EXPECT_TRUE(ReadToSeal(stream, &chunks));
      stream->Write(Sealed());
      return Unavailable();
    }
    stream->Write(AcceptedAt(0, v1::PLAN_STATE_PLANNING));
    EXPECT_FALSE(stream->Read(&request)) << "nothing more is to be sent";
    stream->Write(PlanOf(7));
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  int opened = 0;
  absl::StatusOr<v1::Plan> plan =
      client.StreamPlan(Header(), FactoryOf(samples, &opened));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows().rows(), 7u);
  EXPECT_EQ(opened, 1);
}

TEST_F(PlannerClientTest, RefusedHeaderSendsNoSamples) {
  service_.on_stream = [&](int, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    stream->Read(&request);
    return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "another window");
  };
  PlannerClient client = Client();
  int opened = 0;
  const std::vector<v1::Sample> samples = MakeSamples(3);
  EXPECT_EQ(
      client.StreamPlan(Header(), FactoryOf(samples, &opened)).status().code(),
      absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(opened, 0);
  EXPECT_EQ(service_.stream_calls, 1);
}

TEST_F(PlannerClientTest, ErrorsInTheMiddleOfAnUploadAreTheServers) {
  service_.on_stream = [&](int, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    stream->Read(&request);
    stream->Write(AcceptedAt(0));
    stream->Read(&request);
    Violations bad;
    bad.Add("samples[0].tokens", "is 0");
    return OnTheWire(bad.ToStatus());
  };
  PlannerClient client = Client();
  int opened = 0;
  const std::vector<v1::Sample> samples = MakeSamples(2000);
  const absl::Status status =
      client.StreamPlan(Header(), FactoryOf(samples, &opened)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ViolationsOf(status).size(), 1u) << status;
  EXPECT_EQ(service_.stream_calls, 1);
}

TEST_F(PlannerClientTest, ErrorsOfTheSamplesCancelTheUpload) {
  std::atomic<bool> cancelled = false;
  service_.on_stream = [&](int, grpc::ServerContext* context, Stream* stream) {
    v1::StreamPlanRequest request;
    stream->Read(&request);
    stream->Write(AcceptedAt(0));
    EXPECT_FALSE(stream->Read(&request));
    cancelled = context->IsCancelled();
    return grpc::Status::CANCELLED;
  };
  PlannerClient client = Client();
  const absl::Status status =
      client
          .StreamPlan(Header(),
                      []() -> absl::StatusOr<SampleSource> {
                        return [](v1::Sample*) -> absl::StatusOr<bool> {
                          return absl::DataLossError("w.rpw: truncated");
                        };
                      })
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "w.rpw: truncated");
  server_->Shutdown();
  EXPECT_TRUE(cancelled);
}

TEST_F(PlannerClientTest, StreamWithoutPlanIsAnError) {
  service_.on_stream = [&](int, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    stream->Read(&request);
    stream->Write(AcceptedAt(0, v1::PLAN_STATE_QUEUED));
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  int opened = 0;
  const std::vector<v1::Sample> samples;
  EXPECT_EQ(
      client.StreamPlan(Header(), FactoryOf(samples, &opened)).status().code(),
      absl::StatusCode::kInternal);
}

TEST_F(PlannerClientTest, SubmitReturnsAtTheSeal) {
  const std::vector<v1::Sample> samples = MakeSamples(4);
  service_.on_stream = [&](int, grpc::ServerContext* context, Stream* stream) {
    v1::StreamPlanRequest request;
    stream->Read(&request);
    stream->Write(AcceptedAt(0));
    std::vector<v1::SampleChunk> chunks;
    EXPECT_TRUE(ReadToSeal(stream, &chunks));
    stream->Write(Sealed());
    // A plan never comes while the client waits.
    while (!context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return grpc::Status::CANCELLED;
  };
  PlannerClient client = Client();
  int opened = 0;
  absl::StatusOr<PlannerClient::Submitted> submitted =
      client.SubmitWindow(Header(), FactoryOf(samples, &opened));
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(submitted->state, v1::PLAN_STATE_QUEUED);
  EXPECT_EQ(submitted->window_digest, "d1");
}

TEST_F(PlannerClientTest, SubmitOfAKnownWindowReturnsItsState) {
  service_.on_stream = [&](int, grpc::ServerContext*, Stream* stream) {
    v1::StreamPlanRequest request;
    stream->Read(&request);
    stream->Write(AcceptedAt(0, v1::PLAN_STATE_READY));
    stream->Write(PlanOf(3));
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  int opened = 0;
  const std::vector<v1::Sample> samples = MakeSamples(4);
  absl::StatusOr<PlannerClient::Submitted> submitted =
      client.SubmitWindow(Header(), FactoryOf(samples, &opened));
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(submitted->state, v1::PLAN_STATE_READY);
  EXPECT_EQ(opened, 0);
}

TEST_F(PlannerClientTest, WatchSurvivesABrokenStream) {
  service_.on_watch = [&](int call, Watch* writer) {
    v1::WatchPlanResponse response;
    response.mutable_event()->mutable_progress()->set_fraction(0.5);
    writer->Write(response);
    if (call == 0) return Unavailable();
    response.mutable_event()->mutable_plan()->mutable_rows()->set_rows(9);
    writer->Write(response);
    return grpc::Status::OK;
  };
  PlannerClient client = Client();
  int events = 0;
  absl::StatusOr<v1::Plan> plan =
      client.WatchPlan(v1::PlanKey(), [&](const v1::PlanEvent&) { ++events; });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows().rows(), 9u);
  EXPECT_EQ(events, 3);
}

TEST_F(PlannerClientTest, RankPlanCarriesTheKey) {
  v1::GetRankPlanRequest request;
  request.mutable_key()->set_job_id("job");
  PlannerClient client = Client();
  absl::StatusOr<v1::RankPlan> plan = client.GetRankPlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->key().job_id(), "job");
}

TEST_F(PlannerClientTest, HealthFollowsTheServersService) {
  PlannerClient client = Client();
  EXPECT_TRUE(client.CheckHealth().ok()) << client.CheckHealth();
  server_->GetHealthCheckService()->SetServingStatus(false);
  EXPECT_FALSE(client.CheckHealth().ok());
}

TEST_F(PlannerClientTest, ThreadsShareAClient) {
  PlannerClient client = Client();
  std::atomic<int> succeeded = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) succeeded += client.GetServerInfo().ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(succeeded, 40);
}

}  // namespace
}  // namespace routepack
