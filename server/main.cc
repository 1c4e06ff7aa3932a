// routepackd: plans windows over gRPC. See --help.
//
// Exit codes: 0 after a drain, 1 when it cannot start, 2 for a wrong command
// line, 3 when it had to end while something still ran after the drain.

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/exit_timer.h"
#include "server/flags.h"
#include "server/log.h"
#include "server/server.h"
#include "server/version.h"

namespace routepack::server {
namespace {

// The signals that end the server. They are blocked in every thread and taken
// by sigwait in this one, so nothing runs in a signal handler.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Readers see no port or the whole one.
absl::Status WritePort(const std::string& path, int port) {
  const std::string partial = absl::StrCat(path, ".partial");
  std::ofstream file(partial);
  file << port << "\n";
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat(
        "--port_file: cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

// What Stop and the end of the worker's tasks may take: well above the grace
// they give to calls.
constexpr absl::Duration kStopTimeout = absl::Seconds(30);

void Drain(PlannerServer& server, absl::Duration timeout,
           const sigset_t& signals) {
  server.BeginDrain();
  const absl::Time end = absl::Now() + timeout;
  const timespec tick = absl::ToTimespec(absl::Milliseconds(20));
  while (!server.idle() && absl::Now() < end) {
    if (sigtimedwait(&signals, nullptr, &tick) > 0) return;
  }
}

int Run(const ServerOptions& options, const sigset_t& signals) {
  absl::StatusOr<Log> log = Log::Create(options.log_format, options.log_level);
  if (!log.ok()) {
    std::fprintf(stderr, "routepackd: %s\n", log.status().ToString().c_str());
    return 2;
  }
  auto server = PlannerServer::Start(options, *log);
  if (!server.ok()) {
    log->Error("cannot start",
               {{"error", std::string(server.status().message())}});
    return 1;
  }
  const std::string port = absl::StrCat((*server)->port());
  if (!options.port_file.empty()) {
    if (absl::Status status = WritePort(options.port_file, (*server)->port());
        !status.ok()) {
      log->Error("cannot start", {{"error", std::string(status.message())}});
      return 1;
    }
  }
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  log->Info("listening", {{"address", absl::StrCat(host, ":", port)},
                          {"version", std::string(kVersion)},
                          {"pid", getpid()}});
  int signal = 0;
  sigwait(&signals, &signal);
  log->Info("draining", {{"signal", strsignal(signal)}});
  Drain(**server, options.drain_timeout, signals);
  const ExitTimer timer(kStopTimeout, 3, *log);
  (*server)->Stop();
  server->reset();
  log->Info("stopped");
  return 0;
}

}  // namespace
}  // namespace routepack::server

int main(int argc, char** argv) {
  const sigset_t signals = routepack::server::BlockSignals();
  const auto options = routepack::server::ParseFlags(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "routepackd: %s\n",
                 std::string(options.status().message()).c_str());
    return 2;
  }
  return routepack::server::Run(*options, signals);
}
