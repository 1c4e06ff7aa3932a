#include "client/planner_client.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "planner/errors.h"
#include "proto/codec/status.h"
#include "routepack/v1/planner_service.grpc.pb.h"

namespace routepack {
namespace {

// Errors with a hundred field violations do not fit gRPC's default of 8 KiB.
constexpr int kMaxMetadataBytes = 64 << 10;

// Chunks that the server stores as records of at most kMaxRecordBytes.
constexpr size_t kMaxChunkBytes = kMaxRecordBytes - 16;

std::shared_ptr<grpc::Channel> MakeChannel(
    const PlannerClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Between its own attempts to connect a channel answers UNAVAILABLE at once:
  // it should try as often as we do.
  arguments.SetInt(
      GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.initial_backoff)));
  arguments.SetInt(
      GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.max_backoff)));
  return grpc::CreateCustomChannel(
      options.target, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return StatusFromWire(static_cast<absl::StatusCode>(status.error_code()),
                        status.error_message(), status.error_details());
}

// Delays between tries of one call: doubling, with jitter, so that many ranks
// that lost one server do not come back at the same moment.
class Backoff {
 public:
  explicit Backoff(const PlannerClientOptions& options)
      : options_(options), next_(options.initial_backoff) {}

  // How long to wait before the call is tried again, or nothing if `status`
  // is final or the deadline would pass first.
  std::optional<absl::Duration> Delay(const absl::Status& status,
                                      absl::Time deadline) {
    const std::optional<absl::Duration> asked = RetryDelayOf(status);
    absl::Duration delay;
    if (asked.has_value() &&
        (absl::IsResourceExhausted(status) || absl::IsUnavailable(status))) {
      delay = *asked;
    } else if (absl::IsUnavailable(status)) {
      delay = next_ * absl::Uniform(random_, 0.5, 1.0);
      next_ = std::min(2 * next_, options_.max_backoff);
    } else {
      return std::nullopt;
    }
    if (absl::Now() + delay >= deadline) return std::nullopt;
    return delay;
  }

  void Reset() { next_ = options_.initial_backoff; }

 private:
  const PlannerClientOptions& options_;
  absl::Duration next_;
  absl::BitGen random_;
};

void SetDeadline(grpc::ClientContext& context, absl::Time deadline) {
  if (deadline != absl::InfiniteFuture()) {
    context.set_deadline(absl::ToChronoTime(deadline));
  }
}

// State of one StreamPlan call over all its tries.
struct Upload {
  const v1::WindowHeader& header;
  const PlannerClient::SampleSourceFactory& open;
  const PlannerClient::EventHandler& on_event;
  bool until_sealed;  // stop there, else at the plan
  absl::Time deadline;

  std::optional<v1::Plan> plan;
  PlannerClient::Submitted submitted;
  bool accepted = false;  // in this try
};

using UploadStream =
    grpc::ClientReaderWriter<v1::StreamPlanRequest, v1::StreamPlanResponse>;

// Marks that the stream broke while writing; Finish() knows why.
absl::Status BrokenStream() { return absl::CancelledError("stream broke"); }

// Sends the chunks from `first` on, then the seal. An error other than
// BrokenStream comes from the samples.
absl::Status SendSamples(const Upload& upload, uint32_t first,
                         size_t chunk_bytes, UploadStream& stream,
                         bool* broken) {
  absl::StatusOr<SampleSource> source = upload.open();
  if (!source.ok()) return source.status();
  v1::StreamPlanRequest request;
  auto send = [&]() -> absl::Status {
    if (stream.Write(request)) return absl::OkStatus();
    *broken = true;
    return BrokenStream();
  };
  absl::StatusOr<uint32_t> chunks = ForEachChunk(
      *source, chunk_bytes, [&](v1::SampleChunk&& chunk) -> absl::Status {
        if (chunk.index() < first) return absl::OkStatus();
        request.mutable_record()->mutable_chunk()->Swap(&chunk);
        return send();
      });
  if (!chunks.ok()) return chunks.status();
  request.mutable_record()->mutable_seal()->set_num_chunks(*chunks);
  return send();
}

// Notes what an event says; true if it is the last one wanted.
bool TakeEvent(v1::PlanEvent& event, Upload& upload) {
  if (upload.on_event) upload.on_event(event);
  switch (event.event_case()) {
    case v1::PlanEvent::kSealed:
      upload.submitted.state = v1::PLAN_STATE_QUEUED;
      upload.submitted.window_digest = event.sealed().window_digest();
      return upload.until_sealed;
    case v1::PlanEvent::kPlan:
      upload.submitted.state = v1::PLAN_STATE_READY;
      upload.submitted.window_digest = event.plan().window_digest();
      upload.plan = std::move(*event.mutable_plan());
      return true;
    default:
      return false;
  }
}

// What a call ends with when the server closed it without an answer.
absl::Status NoPlan(const grpc::Status& status) {
  if (!status.ok()) return FromGrpc(status);
  return absl::InternalError("the server ended the stream without a plan");
}

