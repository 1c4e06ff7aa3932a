// A unary call that is answered when a window ends. No thread waits for it.

#ifndef ROUTEPACK_SERVER_WAITING_REACTOR_H_
#define ROUTEPACK_SERVER_WAITING_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/call.h"
#include "server/window_session/session.h"

namespace routepack::server {

// Owned by itself from Create to OnDone, and by whoever holds a pointer. gRPC
// keeps request, response and context alive until the call is finished, and
// the call is not finished, even when the caller goes away, before WaitFor or
// Fail.
class WaitingReactor : public grpc::ServerUnaryReactor,
                       public EventListener,
                       public std::enable_shared_from_this<WaitingReactor> {
 public:
  // Makes the answer from the record of a READY window.
  using Answer = absl::AnyInvocable<absl::Status(const PlanRecord&)>;

  static std::shared_ptr<WaitingReactor> Create(
      grpc::CallbackServerContext* context, Call call, Answer answer);

  // Either of the two, once.
  void WaitFor(std::shared_ptr<WindowSession> session);
  void Fail(const absl::Status& status);

  void Wake() override;
  void OnCancel() override;
  void OnDone() override { self_.reset(); }

 private:
  WaitingReactor(grpc::CallbackServerContext* context, Call call,
                 Answer answer);
  void FinishWith(const absl::Status& status);

  grpc::CallbackServerContext* const context_;
  const Call call_;
  Answer answer_;
  std::shared_ptr<WaitingReactor> self_;

  std::mutex mu_;
  std::shared_ptr<WindowSession> session_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WAITING_REACTOR_H_
