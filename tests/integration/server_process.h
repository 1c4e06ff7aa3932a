// A routepackd process on loopback, for tests.

#ifndef ROUTEPACK_TESTS_INTEGRATION_SERVER_PROCESS_H_
#define ROUTEPACK_TESTS_INTEGRATION_SERVER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "routepack/v1/planner_service.grpc.pb.h"

namespace routepack {

// Sanitizers make a server slow and change what memory it takes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Runs the binary with these flags, besides a free port and two threads. What
// goes wrong while it starts shows in exit_code() and log(); a server that
// still runs at the end of the test is killed.
class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> flags = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // False if it ended instead.
  bool running() const { return !target_.empty(); }
  const std::string& target() const { return target_; }
  v1::PlannerService::Stub& stub() { return *stub_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }

  void Terminate();
  // Waits for the end, at most a minute; -1 if it was a signal's or none.
  int ExitCode();
  // What it wrote to standard output and error.
  std::string Log() const;
  // Peak and present resident memory in bytes.
  uint64_t PeakMemory() const { return StatusLine("VmHWM:"); }
  uint64_t Memory() const { return StatusLine("VmRSS:"); }

 private:
  uint64_t StatusLine(const std::string& name) const;
  bool Ended();

  std::string folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = -1;
  std::string target_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_INTEGRATION_SERVER_PROCESS_H_