// One try of StreamPlan.
absl::Status TryUpload(v1::PlannerService::Stub& stub, Upload& upload) {
  upload.accepted = false;
  grpc::ClientContext context;
  SetDeadline(context, upload.deadline);
  const std::unique_ptr<UploadStream> stream = stub.StreamPlan(&context);
  v1::StreamPlanRequest request;
  *request.mutable_record()->mutable_header() = upload.header;
  v1::StreamPlanResponse response;
  // Admission is decided from the header: nothing is sent before the answer.
  if (!stream->Write(request) || !stream->Read(&response)) {
    return NoPlan(stream->Finish());
  }
  upload.accepted = true;
  const v1::Accepted accepted = response.event().accepted();
  bool done = TakeEvent(*response.mutable_event(), upload);
  upload.submitted.state = accepted.state();
  if (accepted.state() == v1::PLAN_STATE_UPLOADING) {
    const size_t limit =
        accepted.max_chunk_bytes() == 0
            ? kMaxChunkBytes
            : std::min<size_t>(accepted.max_chunk_bytes(), kMaxChunkBytes);
    bool broken = false;
    absl::Status sent =
        SendSamples(upload, accepted.next_chunk(), limit, *stream, &broken);
    if (!sent.ok() && !broken) {
      context.TryCancel();
      stream->Finish();
      return sent;
    }
  } else {
    done = done || upload.until_sealed;
  }
  stream->WritesDone();
  while (!done && stream->Read(&response)) {
    done = TakeEvent(*response.mutable_event(), upload);
  }
  if (!done) return NoPlan(stream->Finish());
  // What follows is not wanted, and a sealed window does not need us.
  context.TryCancel();
  stream->Finish();
  return absl::OkStatus();
}

}  // namespace

struct PlannerClient::Impl {
  explicit Impl(PlannerClientOptions client_options)
      : options(std::move(client_options)),
        channel(MakeChannel(options)),
        stub(v1::PlannerService::NewStub(channel)) {}

  absl::Time Deadline() const { return absl::Now() + options.timeout; }

  // Calls `attempt(context)` until it succeeds, fails for good or the deadline
  // passes.
  template <typename Attempt>
  absl::Status Retry(absl::Time deadline, const Attempt& attempt) {
    Backoff backoff(options);
    while (true) {
      grpc::ClientContext context;
      SetDeadline(context, deadline);
      absl::Status status = FromGrpc(attempt(context));
      if (status.ok()) return status;
      const std::optional<absl::Duration> delay =
          backoff.Delay(status, deadline);
      if (!delay.has_value()) return status;
      absl::SleepFor(*delay);
    }
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
      const Request& request, absl::Time deadline) {
    Response response;
    absl::Status status = Retry(deadline, [&](grpc::ClientContext& context) {
      return (stub.get()->*method)(&context, request, &response);
    });
    if (!status.ok()) return status;
    return response;
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
      const Request& request) {
    return Call(method, request, Deadline());
  }

  // An upload with all its tries.
  absl::Status Run(Upload& upload) {
    Backoff backoff(options);
    while (true) {
      absl::Status status = TryUpload(*stub, upload);
      if (status.ok()) return status;
      if (upload.accepted) backoff.Reset();
      const std::optional<absl::Duration> delay =
          backoff.Delay(status, upload.deadline);
      if (!delay.has_value()) return status;
      absl::SleepFor(*delay);
    }
  }

  // Asked for once; 0 if the server does not say. Not under the lock: a thread
  // would wait for another's call beyond its own deadline.
  absl::StatusOr<uint64_t> MaxUnaryBytes(absl::Time deadline) {
    {
      absl::MutexLock lock(&mutex);
      if (max_unary_bytes.has_value()) return *max_unary_bytes;
    }
    const absl::StatusOr<v1::GetServerInfoResponse> info =
        Call(&v1::PlannerService::Stub::GetServerInfo,
             v1::GetServerInfoRequest(), deadline);
    if (!info.ok()) return info.status();
    absl::MutexLock lock(&mutex);
    max_unary_bytes = info->limits().max_unary_bytes();
    return *max_unary_bytes;
  }

  const PlannerClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::PlannerService::Stub> stub;
  absl::Mutex mutex;
  std::optional<uint64_t> max_unary_bytes ABSL_GUARDED_BY(mutex);
};

PlannerClient::PlannerClient(PlannerClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
PlannerClient::~PlannerClient() = default;
PlannerClient::PlannerClient(PlannerClient&&) noexcept = default;
PlannerClient& PlannerClient::operator=(PlannerClient&&) noexcept = default;

absl::StatusOr<v1::Plan> PlannerClient::CreatePlan(const v1::Window& window) {
  const absl::Time deadline = impl_->Deadline();
  absl::StatusOr<uint64_t> limit = impl_->MaxUnaryBytes(deadline);
  if (!limit.ok()) return limit.status();
  v1::CreatePlanRequest request;
  *request.mutable_window() = window;
  const size_t size = request.ByteSizeLong();
  if (*limit != 0 && size > *limit) {
    // As the server would answer.
    Violations bad;
    bad.Add("window",
            absl::StrCat("the request has ", size,
                         " bytes, CreatePlan of this server takes at "
                         "most ",
                         *limit, ": send the window with StreamPlan"));
    return bad.ToStatus();
  }
  absl::StatusOr<v1::CreatePlanResponse> response =
      impl_->Call(&v1::PlannerService::Stub::CreatePlan, request, deadline);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_plan());
}

