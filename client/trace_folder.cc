#include "client/trace_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "planner/window.h"

namespace routepack {
namespace {

absl::Status Bad(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// Counts are held in memory: 64 GiB of them.
constexpr uint64_t kMostCounts = uint64_t{1} << 34;

uint64_t NumCounts(const Trace& trace) {
  return uint64_t{trace.num_samples} * trace.shape.num_layers *
         trace.shape.num_experts;
}

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

// Reads `name` from the object as a whole number in [1, most].
absl::StatusOr<uint32_t> Number(const google::protobuf::Struct& object,
                                const std::string& name, uint32_t most,
                                const std::string& path) {
  const auto it = object.fields().find(name);
  const bool found =
      it != object.fields().end() && it->second.has_number_value();
  const double value = found ? it->second.number_value() : 0;
  if (!(value >= 1 && value <= most) || value != static_cast<uint32_t>(value)) {
    return Bad(path,
               absl::StrCat("\"", name, "\" must be a whole number in [1, ",
                            most, "]"));
  }
  return static_cast<uint32_t>(value);
}

absl::Status ReadMeta(const std::string& path, Trace& trace) {
  absl::StatusOr<std::string> text = ReadBytes(path);
  if (!text.ok()) return text.status();
  google::protobuf::Struct meta;
  if (const auto parsed =
          google::protobuf::util::JsonStringToMessage(*text, &meta);
      !parsed.ok()) {
    return Bad(path, absl::StrCat("not JSON: ", std::string(parsed.message())));
  }
  if (const auto it = meta.fields().find("name"); it != meta.fields().end()) {
    trace.name = it->second.string_value();
  }
  const std::tuple<const char*, uint32_t, uint32_t*> numbers[] = {
      {"samples", kMaxSamples, &trace.num_samples},
      {"layers", kMaxLayers, &trace.shape.num_layers},
      {"experts", kMaxExperts, &trace.shape.num_experts},
      {"top_k", kMaxExperts, &trace.shape.top_k}};
  for (const auto& [name, most, target] : numbers) {
    absl::StatusOr<uint32_t> value = Number(meta, name, most, path);
    if (!value.ok()) return value.status();
    *target = *value;
  }
  if (NumCounts(trace) > kMostCounts) {
    return Bad(path, absl::StrCat("samples x layers x experts is ",
                                  NumCounts(trace), ", above ", kMostCounts));
  }
  return absl::OkStatus();
}

// [samples] integers of 4 bytes.
absl::StatusOr<std::vector<uint32_t>> ReadPerSample(const std::string& path,
                                                    uint32_t samples) {
  absl::StatusOr<std::vector<uint32_t>> values = ReadIntegers(path, 4);
  if (values.ok() && values->size() != samples) {
    return Bad(path, absl::StrCat("has ", values->size(), " values for ",
                                  samples, " samples"));
  }
  return values;
}

absl::StatusOr<std::vector<uint32_t>> ReadCounts(const std::string& path,
                                                 const Trace& trace) {
  absl::StatusOr<std::vector<uint32_t>> counts = ReadIntegers(path, 2);
  if (!counts.ok()) return counts;
  if (counts->size() != NumCounts(trace)) {
    return Bad(path, absl::StrCat("has ", counts->size(),
                                  " counts, not samples ", trace.num_samples,
                                  " x layers ", trace.shape.num_layers,
                                  " x experts ", trace.shape.num_experts));
  }
  return counts;
}

struct IdFile {
  std::string path;
  size_t width = 0;
};

std::optional<IdFile> FindIds(const std::string& folder) {
  const std::pair<const char*, size_t> names[] = {{"routed_experts.u8", 1},
                                                  {"routed_experts.u16", 2},
                                                  {"routed_experts.i32", 4}};
  for (const auto& [name, width] : names) {
    std::string path = absl::StrCat(folder, "/", name);
    if (Exists(path)) return IdFile{.path = std::move(path), .width = width};
  }
  return std::nullopt;
}

// Ids of `width` bytes, aligned for their type.
template <typename Id>
std::vector<Id> Aligned(std::string_view bytes) {
  std::vector<Id> ids(bytes.size() / sizeof(Id));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

absl::StatusOr<std::vector<uint32_t>> CountIds(const IdFile& file,
                                               const Trace& trace) {
  absl::StatusOr<std::string> bytes = ReadBytes(file.path);
  if (!bytes.ok()) return bytes.status();
  const size_t row =
      size_t{trace.shape.num_layers} * trace.shape.top_k * file.width;
  uint64_t tokens = 0;
  for (const uint32_t length : trace.lengths) tokens += length;
  std::vector<uint32_t> rows = trace.lengths;
  if (bytes->size() == row * (tokens - rows.size())) {
    for (uint32_t& r : rows) --r;
  } else if (bytes->size() != row * tokens) {
    return Bad(file.path,
               absl::StrCat("has ", bytes->size(), " bytes, not tokens ",
                            tokens, " x layers ", trace.shape.num_layers,
                            " x top_k ", trace.shape.top_k, " x ", file.width,
                            " bytes, nor one token less per sample"));
  }
  absl::StatusOr<std::vector<uint32_t>> counts;
  if (file.width == 1) {
    counts = CountRoutedExperts(
        std::span(reinterpret_cast<const uint8_t*>(bytes->data()),
                  bytes->size()),
        rows, trace.shape);
  } else if (file.width == 2) {
    const auto ids = Aligned<uint16_t>(*bytes);
    counts = CountRoutedExperts(std::span(ids), rows, trace.shape);
  } else {
    const auto ids = Aligned<int32_t>(*bytes);
    counts = CountRoutedExperts(std::span(ids), rows, trace.shape);
  }
  if (!counts.ok()) {
    return Bad(file.path, std::string(counts.status().message()));
  }
  return counts;
}

absl::Status Compare(const std::string& folder, const Trace& trace,
                     std::span<const uint32_t> from_file,
                     std::span<const uint32_t> from_ids) {
  const auto [a, b] =
      std::mismatch(from_file.begin(), from_file.end(), from_ids.begin());
  if (a == from_file.end()) return absl::OkStatus();
  const size_t at = a - from_file.begin();
  const size_t experts = trace.shape.num_experts;
  const size_t layers = trace.shape.num_layers;
  return Bad(folder, absl::StrCat("counts.u16 and routed_experts differ: "
                                  "sample ",
                                  at / experts / layers, " layer ",
                                  at / experts % layers, " expert ",
                                  at % experts, ": ", *a, " and ", *b));
}

}  // namespace

absl::StatusOr<std::string> ReadBytes(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    const std::string message =
        absl::StrCat(path, ": cannot open: ", std::strerror(errno));
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(message);
    }
    return absl::UnknownError(message);
  }
  if (!S_ISREG(info.st_mode)) return Bad(path, "is not a file");
  std::ifstream in(path, std::ios::binary);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in || static_cast<size_t>(in.gcount()) != bytes.size()) {
    return absl::UnknownError(absl::StrCat(path, ": cannot read"));
  }
  return bytes;
}

