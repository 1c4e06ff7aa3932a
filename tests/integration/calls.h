// Calls of PlannerService with raw stubs, their errors as absl::Status.

#ifndef ROUTEPACK_TESTS_INTEGRATION_CALLS_H_
#define ROUTEPACK_TESTS_INTEGRATION_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "planner/errors.h"
#include "proto/codec/status.h"
#include "routepack/v1/planner_service.grpc.pb.h"

namespace routepack {

// Nothing here takes this long unless it hangs.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(60);

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return StatusFromWire(static_cast<absl::StatusCode>(status.error_code()),
                        status.error_message(), status.error_details());
}

// One unary call.
//
//   Unary(&v1::PlannerService::Stub::GetPlan, stub, request)
template <typename Request, typename Response>
absl::StatusOr<Response> Unary(
    grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                     const Request&, Response*),
    v1::PlannerService::Stub& stub, const Request& request,
    absl::Duration timeout = kCallTimeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  Response response;
  const absl::Status status =
      FromGrpc((stub.*method)(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

inline absl::StatusOr<v1::Plan> CreatePlan(
    v1::PlannerService::Stub& stub, const v1::Window& window,
    absl::Duration timeout = kCallTimeout) {
  v1::CreatePlanRequest request;
  *request.mutable_window() = window;
  auto response =
      Unary(&v1::PlannerService::Stub::CreatePlan, stub, request, timeout);
  if (!response.ok()) return response.status();
  return response->plan();
}

// For GetPlan, CancelPlan and others that take just a key.
template <typename Request>
Request ForKey(const v1::PlanKey& key) {
  Request request;
  *request.mutable_key() = key;
  return request;
}

inline absl::StatusOr<v1::GetPlanResponse> GetPlan(
    v1::PlannerService::Stub& stub, const v1::PlanKey& key) {
  return Unary(&v1::PlannerService::Stub::GetPlan, stub,
               ForKey<v1::GetPlanRequest>(key));
}

inline absl::StatusOr<v1::CancelPlanResponse> CancelPlan(
    v1::PlannerService::Stub& stub, const v1::PlanKey& key) {
  return Unary(&v1::PlannerService::Stub::CancelPlan, stub,
               ForKey<v1::CancelPlanRequest>(key));
}

// A StreamPlan call step by step.
class PlanCall {
 public:
  explicit PlanCall(v1::PlannerService::Stub& stub,
                    absl::Duration timeout = kCallTimeout) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    stream_ = stub.StreamPlan(&context_);
  }
  ~PlanCall() {
    if (!finished_) Break();
  }

  bool Send(const v1::WindowHeader& header) {
    v1::StreamPlanRequest request;
    *request.mutable_record()->mutable_header() = header;
    return stream_->Write(request);
  }
  bool Send(const v1::SampleChunk& chunk) {
    v1::StreamPlanRequest request;
    *request.mutable_record()->mutable_chunk() = chunk;
    return stream_->Write(request);
  }
  bool Send(const v1::Seal& seal) {
    v1::StreamPlanRequest request;
    *request.mutable_record()->mutable_seal() = seal;
    return stream_->Write(request);
  }
  bool SendEmpty() { return stream_->Write({}); }
  void HalfClose() { stream_->WritesDone(); }
  // The next event; one with nothing set at the end.
  v1::PlanEvent Read() {
    v1::StreamPlanResponse response;
    if (!stream_->Read(&response)) return {};
    return response.event();
  }
  // Reads what is left and the status.
  absl::Status Finish() {
    v1::StreamPlanResponse response;
    while (stream_->Read(&response)) {
    }
    finished_ = true;
    return FromGrpc(stream_->Finish());
  }
  // As a client that dies.
  void Break() {
    context_.TryCancel();
    Finish().IgnoreError();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::StreamPlanRequest, v1::StreamPlanResponse>>
      stream_;
  bool finished_ = false;
};

inline std::vector<std::string> Fields(const absl::Status& status) {
  std::vector<std::string> fields;
  for (const FieldViolation& v : ViolationsOf(status)) {
    fields.push_back(v.field);
  }
  return fields;
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_INTEGRATION_CALLS_H_
