#include "server/flags.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "planner/planner.h"
#include "server/version.h"

using routepack::server::ServerOptions;

ABSL_FLAG(std::string, listen, ServerOptions{}.listen,
          "Address to listen on, host:port. Port 0 picks a free port, which "
          "the log and --port_file name.");
ABSL_FLAG(std::string, port_file, ServerOptions{}.port_file,
          "File to write the port to once the server listens. Empty: none.");
ABSL_FLAG(uint32_t, threads, ServerOptions{}.threads,
          "Planner threads, in [0, 1024]. 0: one per CPU. Plans do not depend "
          "on it.");
ABSL_FLAG(uint32_t, concurrent_plans, ServerOptions{}.concurrent_plans,
          "Windows planned at the same time, in [1, 64]; they share --threads. "
          "The others wait in order of arrival.");
ABSL_FLAG(uint32_t, max_open_windows, ServerOptions{}.max_open_windows,
          "Windows that may be uploading, queued or planning at once, in "
          "[1, 100000]. More are refused with RESOURCE_EXHAUSTED.");
ABSL_FLAG(uint64_t, window_memory_mb, ServerOptions{}.window_memory_mb,
          "Memory for open windows, in MiB, in [1, 2^24]. A window that does "
          "not fit is refused from its header, before the upload.");
ABSL_FLAG(uint64_t, max_unary_bytes, ServerOptions{}.max_unary_bytes,
          "Largest request of CreatePlan, in bytes, in [1 KiB, 256 MiB]. "
          "Larger windows go through StreamPlan.");
ABSL_FLAG(uint32_t, max_chunk_bytes, ServerOptions{}.max_chunk_bytes,
          "Largest encoded chunk of StreamPlan, in bytes, in [1 KiB, 64 MiB].");
ABSL_FLAG(absl::Duration, upload_idle_timeout,
          ServerOptions{}.upload_idle_timeout,
          "An upload that is silent for this long is dropped, in [1ms, 24h]. "
          "Until then it can be resumed on a new connection.");
ABSL_FLAG(uint32_t, plan_history, ServerOptions{}.plan_history,
          "Finished windows that are kept, in [1, 1000000]. The plan behind a "
          "job's committed placement is kept in any case.");
ABSL_FLAG(uint64_t, plan_store_mb, ServerOptions{}.plan_store_mb,
          "Memory for finished windows, in MiB, in [1, 2^24]. The oldest go "
          "first, as with --plan_history.");
ABSL_FLAG(uint32_t, max_list_page, ServerOptions{}.max_list_page,
          "Most plans on a page of ListPlans, in [1, 1000].");
ABSL_FLAG(absl::Duration, drain_timeout, ServerOptions{}.drain_timeout,
          "How long open windows may go on after SIGTERM or SIGINT, in "
          "[0, 1h]. A second signal ends the wait.");
ABSL_FLAG(std::string, log_format, ServerOptions{}.log_format,
          "Format of the log on standard error: text or json.");
ABSL_FLAG(std::string, log_level, ServerOptions{}.log_level,
          "Least severe level that is logged: trace, debug, info, warn, error, "
          "critical or off.");

namespace routepack::server {
namespace {

void ConfigureUsage() {
  absl::SetProgramUsageMessage(
      "plans windows of MoE reinforcement learning over gRPC "
      "(routepack.v1.PlannerService).\n\n  routepackd "
      "--listen=0.0.0.0:7070 --window_memory_mb=16384");
  absl::FlagsUsageConfig config;
  const auto ours = [](absl::string_view file) {
    return absl::StrContains(file, "server/flags.cc");
  };
  config.contains_helpshort_flags = ours;
  config.contains_help_flags = ours;
  config.contains_helppackage_flags = ours;
  config.version_string = [] {
    return absl::StrCat("routepackd ", kVersion, " (algorithms ",
                        std::string(kAlgorithmVersion), ")\n");
  };
  absl::SetFlagsUsageConfig(config);
}

// Abseil's parser ends the process at the first error, with an exit code of
// its own: what it would not take is found here first.
absl::Status CheckFlags(const std::vector<std::string>& args) {
  for (size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (args[i].size() < 2 || args[i][0] != '-') continue;
    const absl::string_view arg =
        absl::StripPrefix(absl::StripPrefix(args[i], "-"), "-");
    const size_t equals = arg.find('=');
    const absl::string_view name = arg.substr(0, equals);
    if (absl::StartsWith(name, "help")) continue;
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag \"", args[i], "\"; see routepackd --help"));
    }
    if (equals == absl::string_view::npos && flag->IsOfType<bool>()) continue;
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(arg.substr(equals + 1));
    } else if (++i < args.size()) {
      value = args[i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " needs a value"));
    }
    if (std::string error; !flag->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", value, ": ",
                       error.empty() ? "not a valid value" : error));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerOptions> ParseFlags(int argc, char** argv) {
  ConfigureUsage();
  if (absl::Status status = CheckFlags({argv + 1, argv + argc}); !status.ok()) {
    return status;
  }
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument \"", rest[1], "\"; see routepackd --help"));
  }
  ServerOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.port_file = absl::GetFlag(FLAGS_port_file);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.concurrent_plans = absl::GetFlag(FLAGS_concurrent_plans);
  options.max_open_windows = absl::GetFlag(FLAGS_max_open_windows);
  options.window_memory_mb = absl::GetFlag(FLAGS_window_memory_mb);
  options.max_unary_bytes = absl::GetFlag(FLAGS_max_unary_bytes);
  options.max_chunk_bytes = absl::GetFlag(FLAGS_max_chunk_bytes);
  options.upload_idle_timeout = absl::GetFlag(FLAGS_upload_idle_timeout);
  options.plan_history = absl::GetFlag(FLAGS_plan_history);
  options.plan_store_mb = absl::GetFlag(FLAGS_plan_store_mb);
  options.max_list_page = absl::GetFlag(FLAGS_max_list_page);
  options.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  options.log_format = absl::GetFlag(FLAGS_log_format);
  options.log_level = absl::GetFlag(FLAGS_log_level);
  if (absl::Status status = ValidateOptions(options); !status.ok()) {
    return status;
  }
  return options;
}

}  // namespace routepack::server
