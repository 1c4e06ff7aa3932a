#include "planner/window.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "planner/digest.h"

namespace routepack {
namespace {

constexpr uint64_t kMaxWindowBytes = uint64_t{1} << 40;

bool UsesU16(uint32_t token_cap) { return token_cap <= 0xFFFF; }

void CheckRange(std::string_view field, uint64_t value, uint64_t max,
                Violations& bad) {
  if (value == 0 || value > max) {
    bad.Add(field, absl::StrCat("must be in [1, ", max, "], is ", value));
  }
}

void CheckCoefficient(std::string_view field, double value, Violations& bad) {
  if (!(value >= 0) || !std::isfinite(value)) {
    bad.Add(field, absl::StrCat("must be finite and at least 0, is ", value));
  }
}

void CheckAttention(const WindowSpec& spec, Violations& bad) {
  for (size_t s = 0; s < spec.attention.size(); ++s) {
    const std::string stage = absl::StrCat("header.attention.stages[", s, "]");
    CheckCoefficient(stage + ".alpha", spec.attention[s].alpha, bad);
    CheckCoefficient(stage + ".beta", spec.attention[s].beta, bad);
  }
}

// Cells of a row-shard hold at most C tokens per slot, each sent to top_k
// experts, which may all be on one rank: |D_g| C top_k fits 32 bits.
void CheckRankLoad(const WindowSpec& spec, Violations& bad) {
  for (uint32_t g = 0; g < spec.topology.num_shards(); ++g) {
    const uint64_t slots = spec.topology.slots_of_shard(g).size();
    const absl::uint128 load =
        absl::uint128(slots * spec.token_cap) * spec.top_k;
    if (load >= (absl::uint128(1) << 32)) {
      bad.Add("header.token_cap",
              absl::StrCat("slots * token_cap * top_k of EDP shard ", g,
                           " must be below 2^32, is ", slots, " * ",
                           spec.token_cap, " * ", spec.top_k));
    }
  }
}

void CheckPipeline(const WindowSpec& spec, Violations& bad) {
  constexpr char kField[] = "header.topology.moe_layers_per_stage";
  const Pipeline& pipeline = spec.pipeline;
  const size_t expected = pipeline.num_stages == 0 ? 0 : spec.num_layers;
  if (pipeline.num_stages > kMaxStages) {
    bad.Add(kField, absl::StrCat("must be at most ", kMaxStages,
                                 " stages, are ", pipeline.num_stages));
  }
  if (pipeline.stage_of_layer.size() != expected) {
    bad.Add(kField,
            absl::StrCat("must give a stage to ", expected, " layers, gives ",
                         pipeline.stage_of_layer.size()));
    return;
  }
  for (size_t l = 0; l < expected; ++l) {
    if (pipeline.stage_of_layer[l] < pipeline.num_stages) continue;
    bad.Add(kField, absl::StrCat("layer ", l, " must be in a stage below ",
                                 pipeline.num_stages, ", is in ",
                                 pipeline.stage_of_layer[l]));
  }
}

void CheckSpec(const WindowSpec& spec, Violations& bad) {
  CheckRange("header.num_samples", spec.num_samples, kMaxSamples, bad);
  CheckRange("header.num_layers", spec.num_layers, kMaxLayers, bad);
  CheckRange("header.num_experts", spec.num_experts, kMaxExperts, bad);
  if (uint64_t{spec.num_layers} * spec.num_experts > kMaxLayerExperts) {
    bad.Add("header.num_experts",
            absl::StrCat("num_layers * num_experts must be at most ",
                         kMaxLayerExperts, ", is ", spec.num_layers, " * ",
                         spec.num_experts));
  }
  CheckRange("header.token_cap", spec.token_cap, kMaxTokenCap, bad);
  const bool sizes_ok = bad.empty();
  if (spec.num_experts % spec.topology.num_ranks() != 0) {
    bad.Add("header.num_experts",
            absl::StrCat("must be a multiple of the EP size ",
                         spec.topology.num_ranks(), ", is ", spec.num_experts));
  }
  CheckRange("header.top_k", spec.top_k,
             std::max(spec.num_experts, uint32_t{1}), bad);
  CheckRange("header.length_multiple", spec.length_multiple,
             std::max(spec.token_cap, uint32_t{1}), bad);
  CheckAttention(spec, bad);
  CheckPipeline(spec, bad);
  if (!sizes_ok) return;
  CheckRankLoad(spec, bad);
  const uint64_t bytes = WindowBytes(spec.num_samples, spec.num_layers,
                                     spec.num_experts, spec.token_cap);
  if (bytes > kMaxWindowBytes) {
    bad.Add("header.num_samples",
            absl::StrCat("the window's counts take ", bytes,
                         " bytes, the limit is ", kMaxWindowBytes));
  }
}

uint64_t RoundUp(uint64_t tokens, uint32_t multiple) {
  return (tokens + multiple - 1) / multiple * multiple;
}

struct LayerCheck {
  bool in_range = true;  // every count is at most the sample's tokens
  uint64_t sum = 0;      // exact if in_range
};

// No branch per count: the sign bits of `tokens - c` and of c tell whether any
// c is larger (tokens < 2^31). Counts in range add up in 32 bits within a
// chunk of 2^32 / tokens.
LayerCheck CheckLayer(std::span<const uint32_t> counts, uint32_t tokens) {
  const size_t chunk = std::numeric_limits<uint32_t>::max() / tokens;
  LayerCheck result;
  uint32_t sign = 0;
  for (size_t begin = 0; begin < counts.size(); begin += chunk) {
    const size_t end = std::min(counts.size(), begin + chunk);
    uint32_t sum = 0;
    for (size_t e = begin; e < end; ++e) {
      sum += counts[e];
      sign |= (tokens - counts[e]) | counts[e];
    }
    result.sum += sum;
  }
  result.in_range = (sign >> 31) == 0;
  return result;
}

// Gives `cap` to every open expert whose share of `total` by weight exceeds it
// and shares the rest among the others, until no share does. Returns the sum of
// the weights of the experts left open.
uint64_t CapShares(std::vector<uint64_t>& weights, uint64_t cap,
                   uint64_t& total, std::vector<uint32_t>& open,
                   std::span<uint64_t> shares) {
  for (;;) {
    uint64_t sum = 0;
    for (uint32_t e : open) sum += weights[e];
    if (sum == 0) {
      for (uint32_t e : open) weights[e] = 1;
      sum = open.size();
    }
    const auto fits = [&](uint32_t e) {
      return absl::uint128(total) * weights[e] <= absl::uint128(cap) * sum;
    };
    const auto over = std::stable_partition(open.begin(), open.end(), fits);
    if (over == open.end()) return sum;
    for (auto it = over; it != open.end(); ++it) shares[*it] = cap;
    total -= cap * (open.end() - over);
    open.erase(over, open.end());
  }
}

// Largest remainders: integers that add up to `total`, proportional to
// `weights` as far as none may exceed `cap`; what is left goes evenly to
// experts without weight. Needs cap * weights.size() >= total. Ties: lower
// index.
void Apportion(std::vector<uint64_t> weights, uint64_t total, uint64_t cap,
               std::span<uint64_t> shares) {
  std::vector<uint32_t> open(weights.size());
  std::iota(open.begin(), open.end(), 0);
  const uint64_t sum = CapShares(weights, cap, total, open, shares);

  std::vector<std::pair<uint64_t, uint32_t>> remainders;
  remainders.reserve(open.size());
  uint64_t left = total;
  for (uint32_t e : open) {
    const absl::uint128 exact = absl::uint128(total) * weights[e];
    shares[e] = static_cast<uint64_t>(exact / sum);
    left -= shares[e];
    remainders.emplace_back(
        static_cast<uint64_t>(exact - absl::uint128(shares[e]) * sum), e);
  }
  // Fewer are left than there are remainders above zero, so that none of those
  // who get one more was at the cap.
  std::nth_element(remainders.begin(), remainders.begin() + left,
                   remainders.end(), [](const auto& a, const auto& b) {
                     return a.first != b.first ? a.first > b.first
                                               : a.second < b.second;
                   });
  for (uint64_t j = 0; j < left; ++j) ++shares[remainders[j].second];
}

// Columns in parallel: every task adds up its own counts, sample by sample.
// Narrow counts are summed in 32 bits, 2^16 of them at a time, which is exact
// and twice as fast.
template <typename Count>
std::vector<uint64_t> SumSamples(const std::vector<Count>& counts,
                                 size_t sample_size) {
  using Sum = std::conditional_t<sizeof(Count) == 2, uint32_t, uint64_t>;
  constexpr size_t kColumns = 2048;
  const size_t batch = sample_size << 16;
  std::vector<uint64_t> loads(sample_size);
  tbb::parallel_for(
      tbb::blocked_range<size_t>(0, sample_size, kColumns),
      [&](const tbb::blocked_range<size_t>& columns) {
        std::vector<Sum> sums(columns.size());
        for (size_t begin = 0; begin < counts.size(); begin += batch) {
          std::fill(sums.begin(), sums.end(), 0);
          const size_t end = std::min(counts.size(), begin + batch);
          for (size_t i = begin; i < end; i += sample_size) {
            const Count* sample = counts.data() + i + columns.begin();
            for (size_t j = 0; j < sums.size(); ++j) sums[j] += sample[j];
          }
          for (size_t j = 0; j < sums.size(); ++j) {
            loads[columns.begin() + j] += sums[j];
          }
        }
      });
  return loads;
}

std::string DigestOf(const WindowSpec& spec,
                     std::span<const SampleInfo> samples,
                     std::span<const uint32_t> imputed, const auto& counts) {
  Digest digest;
  for (uint32_t value : {spec.num_samples, spec.num_layers, spec.num_experts,
                         spec.top_k, spec.token_cap, spec.length_multiple,
                         static_cast<uint32_t>(spec.counts_origin),
                         static_cast<uint32_t>(spec.partial_counts),
                         static_cast<uint32_t>(spec.missing_counts)}) {
    digest.AddU32(value);
  }
  digest.AddU32(spec.topology.num_ranks());
  digest.AddU32(spec.topology.num_slots());
  for (uint32_t d = 0; d < spec.topology.num_slots(); ++d) {
    digest.AddU32(spec.topology.shard_of_slot(d));
  }
  digest.AddU64(spec.attention.size());
  for (const AttentionStage& stage : spec.attention) {
    digest.AddString(stage.name);
    digest.AddDouble(stage.alpha);
    digest.AddDouble(stage.beta);
  }
  for (const SampleInfo& sample : samples) {
    digest.AddU64(sample.id);
    digest.AddU32(sample.tokens);
    digest.AddU32(sample.group);
  }
  digest.AddArray(imputed);
  digest.AddArray(std::span(counts));
  // What comes before tells its own length, so that a suffix is unambiguous.
  if (spec.pipeline.num_stages > 0) {
    digest.AddU32(spec.pipeline.num_stages);
    digest.AddArray(std::span(spec.pipeline.stage_of_layer));
  }
  return digest.Hex();
}

void CheckIds(std::span<const SampleInfo> samples, Violations& bad) {
  std::vector<std::pair<uint64_t, uint32_t>> ids;
  ids.reserve(samples.size());
  for (uint32_t i = 0; i < samples.size(); ++i) {
    ids.emplace_back(samples[i].id, i);
  }
  std::sort(ids.begin(), ids.end());
  std::vector<std::pair<uint32_t, uint32_t>> repeats;  // (later, first)
  for (size_t j = 1, first = 0; j < ids.size(); ++j) {
    if (ids[j].first != ids[first].first) {
      first = j;
    } else {
      repeats.emplace_back(ids[j].second, ids[first].second);
    }
  }
  std::sort(repeats.begin(), repeats.end());
  for (const auto& [later, first] : repeats) {
    bad.Add(absl::StrCat("samples[", later, "].id"),
            absl::StrCat("must be unique, ", samples[later].id,
                         " is also the id of samples[", first, "]"));
  }
}

// Scores fit 53 bits, so that reported doubles are as exact as the integers
// behind them (spec 1.4). A score adds up, over rows and shards,
// one cell's cost per stage and 256 times one rank's load per layer. All cells
// and all ranks together bound it by
//   256 (sum_s (alpha_s sum_i t_i + beta_s sum_i t_i^2 / C) + L k sum_i t_i),
// since a cell's statistics are sums over its samples. Rounding adds at most
// half a unit per cell and stage, of 2^63 that an integer could hold.
void CheckScore(const WindowSpec& spec, std::span<const SampleInfo> samples,
                Violations& bad) {
  double tokens = 0;
  double squares = 0;
  for (const SampleInfo& sample : samples) {
    tokens += sample.tokens;
    squares += static_cast<double>(sample.tokens) * sample.tokens;
  }
  double work = tokens * spec.num_layers * spec.top_k;
  for (const AttentionStage& stage : spec.attention) {
    work += stage.alpha * tokens + stage.beta * squares / spec.token_cap;
  }
  if (!(256 * work < 0x1p53)) {
    bad.Add("header.attention.stages",
            absl::StrCat("attention and expert work of the window must be "
                         "below 2^45 routed assignments, is ",
                         work));
  }
}

}  // namespace

uint64_t WindowBytes(uint64_t num_samples, uint64_t num_layers,
                     uint64_t num_experts, uint32_t token_cap) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const auto saturate = [](absl::uint128 bytes) {
    return static_cast<uint64_t>(std::min(bytes, absl::uint128(kMax)));
  };
  const uint64_t layer =
      saturate(absl::uint128(num_experts) * (UsesU16(token_cap) ? 2 : 4));
  const uint64_t sample =
      saturate(absl::uint128(layer) * num_layers + sizeof(SampleInfo));
  return saturate(absl::uint128(sample) * num_samples);
}

