// routepackd over loopback: the real binary, started here on a free port.
//
// CreatePlan round trips of the generated window tiny cut to 64 samples,
// StreamPlan of flash and xl, and the server's resident memory before and
// after xl, relative to the window's counts at 16 bits. Windows are encoded
// before the clock starts, as a controller would have them.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "client/planner_client.h"
#include "client/window_file.h"
#include "client/workload.h"

extern char** environ;

namespace routepack {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "server_bench: " << what << "\n";
  std::exit(1);
}

template <typename T>
T OrExit(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status().ToString());
  return *std::move(value);
}

// A routepackd of our own; stopped by the destructor.
class Server {
 public:
  Server() {
    const std::string port_file =
        absl::StrCat("/tmp/routepack_server_bench.", getpid(), ".port");
    unlink(port_file.c_str());
    std::vector<std::string> args = {ROUTEPACKD_PATH,
                                     "--listen=127.0.0.1:0",
                                     "--port_file=" + port_file,
                                     "--window_memory_mb=4096",
                                     "--plan_history=4",
                                     "--log_level=warn",
                                     "--drain_timeout=1s"};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, ROUTEPACKD_PATH, nullptr, nullptr, argv.data(),
                    environ) != 0) {
      Fail("cannot start " ROUTEPACKD_PATH);
    }
    for (int i = 0; i < 500 && port_ == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::ifstream(port_file) >> port_;
    }
    unlink(port_file.c_str());
    if (port_ == 0) Fail("routepackd did not listen within 10 s");
  }
  ~Server() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  PlannerClient Client() const {
    return PlannerClient({.target = absl::StrCat("127.0.0.1:", port_)});
  }

  // A line of /proc/PID/status in bytes: VmRSS, VmHWM (its peak).
  double Memory(const std::string& name) const {
    std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
    std::string word;
    while (status >> word) {
      if (word == name + ":") {
        double kilobytes = 0;
        status >> kilobytes;
        return kilobytes * 1024;
      }
    }
    return 0;
  }
  // Sets VmHWM back to VmRSS.
  void ResetPeak() const {
    std::ofstream(absl::StrCat("/proc/", pid_, "/clear_refs")) << 5;
  }

 private:
  pid_t pid_ = 0;
  int port_ = 0;
};

struct Encoded {
  v1::WindowHeader header;
  std::vector<v1::Sample> samples;
  double bytes = 0;
};

Encoded Encode(const WorkloadSpec& spec, CountsEncoding encoding) {
  const Workload workload = OrExit(Workload::Create(spec));
  Encoded encoded = {.header = workload.header()};
  const SampleSource next = workload.Source(encoding);
  for (v1::Sample sample; OrExit(next(&sample));) {
    encoded.bytes += static_cast<double>(sample.ByteSizeLong());
    encoded.samples.push_back(std::move(sample));
  }
  return encoded;
}

// Every request takes a step of its own: a known window would be answered from
// the store.
uint64_t NextStep() {
  static uint64_t step = 0;
  return ++step;
}

SampleSource Replay(const std::vector<v1::Sample>& samples) {
  return [&samples,
          i = size_t{0}](v1::Sample* out) mutable -> absl::StatusOr<bool> {
    if (i == samples.size()) return false;
    *out = samples[i++];
    return true;
  };
}

void CreatePlan(benchmark::State& state) {
  WorkloadSpec spec = OrExit(WorkloadPreset("tiny"));
  spec.num_samples = 64;
  const Encoded encoded = Encode(spec, CountsEncoding::kFixedWidth);
  v1::Window window;
  *window.mutable_header() = encoded.header;
  for (const v1::Sample& sample : encoded.samples) {
    *window.add_samples() = sample;
  }
  const Server server;
  PlannerClient client = server.Client();
  OrExit(client.GetServerInfo());
  for (auto _ : state) {
    window.mutable_header()->mutable_key()->set_step(NextStep());
    OrExit(client.CreatePlan(window));
  }
  state.counters["request_bytes"] = encoded.bytes;
}

// Time from the first byte until the server has sealed the window (upload,
// validation, digest), and until the plan is here.
void StreamPlan(benchmark::State& state) {
  const bool xl = state.range(0) == 1;
  const Encoded encoded = Encode(OrExit(WorkloadPreset(xl ? "xl" : "flash")),
                                 CountsEncoding::kFixedWidth);
  const Server server;
  PlannerClient client = server.Client();
  OrExit(client.GetServerInfo());
  server.ResetPeak();
  const double before = server.Memory("VmRSS");
  double growth = 0;
  double upload = 0;
  for (auto _ : state) {
    v1::WindowHeader header = encoded.header;
    header.mutable_key()->set_step(NextStep());
    const auto start = std::chrono::steady_clock::now();
    OrExit(client.StreamPlan(
        header, [&] { return Replay(encoded.samples); },
        [&](const v1::PlanEvent& event) {
          if (!event.has_sealed()) return;
          upload += std::chrono::duration<double>(
                        std::chrono::steady_clock::now() - start)
                        .count();
        }));
    if (growth == 0) growth = server.Memory("VmHWM") - before;
  }
  const double turns = static_cast<double>(state.iterations());
  state.counters["upload_bytes_per_second"] = turns * encoded.bytes / upload;
  state.counters["upload_seconds"] = upload / turns;
  // Peak while the first window was received and planned.
  const double u16_bytes = 2.0 * encoded.header.num_samples() *
                           encoded.header.num_layers() *
                           encoded.header.num_experts();
  state.counters["memory_over_u16"] = growth / u16_bytes;
  state.counters["u16_bytes"] = u16_bytes;
}

BENCHMARK(CreatePlan)->UseRealTime()->Unit(benchmark::kMillisecond);
// Argument xl: 0 is flash, 1 is xl.
BENCHMARK(StreamPlan)
    ->ArgName("xl")
    ->DenseRange(0, 1)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace routepack
