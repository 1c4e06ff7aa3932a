#include "client/window_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/util/json_util.h"
#include "planner/digest.h"
#include "proto/codec/codec.h"

namespace routepack {
namespace {

using ::google::protobuf::Message;
using ::google::protobuf::io::CodedInputStream;
using ::google::protobuf::io::CodedOutputStream;
using ::google::protobuf::io::IstreamInputStream;
using ::google::protobuf::io::OstreamOutputStream;

// Room that a record needs around its chunk: a tag and a length.
constexpr size_t kRecordOverhead = 16;
// Tag and largest varint of SampleChunk.index, so that a cut does not depend
// on the index.
constexpr size_t kIndexBytes = 6;

bool IsStandardStream(const std::string& path) { return path == "-"; }

bool IsJson(const std::string& path) {
  return IsStandardStream(path) || absl::EndsWithIgnoreCase(path, ".json");
}

// The status with a prefix, its details kept.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  absl::Status result(status.code(),
                      absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&](auto type_url, const absl::Cord& payload) {
    result.SetPayload(type_url, payload);
  });
  return result;
}

absl::Status FileError(const std::string& path, absl::string_view what,
                       int error) {
  const std::string message =
      absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnknownError(message);
  }
}

absl::Status OpenForReading(const std::string& path, std::ifstream& in) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return FileError(path, "cannot open", errno);
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a folder"));
  }
  in.open(path, std::ios::binary);
  if (!in) return FileError(path, "cannot open", errno);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  if (IsStandardStream(path)) {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  std::ifstream in;
  if (absl::Status status = OpenForReading(path, in); !status.ok()) {
    return status;
  }
  std::ostringstream text;
  // An empty file would set failbit on an insertion of nothing.
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (in.bad()) return FileError(path, "cannot read", errno);
  return std::move(text).str();
}

// A file that takes its name only when it is complete, so that no reader meets
// half a file. Pipes and devices are written in place.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)) {
    struct stat info;
    in_place_ = stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
    temporary_ =
        in_place_ ? path_ : absl::StrCat(path_, ".", getpid(), ".partial");
    out_.open(temporary_, std::ios::binary | std::ios::trunc);
    error_ = out_ ? 0 : errno;
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (!committed_ && !in_place_ && error_ == 0) unlink(temporary_.c_str());
  }

  std::ostream& stream() { return out_; }

  absl::Status status() const {
    if (error_ != 0) return FileError(path_, "cannot create", error_);
    return absl::OkStatus();
  }

  absl::Status Commit() {
    out_.close();
    if (!out_) return FileError(path_, "cannot write", errno);
    if (!in_place_ && std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return FileError(path_, "cannot write", errno);
    }
    committed_ = true;
    return absl::OkStatus();
  }

 private:
  std::string path_;
  std::string temporary_;
  std::ofstream out_;
  bool in_place_ = false;
  bool committed_ = false;
  int error_ = 0;
};

absl::Status ReadJson(const std::string& path, Message* message) {
  absl::StatusOr<std::string> text = ReadAll(path);
  if (!text.ok()) return text.status();
  const auto status =
      google::protobuf::util::JsonStringToMessage(*text, message);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": not a ", std::string(message->GetDescriptor()->name()),
        " in JSON: ", std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status WriteJson(const std::string& path, const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat(path, ": ", std::string(status.message())));
  }
  if (IsStandardStream(path)) {
    std::cout << text << std::flush;
    if (!std::cout) return absl::UnknownError("cannot write standard output");
    return absl::OkStatus();
  }
  OutputFile file(path);
  if (absl::Status opened = file.status(); !opened.ok()) return opened;
  file.stream() << text;
  return file.Commit();
}

absl::Status WriteDelimited(const Message& message, std::ostream& out) {
  OstreamOutputStream stream(&out);
  CodedOutputStream coded(&stream);
  const size_t size = message.ByteSizeLong();
  if (size > INT_MAX) {
    return absl::OutOfRangeError(
        absl::StrCat("message of ", size, " bytes is above 2 GiB"));
  }
  coded.WriteVarint32(static_cast<uint32_t>(size));
  message.SerializeWithCachedSizes(&coded);
  return absl::OkStatus();
}

