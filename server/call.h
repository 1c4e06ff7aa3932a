// One call as the log sees it: a request id (the caller's `x-request-id`, or
// one of ours), sent back as initial metadata, and a line at each end.

#ifndef ROUTEPACK_SERVER_CALL_H_
#define ROUTEPACK_SERVER_CALL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "routepack/v1/window.pb.h"
#include "server/log.h"

namespace routepack::server {

inline constexpr char kRequestIdHeader[] = "x-request-id";

// absl::Status with its details as gRPC carries it.
grpc::Status ToGrpc(const absl::Status& status);

// The deadline of a call; infinite when there is none.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

// Why a call was cancelled from outside.
absl::Status CancelReason(const grpc::CallbackServerContext& context);

// Numbers calls that bring no id of their own, "<prefix>-<n>", and counts
// those under way. Thread-safe.
class CallCounter {
 public:
  explicit CallCounter(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string NextId();
  // Calls hold what this returns for as long as they live.
  std::shared_ptr<const void> Token() const { return token_; }
  size_t under_way() const {
    return static_cast<size_t>(token_.use_count()) - 1;
  }

 private:
  const std::string prefix_;
  std::atomic<uint64_t> last_{0};
  const std::shared_ptr<const void> token_ = std::make_shared<int>(0);
};

class Call {
 public:
  // Adds the metadata and logs the start.
  Call(grpc::CallbackServerContext* context, absl::string_view method,
       CallCounter* counter, const Log* log);

  void set_key(const v1::PlanKey& key);
  // Logs the end. Once.
  void End(const absl::Status& status) const;

 private:
  void LogEnd(const absl::Status& status) const;

  std::shared_ptr<const void> token_;
  const Log* log_;
  std::string method_;
  std::string id_;
  std::string key_;
  absl::Time start_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_CALL_H_
