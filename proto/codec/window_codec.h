// Requests to planner values.
//
// Decoding is O(bytes); a sample of u16 counts is one widening pass. Functions
// are pure and safe to call from any thread.
//
//   absl::StatusOr<WindowSpec> spec = DecodeSpec(message.header());
//   absl::StatusOr<WindowBuilder> builder = WindowBuilder::Create(*spec);
//   std::vector<uint32_t> scratch;
//   for (const v1::Sample& s : message.samples()) {
//     DecodeSample(s, *builder, scratch);
//   }
//   absl::StatusOr<Window> window = std::move(*builder).Seal();

#ifndef ROUTEPACK_PROTO_CODEC_WINDOW_CODEC_H_
#define ROUTEPACK_PROTO_CODEC_WINDOW_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/placement.h"
#include "planner/plan.h"
#include "planner/window.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// INVALID_ARGUMENT unless job_id has 1 to 128 characters, run_id at most 128,
// and neither has control characters. `field` is the path of the key.
absl::Status ValidateKey(const v1::PlanKey& key, std::string_view field);

// Header to spec; derives topology and attention. INVALID_ARGUMENT with every
// violation; UNIMPLEMENTED for meshes without EDP partition. num_samples stays
// 0 when the header leaves it open.
absl::StatusOr<WindowSpec> DecodeSpec(const v1::WindowHeader& header);

// Options with defaults filled in, but those of the search, which depend on the
// window (see ResolveSearch). UNIMPLEMENTED names a reserved feature that
// was asked for.
absl::StatusOr<PlanOptions> DecodeOptions(const v1::PlanOptions& options);

// A map of the window's sizes; expert_of_slot may be absent in the message.
// INVALID_ARGUMENT lists violations below `field`.
absl::StatusOr<Placement> DecodePlacement(const v1::Placement& placement,
                                          uint32_t num_layers,
                                          uint32_t num_experts,
                                          uint32_t num_ranks,
                                          std::string_view field);

// Decodes one sample of any encoding into the builder. `scratch` is reused
// between calls. What is wrong with the sample is reported by Seal.
void DecodeSample(const v1::Sample& sample, WindowBuilder& builder,
                  std::vector<uint32_t>& scratch);

// A whole window message.
absl::StatusOr<Window> DecodeWindow(const v1::Window& message);

// The digest that identifies a request: the window, and what the header asks
// for beyond it (options with defaults filled in, current placement,
// participants), but not the key. 32 hex digits. Two requests with one digest
// have the same answer, whatever encodings and spelled-out defaults they used.
// Headers that do not decode have a digest too.
std::string RequestDigest(const Window& window, const v1::WindowHeader& header);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_WINDOW_CODEC_H_
