// Flags that several commands share, and what they do to requests.

#ifndef ROUTEPACK_CLIENT_CLI_FLAGS_H_
#define ROUTEPACK_CLIENT_CLI_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/planner_client.h"
#include "routepack/v1/window.pb.h"

// Output.
ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::string, output);
ABSL_DECLARE_FLAG(uint32_t, rows);
ABSL_DECLARE_FLAG(bool, verbose);
// Server.
ABSL_DECLARE_FLAG(std::string, server);
ABSL_DECLARE_FLAG(absl::Duration, timeout);
// Key.
ABSL_DECLARE_FLAG(std::string, job);
ABSL_DECLARE_FLAG(std::string, run);
ABSL_DECLARE_FLAG(uint64_t, step);
ABSL_DECLARE_FLAG(uint32_t, minibatch);
// Window.
ABSL_DECLARE_FLAG(uint32_t, ep);
ABSL_DECLARE_FLAG(uint32_t, dp);
ABSL_DECLARE_FLAG(uint32_t, tp);
ABSL_DECLARE_FLAG(uint32_t, cp);
ABSL_DECLARE_FLAG(uint32_t, pp);
ABSL_DECLARE_FLAG(uint32_t, etp);
ABSL_DECLARE_FLAG(std::vector<std::string>, moe_layers_per_stage);
ABSL_DECLARE_FLAG(uint32_t, token_cap);
ABSL_DECLARE_FLAG(uint32_t, length_multiple);
ABSL_DECLARE_FLAG(std::string, attention_config);
// Random choices; of plans and of generated windows.
ABSL_DECLARE_FLAG(uint64_t, seed);
// Planner threads.
ABSL_DECLARE_FLAG(uint32_t, threads);

namespace routepack::cli {

// Names for Command::flags.
std::vector<std::string> ServerFlags();  // server, timeout
std::vector<std::string> KeyFlags();     // job, run, step, minibatch
std::vector<std::string> WindowFlags();  // ep ... attention_config
std::vector<std::string> OptionFlags();  // placement ... relocation_...
std::vector<std::string> Concat(
    std::initializer_list<std::vector<std::string>> lists);

// Calls `set` with the flag's value unless that is 0.
template <typename Flag, typename Set>
void Override(const Flag& flag, Set&& set) {
  if (const auto value = absl::GetFlag(flag); value != 0) set(value);
}

// True if the flag has another value than its default.
bool FlagChanged(const std::string& name);

// Applies WindowFlags to the header. A mesh flag on a window with explicit
// shards replaces them by a mesh of the same slots and ranks.
absl::Status ApplyWindowFlags(v1::WindowHeader& header);

// Applies OptionFlags to the header's options.
absl::Status ApplyOptionFlags(v1::WindowHeader& header);

// Applies KeyFlags.
void ApplyKeyFlags(v1::PlanKey& key);

// The key that KeyFlags name; a usage error without --job.
absl::StatusOr<v1::PlanKey> KeyFromFlags();

// "job/run step 7.0", for people.
std::string KeyText(const v1::PlanKey& key);

// A client of --server that is reachable: asks for the server's limits first,
// so that a wrong address fails in seconds. `default_timeout` is for calls
// where --timeout is not given.
absl::StatusOr<PlannerClient> ConnectFromFlags(absl::Duration default_timeout);

// The address --server names, or the default.
std::string ServerAddress();

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_FLAGS_H_
