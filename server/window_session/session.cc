#include "server/window_session/session.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/codec/codec.h"
#include "server/bad_field.h"
#include "server/timestamp.h"
#include "server/window_session/state.h"

namespace routepack::server {
namespace {

// An arrow that the table in state.h lacks is our own bug.
void RequireMove(v1::PlanState from, v1::PlanState to) {
  if (CanMove(from, to)) return;
  std::fprintf(stderr, "window moves from %s to %s\n",
               v1::PlanState_Name(from).c_str(),
               v1::PlanState_Name(to).c_str());
  std::abort();
}

}  // namespace

WindowSession::WindowSession(std::shared_ptr<const WindowRequest> request,
                             uint64_t sequence, WindowBuilder builder,
                             Reservation reservation, absl::Time now)
    : request_(std::move(request)),
      key_(request_->header.key()),
      header_digest_(request_->header_digest),
      content_digest_(request_->header.content_digest()),
      sequence_(sequence),
      create_time_(now),
      update_time_(now),
      upload_(Upload{.builder = std::move(builder),
                     .reservation = std::move(reservation)}),
      detached_since_(now),
      last_record_(now) {}

WindowSession::WindowSession(const PlanRecord& record)
    : key_(record.summary.key()),
      header_digest_(record.header_digest),
      content_digest_(record.content_digest),
      sequence_(record.sequence),
      create_time_(DecodeTime(record.summary.create_time())),
      state_(record.summary.state()),
      update_time_(DecodeTime(record.summary.update_time())),
      decided_(state_),
      request_digest_(record.request_digest),
      window_digest_(record.window_digest),
      record_(std::make_shared<const PlanRecord>(record)) {
  for (const EventLog::Event& event : record.events) events_.Append(event);
}

uint64_t WindowSession::Attach(absl::Time now, v1::Accepted& accepted) {
  uint64_t stream = 0;
  {
    const std::lock_guard lock(mu_);
    stream = ++stream_;
    attached_ = true;
    last_record_ = now;
    FillAccepted(accepted);
  }
  WakeListeners();
  return stream;
}

void WindowSession::Detach(uint64_t stream, absl::Time now) {
  const std::lock_guard lock(mu_);
  if (stream != stream_ || !attached_) return;
  attached_ = false;
  detached_since_ = now;
}

bool WindowSession::IsAbandoned() const {
  const std::lock_guard lock(mu_);
  return upload_.has_value() && !attached_;
}

absl::Duration WindowSession::AbandonedFor(absl::Time now) const {
  const std::lock_guard lock(mu_);
  return upload_.has_value() && !attached_ ? now - detached_since_
                                           : absl::ZeroDuration();
}

bool WindowSession::IsDetached(uint64_t stream) const {
  const std::lock_guard lock(mu_);
  return upload_.has_value() && stream != stream_;
}

absl::Status WindowSession::CheckStream(uint64_t stream) const {
  if (stream != stream_) {
    return absl::AbortedError("another stream has taken over the upload");
  }
  if (!upload_.has_value()) {
    return absl::AbortedError(
        absl::StrCat("the upload has ended: the window "
                     "is ",
                     v1::PlanState_Name(state_)));
  }
  return absl::OkStatus();
}

absl::Status WindowSession::AddChunk(uint64_t stream,
                                     const v1::SampleChunk& chunk,
                                     absl::Time now) {
  const std::lock_guard lock(mu_);
  if (absl::Status status = CheckStream(stream); !status.ok()) return status;
  if (chunk.index() != upload_->next_chunk) {
    return BadField("chunk.index", absl::StrCat("must be ", upload_->next_chunk,
                                                ", is ", chunk.index()));
  }
  if (chunk.samples().empty()) {
    return BadField("chunk.samples", "must have at least one sample");
  }
  return Decode(chunk.samples(), now);
}

absl::Status WindowSession::AddSamples(uint64_t stream, const Samples& samples,
                                       absl::Time now) {
  const std::lock_guard lock(mu_);
  if (absl::Status status = CheckStream(stream); !status.ok()) return status;
  return Decode(samples, now);
}

absl::Status WindowSession::Decode(const Samples& samples, absl::Time now) {
  last_record_ = now;
  Upload& upload = *upload_;
  const uint64_t total = uint64_t{upload.builder.num_added()} +
                         static_cast<uint64_t>(samples.size());
  if (total > upload.builder.spec().num_samples) {
    return BadField(
        "chunk.samples",
        absl::StrCat("chunk ", upload.next_chunk, " brings the window to ",
                     total, " samples, header.num_samples is ",
                     upload.builder.spec().num_samples));
  }
  for (const v1::Sample& sample : samples) {
    DecodeSample(sample, upload.builder, upload.scratch);
  }
  chunks_ = ++upload.next_chunk;
  return absl::OkStatus();
}

absl::StatusOr<SealedUpload> WindowSession::Seal(uint64_t stream,
                                                 const v1::Seal& seal,
                                                 absl::Time now) {
  const std::lock_guard lock(mu_);
  if (absl::Status status = CheckStream(stream); !status.ok()) return status;
  if (seal.num_chunks() != upload_->next_chunk) {
    return BadField("seal.num_chunks",
                    absl::StrCat("is ", seal.num_chunks(), ", but ",
                                 upload_->next_chunk, " chunks have arrived"));
  }
  if (upload_->builder.num_added() != upload_->builder.spec().num_samples) {
    return BadField("seal",
                    absl::StrCat("came after ", upload_->builder.num_added(),
                                 " of ", upload_->builder.spec().num_samples,
                                 " samples (header.num_samples)"));
  }
  SealedUpload sealed{.builder = std::move(upload_->builder),
                      .reservation = std::move(upload_->reservation)};
  upload_.reset();
  Move(v1::PLAN_STATE_QUEUED, now);
  return sealed;
}

absl::Duration WindowSession::IdleFor(absl::Time now) const {
  const std::lock_guard lock(mu_);
  return upload_.has_value() ? now - last_record_ : absl::ZeroDuration();
}

bool WindowSession::Enqueue(PlanningInput input, uint32_t queue_position) {
  {
    const std::lock_guard lock(mu_);
    if (decided_ != v1::PLAN_STATE_UNSPECIFIED) return false;
    request_digest_ = input.request_digest;
    window_digest_ = input.window.digest();
    v1::PlanEvent event;
    event.mutable_sealed()->set_window_digest(input.window.digest());
    event.mutable_sealed()->set_queue_position(queue_position);
    events_.Append(std::move(event));
    input_ = std::move(input);
  }
  WakeListeners();
  return true;
}

std::optional<PlanningInput> WindowSession::StartPlanning(absl::Time now) {
  const std::lock_guard lock(mu_);
  if (!input_.has_value()) return std::nullopt;
  Move(v1::PLAN_STATE_PLANNING, now);
  return std::exchange(input_, std::nullopt);
}

void WindowSession::AppendEvent(v1::PlanEvent event) {
  {
    const std::lock_guard lock(mu_);
    if (IsFinal(state_)) return;
    events_.Append(std::move(event));
  }
  WakeListeners();
}

void WindowSession::SetBestEffortDeadline(absl::Time deadline) {
  const std::lock_guard lock(mu_);
  deadline_ = deadline;
}

absl::Time WindowSession::best_effort_deadline() const {
  const std::lock_guard lock(mu_);
  return deadline_;
}

bool WindowSession::Claim(v1::PlanState to) {
  // Freed after the lock: a window can be large.
  std::optional<Upload> upload;
  std::optional<PlanningInput> input;
  {
    const std::lock_guard lock(mu_);
    if (decided_ != v1::PLAN_STATE_UNSPECIFIED) return false;
    RequireMove(state_, to);
    decided_ = to;
    upload.swap(upload_);
    input.swap(input_);
  }
  stop_.request_stop();
  return true;
}

v1::PlanState WindowSession::decided() const {
  const std::lock_guard lock(mu_);
  return decided_;
}

void WindowSession::Finish(std::shared_ptr<const PlanRecord> record,
                           absl::Time now) {
  {
    const std::lock_guard lock(mu_);
    if (record->plan != nullptr) events_.Append(record->events.back());
    record_ = std::move(record);
    Move(decided_, now);
  }
  WakeListeners();
}

PlanRecord WindowSession::MakeRecord(v1::PlanState to, absl::Status error,
                                     absl::Time now) const {
  PlanRecord record;
  record.summary = Summary();
  record.summary.set_state(to);
  *record.summary.mutable_update_time() = EncodeTime(now);
  record.summary.set_error(std::string(error.message()));
  record.sequence = sequence_;
  record.header_digest = header_digest_;
  record.content_digest = content_digest_;
  record.window_digest = window_digest();
  record.request_digest = request_digest();
  record.error = std::move(error);
  if (to == v1::PLAN_STATE_READY) {
    record.current = request_->current_message;
    record.commit = NewCommitLedger(request_->participants);
    record.summary.set_commit(record.commit.state);
    const std::lock_guard lock(mu_);
    record.events = events_.Lasting();
  }
  record.bytes = RecordBytes(record);
  return record;
}

v1::PlanState WindowSession::state() const {
  const std::lock_guard lock(mu_);
  return state_;
}

v1::PlanSummary WindowSession::Summary() const {
  const std::lock_guard lock(mu_);
  if (record_ != nullptr) return record_->summary;
  v1::PlanSummary summary;
  *summary.mutable_key() = key_;
  summary.set_state(state_);
  *summary.mutable_create_time() = EncodeTime(create_time_);
  *summary.mutable_update_time() = EncodeTime(update_time_);
  summary.set_num_samples(request_->spec.num_samples);
  return summary;
}

std::string WindowSession::request_digest() const {
  const std::lock_guard lock(mu_);
  return request_digest_;
}

std::string WindowSession::window_digest() const {
  const std::lock_guard lock(mu_);
  return window_digest_;
}

void WindowSession::Subscribe(std::weak_ptr<EventListener> listener) {
  const std::lock_guard lock(mu_);
  std::erase_if(listeners_, [](const auto& old) { return old.expired(); });
  listeners_.push_back(std::move(listener));
}

v1::PlanEvent WindowSession::AcceptedEvent() const {
  v1::PlanEvent event;
  const std::lock_guard lock(mu_);
  FillAccepted(*event.mutable_accepted());
  return event;
}

WindowSession::News WindowSession::Poll(EventCursor& cursor) const {
  const std::lock_guard lock(mu_);
  News news{.event = events_.Next(cursor)};
  if (news.event == nullptr && IsFinal(state_)) news.end = record_->error;
  return news;
}

std::shared_ptr<const PlanRecord> WindowSession::record() const {
  const std::lock_guard lock(mu_);
  return record_;
}

void WindowSession::Move(v1::PlanState to, absl::Time now) {
  RequireMove(state_, to);
  state_ = to;
  update_time_ = now;
}

void WindowSession::FillAccepted(v1::Accepted& accepted) const {
  accepted.set_next_chunk(chunks_);
  accepted.set_state(state_);
  accepted.set_window_digest(window_digest_);
}

void WindowSession::WakeListeners() {
  std::vector<std::weak_ptr<EventListener>> listeners;
  {
    const std::lock_guard lock(mu_);
    listeners = listeners_;
  }
  for (const std::weak_ptr<EventListener>& weak : listeners) {
    if (const std::shared_ptr<EventListener> listener = weak.lock()) {
      listener->Wake();
    }
  }
}

}  // namespace routepack::server