// Reads the records of one binary file and checks their order.
class RecordReader {
 public:
  static absl::StatusOr<std::shared_ptr<RecordReader>> Open(
      const std::string& path) {
    auto reader = std::make_shared<RecordReader>(path);
    if (absl::Status status = OpenForReading(path, reader->in_); !status.ok()) {
      return status;
    }
    reader->stream_ = std::make_unique<IstreamInputStream>(&reader->in_);
    return reader;
  }

  explicit RecordReader(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<v1::WindowHeader> ReadHeader() {
    v1::WindowRecord record;
    if (absl::Status status = Read(&record); !status.ok()) return status;
    if (!record.has_header()) return Bad("is not a header");
    num_samples_ = record.header().num_samples();
    return std::move(*record.mutable_header());
  }

  absl::StatusOr<bool> NextSample(v1::Sample* sample) {
    while (position_ == chunk_.samples_size()) {
      if (sealed_) return false;
      if (absl::Status status = ReadChunkOrSeal(); !status.ok()) return status;
    }
    sample->Swap(chunk_.mutable_samples(position_++));
    ++samples_seen_;
    return true;
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": record ", record_, " ", what));
  }
  absl::Status Truncated() const {
    return absl::DataLossError(absl::StrCat(path_,
                                            ": truncated: ends in or "
                                            "before record ",
                                            record_, ", before the seal"));
  }

  absl::Status Read(v1::WindowRecord* record) {
    ++record_;
    // A CodedInputStream a record: each has its own limit of total bytes.
    CodedInputStream coded(stream_.get());
    // Byte by byte: ReadVarint32 does not tell a cut file from a bad size.
    uint32_t size = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte >= 0x80; shift += 7) {
      if (shift > 28) return Bad("has no valid size: not a window file");
      if (!coded.ReadRaw(&byte, 1)) return Truncated();
      size |= uint32_t{byte & 0x7fu} << shift;
    }
    if (size > kMaxRecordBytes) {
      return Bad(absl::StrCat("claims ", size, " bytes, above the limit of ",
                              kMaxRecordBytes,
                              ": corrupt, or not a window file"));
    }
    if (!coded.ReadString(&buffer_, static_cast<int>(size))) {
      return Truncated();
    }
    if (!record->ParseFromString(buffer_) ||
        record->record_case() == v1::WindowRecord::RECORD_NOT_SET) {
      return Bad("is corrupt, or this is not a window file");
    }
    return absl::OkStatus();
  }

  absl::Status ReadChunkOrSeal() {
    v1::WindowRecord record;
    if (absl::Status status = Read(&record); !status.ok()) return status;
    if (record.has_seal()) return CheckSeal(record.seal());
    if (!record.has_chunk()) return Bad("is a second header");
    if (record.chunk().index() != chunks_seen_) {
      return Bad(absl::StrCat("is chunk ", record.chunk().index(),
                              ", expected chunk ", chunks_seen_));
    }
    if (record.chunk().samples().empty()) return Bad("is a chunk of nothing");
    ++chunks_seen_;
    position_ = 0;
    chunk_.Swap(record.mutable_chunk());
    return absl::OkStatus();
  }

  absl::Status CheckSeal(const v1::Seal& seal) {
    if (seal.num_chunks() != chunks_seen_) {
      return Bad(absl::StrCat("seals ", seal.num_chunks(), " chunks, found ",
                              chunks_seen_));
    }
    if (samples_seen_ != num_samples_) {
      return Bad(absl::StrCat("seals ", samples_seen_,
                              " samples, but header.num_samples is ",
                              num_samples_));
    }
    if (CodedInputStream rest(stream_.get());
        rest.ReadTag() != 0 || rest.CurrentPosition() != 0) {
      ++record_;
      return Bad("comes after the seal");
    }
    sealed_ = true;
    return absl::OkStatus();
  }

  std::string path_;
  std::ifstream in_;
  std::unique_ptr<IstreamInputStream> stream_;
  std::string buffer_;
  uint64_t record_ = 0;  // number of the current record, from 1
  uint32_t num_samples_ = 0;
  uint64_t samples_seen_ = 0;
  uint32_t chunks_seen_ = 0;
  bool sealed_ = false;
  v1::SampleChunk chunk_;
  int position_ = 0;  // next sample of chunk_
};

