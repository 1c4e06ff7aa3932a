// What routepackd can be told: defaults, ranges, meaning. flags.cc makes a
// command line flag of every field.

#ifndef ROUTEPACK_SERVER_OPTIONS_H_
#define ROUTEPACK_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace routepack::server {

struct ServerOptions {
  // "host:port"; port 0 picks a free one.
  std::string listen = "127.0.0.1:7070";
  // Where to write the port once the server listens; empty: nowhere.
  std::string port_file;
  // Planner threads, in [0, 1024]; 0: one per CPU.
  uint32_t threads = 0;
  // Windows planned at the same time, in [1, 64].
  uint32_t concurrent_plans = 1;
  // Windows uploading, queued or planning at the same time, in [1, 100000].
  uint32_t max_open_windows = 64;
  // Memory for them, in MiB, in [1, 2^24].
  uint64_t window_memory_mb = 4096;
  // Largest CreatePlanRequest, in bytes, in [1 KiB, 256 MiB].
  uint64_t max_unary_bytes = uint64_t{16} << 20;
  // Largest encoded chunk of StreamPlan, in bytes, in [1 KiB, 64 MiB].
  uint32_t max_chunk_bytes = uint32_t{4} << 20;
  // A silent upload is dropped after this, in [1 ms, 24 h].
  absl::Duration upload_idle_timeout = absl::Minutes(10);
  // Finished windows that are kept, in [1, 1000000].
  uint32_t plan_history = 128;
  // Memory for them, in MiB, in [1, 2^24].
  uint64_t plan_store_mb = 1024;
  // Most plans on a page of ListPlans, in [1, 1000].
  uint32_t max_list_page = 1000;
  // How long open windows may go on after SIGTERM, in [0, 1 h].
  absl::Duration drain_timeout = absl::Seconds(30);
  // "text" or "json".
  std::string log_format = "text";
  // "trace", "debug", "info", "warn", "error", "critical" or "off".
  std::string log_level = "info";

  uint64_t window_memory_bytes() const { return window_memory_mb << 20; }
  uint64_t plan_store_bytes() const { return plan_store_mb << 20; }
};

// INVALID_ARGUMENT names every option that is out of range, its range and its
// value.
absl::Status ValidateOptions(const ServerOptions& options);

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_OPTIONS_H_
