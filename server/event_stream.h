// A call whose answer is the events of a window: StreamPlan and WatchPlan.
//
// Writes one event at a time and pulls the next when the last is written, so a
// slow reader holds back nobody and nothing piles up. Finishes with the
// window's end, or with Fail, once the write under way is done.

#ifndef ROUTEPACK_SERVER_EVENT_STREAM_H_
#define ROUTEPACK_SERVER_EVENT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/call.h"
#include "server/guarded.h"
#include "server/window_session/session.h"

namespace routepack::server {

// `Reactor` is a gRPC server reactor that writes `Response`, a message with a
// PlanEvent `event`. Owned by itself from Keep to OnDone, and by whoever holds
// a pointer.
template <typename Reactor, typename Response>
class EventStream
    : public Reactor,
      public EventListener,
      public std::enable_shared_from_this<EventStream<Reactor, Response>> {
 public:
  EventStream(grpc::CallbackServerContext* context, Call call)
      : context_(context), call_(std::move(call)) {}

  void Keep() { self_ = this->shared_from_this(); }

  // Sends `first`, then the session's events. Once.
  void Follow(std::shared_ptr<WindowSession> session, v1::PlanEvent first,
              std::optional<uint64_t> upload_stream) {
    session->Subscribe(this->weak_from_this());
    {
      const std::lock_guard lock(mu_);
      session_ = std::move(session);
      first_ = std::move(first);
      upload_stream_ = upload_stream;
    }
    Pump();
  }
  // The first failure counts.
  void Fail(absl::Status status) {
    {
      const std::lock_guard lock(mu_);
      if (!failure_.has_value()) failure_ = std::move(status);
    }
    Pump();
  }

  void Wake() override { Pump(); }
  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mu_);
      // It may have been a plan, and what comes next is small or far away.
      Response().Swap(&response_);
      writing_ = false;
      if (!ok && !failure_.has_value()) failure_ = CancelReason(*context_);
    }
    Pump();
  }
  void OnCancel() override { Fail(CancelReason(*context_)); }
  void OnDone() override { self_.reset(); }

 protected:
  grpc::CallbackServerContext* context() const { return context_; }
  Call& call() { return call_; }

 private:
  // What to do next: write response_, finish, or nothing.
  void Pump() {
    std::optional<absl::Status> end;
    {
      const std::lock_guard lock(mu_);
      if (writing_ || finished_) return;
      try {
        end = Next();
      } catch (...) {
        writing_ = false;
        end = CaughtStatus();
      }
      if (!end.has_value() && !writing_) return;
      finished_ = end.has_value();
    }
    if (!end.has_value()) {
      this->StartWrite(&response_);
      return;
    }
    call_.End(*end);
    this->Finish(ToGrpc(*end));
  }

  // Fills response_ and sets writing_, or returns the status to end with.
  std::optional<absl::Status> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (failure_.has_value()) return failure_;
    if (session_ == nullptr) return std::nullopt;
    if (first_.has_value()) {
      *response_.mutable_event() = *std::move(first_);
      first_.reset();
      writing_ = true;
      return std::nullopt;
    }
    if (upload_stream_.has_value() && session_->IsDetached(*upload_stream_)) {
      return absl::AbortedError("another stream has taken over the upload");
    }
    WindowSession::News news = session_->Poll(cursor_);
    if (news.event == nullptr) return news.end;
    *response_.mutable_event() = *news.event;
    writing_ = true;
    return std::nullopt;
  }

  grpc::CallbackServerContext* const context_;
  Call call_;
  std::shared_ptr<EventStream> self_;
  Response response_;  // not touched while writing_

  std::mutex mu_;
  std::shared_ptr<WindowSession> session_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::PlanEvent> first_ ABSL_GUARDED_BY(mu_);
  std::optional<uint64_t> upload_stream_ ABSL_GUARDED_BY(mu_);
  EventCursor cursor_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> failure_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_EVENT_STREAM_H_
