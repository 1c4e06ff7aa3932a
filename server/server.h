// A running routepackd: the gRPC server with health and reflection, and all
// that stands behind it.
//
//   absl::StatusOr<std::unique_ptr<PlannerServer>> server =
//       PlannerServer::Start(options, log);
//   ... SIGTERM ...
//   (*server)->BeginDrain();
//   while (!(*server)->idle() && !too_late) wait;
//   (*server)->Stop();

#ifndef ROUTEPACK_SERVER_SERVER_H_
#define ROUTEPACK_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "server/admission.h"
#include "server/log.h"
#include "server/memory_plan_store.h"
#include "server/options.h"
#include "server/planner_service.h"
#include "server/window_table.h"
#include "server/worker.h"

namespace routepack::server {

class PlannerServer {
 public:
  // UNAVAILABLE: cannot listen on the address; the port may be taken.
  static absl::StatusOr<std::unique_ptr<PlannerServer>> Start(
      const ServerOptions& options, Log log);
  ~PlannerServer();

  int port() const { return port_; }

  // No new windows; health turns to NOT_SERVING.
  void BeginDrain();
  // No window is at work, save uploads whose stream is gone.
  bool idle() const { return table_.num_busy() == 0; }
  // Ends what is still at work with UNAVAILABLE, lets calls finish and stops.
  void Stop();

 private:
  PlannerServer(const ServerOptions& options, Log log);
  absl::Status Listen();
  void DropIdleUploads(std::stop_token stop);

  const ServerOptions options_;
  const Log log_;
  Admission admission_;
  MemoryPlanStore store_;
  WindowTable table_;
  PlannerServiceImpl service_;
  Worker worker_;  // destroyed before the service, which its tasks use
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::jthread idle_watch_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_SERVER_H_