absl::StatusOr<std::vector<uint32_t>> ReadIntegers(const std::string& path,
                                                   size_t width) {
  absl::StatusOr<std::string> bytes = ReadBytes(path);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() % width != 0) {
    return Bad(path, absl::StrCat("has ", bytes->size(),
                                  " bytes, no multiple of ", width));
  }
  std::vector<uint32_t> values(bytes->size() / width);
  const auto* in = reinterpret_cast<const unsigned char*>(bytes->data());
  for (uint32_t& value : values) {
    for (size_t b = 0; b < width; ++b) value |= uint32_t{*in++} << (8 * b);
  }
  return values;
}

absl::StatusOr<Trace> ReadTraceFolder(const std::string& path,
                                      TraceCounts source) {
  Trace trace;
  if (absl::Status s = ReadMeta(path + "/meta.json", trace); !s.ok()) return s;
  absl::StatusOr<std::vector<uint32_t>> lengths =
      ReadPerSample(path + "/lengths.u32", trace.num_samples);
  if (!lengths.ok()) return lengths.status();
  if (std::find(lengths->begin(), lengths->end(), 0u) != lengths->end()) {
    return Bad(path + "/lengths.u32", "has a sample without tokens");
  }
  trace.lengths = *std::move(lengths);
  trace.groups.assign(trace.num_samples, 0);
  if (Exists(path + "/groups.u32")) {
    absl::StatusOr<std::vector<uint32_t>> groups =
        ReadPerSample(path + "/groups.u32", trace.num_samples);
    if (!groups.ok()) return groups.status();
    trace.groups = *std::move(groups);
  }

  const std::string counts_path = path + "/counts.u16";
  const bool has_counts = Exists(counts_path);
  const std::optional<IdFile> ids = FindIds(path);
  std::optional<std::vector<uint32_t>> from_file;
  std::optional<std::vector<uint32_t>> from_ids;
  if (source != TraceCounts::kIds && has_counts) {
    absl::StatusOr<std::vector<uint32_t>> counts =
        ReadCounts(counts_path, trace);
    if (!counts.ok()) return counts.status();
    from_file = *std::move(counts);
  }
  if (source != TraceCounts::kFile && ids.has_value()) {
    absl::StatusOr<std::vector<uint32_t>> counts = CountIds(*ids, trace);
    if (!counts.ok()) return counts.status();
    from_ids = *std::move(counts);
  }
  if (!from_file && !from_ids) {
    return absl::NotFoundError(absl::StrCat(
        path, ": no ",
        source == TraceCounts::kFile  ? "counts.u16"
        : source == TraceCounts::kIds ? "routed_experts.u8, .u16 or .i32"
                                      : "counts.u16 or routed_experts"));
  }
  if (from_file && from_ids) {
    if (absl::Status s = Compare(path, trace, *from_file, *from_ids); !s.ok()) {
      return s;
    }
    trace.compared = true;
  }
  trace.counts = from_file ? *std::move(from_file) : *std::move(from_ids);
  return trace;
}

void Trace::FillHeader(v1::WindowHeader& header) const {
  header.set_num_samples(num_samples);
  header.set_num_layers(shape.num_layers);
  header.set_num_experts(shape.num_experts);
  header.set_top_k(shape.top_k);
}

SampleSource Trace::Source(CountsEncoding encoding) const {
  auto next = std::make_shared<uint32_t>(0);
  return [this, encoding, next](v1::Sample* sample) -> absl::StatusOr<bool> {
    const uint32_t i = *next;
    if (i == num_samples) return false;
    ++*next;
    sample->Clear();
    sample->set_id(i);
    sample->set_tokens(lengths[i]);
    sample->set_group(groups[i]);
    EncodeCounts(counts_of(i), shape.num_layers, encoding,
                 sample->mutable_counts());
    return true;
  };
}

}  // namespace routepack