absl::StatusOr<WindowFile> OpenJsonWindow(const std::string& path) {
  auto window = std::make_shared<v1::Window>();
  if (absl::Status status = ReadJson(path, window.get()); !status.ok()) {
    return status;
  }
  WindowFile file;
  file.header.Swap(window->mutable_header());
  if (file.header.num_samples() == 0) {
    file.header.set_num_samples(window->samples_size());
  }
  file.next = [window, position = 0](
                  v1::Sample* sample) mutable -> absl::StatusOr<bool> {
    if (position == window->samples_size()) return false;
    sample->Swap(window->mutable_samples(position++));
    return true;
  };
  return file;
}

absl::Status WrongCount(const v1::WindowHeader& header, uint64_t samples) {
  return absl::InvalidArgumentError(
      absl::StrCat("header.num_samples is ", header.num_samples(), ", but ",
                   samples, " samples were given"));
}

absl::Status WriteJsonWindow(const std::string& path,
                             const v1::WindowHeader& header,
                             const SampleSource& next) {
  v1::Window window;
  *window.mutable_header() = header;
  v1::Sample sample;
  while (true) {
    absl::StatusOr<bool> more = next(&sample);
    if (!more.ok()) return Prefixed(path, more.status());
    if (!*more) break;
    window.add_samples()->Swap(&sample);
  }
  if (static_cast<uint32_t>(window.samples_size()) != header.num_samples()) {
    return Prefixed(path, WrongCount(header, window.samples_size()));
  }
  return WriteJson(path, window);
}

// Header, chunks, seal.
absl::Status WriteRecords(const v1::WindowHeader& header,
                          const SampleSource& next, std::ostream& out) {
  v1::WindowRecord record;
  *record.mutable_header() = header;
  if (record.ByteSizeLong() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header of ", record.ByteSizeLong(),
                     " bytes is above the limit of ", kMaxRecordBytes));
  }
  if (absl::Status status = WriteDelimited(record, out); !status.ok()) {
    return status;
  }
  uint64_t samples = 0;
  absl::StatusOr<uint32_t> chunks =
      ForEachChunk(next, kMaxRecordBytes - kRecordOverhead,
                   [&](v1::SampleChunk&& chunk) -> absl::Status {
                     samples += chunk.samples_size();
                     record.mutable_chunk()->Swap(&chunk);
                     return WriteDelimited(record, out);
                   });
  if (!chunks.ok()) return chunks.status();
  if (samples != header.num_samples()) return WrongCount(header, samples);
  record.mutable_seal()->set_num_chunks(*chunks);
  return WriteDelimited(record, out);
}

}  // namespace

absl::StatusOr<uint32_t> ForEachChunk(
    const SampleSource& next, size_t max_bytes,
    const std::function<absl::Status(v1::SampleChunk&&)>& emit) {
  uint32_t num_chunks = 0;
  size_t bytes = kIndexBytes;
  v1::SampleChunk chunk;
  auto flush = [&]() -> absl::Status {
    chunk.set_index(num_chunks++);
    absl::Status status = emit(std::move(chunk));
    chunk.Clear();
    bytes = kIndexBytes;
    return status;
  };
  v1::Sample sample;
  while (true) {
    sample.Clear();
    absl::StatusOr<bool> more = next(&sample);
    if (!more.ok()) return more.status();
    if (!*more) break;
    const size_t size = sample.ByteSizeLong();
    // One byte of tag: the field number of samples is below 16.
    const size_t encoded = 1 + CodedOutputStream::VarintSize64(size) + size;
    if (kIndexBytes + encoded > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sample ", sample.id(), " encodes to ", size,
          " bytes, above the chunk limit of ", max_bytes,
          sample.counts().has_routed_experts()
              ? ": count its routed_experts first (routepackctl convert, "
                "CountRoutedExperts)"
              : ""));
    }
    if (bytes + encoded > max_bytes) {
      if (absl::Status status = flush(); !status.ok()) return status;
    }
    bytes += encoded;
    chunk.add_samples()->Swap(&sample);
  }
  if (!chunk.samples().empty()) {
    if (absl::Status status = flush(); !status.ok()) return status;
  }
  return num_chunks;
}

