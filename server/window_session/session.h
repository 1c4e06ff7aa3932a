// One window from its header to its plan: see state.h for its states.
//
// An upload is decoded straight into the WindowBuilder, chunk by chunk, by the
// stream that is attached to it. A stream that breaks off leaves the upload
// where it is; the next one attaches, which detaches the old one, and goes on
// at next_chunk. Whoever waits for a window subscribes a listener and pulls
// events with a cursor.
//
// Thread-safe. Lock order: a reactor's lock, then the session's; the session
// calls nobody while it holds its own. Listeners are woken without any lock.

#ifndef ROUTEPACK_SERVER_WINDOW_SESSION_SESSION_H_
#define ROUTEPACK_SERVER_WINDOW_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/window.h"
#include "routepack/v1/planner_service.pb.h"
#include "server/admission.h"
#include "server/plan_store.h"
#include "server/window_request.h"
#include "server/window_session/event_log.h"

namespace routepack::server {

// Somebody who wants to know that a session has news.
class EventListener {
 public:
  virtual ~EventListener() = default;
  // Called from any thread, without locks; must not block.
  virtual void Wake() = 0;
};

// A complete upload on its way to be checked.
struct SealedUpload {
  WindowBuilder builder;
  Reservation reservation;
};

// What a worker takes out of the queue.
struct PlanningInput {
  Window window;
  Reservation reservation;
  std::string request_digest;
};

class WindowSession {
 public:
  // UPLOADING.
  WindowSession(std::shared_ptr<const WindowRequest> request, uint64_t sequence,
                WindowBuilder builder, Reservation reservation, absl::Time now);
  // A finished window as the store has it, with the events it ended with.
  explicit WindowSession(const PlanRecord& record);

  // Null when the window comes from the store.
  const WindowRequest* request() const { return request_.get(); }
  const v1::PlanKey& key() const { return key_; }
  const std::string& header_digest() const { return header_digest_; }
  const std::string& content_digest() const { return content_digest_; }
  uint64_t sequence() const { return sequence_; }

  // --- Upload -------------------------------------------------------------
  // Makes a stream the one that uploads; returns its number. `accepted` says
  // where to go on. After UPLOADING it only says where the window stands.
  uint64_t Attach(absl::Time now, v1::Accepted& accepted);
  // The stream has ended. What it uploaded stays.
  void Detach(uint64_t stream, absl::Time now);
  // True when another stream has taken over the upload.
  bool IsDetached(uint64_t stream) const;
  // True for an upload that no stream is attached to.
  bool IsAbandoned() const;
  // For how long it has been abandoned; zero if it is not.
  absl::Duration AbandonedFor(absl::Time now) const;
  // INVALID_ARGUMENT: index out of order, no samples, or more samples than
  // announced. ABORTED: another stream took over, or the session has ended.
  absl::Status AddChunk(uint64_t stream, const v1::SampleChunk& chunk,
                        absl::Time now);
  // All samples of a window as its only chunk.
  using Samples = google::protobuf::RepeatedPtrField<v1::Sample>;
  absl::Status AddSamples(uint64_t stream, const Samples& samples,
                          absl::Time now);
  // To QUEUED, handing the upload over. INVALID_ARGUMENT: another number of
  // chunks, or of samples, than announced. ABORTED: as AddChunk.
  absl::StatusOr<SealedUpload> Seal(uint64_t stream, const v1::Seal& seal,
                                    absl::Time now);
  // Of an upload in progress, since its last record; zero otherwise.
  absl::Duration IdleFor(absl::Time now) const;

  // --- Queue and planning -------------------------------------------------
  // Tells that the window was checked and keeps it for a worker. False: the
  // session has ended meanwhile.
  bool Enqueue(PlanningInput input, uint32_t queue_position);
  // QUEUED to PLANNING. Nothing: the session has ended meanwhile.
  std::optional<PlanningInput> StartPlanning(absl::Time now);
  void AppendEvent(v1::PlanEvent event);
  std::stop_token stop_token() const { return stop_.get_token(); }
  // Planning stops early at this time with the best plan so far.
  void SetBestEffortDeadline(absl::Time deadline);
  absl::Time best_effort_deadline() const;

  // --- End ----------------------------------------------------------------
  // Decides, once, that the session will end in `to`: the caller that gets
  // true calls Finish. Frees the window if it is not with a worker, and stops
  // the search. False: somebody else decided, see decided().
  bool Claim(v1::PlanState to);
  // The state it ends in; UNSPECIFIED while that is open.
  v1::PlanState decided() const;
  // To the record's state, which is the one claimed.
  void Finish(std::shared_ptr<const PlanRecord> record, absl::Time now);
  // What is known for a record of this window that ends in `to`; that of a
  // READY one is complete after PlanRecord::SetPlan.
  PlanRecord MakeRecord(v1::PlanState to, absl::Status error,
                        absl::Time now) const;

  // --- Readers ------------------------------------------------------------
  v1::PlanState state() const;
  v1::PlanSummary Summary() const;
  // Known from the end of the check.
  std::string request_digest() const;
  std::string window_digest() const;
  // Wakes `listener` whenever there is news, for as long as it lives.
  void Subscribe(std::weak_ptr<EventListener> listener);
  v1::PlanEvent AcceptedEvent() const;
  struct News {
    EventLog::Event event;            // null: none at the moment
    std::optional<absl::Status> end;  // set after the last event
  };
  News Poll(EventCursor& cursor) const;
  // The record once the session has ended.
  std::shared_ptr<const PlanRecord> record() const;

 private:
  struct Upload {
    WindowBuilder builder;
    Reservation reservation;
    uint32_t next_chunk = 0;
    std::vector<uint32_t> scratch = {};
  };

  absl::Status Decode(const Samples& samples, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckStream(uint64_t stream) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Move(v1::PlanState to, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FillAccepted(v1::Accepted& accepted) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void WakeListeners() ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<const WindowRequest> request_;
  const v1::PlanKey key_;
  const std::string header_digest_;
  const std::string content_digest_;
  const uint64_t sequence_;
  const absl::Time create_time_;
  std::stop_source stop_;

  mutable std::mutex mu_;
  v1::PlanState state_ ABSL_GUARDED_BY(mu_) = v1::PLAN_STATE_UPLOADING;
  absl::Time update_time_ ABSL_GUARDED_BY(mu_);
  v1::PlanState decided_ ABSL_GUARDED_BY(mu_) = v1::PLAN_STATE_UNSPECIFIED;
  std::optional<Upload> upload_ ABSL_GUARDED_BY(mu_);
  uint64_t stream_ ABSL_GUARDED_BY(mu_) = 0;  // the newest
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time detached_since_ ABSL_GUARDED_BY(mu_);
  absl::Time last_record_ ABSL_GUARDED_BY(mu_);
  uint32_t chunks_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<PlanningInput> input_ ABSL_GUARDED_BY(mu_);
  std::string request_digest_ ABSL_GUARDED_BY(mu_);
  std::string window_digest_ ABSL_GUARDED_BY(mu_);
  absl::Time deadline_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  EventLog events_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const PlanRecord> record_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<EventListener>> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WINDOW_SESSION_SESSION_H_
