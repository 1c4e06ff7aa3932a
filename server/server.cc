#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/codec/status.h"

namespace routepack::server {
namespace {

constexpr char kServiceName[] = "routepack.v1.PlannerService";
constexpr int kMaxMetadataBytes = 64 << 10;
// Ranks wait for plans on silent connections: look after ours, and let them
// look after theirs.
constexpr int kKeepaliveMs = 60'000;
constexpr int kMinPingMs = 10'000;
// How long calls may take to finish once all windows have ended.
constexpr absl::Duration kCallsGrace = absl::Seconds(5);
// Then gRPC gets this to send the last bytes. It always takes all of it while
// some client keeps an idle connection.
constexpr absl::Duration kFlushGrace = absl::Milliseconds(100);

// Well above what the handlers take, so that they and not gRPC refuse a
// message, with a reason.
int MaxReceiveBytes(const ServerOptions& options) {
  const uint64_t bytes =
      4 * std::max<uint64_t>(options.max_unary_bytes, options.max_chunk_bytes) +
      (uint64_t{64} << 20);
  return static_cast<int>(
      std::min<uint64_t>(bytes, std::numeric_limits<int>::max()));
}

std::string RandomPrefix() {
  absl::BitGen random;
  return absl::StrCat(
      absl::Hex(absl::Uniform<uint32_t>(random), absl::kZeroPad8));
}

}  // namespace

PlannerServer::PlannerServer(const ServerOptions& options, Log log)
    : options_(options),
      log_(std::move(log)),
      admission_(options.max_open_windows, options.window_memory_bytes()),
      store_(options.plan_history, options.plan_store_bytes()),
      table_(&admission_, &store_),
      service_({.options = &options_,
                .admission = &admission_,
                .store = &store_,
                .table = &table_,
                .worker = &worker_,
                .log = &log_},
               RandomPrefix()),
      worker_(options, &table_, log_) {}

absl::StatusOr<std::unique_ptr<PlannerServer>> PlannerServer::Start(
    const ServerOptions& options, Log log) {
  std::unique_ptr<PlannerServer> server(
      new PlannerServer(options, std::move(log)));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  server->idle_watch_ =
      std::jthread([raw = server.get()](std::stop_token stop) {
        raw->DropIdleUploads(std::move(stop));
      });
  return server;
}

absl::Status PlannerServer::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  // v1alpha with gRPC 1.51; newer ones serve v1 as well.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(),
                           &port_);
  // With SO_REUSEPORT two servers would share a port without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingMs);
  builder.SetMaxReceiveMessageSize(MaxReceiveBytes(options_));
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.listen,
                     ": the port may be in use, or the address is none of "
                     "this machine's"));
  }
  server_->GetHealthCheckService()->SetServingStatus(kServiceName, true);
  return absl::OkStatus();
}

PlannerServer::~PlannerServer() { Stop(); }

void PlannerServer::BeginDrain() {
  table_.BeginDrain();
  server_->GetHealthCheckService()->SetServingStatus(false);
}

void PlannerServer::Stop() {
  if (server_ == nullptr) return;
  table_.BeginDrain();
  table_.ForgetAll(
      RetryableError(absl::StatusCode::kUnavailable,
                     "the server shut down before the plan was ready",
                     absl::Seconds(1)),
      absl::Now());
  const absl::Time end = absl::Now() + kCallsGrace;
  while (service_.calls_under_way() > 0 && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kFlushGrace));
  server_->Wait();
  idle_watch_ = {};
  server_ = nullptr;
}

void PlannerServer::DropIdleUploads(std::stop_token stop) {
  const absl::Duration period =
      std::clamp(options_.upload_idle_timeout / 4, absl::Milliseconds(5),
                 absl::Seconds(5));
  std::mutex mu;
  std::condition_variable_any wake;
  std::unique_lock lock(mu);
  while (!wake.wait_for(lock, stop, absl::ToChronoMilliseconds(period),
                        [&] { return stop.stop_requested(); })) {
    for (const v1::PlanKey& key :
         table_.DropIdle(options_.upload_idle_timeout, absl::Now())) {
      log_.Warn("idle upload dropped",
                {{"key", WindowKey::Of(key).ToString()}});
    }
  }
}

}  // namespace routepack::server
