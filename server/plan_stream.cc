#include "server/plan_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/codec/codec.h"
#include "server/bad_field.h"
#include "server/guarded.h"
#include "server/same_window.h"

namespace routepack::server {

absl::Time BestEffortDeadline(absl::Time deadline, absl::Time now) {
  if (deadline == absl::InfiniteFuture()) return deadline;
  return deadline - std::clamp((deadline - now) / 10, absl::Milliseconds(20),
                               absl::Seconds(1));
}

PlanStream* PlanStream::Start(grpc::CallbackServerContext* context, Call call,
                              uint32_t max_chunk_bytes, WindowTable* table,
                              Worker* worker) {
  auto stream = std::make_shared<PlanStream>(context, std::move(call),
                                             max_chunk_bytes, table, worker);
  stream->Keep();
  stream->StartRead(&stream->request_);
  return stream.get();
}

PlanStream::PlanStream(grpc::CallbackServerContext* context, Call call,
                       uint32_t max_chunk_bytes, WindowTable* table,
                       Worker* worker)
    : EventStream(context, std::move(call)),
      max_chunk_bytes_(max_chunk_bytes),
      table_(table),
      worker_(worker) {}

void PlanStream::OnReadDone(bool ok) {
  const absl::Status status = Guarded(
      [&] { return ok ? TakeRecord(request_.record()) : EndOfRecords(); });
  if (!status.ok()) {
    FailUpload(status);
    return;
  }
  if (reading_) {
    // Parsing clears the message and reuses its memory.
    StartRead(&request_);
  } else {
    v1::StreamPlanRequest().Swap(&request_);
  }
}

void PlanStream::OnDone() {
  if (upload_ != nullptr) upload_->Detach(stream_, absl::Now());
  EventStream::OnDone();
}

absl::Status PlanStream::TakeRecord(const v1::WindowRecord& record) {
  if (upload_ == nullptr && !record.has_header()) {
    return BadField("header", "must be the first record");
  }
  switch (record.record_case()) {
    case v1::WindowRecord::kHeader:
      return TakeHeader(record.header());
    case v1::WindowRecord::kChunk:
      return TakeChunk(record.chunk());
    case v1::WindowRecord::kSeal:
      return TakeSeal(record.seal());
    case v1::WindowRecord::RECORD_NOT_SET:
      break;
  }
  return BadField("record", "must be a header, a chunk or a seal");
}

absl::Status PlanStream::TakeHeader(const v1::WindowHeader& header) {
  if (upload_ != nullptr) return BadField("header", "must come once");
  call().set_key(header.key());
  if (absl::Status status = ValidateKey(header.key(), "header.key");
      !status.ok()) {
    return status;
  }
  const absl::Time now = absl::Now();
  absl::StatusOr<WindowTable::Opened> opened = table_->Open(header, 0, now);
  if (!opened.ok()) return opened.status();
  WindowSession& session = *opened->session;
  if (!opened->created) {
    absl::Status status = CheckSameHeader(session, header);
    if (!status.ok()) return status;
  }
  upload_ = opened->session;
  v1::PlanEvent first;
  v1::Accepted& accepted = *first.mutable_accepted();
  accepted.set_max_chunk_bytes(max_chunk_bytes_);
  stream_ = session.Attach(now, accepted);
  reading_ = accepted.state() == v1::PLAN_STATE_UPLOADING;
  Follow(upload_, std::move(first), stream_);
  return absl::OkStatus();
}

absl::Status PlanStream::TakeChunk(const v1::SampleChunk& chunk) {
  const size_t bytes = chunk.ByteSizeLong();
  if (bytes > max_chunk_bytes_) {
    return BadField("chunk", absl::StrCat("has ", bytes, " bytes, at most ",
                                          max_chunk_bytes_,
                                          " are taken (max_chunk_bytes)"));
  }
  return upload_->AddChunk(stream_, chunk, absl::Now());
}

absl::Status PlanStream::TakeSeal(const v1::Seal& seal) {
  const absl::Time now = absl::Now();
  absl::StatusOr<SealedUpload> sealed = upload_->Seal(stream_, seal, now);
  if (!sealed.ok()) return sealed.status();
  if (upload_->request()->header.options().best_effort_at_deadline()) {
    upload_->SetBestEffortDeadline(
        BestEffortDeadline(DeadlineOf(*context()), now));
  }
  reading_ = false;
  worker_->PostCheck(upload_, *std::move(sealed));
  return absl::OkStatus();
}

// Whether the connection broke or the client stopped short of the seal, what
// has arrived is kept.
absl::Status PlanStream::EndOfRecords() const {
  if (upload_ == nullptr) {
    return BadField("header", "the stream ended without one");
  }
  return absl::AbortedError(
      "the stream ended before the seal; send the header again to go on at "
      "Accepted.next_chunk");
}

void PlanStream::FailUpload(const absl::Status& status) {
  // An exception (RESOURCE_EXHAUSTED, INTERNAL) may have left half a chunk. An
  // upload that another stream has taken over is none of ours.
  if (upload_ != nullptr && !upload_->IsDetached(stream_) &&
      (absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
       absl::IsInternal(status))) {
    Guarded([&] {
      table_->Forget(*upload_, status, absl::Now());
      return absl::OkStatus();
    }).IgnoreError();
  }
  Fail(status);
}

}  // namespace routepack::server