absl::StatusOr<v1::Plan> PlannerClient::StreamPlan(
    const v1::WindowHeader& header, const SampleSourceFactory& open,
    const EventHandler& on_event) {
  Upload upload{header, open, on_event, /*until_sealed=*/false,
                impl_->Deadline()};
  if (absl::Status status = impl_->Run(upload); !status.ok()) return status;
  return *std::move(upload.plan);
}

absl::StatusOr<PlannerClient::Submitted> PlannerClient::SubmitWindow(
    const v1::WindowHeader& header, const SampleSourceFactory& open,
    const EventHandler& on_event) {
  Upload upload{header, open, on_event, /*until_sealed=*/true,
                impl_->Deadline()};
  if (absl::Status status = impl_->Run(upload); !status.ok()) return status;
  return upload.submitted;
}

absl::StatusOr<v1::GetPlanResponse> PlannerClient::GetPlan(
    const v1::PlanKey& key) {
  v1::GetPlanRequest request;
  *request.mutable_key() = key;
  return impl_->Call(&v1::PlannerService::Stub::GetPlan, request);
}

absl::StatusOr<v1::RankPlan> PlannerClient::GetRankPlan(
    const v1::GetRankPlanRequest& request) {
  absl::StatusOr<v1::GetRankPlanResponse> response =
      impl_->Call(&v1::PlannerService::Stub::GetRankPlan, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_rank_plan());
}

absl::StatusOr<v1::ListPlansResponse> PlannerClient::ListPlans(
    const v1::ListPlansRequest& request) {
  return impl_->Call(&v1::PlannerService::Stub::ListPlans, request);
}

absl::StatusOr<v1::Plan> PlannerClient::WatchPlan(
    const v1::PlanKey& key, const EventHandler& on_event) {
  v1::WatchPlanRequest request;
  *request.mutable_key() = key;
  std::optional<v1::Plan> plan;
  absl::Status status =
      impl_->Retry(impl_->Deadline(), [&](grpc::ClientContext& context) {
        const auto reader = impl_->stub->WatchPlan(&context, request);
        v1::WatchPlanResponse response;
        while (reader->Read(&response)) {
          if (on_event) on_event(response.event());
          if (response.event().has_plan()) {
            plan = std::move(*response.mutable_event()->mutable_plan());
          }
        }
        const grpc::Status end = reader->Finish();
        return plan.has_value() ? grpc::Status::OK : end;
      });
  if (!status.ok()) return status;
  if (!plan.has_value()) return NoPlan(grpc::Status::OK);
  return *std::move(plan);
}

absl::StatusOr<v1::CancelPlanResponse> PlannerClient::CancelPlan(
    const v1::PlanKey& key) {
  v1::CancelPlanRequest request;
  *request.mutable_key() = key;
  return impl_->Call(&v1::PlannerService::Stub::CancelPlan, request);
}

absl::StatusOr<v1::ReportApplyResponse> PlannerClient::ReportApply(
    const v1::ReportApplyRequest& request) {
  return impl_->Call(&v1::PlannerService::Stub::ReportApply, request);
}

absl::StatusOr<v1::GetServerInfoResponse> PlannerClient::GetServerInfo() {
  return impl_->Call(&v1::PlannerService::Stub::GetServerInfo,
                     v1::GetServerInfoRequest());
}

absl::Status PlannerClient::CheckHealth() {
  // grpc.health.v1 as bytes, since Debian's gRPC has no stub for it: an empty
  // HealthCheckRequest asks for the whole server, and HealthCheckResponse
  // {status = SERVING} is field 1, varint 1.
  static constexpr char kServing[] = {0x08, 0x01};
  std::string answer;
  absl::Status status =
      impl_->Retry(impl_->Deadline(), [&](grpc::ClientContext& context) {
        grpc::GenericStub generic(impl_->channel);
        const grpc::Slice nothing;
        const grpc::ByteBuffer request(&nothing, 1);
        grpc::ByteBuffer response;
        std::promise<grpc::Status> done;
        generic.UnaryCall(
            &context, "/grpc.health.v1.Health/Check", grpc::StubOptions(),
            &request, &response,
            [&done](grpc::Status end) { done.set_value(std::move(end)); });
        grpc::Status end = done.get_future().get();
        std::vector<grpc::Slice> slices;
        answer.clear();
        if (end.ok() && response.Dump(&slices).ok()) {
          for (const grpc::Slice& slice : slices) {
            answer.append(reinterpret_cast<const char*>(slice.begin()),
                          slice.size());
          }
        }
        return end;
      });
  if (!status.ok()) return status;
  if (answer != std::string(kServing, sizeof(kServing))) {
    return absl::FailedPreconditionError("the server is not serving");
  }
  return absl::OkStatus();
}

}  // namespace routepack