Window::Window(WindowSpec spec, std::vector<SampleInfo> samples,
               CountArray counts, std::vector<uint32_t> imputed)
    : spec_(std::move(spec)),
      samples_(std::move(samples)),
      counts_(std::move(counts)),
      imputed_(std::move(imputed)) {
  for (const SampleInfo& sample : samples_) total_tokens_ += sample.tokens;
  digest_ = std::visit(
      [&](const auto& all) { return DigestOf(spec_, samples_, imputed_, all); },
      counts_);
}

uint32_t Window::occupancy(uint32_t i) const {
  return static_cast<uint32_t>(
      RoundUp(samples_[i].tokens, spec_.length_multiple));
}

std::vector<uint64_t> Window::ExpertLoads() const {
  const size_t sample_size = size_t{spec_.num_layers} * spec_.num_experts;
  return std::visit(
      [&](const auto& all) { return SumSamples(all, sample_size); }, counts_);
}

WindowBuilder::WindowBuilder(WindowSpec spec) : spec_(std::move(spec)) {
  if (!UsesU16(spec_.token_cap)) counts_ = std::vector<uint32_t>();
}

absl::StatusOr<WindowBuilder> WindowBuilder::Create(WindowSpec spec) {
  Violations bad;
  CheckSpec(spec, bad);
  if (!bad.empty()) return bad.ToStatus();
  WindowBuilder builder(std::move(spec));
  const size_t size = size_t{builder.spec_.num_samples} *
                      builder.spec_.num_layers * builder.spec_.num_experts;
  try {
    // Address space only: pages become resident as samples arrive.
    builder.samples_.reserve(builder.spec_.num_samples);
    std::visit([&](auto& all) { all.reserve(size); }, builder.counts_);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for a window of ",
        WindowBytes(builder.spec_.num_samples, builder.spec_.num_layers,
                    builder.spec_.num_experts, builder.spec_.token_cap),
        " bytes"));
  }
  return builder;
}

