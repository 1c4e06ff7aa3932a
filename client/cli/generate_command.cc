#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/cli/workload_flags.h"
#include "client/window_file.h"
#include "client/workload.h"
#include "google/protobuf/struct.pb.h"

namespace routepack::cli {
namespace {

// The file, or the folder for several windows.
absl::StatusOr<std::string> OutputPath(const WorkloadSpec& spec,
                                       uint32_t windows) {
  std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) {
    return UsageError(
        "--output is required: a file, or a folder for several "
        "windows");
  }
  const bool folder = windows > 1 || absl::EndsWith(output, "/");
  if (!folder) return output;
  std::error_code error;
  std::filesystem::create_directories(output, error);
  if (error) {
    return absl::UnknownError(
        absl::StrCat(output, ": cannot create: ", error.message()));
  }
  if (!absl::EndsWith(output, "/")) output += '/';
  return absl::StrCat(output, spec.name, "-", spec.step, ".rpw");
}

struct Written {
  std::string path;
  uint64_t step = 0;
  uint32_t samples = 0;
  uint64_t tokens = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

absl::StatusOr<Written> WriteOne(const WorkloadSpec& spec, uint32_t windows) {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<std::string> path = OutputPath(spec, windows);
  if (!path.ok()) return path.status();
  absl::StatusOr<Workload> workload = Workload::Create(spec);
  if (!workload.ok()) return workload.status();
  v1::WindowHeader header = workload->header();
  if (FlagChanged("job"))
    header.mutable_key()->set_job_id(absl::GetFlag(FLAGS_job));
  if (FlagChanged("run"))
    header.mutable_key()->set_run_id(absl::GetFlag(FLAGS_run));
  if (absl::Status s = WriteWindow(*path, header, workload->Source());
      !s.ok()) {
    return s;
  }
  Written written = {
      .path = *path, .step = spec.step, .samples = spec.num_samples};
  for (uint32_t i = 0; i < spec.num_samples; ++i) {
    written.tokens += workload->info(i).tokens;
  }
  std::error_code error;
  if (const auto bytes = std::filesystem::file_size(*path, error); !error) {
    written.bytes = bytes;
  }
  written.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return written;
}

void PrintJson(const Written& written) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  fields["path"].set_string_value(written.path);
  fields["step"].set_number_value(static_cast<double>(written.step));
  fields["samples"].set_number_value(written.samples);
  fields["tokens"].set_number_value(static_cast<double>(written.tokens));
  fields["bytes"].set_number_value(static_cast<double>(written.bytes));
  fields["seconds"].set_number_value(written.seconds);
  std::cout << ToJson(object, /*pretty=*/false) << "\n";
}

absl::Status Run(const Args&) {
  absl::StatusOr<WorkloadSpec> spec = WorkloadFromFlags();
  if (!spec.ok()) return spec.status();
  const uint32_t windows = absl::GetFlag(FLAGS_windows);
  if (windows == 0) return UsageError("--windows must be at least 1");
  const bool to_standard_output = absl::GetFlag(FLAGS_output) == "-";
  const bool json = absl::GetFlag(FLAGS_json);
  Table table({"file", "step", "samples", "tokens", "size", "time"});
  for (uint32_t w = 0; w < windows; ++w, ++spec->step) {
    absl::StatusOr<Written> written = WriteOne(*spec, windows);
    if (!written.ok()) return written.status();
    if (json && !to_standard_output) PrintJson(*written);
    table.AddRow({written->path, absl::StrCat(written->step),
                  WithCommas(written->samples), WithCommas(written->tokens),
                  Bytes(written->bytes), Milliseconds(written->seconds)});
  }
  if (!json && !to_standard_output) std::cout << table.ToString();
  return absl::OkStatus();
}

}  // namespace

Command GenerateCommand() {
  return {
      .name = "generate",
      .arguments = "",
      .summary = "Make seeded synthetic windows.",
      .description =
          "Writes windows whose lengths and routing are drawn from a model: "
          "prompt\ngroups that mix topics of Zipf popularity, or one of eight "
          "imbalance shapes.\nThe same flags give the same windows on every "
          "machine.\n\nPresets: tiny (512 samples of about 1,000 tokens, 20 "
          "layers, 128 experts,\ntop-8, EP8 DP8), flash (40 layers, 256 "
          "experts, EP16 DP16, 2 shards), long\n(1,536 samples of 32,000, 47 "
          "layers, 64 experts, top-4, EP8 DP8), xl (4,096\nsamples of 4,000, "
          "60 layers, 384 experts, top-8, EP64 DP64, 4 shards). Any\nsize can "
          "be overridden.",
      .examples =
          {"routepackctl generate --preset=flash --seed=1 --output=flash.rpw",
           "routepackctl generate --shape=hot-rank --hot_share=0.4 "
           "--output=hot.json",
           "routepackctl generate --preset=tiny --windows=5 --drift=0.05 "
           "--output=sequence/"},
      .flags = Concat(
          {WorkloadFlags(), {"output", "job", "run", "json"}, WindowFlags()}),
      .run = Run};
}

}  // namespace routepack::cli
