#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/trace_folder.h"
#include "google/protobuf/struct.pb.h"
#include "oneapi/tbb/global_control.h"
#include "planner/histogram.h"
#include "planner/window.h"

// With generate.
ABSL_DECLARE_FLAG(std::optional<uint32_t>, moe_layers);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, experts);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, top_k);

ABSL_FLAG(std::string, dtype, "u8", "Type of an id: u8, u16 or i32.");
ABSL_FLAG(std::string, lengths, "",
          "Tokens of each sample, little-endian u32; empty: one sample. Ids "
          "may lack each sample's last token.");
ABSL_FLAG(uint32_t, repeat, 1, "Count this often and report the best time.");

namespace routepack::cli {
namespace {

absl::StatusOr<RoutingShape> ShapeFromFlags() {
  const auto layers = absl::GetFlag(FLAGS_moe_layers);
  const auto experts = absl::GetFlag(FLAGS_experts);
  const auto top_k = absl::GetFlag(FLAGS_top_k);
  if (layers.value_or(0) == 0 || experts.value_or(0) == 0 ||
      top_k.value_or(0) == 0) {
    return UsageError("--moe_layers, --experts and --top_k are required");
  }
  if (*layers > kMaxLayers || *experts > kMaxExperts || *top_k > *experts) {
    return UsageError(absl::StrCat("--moe_layers must be at most ", kMaxLayers,
                                   ", --experts at most ", kMaxExperts,
                                   " and --top_k at most --experts"));
  }
  return RoutingShape{
      .num_layers = *layers, .num_experts = *experts, .top_k = *top_k};
}

absl::StatusOr<size_t> WidthFromFlags() {
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype == "u8") return 1;
  if (dtype == "u16") return 2;
  if (dtype == "i32") return 4;
  return UsageError(absl::StrCat("--dtype=", dtype, " must be u8, u16 or i32"));
}

// Token rows of each sample in the file.
absl::StatusOr<std::vector<uint32_t>> RowsFromFlags(uint64_t rows) {
  const std::string path = absl::GetFlag(FLAGS_lengths);
  if (path.empty()) return std::vector<uint32_t>{static_cast<uint32_t>(rows)};
  absl::StatusOr<std::vector<uint32_t>> lengths = ReadIntegers(path, 4);
  if (!lengths.ok()) return lengths;
  uint64_t tokens = 0;
  for (const uint32_t length : *lengths) tokens += length;
  if (rows == tokens) return lengths;
  const bool all_positive =
      std::find(lengths->begin(), lengths->end(), 0u) == lengths->end();
  if (!all_positive || rows + lengths->size() != tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", tokens, " tokens in ", lengths->size(),
        " samples, but the ids are of ", rows,
        " (neither all tokens nor all but the last of each sample)"));
  }
  for (uint32_t& length : *lengths) --length;
  return lengths;
}

absl::Status WriteCounts(const std::string& path,
                         const std::vector<uint32_t>& counts) {
  const size_t width = absl::EndsWith(path, ".u16") ? 2 : 4;
  if (width == 4 && !absl::EndsWith(path, ".u32")) {
    return UsageError("--output must end in .u16 or .u32");
  }
  std::string bytes;
  bytes.reserve(counts.size() * width);
  for (const uint32_t count : counts) {
    if (width == 2 && count > 0xffff) {
      return absl::OutOfRangeError(absl::StrCat(path, ": a count is ", count,
                                                ", above 65,535: use .u32"));
    }
    for (size_t b = 0; b < width; ++b) {
      bytes.push_back(static_cast<char>(count >> (8 * b)));
    }
  }
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) return absl::UnknownError(absl::StrCat(path, ": cannot write"));
  return absl::OkStatus();
}