void WindowBuilder::CheckSample(const SampleInfo& info) {
  const uint32_t i = num_added();
  if (info.tokens == 0) {
    violations_.Add(absl::StrCat("samples[", i, "].tokens"),
                    "must be at least 1, is 0");
    return;
  }
  const uint64_t occupancy = RoundUp(info.tokens, spec_.length_multiple);
  if (occupancy > spec_.token_cap) {
    std::string what = absl::StrCat(
        "must be at most token_cap = ", spec_.token_cap, ", is ", info.tokens);
    if (occupancy != info.tokens) {
      absl::StrAppend(&what, " (", occupancy, " rounded up to a multiple of ",
                      spec_.length_multiple, ")");
    }
    violations_.Add(absl::StrCat("samples[", i, "].tokens"), what);
  }
}

void WindowBuilder::CheckCounts(const SampleInfo& info,
                                std::span<const uint32_t> counts) {
  const size_t sample_size = size_t{spec_.num_layers} * spec_.num_experts;
  const std::string field = absl::StrCat("samples[", num_added(), "].counts");
  if (counts.size() != sample_size) {
    violations_.Add(
        field, absl::StrCat("must have num_layers * num_experts = ",
                            spec_.num_layers, " * ", spec_.num_experts, " = ",
                            sample_size, " entries, has ", counts.size()));
    return;
  }
  // Nothing to compare with: the length is a violation of its own.
  if (info.tokens == 0 || info.tokens > kMaxTokenCap) return;
  const uint64_t top_k = spec_.top_k;
  const uint64_t most = top_k * info.tokens;
  for (uint32_t l = 0; l < spec_.num_layers; ++l) {
    const auto layer =
        counts.subspan(size_t{l} * spec_.num_experts, spec_.num_experts);
    const LayerCheck check = CheckLayer(layer, info.tokens);
    if (!check.in_range) {
      const auto worst = std::max_element(layer.begin(), layer.end());
      violations_.Add(
          field, absl::StrCat("layer ", l, ", expert ", worst - layer.begin(),
                              ": must be at most the sample's tokens = ",
                              info.tokens, ", is ", *worst));
    } else if (spec_.partial_counts
                   ? check.sum > most
                   : check.sum != most && check.sum != most - top_k) {
      violations_.Add(
          field,
          absl::StrCat(
              "layer ", l, ": must add up to ",
              spec_.partial_counts ? "at most " : "", "top_k * tokens = ", most,
              spec_.partial_counts
                  ? ""
                  : absl::StrCat(" or top_k * (tokens - 1) = ", most - top_k),
              ", is ", check.sum));
    }
  }
}

