#include "server/planner_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner/errors.h"
#include "planner/planner.h"
#include "proto/codec/codec.h"
#include "proto/codec/duration.h"
#include "server/bad_field.h"
#include "server/event_stream.h"
#include "server/guarded.h"
#include "server/plan_stream.h"
#include "server/same_window.h"
#include "server/text.h"
#include "server/version.h"
#include "server/waiting_reactor.h"

namespace routepack::server {
namespace {

using Watch = EventStream<grpc::ServerWriteReactor<v1::WatchPlanResponse>,
                          v1::WatchPlanResponse>;

// Larger requests belong into StreamPlan; gRPC's own limit is far above.
absl::Status CheckUnarySize(const v1::CreatePlanRequest& request,
                            uint64_t limit) {
  const uint64_t bytes = request.ByteSizeLong();
  if (bytes <= limit) return absl::OkStatus();
  return BadField(
      "window",
      absl::StrCat("the request has ", bytes,
                   " bytes, CreatePlan takes at most ", limit,
                   " (max_unary_bytes); send the window with StreamPlan"));
}

// The header with num_samples filled in.
absl::StatusOr<v1::WindowHeader> CompleteHeader(const v1::Window& window) {
  v1::WindowHeader header = window.header();
  const auto listed = static_cast<uint32_t>(window.samples_size());
  if (header.num_samples() == 0) header.set_num_samples(listed);
  if (header.num_samples() == listed) return header;
  return BadField("header.num_samples",
                  absl::StrCat("is ", header.num_samples(), ", but ", listed,
                               " samples are listed"));
}

absl::Status NotReady(const WindowSession& session) {
  return PreconditionError(
      {.type = "PLAN_NOT_READY",
       .subject = WindowKey::Of(session.key()).ToString(),
       .description = absl::StrCat("the window has no plan: it is ",
                                   v1::PlanState_Name(session.state()))});
}

absl::Status EnterReportInRecord(const v1::ReportApplyRequest& request,
                                 PlanRecord& record) {
  if (record.plan == nullptr ||
      request.placement_version() != record.plan->placement_version()) {
    return absl::NotFoundError(absl::StrCat(
        "the window's plan has no placement version \"",
        request.placement_version(), "\" but \"",
        record.plan == nullptr ? "" : record.plan->placement_version(), "\""));
  }
  absl::Status status =
      EnterReport(request, record.plan->placement_digest(), record.commit);
  record.summary.set_commit(record.commit.state);
  return status;
}

}  // namespace

PlannerServiceImpl::PlannerServiceImpl(const Parts& parts,
                                       std::string request_id_prefix)
    : parts_(parts),
      start_(absl::Now()),
      calls_(std::move(request_id_prefix)) {}

Call PlannerServiceImpl::NewCall(Context* context, absl::string_view method) {
  return Call(context, method, &calls_, parts_.log);
}

absl::StatusOr<std::shared_ptr<WindowSession>> PlannerServiceImpl::Find(
    const v1::PlanKey& key) const {
  absl::StatusOr<std::shared_ptr<WindowSession>> session =
      absl::InternalError("not looked up");
  const absl::Status status = Guarded([&] {
    session = parts_.table->Find(key);
    return session.status();
  });
  if (!status.ok()) return status;
  return session;
}

template <typename F>
grpc::ServerUnaryReactor* PlannerServiceImpl::Answer(Context* context,
                                                     const Call& call, F&& f) {
  const absl::Status status = Guarded(std::forward<F>(f));
  call.End(status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* PlannerServiceImpl::CreatePlan(
    Context* context, const v1::CreatePlanRequest* request,
    v1::CreatePlanResponse* response) {
  Call call = NewCall(context, "CreatePlan");
  call.set_key(request->window().header().key());
  const std::shared_ptr<WaitingReactor> reactor = WaitingReactor::Create(
      context, std::move(call), [response](const PlanRecord& record) {
        *response->mutable_plan() = *record.plan;
        return absl::OkStatus();
      });
  absl::Status status =
      CheckUnarySize(*request, parts_.options->max_unary_bytes);
  status.Update(ValidateKey(request->window().header().key(), "header.key"));
  if (!status.ok()) {
    reactor->Fail(status);
    return reactor.get();
  }
  status = Guarded([&] {
    parts_.worker->Post(
        [this, reactor, request, deadline = DeadlineOf(*context)] {
          std::shared_ptr<WindowSession> session;
          const absl::Status status = Guarded([&] {
            auto submitted = Submit(request->window(), deadline);
            if (!submitted.ok()) return submitted.status();
            session = *std::move(submitted);
            return absl::OkStatus();
          });
          if (status.ok()) {
            reactor->WaitFor(std::move(session));
          } else {
            reactor->Fail(status);
          }
        });
    return absl::OkStatus();
  });
  if (!status.ok()) reactor->Fail(status);
  return reactor.get();
}

absl::StatusOr<std::shared_ptr<WindowSession>> PlannerServiceImpl::Submit(
    const v1::Window& window, absl::Time deadline) {
  absl::StatusOr<v1::WindowHeader> header = CompleteHeader(window);
  if (!header.ok()) return header.status();
  const absl::Time now = absl::Now();
  // The message stays in memory until the call ends.
  absl::StatusOr<WindowTable::Opened> opened =
      parts_.table->Open(*header, window.ByteSizeLong(), now);
  if (!opened.ok()) return opened.status();
  WindowSession& session = *opened->session;
  if (opened->created && header->options().best_effort_at_deadline()) {
    session.SetBestEffortDeadline(BestEffortDeadline(deadline, now));
  }
  const absl::Status status =
      opened->created ? Guarded([&] { return Upload(opened->session, window); })
                      : CheckSame(session, *header, window);
  if (!status.ok()) {
    if (opened->created) parts_.table->Forget(session, status, now);
    return status;
  }
  return std::move(opened->session);
}

// As one stream with one chunk would.
absl::Status PlannerServiceImpl::Upload(
    const std::shared_ptr<WindowSession>& session, const v1::Window& window) {
  const absl::Time now = absl::Now();
  v1::Accepted accepted;
  const uint64_t stream = session->Attach(now, accepted);
  absl::Status status = session->AddSamples(stream, window.samples(), now);
  absl::StatusOr<SealedUpload> sealed = absl::CancelledError("not sealed");
  if (status.ok()) {
    v1::Seal seal;
    seal.set_num_chunks(1);
    sealed = session->Seal(stream, seal, now);
    status = sealed.status();
  }
  if (!status.ok()) return status;
  parts_.worker->Check(session, *std::move(sealed));
  return absl::OkStatus();
}

// A key that has a window already: OK when it is this one.
absl::Status PlannerServiceImpl::CheckSame(const WindowSession& session,
                                           const v1::WindowHeader& header,
                                           const v1::Window& window) {
  absl::Status status = CheckSameContent(session, header);
  if (!status.ok()) return status;
  if (session.request_digest().empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("key ", WindowKey::Of(session.key()).ToString(),
                     " has an open upload; finish it with StreamPlan or end it "
                     "with CancelPlan"));
  }
  // The window that exists was admitted. With its very header this one takes
  // no more, and one at a time is compared: it need not wait for a place.
  Reservation reservation;
  if (session.header_digest() != HeaderDigest(header)) {
    absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
    if (!spec.ok()) return spec.status();
    // It is compared, not planned.
    absl::StatusOr<Reservation> place = parts_.admission->Admit(
        PlanningBytes(*spec, {.search = {.effort = Effort::kSeeds}}) +
        window.ByteSizeLong());
    if (!place.ok()) return place.status();
    reservation = *std::move(place);
  }
  absl::StatusOr<Window> decoded = DecodeWindow(window);
  if (!decoded.ok()) return decoded.status();
  return CheckSameWindow(session, header, *decoded);
}

grpc::ServerBidiReactor<v1::StreamPlanRequest, v1::StreamPlanResponse>*
PlannerServiceImpl::StreamPlan(Context* context) {
  return PlanStream::Start(context, NewCall(context, "StreamPlan"),
                           parts_.options->max_chunk_bytes, parts_.table,
                           parts_.worker);
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetPlan(
    Context* context, const v1::GetPlanRequest* request,
    v1::GetPlanResponse* response) {
  Call call = NewCall(context, "GetPlan");
  call.set_key(request->key());
  return Answer(context, call, [&] {
    const auto session = Find(request->key());
    if (!session.ok()) return session.status();
    *response->mutable_summary() = (*session)->Summary();
    const std::shared_ptr<const PlanRecord> record = (*session)->record();
    if (record != nullptr && record->plan != nullptr) {
      *response->mutable_plan() = *record->plan;
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetRankPlan(
    Context* context, const v1::GetRankPlanRequest* request,
    v1::GetRankPlanResponse* response) {
  Call call = NewCall(context, "GetRankPlan");
  call.set_key(request->key());
  const std::shared_ptr<WaitingReactor> reactor = WaitingReactor::Create(
      context, std::move(call),
      [request, response](const PlanRecord& record) -> absl::Status {
        absl::StatusOr<v1::RankPlan> part =
            MakeRankPlan(*record.plan, *record.current, *request);
        if (!part.ok()) return part.status();
        *response->mutable_rank_plan() = *std::move(part);
        return absl::OkStatus();
      });
  auto session = Find(request->key());
  if (session.ok()) {
    reactor->WaitFor(*std::move(session));
  } else {
    reactor->Fail(session.status());
  }
  return reactor.get();
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ListPlans(
    Context* context, const v1::ListPlansRequest* request,
    v1::ListPlansResponse* response) {
  return Answer(context, NewCall(context, "ListPlans"), [&] {
    auto list = parts_.table->List(*request, parts_.options->max_list_page);
    if (!list.ok()) return list.status();
    *response = *std::move(list);
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::WatchPlanResponse>* PlannerServiceImpl::WatchPlan(
    Context* context, const v1::WatchPlanRequest* request) {
  Call call = NewCall(context, "WatchPlan");
  call.set_key(request->key());
  auto watch = std::make_shared<Watch>(context, std::move(call));
  watch->Keep();
  const absl::Status status = Guarded([&] {
    auto session = Find(request->key());
    if (!session.ok()) return session.status();
    v1::PlanEvent first = (*session)->AcceptedEvent();
    first.mutable_accepted()->set_max_chunk_bytes(
        parts_.options->max_chunk_bytes);
    watch->Follow(*std::move(session), std::move(first), std::nullopt);
    return absl::OkStatus();
  });
  if (!status.ok()) watch->Fail(status);
  return watch.get();
}

grpc::ServerUnaryReactor* PlannerServiceImpl::CancelPlan(
    Context* context, const v1::CancelPlanRequest* request,
    v1::CancelPlanResponse* response) {
  Call call = NewCall(context, "CancelPlan");
  call.set_key(request->key());
  return Answer(context, call, [&] {
    const auto state = parts_.table->Cancel(request->key(), absl::Now());
    if (state.ok()) response->set_state(*state);
    return state.status();
  });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ReportApply(
    Context* context, const v1::ReportApplyRequest* request,
    v1::ReportApplyResponse* response) {
  Call call = NewCall(context, "ReportApply");
  call.set_key(request->key());
  return Answer(context, call, [&]() -> absl::Status {
    Violations bad;
    CheckLength(request->placement_version(), "placement_version", kMaxVersion,
                bad);
    CheckLength(request->digest(), "digest", kMaxVersion, bad);
    if (!bad.empty()) return bad.ToStatus();
    const auto session = Find(request->key());
    if (!session.ok()) return session.status();
    if ((*session)->decided() != v1::PLAN_STATE_READY) {
      return NotReady(**session);
    }
    return parts_.store->Update(
        WindowKey::Of(request->key()), [&](PlanRecord& record) {
          absl::Status status = EnterReportInRecord(*request, record);
          *response = DescribeCommit(record.commit);
          return status;
        });
  });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetServerInfo(
    Context* context, const v1::GetServerInfoRequest*,
    v1::GetServerInfoResponse* response) {
  return Answer(context, NewCall(context, "GetServerInfo"), [&] {
    const ServerOptions& options = *parts_.options;
    response->set_version(std::string(kVersion));
    response->set_algorithm_version(std::string(kAlgorithmVersion));
    response->set_backend(kBackend);
    response->set_threads(parts_.worker->threads());
    *response->mutable_uptime() = EncodeDuration(absl::Now() - start_);
    v1::ServerLimits& limits = *response->mutable_limits();
    limits.set_max_unary_bytes(options.max_unary_bytes);
    limits.set_max_chunk_bytes(options.max_chunk_bytes);
    limits.set_max_open_windows(options.max_open_windows);
    limits.set_window_memory_bytes(options.window_memory_bytes());
    *limits.mutable_upload_idle_timeout() =
        EncodeDuration(options.upload_idle_timeout);
    limits.set_plan_history(options.plan_history);
    limits.set_plan_store_bytes(options.plan_store_bytes());
    v1::ServerLoad& load = *response->mutable_load();
    load.set_open_windows(parts_.admission->open_windows());
    load.set_window_memory_bytes(parts_.admission->reserved_bytes());
    load.set_stored_plans(static_cast<uint32_t>(parts_.store->size()));
    load.set_draining(parts_.table->draining());
    load.set_plan_store_bytes(parts_.store->bytes());
    return absl::OkStatus();
  });
}

}  // namespace routepack::server