struct Report {
  uint64_t samples = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

void Print(const Report& report) {
  const double per_second = report.seconds > 0 ? 1 / report.seconds : 0;
  if (absl::GetFlag(FLAGS_json)) {
    google::protobuf::Struct object;
    auto& fields = *object.mutable_fields();
    fields["samples"].set_number_value(static_cast<double>(report.samples));
    fields["tokens"].set_number_value(static_cast<double>(report.rows));
    fields["bytes"].set_number_value(static_cast<double>(report.bytes));
    fields["seconds"].set_number_value(report.seconds);
    fields["bytes_per_second"].set_number_value(report.bytes * per_second);
    std::cout << ToJson(object) << "\n";
    return;
  }
  Table table({"samples", "token rows", "ids", "time", "GB/s", "tokens/s"}, 0);
  table.AddRow({WithCommas(report.samples), WithCommas(report.rows),
                Bytes(report.bytes), Milliseconds(report.seconds),
                Fixed(report.bytes * per_second / 1e9, 2),
                WithCommas(static_cast<uint64_t>(report.rows * per_second))});
  std::cout << table.ToString();
}

// The bytes as ids; `aligned` owns them where the type needs alignment.
ExpertIds IdsOf(const std::string& bytes, size_t width,
                std::vector<uint16_t>& aligned16,
                std::vector<int32_t>& aligned32) {
  if (width == 1) {
    return std::span(reinterpret_cast<const uint8_t*>(bytes.data()),
                     bytes.size());
  }
  if (width == 2) {
    aligned16.resize(bytes.size() / 2);
    std::memcpy(aligned16.data(), bytes.data(), bytes.size());
    return std::span<const uint16_t>(aligned16);
  }
  aligned32.resize(bytes.size() / 4);
  std::memcpy(aligned32.data(), bytes.data(), bytes.size());
  return std::span<const int32_t>(aligned32);
}

absl::Status Run(const Args& args) {
  absl::StatusOr<RoutingShape> shape = ShapeFromFlags();
  if (!shape.ok()) return shape.status();
  absl::StatusOr<size_t> width = WidthFromFlags();
  if (!width.ok()) return width.status();
  absl::StatusOr<std::string> bytes = ReadBytes(args[0]);
  if (!bytes.ok()) return bytes.status();
  const uint64_t row = uint64_t{shape->num_layers} * shape->top_k * *width;
  if (bytes->empty() || bytes->size() % row != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        args[0], ": ", bytes->size(), " bytes are no multiple of layers ",
        shape->num_layers, " x top_k ", shape->top_k, " x ", *width, " bytes"));
  }
  absl::StatusOr<std::vector<uint32_t>> rows =
      RowsFromFlags(bytes->size() / row);
  if (!rows.ok()) return rows.status();

  std::optional<tbb::global_control> limit;
  if (const uint32_t threads = absl::GetFlag(FLAGS_threads); threads > 0) {
    limit.emplace(tbb::global_control::max_allowed_parallelism, threads);
  }
  std::vector<uint16_t> aligned16;
  std::vector<int32_t> aligned32;
  const ExpertIds ids = IdsOf(*bytes, *width, aligned16, aligned32);
  Report report = {.samples = rows->size(),
                   .rows = bytes->size() / row,
                   .bytes = bytes->size()};
  absl::StatusOr<std::vector<uint32_t>> counts;
  const uint32_t repeat = std::max(absl::GetFlag(FLAGS_repeat), 1u);
  for (uint32_t turn = 0; turn < repeat; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    counts = CountRoutedExperts(ids, *rows, *shape);
    if (!counts.ok()) {
      return absl::Status(
          counts.status().code(),
          absl::StrCat(args[0], ": ", counts.status().message()));
    }
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    if (turn == 0 || time.count() < report.seconds) {
      report.seconds = time.count();
    }
  }
  if (const std::string output = absl::GetFlag(FLAGS_output); !output.empty()) {
    if (absl::Status s = WriteCounts(output, *counts); !s.ok()) return s;
  }
  Print(report);
  return absl::OkStatus();
}

}  // namespace

Command CountCommand() {
  return {
      .name = "count",
      .arguments = "IDS_FILE",
      .summary = "Count recorded expert ids into [samples, layers, experts].",
      .description =
          "IDS_FILE holds [tokens, layers, top_k] expert ids, samples one "
          "after another,\nlittle-endian. --output=FILE.u16 or FILE.u32 "
          "writes the counts.",
      .examples = {"routepackctl count routed_experts.u8 "
                   "--lengths=lengths.u32 --moe_layers=12 --experts=64 "
                   "--top_k=4 --output=counts.u16"},
      .flags = {"dtype", "lengths", "moe_layers", "experts", "top_k", "output",
                "repeat", "threads", "json"},
      .min_args = 1,
      .max_args = 1,
      .run = Run};
}

}  // namespace routepack::cli