absl::Status WriteWindow(const std::string& path,
                         const v1::WindowHeader& header,
                         const SampleSource& next) {
  if (IsJson(path)) return WriteJsonWindow(path, header, next);
  OutputFile file(path);
  if (absl::Status status = file.status(); !status.ok()) return status;
  if (absl::Status status = WriteRecords(header, next, file.stream());
      !status.ok()) {
    return Prefixed(path, status);
  }
  return file.Commit();
}

absl::StatusOr<WindowFile> OpenWindow(const std::string& path) {
  if (IsJson(path)) return OpenJsonWindow(path);
  absl::StatusOr<std::shared_ptr<RecordReader>> reader =
      RecordReader::Open(path);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<v1::WindowHeader> header = (*reader)->ReadHeader();
  if (!header.ok()) return header.status();
  WindowFile file;
  file.header = *std::move(header);
  file.next = [reader = *std::move(reader)](v1::Sample* sample) {
    return reader->NextSample(sample);
  };
  return file;
}

absl::StatusOr<std::string> SamplesDigest(const SampleSource& next) {
  Digest digest;
  v1::Sample sample;
  std::string bytes;
  for (;;) {
    sample.Clear();
    absl::StatusOr<bool> more = next(&sample);
    if (!more.ok()) return more.status();
    if (!*more) return digest.Hex();
    sample.SerializeToString(&bytes);
    digest.AddString(bytes);
  }
}

absl::Status FillContentDigest(const SampleSource& next,
                               v1::WindowHeader& header) {
  if (!header.content_digest().empty()) return absl::OkStatus();
  absl::StatusOr<std::string> digest = SamplesDigest(next);
  if (!digest.ok()) return digest.status();
  header.set_content_digest(*std::move(digest));
  return absl::OkStatus();
}

absl::StatusOr<LoadedWindow> LoadWindow(const std::string& path) {
  absl::StatusOr<WindowFile> file = OpenWindow(path);
  if (!file.ok()) return file.status();
  return LoadWindow(path, *std::move(file));
}

absl::StatusOr<LoadedWindow> LoadWindow(const std::string& path,
                                        WindowFile file) {
  absl::StatusOr<WindowSpec> spec = DecodeSpec(file.header);
  if (!spec.ok()) return Prefixed(path, spec.status());
  absl::StatusOr<WindowBuilder> builder =
      WindowBuilder::Create(*std::move(spec));
  if (!builder.ok()) return Prefixed(path, builder.status());
  v1::Sample sample;
  std::vector<uint32_t> scratch;
  while (true) {
    sample.Clear();
    absl::StatusOr<bool> more = file.next(&sample);
    if (!more.ok()) return more.status();
    if (!*more) break;
    DecodeSample(sample, *builder, scratch);
  }
  absl::StatusOr<Window> window = std::move(*builder).Seal();
  if (!window.ok()) return Prefixed(path, window.status());
  return LoadedWindow{std::move(file.header), *std::move(window)};
}

absl::Status WritePlan(const std::string& path, const v1::Plan& plan) {
  if (IsJson(path)) return WriteJson(path, plan);
  OutputFile file(path);
  if (absl::Status status = file.status(); !status.ok()) return status;
  if (absl::Status status = WriteDelimited(plan, file.stream()); !status.ok()) {
    return Prefixed(path, status);
  }
  return file.Commit();
}

absl::StatusOr<v1::Plan> ReadPlan(const std::string& path) {
  v1::Plan plan;
  if (IsJson(path)) {
    if (absl::Status status = ReadJson(path, &plan); !status.ok()) {
      return status;
    }
    return plan;
  }
  absl::StatusOr<std::string> bytes = ReadAll(path);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() > INT_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": above 2 GiB, not a plan file"));
  }
  CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes->data()),
                         static_cast<int>(bytes->size()));
  uint32_t size = 0;
  if (!coded.ReadVarint32(&size)) {
    return absl::DataLossError(
        absl::StrCat(path, ": truncated: no plan in it"));
  }
  const size_t rest = bytes->size() - coded.CurrentPosition();
  if (rest < size) {
    return absl::DataLossError(absl::StrCat(path, ": truncated: plan of ", size,
                                            " bytes, only ", rest,
                                            " are there"));
  }
  if (rest > size ||
      !plan.ParseFromArray(bytes->data() + coded.CurrentPosition(),
                           static_cast<int>(size))) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": corrupt, or not a plan file"));
  }
  return plan;
}

}  // namespace routepack
