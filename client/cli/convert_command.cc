#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/table.h"
#include "client/trace_folder.h"
#include "client/window_file.h"

ABSL_FLAG(std::string, counts, "auto",
          "Traces: take counts from 'file' (counts.u16) or 'ids' (count "
          "routed_experts); 'auto' takes what is there and compares when both "
          "are.");
ABSL_FLAG(std::string, attention, "",
          "Attention stages as NAME:ALPHA:BETA, separated by commas.");
ABSL_FLAG(bool, predicted, false,
          "Traces: label the counts as predictions instead of replayed "
          "routing.");

namespace routepack::cli {
namespace {

absl::StatusOr<TraceCounts> ParseTraceCounts(const std::string& name) {
  if (name == "auto") return TraceCounts::kAuto;
  if (name == "file") return TraceCounts::kFile;
  if (name == "ids") return TraceCounts::kIds;
  return UsageError(
      absl::StrCat("--counts=", name, " must be auto, file or ids"));
}

// --attention; nothing if it is not given.
absl::Status ApplyAttentionFlag(v1::WindowHeader& header) {
  const std::string text = absl::GetFlag(FLAGS_attention);
  if (text.empty()) return absl::OkStatus();
  if (FlagChanged("attention_config")) {
    return UsageError("give --attention or --attention_config, not both");
  }
  header.clear_attention();
  const std::vector<std::string> stages = absl::StrSplit(text, ',');
  for (const std::string& stage : stages) {
    const std::vector<std::string> parts = absl::StrSplit(stage, ':');
    double alpha = 0;
    double beta = 0;
    if (parts.size() != 3 || parts[0].empty() ||
        !absl::SimpleAtod(parts[1], &alpha) ||
        !absl::SimpleAtod(parts[2], &beta)) {
      return UsageError(
          absl::StrCat("--attention: \"", stage, "\" is not NAME:ALPHA:BETA"));
    }
    v1::AttentionStage* out = header.mutable_attention()->add_stages();
    out->set_name(parts[0]);
    out->set_alpha(alpha);
    out->set_beta(beta);
  }
  return absl::OkStatus();
}

absl::Status ApplyFlags(v1::WindowHeader& header) {
  ApplyKeyFlags(*header.mutable_key());
  if (absl::Status s = ApplyWindowFlags(header); !s.ok()) return s;
  return ApplyAttentionFlag(header);
}

struct Converted {
  v1::WindowHeader header;
  std::string note;
};

absl::StatusOr<Converted> ConvertTrace(const std::string& input,
                                       const std::string& output) {
  absl::StatusOr<TraceCounts> counts =
      ParseTraceCounts(absl::GetFlag(FLAGS_counts));
  if (!counts.ok()) return counts.status();
  absl::StatusOr<Trace> trace = ReadTraceFolder(input, *counts);
  if (!trace.ok()) return trace.status();
  Converted result;
  result.header.mutable_key()->set_job_id(trace->name);
  trace->FillHeader(result.header);
  result.header.mutable_counts()->set_origin(absl::GetFlag(FLAGS_predicted)
                                                 ? v1::COUNTS_ORIGIN_PREDICTED
                                                 : v1::COUNTS_ORIGIN_REPLAYED);
  if (absl::Status s = ApplyFlags(result.header); !s.ok()) return s;
  if (result.header.token_cap() == 0 ||
      result.header.topology().mesh().ep() == 0 ||
      result.header.topology().mesh().dp() == 0) {
    return UsageError(
        "a trace says nothing about the trainer: --ep, --dp and "
        "--token_cap are required");
  }
  if (absl::Status s = WriteWindow(output, result.header, trace->Source());
      !s.ok()) {
    return s;
  }
  result.note = trace->compared ? "counts equal to the counted ids" : "";
  return result;
}

absl::StatusOr<Converted> ConvertWindow(const std::string& input,
                                        const std::string& output) {
  absl::StatusOr<WindowFile> file = OpenWindow(input);
  if (!file.ok()) return file.status();
  Converted result = {.header = file->header};
  if (absl::Status s = ApplyFlags(result.header); !s.ok()) return s;
  if (absl::Status s = WriteWindow(output, result.header, file->next);
      !s.ok()) {
    return s;
  }
  return result;
}

absl::Status Run(const Args& args) {
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) return UsageError("--output is required");
  std::error_code error;
  const bool folder = std::filesystem::is_directory(args[0], error);
  absl::StatusOr<Converted> converted =
      folder ? ConvertTrace(args[0], output) : ConvertWindow(args[0], output);
  if (!converted.ok()) return converted.status();
  if (output == "-") return absl::OkStatus();
  // What was written is read back and checked as a planner would.
  absl::StatusOr<LoadedWindow> loaded = LoadWindow(output);
  if (!loaded.ok()) return loaded.status();
  const Window& window = loaded->window;
  std::cout << output << ": " << WithCommas(window.num_samples())
            << " samples, " << WithCommas(window.total_tokens()) << " tokens, "
            << window.num_layers() << " layers, " << window.num_experts()
            << " experts, digest " << window.digest();
  if (const auto bytes = std::filesystem::file_size(output, error); !error) {
    std::cout << ", " << Bytes(bytes);
  }
  if (!converted->note.empty()) std::cout << "; " << converted->note;
  std::cout << "\n";
  return absl::OkStatus();
}

}  // namespace

Command ConvertCommand() {
  return {
      .name = "convert",
      .arguments = "TRACE_FOLDER|WINDOW",
      .summary = "Make a window file from recorded routing or another window.",
      .description =
          "TRACE_FOLDER holds meta.json, lengths.u32, groups.u32 and "
          "counts.u16 or\nrouted_experts.u8 (tests/data/TRACES.md describes "
          "the format). WINDOW is\nconverted between binary (.rpw) and JSON "
          "(.json). Flags change the header.",
      .examples = {"routepackctl convert trace/ --output=trace.rpw --ep=8 "
                   "--dp=8 --token_cap=4096 --attention=full:16:16",
                   "routepackctl convert window.rpw --output=window.json"},
      .flags = Concat({{"output", "counts", "attention", "predicted"},
                       WindowFlags(),
                       KeyFlags()}),
      .min_args = 1,
      .max_args = 1,
      .run = Run};
}

}  // namespace routepack::cli
