// routepack.v1.PlannerService on gRPC's callback API: every method turns a
// request into one call of the table, the worker or the store, and its result
// into a response. What the methods promise is in planner_service.proto.
//
// Thread-safe; no method blocks.

#ifndef ROUTEPACK_SERVER_PLANNER_SERVICE_H_
#define ROUTEPACK_SERVER_PLANNER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "routepack/v1/planner_service.grpc.pb.h"
#include "server/admission.h"
#include "server/call.h"
#include "server/log.h"
#include "server/options.h"
#include "server/plan_store.h"
#include "server/window_table.h"
#include "server/worker.h"

namespace routepack::server {

class PlannerServiceImpl : public v1::PlannerService::CallbackService {
 public:
  // What the service works with; all outlive it.
  struct Parts {
    const ServerOptions* options;
    Admission* admission;
    PlanStore* store;
    WindowTable* table;
    Worker* worker;
    const Log* log;
  };
  PlannerServiceImpl(const Parts& parts, std::string request_id_prefix);

  // Calls that have not ended yet.
  size_t calls_under_way() const { return calls_.under_way(); }

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* CreatePlan(
      Context* context, const v1::CreatePlanRequest* request,
      v1::CreatePlanResponse* response) override;
  grpc::ServerBidiReactor<v1::StreamPlanRequest, v1::StreamPlanResponse>*
  StreamPlan(Context* context) override;
  grpc::ServerUnaryReactor* GetPlan(Context* context,
                                    const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override;
  grpc::ServerUnaryReactor* GetRankPlan(
      Context* context, const v1::GetRankPlanRequest* request,
      v1::GetRankPlanResponse* response) override;
  grpc::ServerUnaryReactor* ListPlans(Context* context,
                                      const v1::ListPlansRequest* request,
                                      v1::ListPlansResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchPlanResponse>* WatchPlan(
      Context* context, const v1::WatchPlanRequest* request) override;
  grpc::ServerUnaryReactor* CancelPlan(
      Context* context, const v1::CancelPlanRequest* request,
      v1::CancelPlanResponse* response) override;
  grpc::ServerUnaryReactor* ReportApply(
      Context* context, const v1::ReportApplyRequest* request,
      v1::ReportApplyResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(
      Context* context, const v1::GetServerInfoRequest* request,
      v1::GetServerInfoResponse* response) override;

 private:
  Call NewCall(Context* context, absl::string_view method);
  // WindowTable::Find, guarded.
  absl::StatusOr<std::shared_ptr<WindowSession>> Find(
      const v1::PlanKey& key) const;
  // Answers a call at once with what `f` returns.
  template <typename F>
  grpc::ServerUnaryReactor* Answer(Context* context, const Call& call, F&& f);

  // CreatePlan, on the checking thread: the session of the window.
  absl::StatusOr<std::shared_ptr<WindowSession>> Submit(
      const v1::Window& window, absl::Time deadline);
  absl::Status Upload(const std::shared_ptr<WindowSession>& session,
                      const v1::Window& window);
  absl::Status CheckSame(const WindowSession& session,
                         const v1::WindowHeader& header,
                         const v1::Window& window);

  const Parts parts_;
  const absl::Time start_;
  CallCounter calls_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_PLANNER_SERVICE_H_