void WindowBuilder::AddSample(const SampleInfo& info,
                              std::optional<std::span<const uint32_t>> counts) {
  if (num_added() == spec_.num_samples) {
    violations_.Add("samples", absl::StrCat("more than header.num_samples = ",
                                            spec_.num_samples));
  }
  CheckSample(info);
  if (counts.has_value()) {
    CheckCounts(info, *counts);
  } else if (spec_.missing_counts == MissingCounts::kError) {
    violations_.Add(absl::StrCat("samples[", num_added(), "].counts"),
                    "is missing; header.counts.missing can allow the window "
                    "mean instead");
  } else {
    missing_.push_back(num_added());
  }
  samples_.push_back(info);
  // A window with violations is never used: it needs no more memory.
  if (!violations_.empty()) return;
  std::visit(
      [&](auto& all) {
        if (counts.has_value()) {
          all.insert(all.end(), counts->begin(), counts->end());
        } else {
          all.resize(samples_.size() * spec_.num_layers * spec_.num_experts);
        }
      },
      counts_);
}

void WindowBuilder::AddBadSample(const SampleInfo& info, std::string_view field,
                                 std::string_view description) {
  violations_.Add(
      absl::StrCat("samples[", num_added(), "]", std::string(field)),
      description);
  CheckSample(info);
  samples_.push_back(info);
}

