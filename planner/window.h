// The validated input of the planner: one optimizer step's samples, in flat
// arrays (RoutePack paper, equation 1).
//
// A WindowBuilder takes samples one by one, so that a window can be decoded
// from a stream without a second copy; Seal() checks the rest and freezes it.
// A Window never changes and is safe to share between threads. Memory: N L E
// counts of 2 bytes (4 if token_cap > 65,535), plus 16 bytes a sample.
//
//   auto builder = WindowBuilder::Create(spec);
//   for (...) builder->AddSample({.id = 7, .tokens = 812}, counts);
//   absl::StatusOr<Window> window = std::move(*builder).Seal();

#ifndef ROUTEPACK_PLANNER_WINDOW_H_
#define ROUTEPACK_PLANNER_WINDOW_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/attention.h"
#include "planner/errors.h"
#include "planner/pipeline.h"
#include "planner/topology.h"

namespace routepack {

enum class CountsOrigin { kUnspecified, kReplayed, kPredicted };
enum class MissingCounts { kError, kWindowMean };

// What holds for all samples of a window.
struct WindowSpec {
  uint32_t num_samples = 0;      // N
  uint32_t num_layers = 0;       // L
  uint32_t num_experts = 0;      // E, a multiple of the topology's P
  uint32_t top_k = 0;            // in [1, E]
  uint32_t token_cap = 0;        // C, in [1, kMaxTokenCap]
  uint32_t length_multiple = 1;  // at least 1
  Topology topology;
  Pipeline pipeline;                      // for reports; may be empty
  std::vector<AttentionStage> attention;  // may be empty: attention is free
  CountsOrigin counts_origin = CountsOrigin::kUnspecified;
  bool partial_counts = false;
  MissingCounts missing_counts = MissingCounts::kError;
};

// Integer bounds (spec 1.4): sum t^2 of a cell is exact in a double, a rank's
// load of a row-shard (at most |D_g| C top_k) fits 32 bits, and scores fit 53
// bits, so that doubles carry them exactly. Placements and plans are bounded by
// kMaxLayerExperts. Create and Seal refuse windows beyond them.
inline constexpr uint32_t kMaxTokenCap = 1u << 26;
inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxExperts = 1u << 16;
inline constexpr uint64_t kMaxLayerExperts = 1u << 22;  // L E
inline constexpr uint32_t kMaxSamples = 1u << 24;

// What names a sample.
struct SampleInfo {
  uint64_t id = 0;
  uint32_t tokens = 0;  // t, at least 1; its occupancy is at most C
  uint32_t group = 0;   // prompt group
};

// Bytes a window of this shape will hold: what admission reserves. Saturates.
uint64_t WindowBytes(uint64_t num_samples, uint64_t num_layers,
                     uint64_t num_experts, uint32_t token_cap);

class Window {
 public:
  const WindowSpec& spec() const { return spec_; }
  uint32_t num_samples() const { return spec_.num_samples; }
  uint32_t num_layers() const { return spec_.num_layers; }
  uint32_t num_experts() const { return spec_.num_experts; }

  std::span<const SampleInfo> samples() const { return samples_; }  // [N]
  uint32_t tokens(uint32_t i) const { return samples_[i].tokens; }
  // t rounded up to length_multiple.
  uint32_t occupancy(uint32_t i) const;
  uint64_t total_tokens() const { return total_tokens_; }

  // Calls f with the counts of sample i as a span [L, E] of uint16_t or
  // uint32_t.
  template <typename F>
  decltype(auto) VisitCounts(uint32_t i, F&& f) const {
    const size_t size = size_t{spec_.num_layers} * spec_.num_experts;
    return std::visit(
        [&](const auto& all) {
          return f(std::span(all).subspan(i * size, size));
        },
        counts_);
  }
  uint32_t count(uint32_t i, uint32_t l, uint32_t e) const {
    return VisitCounts(i, [&](auto c) -> uint32_t {
      return c[size_t{l} * spec_.num_experts + e];
    });
  }

  // Samples whose counts were missing and set to the window mean, ascending.
  std::span<const uint32_t> imputed() const { return imputed_; }

  // [L, E] sum_i a[i,l,e].
  std::vector<uint64_t> ExpertLoads() const;

  // 32 hex digits over the spec and all samples, whatever encoding they came
  // in. Not cryptographic: it tells windows apart, it does not protect them.
  const std::string& digest() const { return digest_; }

 private:
  friend class WindowBuilder;
  using CountArray = std::variant<std::vector<uint16_t>, std::vector<uint32_t>>;
  Window(WindowSpec spec, std::vector<SampleInfo> samples, CountArray counts,
         std::vector<uint32_t> imputed);

  WindowSpec spec_;
  std::vector<SampleInfo> samples_;  // [N]
  CountArray counts_;                // [N, L, E]
  std::vector<uint32_t> imputed_;
  uint64_t total_tokens_ = 0;
  std::string digest_;
};

class WindowBuilder {
 public:
  // INVALID_ARGUMENT names every field of the spec that is out of range, with
  // paths as in WindowHeader ("header.token_cap"). RESOURCE_EXHAUSTED: there
  // is no memory for the window. Memory is reserved here and becomes resident
  // as samples are added.
  static absl::StatusOr<WindowBuilder> Create(WindowSpec spec);

  // Appends a sample with its counts [L, E], or without. Violations are
  // collected, with paths "samples[i]...", and reported by Seal; a bad sample
  // still takes its place, but from then on counts are checked and not kept.
  void AddSample(const SampleInfo& info,
                 std::optional<std::span<const uint32_t>> counts);
  // Records a violation of sample `num_added()` found while decoding it, e.g.
  // field ".counts.u16", and appends the sample without counts.
  void AddBadSample(const SampleInfo& info, std::string_view field,
                    std::string_view description);

  const WindowSpec& spec() const { return spec_; }
  uint32_t num_added() const { return static_cast<uint32_t>(samples_.size()); }
  // The violations so far.
  const Violations& violations() const { return violations_; }

  // Checks what only the whole window shows (number of samples, duplicate
  // ids, bounds of the score), fills in missing counts (the mean routing per
  // token of the samples that have counts, scaled to top_k t by largest
  // remainders, no count above t), computes the digest.
  // INVALID_ARGUMENT lists all violations.
  absl::StatusOr<Window> Seal() &&;

 private:
  explicit WindowBuilder(WindowSpec spec);
  void CheckSample(const SampleInfo& info);
  void CheckCounts(const SampleInfo& info, std::span<const uint32_t> counts);
  void FillMissing();

  WindowSpec spec_;
  std::vector<SampleInfo> samples_;
  Window::CountArray counts_;
  std::vector<uint32_t> missing_;
  Violations violations_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_WINDOW_H_
