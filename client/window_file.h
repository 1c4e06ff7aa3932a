// Windows and plans in files.
//
// *.json holds one Window or Plan message in protobuf's JSON mapping, to read
// and type by hand: written with the field names of the .proto (snake_case),
// read with those or lowerCamelCase; unknown fields are errors. Any other
// extension (we use .rpw) holds WindowRecords: a header, chunks of at most 4
// MiB, a seal, each preceded by its size as a varint, so that a window of any
// size is read and written as a stream. Plans in binary (.rpp) are one Plan
// message preceded by its size. "-" is standard input or output, in JSON.

#ifndef ROUTEPACK_CLIENT_WINDOW_FILE_H_
#define ROUTEPACK_CLIENT_WINDOW_FILE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/window.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// Records are at most this many bytes.
inline constexpr size_t kMaxRecordBytes = 4 << 20;

// Yields the samples of a window one by one; false at the end.
using SampleSource = std::function<absl::StatusOr<bool>(v1::Sample*)>;

// Cuts samples into chunks of at most `max_bytes`. `emit` gets each chunk, its
// index set; its error stops the writing and is returned. Returns the number
// of chunks.
absl::StatusOr<uint32_t> ForEachChunk(
    const SampleSource& next, size_t max_bytes,
    const std::function<absl::Status(v1::SampleChunk&&)>& emit);

// Writes a window; header.num_samples must be right.
// Errors name the path.
absl::Status WriteWindow(const std::string& path,
                         const v1::WindowHeader& header,
                         const SampleSource& next);

// Reads a window as a stream: the header at once, samples by the source, which
// owns the file.
struct WindowFile {
  v1::WindowHeader header;  // num_samples filled in
  SampleSource next;
};
absl::StatusOr<WindowFile> OpenWindow(const std::string& path);

// A text for WindowHeader.content_digest: 32 hex digits over the samples as
// they are encoded. Reads the source to its end; one sample is held at a time.
absl::StatusOr<std::string> SamplesDigest(const SampleSource& next);
// Sets header.content_digest to it, unless there is one.
absl::Status FillContentDigest(const SampleSource& next,
                               v1::WindowHeader& header);

// A window with its header, decoded and validated.
struct LoadedWindow {
  v1::WindowHeader header;
  Window window;
};
absl::StatusOr<LoadedWindow> LoadWindow(const std::string& path);
// The same of an open file, whose header may have been changed meanwhile.
// Errors name `path`.
absl::StatusOr<LoadedWindow> LoadWindow(const std::string& path,
                                        WindowFile file);

absl::Status WritePlan(const std::string& path, const v1::Plan& plan);
absl::StatusOr<v1::Plan> ReadPlan(const std::string& path);

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_WINDOW_FILE_H_
