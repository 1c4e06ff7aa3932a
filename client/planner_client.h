// The planning service from C++: controllers submit windows, ranks fetch their
// part.
//
// Calls are blocking and thread-safe. UNAVAILABLE is retried with backoff
// until the deadline; RESOURCE_EXHAUSTED after the delay the server names. An
// upload that breaks off is resumed at the chunk the server asks for. Errors
// carry field violations (ViolationsOf) as the server sent them.
//
//   PlannerClient client({.target = "localhost:7070"});
//   absl::StatusOr<v1::Plan> plan = client.StreamPlan(header, source);

#ifndef ROUTEPACK_CLIENT_PLANNER_CLIENT_H_
#define ROUTEPACK_CLIENT_PLANNER_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/window_file.h"
#include "routepack/v1/planner_service.pb.h"

namespace routepack {

struct PlannerClientOptions {
  std::string target = "localhost:7070";
  // Of every call; infinite waits for ever.
  absl::Duration timeout = absl::Minutes(10);
  // First delay between retries; doubles, with jitter, up to max_backoff.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
};

class PlannerClient {
 public:
  // Does not connect yet: the first call does.
  explicit PlannerClient(PlannerClientOptions options);
  ~PlannerClient();
  PlannerClient(PlannerClient&&) noexcept;
  PlannerClient& operator=(PlannerClient&&) noexcept;

  using EventHandler = std::function<void(const v1::PlanEvent&)>;

  // One call, for windows up to the server's unary limit: that is asked for
  // once and checked before sending, and larger windows are refused here with
  // the limit and StreamPlan named.
  absl::StatusOr<v1::Plan> CreatePlan(const v1::Window& window);

  // Any size: uploads the samples, hands events to `on_event` (may be empty),
  // returns the plan. `open` starts the samples from the beginning; it is
  // called again when an upload has to be resumed.
  using SampleSourceFactory = std::function<absl::StatusOr<SampleSource>()>;
  absl::StatusOr<v1::Plan> StreamPlan(const v1::WindowHeader& header,
                                      const SampleSourceFactory& open,
                                      const EventHandler& on_event = {});

  // As StreamPlan, but returns once the window is sealed or known: planning
  // goes on in the server.
  struct Submitted {
    v1::PlanState state = v1::PLAN_STATE_UNSPECIFIED;
    std::string window_digest;  // empty if the window was there before
  };
  absl::StatusOr<Submitted> SubmitWindow(const v1::WindowHeader& header,
                                         const SampleSourceFactory& open,
                                         const EventHandler& on_event = {});

  absl::StatusOr<v1::GetPlanResponse> GetPlan(const v1::PlanKey& key);
  absl::StatusOr<v1::RankPlan> GetRankPlan(
      const v1::GetRankPlanRequest& request);
  absl::StatusOr<v1::ListPlansResponse> ListPlans(
      const v1::ListPlansRequest& request);
  // Until the window's last event; the plan if there is one.
  absl::StatusOr<v1::Plan> WatchPlan(const v1::PlanKey& key,
                                     const EventHandler& on_event);
  absl::StatusOr<v1::CancelPlanResponse> CancelPlan(const v1::PlanKey& key);
  absl::StatusOr<v1::ReportApplyResponse> ReportApply(
      const v1::ReportApplyRequest& request);
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo();
  // OK if the server's grpc.health.v1 service says SERVING.
  absl::Status CheckHealth();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_PLANNER_CLIENT_H_
