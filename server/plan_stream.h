// StreamPlan: the records of a window in, its events out.
//
// One record is read at a time and decoded before the next is asked for, so a
// fast client is held back by flow control and the server holds one chunk a
// stream. After the seal nothing is read any more.

#ifndef ROUTEPACK_SERVER_PLAN_STREAM_H_
#define ROUTEPACK_SERVER_PLAN_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "routepack/v1/planner_service.pb.h"
#include "server/call.h"
#include "server/event_stream.h"
#include "server/window_table.h"
#include "server/worker.h"

namespace routepack::server {

// When a search must end so that its plan still reaches a caller who waits
// until `deadline`: a tenth of the time left earlier, within 20 ms and 1 s.
absl::Time BestEffortDeadline(absl::Time deadline, absl::Time now);

class PlanStream
    : public EventStream<grpc::ServerBidiReactor<v1::StreamPlanRequest,
                                                 v1::StreamPlanResponse>,
                         v1::StreamPlanResponse> {
 public:
  // Table and worker outlive the call.
  static PlanStream* Start(grpc::CallbackServerContext* context, Call call,
                           uint32_t max_chunk_bytes, WindowTable* table,
                           Worker* worker);

  PlanStream(grpc::CallbackServerContext* context, Call call,
             uint32_t max_chunk_bytes, WindowTable* table, Worker* worker);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  absl::Status TakeRecord(const v1::WindowRecord& record);
  absl::Status TakeHeader(const v1::WindowHeader& header);
  absl::Status TakeChunk(const v1::SampleChunk& chunk);
  absl::Status TakeSeal(const v1::Seal& seal);
  absl::Status EndOfRecords() const;
  // The stream fails, and what it was uploading with it if that is the reason.
  void FailUpload(const absl::Status& status);

  const uint32_t max_chunk_bytes_;
  WindowTable* const table_;
  Worker* const worker_;
  v1::StreamPlanRequest request_;
  // Touched by one OnReadDone after another only.
  std::shared_ptr<WindowSession> upload_;  // null before the header
  uint64_t stream_ = 0;
  bool reading_ = true;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_PLAN_STREAM_H_
