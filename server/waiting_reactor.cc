#include "server/waiting_reactor.h"

#include <mutex>
#include <utility>

#include "server/guarded.h"

namespace routepack::server {

WaitingReactor::WaitingReactor(grpc::CallbackServerContext* context, Call call,
                               Answer answer)
    : context_(context), call_(std::move(call)), answer_(std::move(answer)) {}

std::shared_ptr<WaitingReactor> WaitingReactor::Create(
    grpc::CallbackServerContext* context, Call call, Answer answer) {
  std::shared_ptr<WaitingReactor> reactor(
      new WaitingReactor(context, std::move(call), std::move(answer)));
  reactor->self_ = reactor;
  return reactor;
}

void WaitingReactor::WaitFor(std::shared_ptr<WindowSession> session) {
  absl::Status status = Guarded([&] {
    session->Subscribe(weak_from_this());
    return absl::OkStatus();
  });
  if (!status.ok()) {
    Fail(status);
    return;
  }
  {
    const std::lock_guard lock(mu_);
    session_ = std::move(session);
  }
  Wake();
}

void WaitingReactor::Fail(const absl::Status& status) {
  {
    const std::lock_guard lock(mu_);
    finished_ = true;
  }
  FinishWith(status);
}

void WaitingReactor::Wake() {
  std::shared_ptr<const PlanRecord> record;
  absl::Status status;
  {
    const std::lock_guard lock(mu_);
    if (finished_ || session_ == nullptr) return;
    record = session_->record();
    if (record == nullptr) {
      if (!cancelled_) return;
      status = CancelReason(*context_);
    }
    finished_ = true;
  }
  if (record != nullptr) {
    status = record->plan != nullptr ? Guarded([&] { return answer_(*record); })
                                     : record->error;
  }
  FinishWith(status);
}

void WaitingReactor::OnCancel() {
  {
    const std::lock_guard lock(mu_);
    cancelled_ = true;
  }
  Wake();
}

void WaitingReactor::FinishWith(const absl::Status& status) {
  call_.End(status);
  Finish(ToGrpc(status));
}

}  // namespace routepack::server
