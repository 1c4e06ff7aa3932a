#include "server/call.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/codec/status.h"
#include "server/guarded.h"
#include "server/text.h"
#include "server/window_key.h"

namespace routepack::server {
namespace {

constexpr size_t kMaxRequestId = 128;
// Bytes of what clients send, and of errors about it, in the log.
constexpr size_t kMaxLogged = 1024;

// Ids come back as metadata and go to the log: printable ASCII only.
bool IsUsableId(absl::string_view id) {
  if (id.empty() || id.size() > kMaxRequestId) return false;
  for (unsigned char c : id) {
    if (c <= 0x20 || c >= 0x7F) return false;
  }
  return true;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      WireMessage(status), StatusToWire(status));
}

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return absl::InfiniteFuture();
  }
  return absl::FromChrono(deadline);
}

absl::Status CancelReason(const grpc::CallbackServerContext& context) {
  if (absl::Now() >= DeadlineOf(context)) {
    return absl::DeadlineExceededError(
        "the deadline of the call passed; the window is planned on, GetPlan "
        "finds it");
  }
  return absl::CancelledError("the caller went away");
}

std::string CallCounter::NextId() {
  return absl::StrCat(prefix_, "-", ++last_);
}

Call::Call(grpc::CallbackServerContext* context, absl::string_view method,
           CallCounter* counter, const Log* log)
    : token_(counter->Token()),
      log_(log),
      method_(method),
      start_(absl::Now()) {
  const auto& metadata = context->client_metadata();
  const auto it = metadata.find(kRequestIdHeader);
  if (it != metadata.end()) {
    id_.assign(it->second.data(), it->second.size());
  }
  if (!IsUsableId(id_)) id_ = counter->NextId();
  context->AddInitialMetadata(kRequestIdHeader, id_);
  log_->Debug(
      "call begins",
      {{"request_id", id_}, {"method", method_}, {"peer", context->peer()}});
}

void Call::set_key(const v1::PlanKey& key) {
  key_ = Shortened(WindowKey::Of(key).ToString(), kMaxLogged);
}

void Call::End(const absl::Status& status) const {
  // A line that cannot be written must not keep the call from ending.
  Guarded([&] {
    LogEnd(status);
    return absl::OkStatus();
  }).IgnoreError();
}

void Call::LogEnd(const absl::Status& status) const {
  Log::Fields fields = {{"request_id", id_}, {"method", method_}};
  if (!key_.empty()) fields.emplace_back("key", key_);
  fields.emplace_back("status", absl::StatusCodeToString(status.code()));
  fields.emplace_back("ms", absl::ToDoubleMilliseconds(absl::Now() - start_));
  if (!status.ok()) {
    fields.emplace_back("error", Shortened(status.message(), kMaxLogged));
  }
  log_->Info("call", fields);
}

}  // namespace routepack::server