void WindowBuilder::FillMissing() {
  const size_t num_experts = spec_.num_experts;
  const size_t sample_size = spec_.num_layers * num_experts;
  std::visit(
      [&](auto& all) {
        // Samples without counts are zero so far.
        const std::vector<uint64_t> loads = SumSamples(all, sample_size);
        tbb::parallel_for(size_t{0}, missing_.size(), [&](size_t m) {
          const uint64_t tokens = samples_[missing_[m]].tokens;
          std::vector<uint64_t> shares(num_experts);
          for (size_t l = 0; l < spec_.num_layers; ++l) {
            const auto layer = loads.begin() + l * num_experts;
            Apportion({layer, layer + num_experts}, spec_.top_k * tokens,
                      tokens, shares);
            std::copy(
                shares.begin(), shares.end(),
                all.begin() + missing_[m] * sample_size + l * num_experts);
          }
        });
      },
      counts_);
}

absl::StatusOr<Window> WindowBuilder::Seal() && {
  try {
    if (num_added() < spec_.num_samples) {
      violations_.Add("samples",
                      absl::StrCat("must be header.num_samples = ",
                                   spec_.num_samples, ", are ", num_added()));
    }
    CheckIds(samples_, violations_);
    CheckScore(spec_, samples_, violations_);
    if (!missing_.empty() && missing_.size() == samples_.size()) {
      violations_.Add("samples",
                      "none has counts, so that there is no window mean");
    }
    if (!violations_.empty()) return violations_.ToStatus();
    if (!missing_.empty()) FillMissing();
    return Window(std::move(spec_), std::move(samples_), std::move(counts_),
                  std::move(missing_));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory to seal the window");
  }
}

}  // namespace routepack
