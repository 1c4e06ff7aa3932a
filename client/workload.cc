#include "client/workload.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "planner/counter_random.h"
#include "proto/codec/codec.h"

namespace routepack {
namespace {

// Random streams of a workload's seed; routing_model.cc has 1 to 5.
enum Stream : uint64_t { kLengths = 16, kMixtureJitter = 17, kCounts = 18 };

// Counts are rounded in units of 2^-16.
constexpr uint64_t kUnit = 1 << 16;

// Samples generated at a time.
constexpr uint32_t kBlock = 64;

absl::Status CheckSpec(const WorkloadSpec& spec) {
  std::string bad;
  const auto check = [&](bool ok, std::string_view name, auto value,
                         std::string_view range) {
    if (!ok && bad.empty()) {
      bad = absl::StrCat(std::string(name), " ", value, " must be ",
                         std::string(range));
    }
  };
  check(spec.num_samples >= 1 && spec.num_samples <= kMaxSamples, "samples",
        spec.num_samples, absl::StrCat("in [1, ", kMaxSamples, "]"));
  check(spec.samples_per_prompt >= 1, "samples_per_prompt",
        spec.samples_per_prompt, "at least 1");
  check(spec.num_layers >= 1 && spec.num_layers <= kMaxLayers, "layers",
        spec.num_layers, absl::StrCat("in [1, ", kMaxLayers, "]"));
  check(spec.mesh.ep >= 1, "ep", spec.mesh.ep, "at least 1");
  check(spec.num_experts >= 1 && spec.num_experts <= kMaxExperts &&
            (spec.mesh.ep == 0 || spec.num_experts % spec.mesh.ep == 0),
        "experts", spec.num_experts,
        absl::StrCat("in [1, ", kMaxExperts, "] and a multiple of ep ",
                     spec.mesh.ep));
  check(spec.top_k >= 1 && spec.top_k <= spec.num_experts, "top_k", spec.top_k,
        absl::StrCat("in [1, ", spec.num_experts, "]"));
  check(spec.token_cap >= 1 && spec.token_cap <= kMaxTokenCap, "token_cap",
        spec.token_cap, absl::StrCat("in [1, ", kMaxTokenCap, "]"));
  check(spec.topics >= 1 && spec.topics <= 4096, "topics", spec.topics,
        "in [1, 4096]");
  check(spec.zipf >= 0 && spec.zipf <= 10, "zipf", spec.zipf, "in [0, 10]");
  check(spec.hot_experts >= 1 && spec.hot_experts <= spec.num_experts,
        "hot_experts", spec.hot_experts,
        absl::StrCat("in [1, ", spec.num_experts, "]"));
  const std::pair<std::string_view, double> shares[] = {
      {"topic_share", spec.topic_share},
      {"hot_share", spec.hot_share},
      {"empty_share", spec.empty_share},
      {"burst_share", spec.burst_share},
      {"drift", spec.drift}};
  for (const auto& [name, share] : shares) {
    check(share >= 0 && share <= 1, name, share, "in [0, 1]");
  }
  check(spec.noise >= 0 && spec.noise <= 1e6, "noise", spec.noise,
        "in [0, 1e6]");
  if (bad.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("workload: ", bad));
}

uint32_t MaxTokens(const WorkloadSpec& spec) {
  const uint32_t multiple = std::max(spec.length_multiple, 1u);
  // Occupancy, not length, must stay within the cap.
  const uint32_t cap = spec.token_cap / multiple * multiple;
  return spec.lengths.max_tokens == 0 ? cap
                                      : std::min(spec.lengths.max_tokens, cap);
}

absl::Status CheckLengths(const WorkloadSpec& spec) {
  const LengthSpec& lengths = spec.lengths;
  const uint32_t most = MaxTokens(spec);
  const uint32_t least = spec.skip_last_token ? 2 : 1;
  if (lengths.min_tokens < least || lengths.min_tokens > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload: min_tokens ", lengths.min_tokens,
                     " must be in [", least, ", ", most, "]"));
  }
  if (!(lengths.mean >= lengths.min_tokens && lengths.mean <= most)) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload: mean_tokens ", lengths.mean, " must be in [",
                     lengths.min_tokens, ", ", most, "]"));
  }
  if (!(lengths.sigma >= 0 && lengths.sigma <= 10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload: sigma ", lengths.sigma, " must be in [0, 10]"));
  }
  if (!(lengths.long_share > 0 && lengths.long_share < 1) ||
      !(lengths.long_ratio >= 1 && lengths.long_ratio <= 1e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload: long_share ", lengths.long_share,
                     " must be inside (0, 1) and long_ratio ",
                     lengths.long_ratio, " in [1, 1e6]"));
  }
  if (!(lengths.tail > 1 && lengths.tail <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload: tail ", lengths.tail, " must be in (1, 100]"));
  }
  return absl::OkStatus();
}

// A length in arbitrary units.
double RawLength(const LengthSpec& spec, LengthKind kind,
                 const CounterRandom& random, uint32_t i) {
  const CounterRandom own(random.At(i));
  switch (kind) {
    case LengthKind::kConstant:
      return 1;
    case LengthKind::kLognormal:
      return std::exp(spec.sigma * own.NormalAt(0));
    case LengthKind::kBimodal:
      return (own.UniformAt(9) < spec.long_share ? spec.long_ratio : 1.0) *
             std::exp(spec.sigma / 3 * own.NormalAt(0));
    case LengthKind::kLongTail:
      return std::pow(1 - own.UniformAt(0), -1 / spec.tail);
  }
  return 1;
}

uint32_t ScaledLength(double raw, double scale, uint32_t least, uint32_t most) {
  return static_cast<uint32_t>(std::clamp(std::floor(raw * scale + 0.5),
                                          static_cast<double>(least),
                                          static_cast<double>(most)));
}

// Draws lengths of the wanted form and scales them so that their mean, after
// clipping, is as wanted.
std::vector<uint32_t> DrawLengths(const WorkloadSpec& spec) {
  const LengthKind kind = spec.imbalance == Imbalance::kRaggedSources
                              ? LengthKind::kLongTail
                              : spec.lengths.kind;
  const CounterRandom random(spec.seed, kLengths, spec.step);
  std::vector<double> raw(spec.num_samples);
  for (uint32_t i = 0; i < spec.num_samples; ++i) {
    raw[i] = RawLength(spec.lengths, kind, random, i);
  }
  const uint32_t least = spec.lengths.min_tokens;
  const uint32_t most = MaxTokens(spec);
  const double wanted = spec.lengths.mean * spec.num_samples;
  double low = 0;
  double high = most / *std::min_element(raw.begin(), raw.end());
  for (int step = 0; step < 50; ++step) {
    const double middle = 0.5 * (low + high);
    double total = 0;
    for (const double x : raw) total += ScaledLength(x, middle, least, most);
    (total < wanted ? low : high) = middle;
  }
  std::vector<uint32_t> lengths(spec.num_samples);
  for (uint32_t i = 0; i < spec.num_samples; ++i) {
    lengths[i] = ScaledLength(raw[i], high, least, most);
  }
  return lengths;
}

// Makes the amounts [E] (units, none above `most`) add up to `total` by small
// equal changes of those with positive expectation. At least total / most of
// these exist.
void FixSum(std::span<const double> expected, uint64_t most, uint64_t total,
            std::span<uint64_t> amounts) {
  uint64_t sum = 0;
  for (const uint64_t amount : amounts) sum += amount;
  while (sum != total) {
    const bool grow = sum < total;
    uint64_t left = grow ? total - sum : sum - total;
    const auto room = [&](size_t e) -> uint64_t {
      if (!grow) return amounts[e];
      return expected[e] > 0 ? most - amounts[e] : 0;
    };
    uint64_t able = 0;
    for (size_t e = 0; e < amounts.size(); ++e) able += room(e) > 0;
    if (able == 0) return;
    const uint64_t each = std::max<uint64_t>(left / able, 1);
    for (size_t e = 0; e < amounts.size() && left > 0; ++e) {
      const uint64_t change = std::min({room(e), each, left});
      amounts[e] = grow ? amounts[e] + change : amounts[e] - change;
      left -= change;
    }
    sum = grow ? total - left : total + left;
  }
}

struct Scratch {
  std::vector<double> expected;   // [E]
  std::vector<double> drawn;      // [E]
  std::vector<uint64_t> amounts;  // [E] in units
};

// One layer of one sample: counts that add up to k `tokens`, none above
// `tokens`.
void DrawLayer(std::span<const double> p_a, std::span<const double> p_b,
               double share, uint32_t tokens, uint32_t top_k, double noise,
               const CounterRandom& random, Scratch& scratch,
               std::span<uint32_t> counts) {
  const size_t num_experts = counts.size();
  const uint64_t total = uint64_t{top_k} * tokens;
  double sum = 0;
  for (size_t e = 0; e < num_experts; ++e) {
    const double x =
        static_cast<double>(total) * (share * p_a[e] + (1 - share) * p_b[e]);
    // Irwin-Hall of four: variance 1/3, inside +-2. The amplitude is cut where
    // it would pass 0 or `tokens`, which keeps the expectation.
    const double z =
        static_cast<double>(CounterRandom::LaneSum(random.At(e))) * 0x1.0p-16 -
        (2 - 2 * 0x1.0p-16);
    const double room = std::max(0.0, std::min(x, tokens - x));
    const double y = x + std::min(std::sqrt(3 * noise * x), 0.5 * room) * z;
    scratch.expected[e] = x;
    scratch.drawn[e] = y;
    sum += y;
  }
  const double scale = sum > 0 ? static_cast<double>(total * kUnit) / sum : 0;
  const uint64_t most = tokens * kUnit;
  for (size_t e = 0; e < num_experts; ++e) {
    scratch.amounts[e] =
        std::min(most, static_cast<uint64_t>(scratch.drawn[e] * scale));
  }
  FixSum(scratch.expected, most, total * kUnit, scratch.amounts);
  // Systematic rounding: each count is its amount rounded down or up, and the
  // sum is exact.
  uint64_t before = random.At(num_experts) % kUnit;
  for (size_t e = 0; e < num_experts; ++e) {
    const uint64_t after = before + scratch.amounts[e];
    counts[e] = static_cast<uint32_t>(after / kUnit - before / kUnit);
    before = after;
  }
}

v1::WindowHeader MakeHeader(const WorkloadSpec& spec) {
  v1::WindowHeader header;
  header.mutable_key()->set_job_id(absl::StrCat("workload-", spec.name));
  header.mutable_key()->set_run_id(absl::StrCat("seed-", spec.seed));
  header.mutable_key()->set_step(spec.step);
  header.set_num_samples(spec.num_samples);
  header.set_num_layers(spec.num_layers);
  header.set_num_experts(spec.num_experts);
  header.set_top_k(spec.top_k);
  header.set_token_cap(spec.token_cap);
  header.set_length_multiple(spec.length_multiple);
  v1::MeshSizes* mesh = header.mutable_topology()->mutable_mesh();
  mesh->set_tp(spec.mesh.tp);
  mesh->set_cp(spec.mesh.cp);
  mesh->set_pp(spec.mesh.pp);
  mesh->set_ep(spec.mesh.ep);
  mesh->set_etp(spec.mesh.etp);
  mesh->set_dp(spec.mesh.dp);
  if (spec.model.hidden_size() > 0) {
    *header.mutable_attention()->mutable_model() = spec.model;
  }
  header.mutable_counts()->set_origin(v1::COUNTS_ORIGIN_REPLAYED);
  return header;
}

}  // namespace

absl::StatusOr<Workload> Workload::Create(const WorkloadSpec& spec) {
  if (absl::Status s = CheckSpec(spec); !s.ok()) return s;
  if (absl::Status s = CheckLengths(spec); !s.ok()) return s;
  absl::StatusOr<Topology> topology = Topology::FromMesh(spec.mesh);
  if (!topology.ok()) return topology.status();
  absl::StatusOr<RoutingModel> routing = RoutingModel::Create(spec);
  if (!routing.ok()) return routing.status();
  return Workload(spec, *std::move(routing));
}

Workload::Workload(const WorkloadSpec& spec, RoutingModel routing)
    : spec_(spec),
      routing_(std::move(routing)),
      header_(MakeHeader(spec)),
      tokens_(DrawLengths(spec)) {}

SampleInfo Workload::info(uint32_t i) const {
  return {.id = spec_.step * spec_.num_samples + i,
          .tokens = tokens_[i],
          .group = i / spec_.samples_per_prompt};
}

void Workload::Counts(uint32_t i, std::span<uint32_t> counts) const {
  const uint32_t num_experts = spec_.num_experts;
  const uint32_t num_groups =
      (spec_.num_samples - 1) / spec_.samples_per_prompt + 1;
  const ClassMixture mixture =
      routing_.MixtureOfGroup(i / spec_.samples_per_prompt, num_groups);
  // Samples of one prompt differ a little in their mixture.
  const double jitter =
      CounterRandom(spec_.seed, kMixtureJitter, spec_.step, i).UniformAt(0);
  const double share =
      std::clamp(mixture.share + 0.1 * jitter - 0.05, 0.0, 1.0);
  const uint32_t routed = tokens_[i] - (spec_.skip_last_token ? 1 : 0);
  Scratch scratch = {.expected = std::vector<double>(num_experts),
                     .drawn = std::vector<double>(num_experts),
                     .amounts = std::vector<uint64_t>(num_experts)};
  const CounterRandom random(spec_.seed, kCounts, spec_.step, i);
  for (uint32_t l = 0; l < spec_.num_layers; ++l) {
    DrawLayer(routing_.popularity(mixture.a, l),
              routing_.popularity(mixture.b, l), share, routed, spec_.top_k,
              spec_.noise, CounterRandom(random.At(l)), scratch,
              counts.subspan(size_t{l} * num_experts, num_experts));
  }
}

SampleSource Workload::Source(CountsEncoding encoding) const {
  struct State {
    std::vector<v1::Sample> block;
    size_t used = 0;
    uint32_t next = 0;
  };
  auto state = std::make_shared<State>();
  return [this, encoding, state](v1::Sample* sample) -> absl::StatusOr<bool> {
    if (state->used == state->block.size()) {
      const uint32_t size = std::min(kBlock, num_samples() - state->next);
      if (size == 0) return false;
      state->block.assign(size, v1::Sample());
      state->used = 0;
      tbb::parallel_for(uint32_t{0}, size, [&](uint32_t j) {
        const SampleInfo who = info(state->next + j);
        std::vector<uint32_t> counts(size_t{spec_.num_layers} *
                                     spec_.num_experts);
        Counts(state->next + j, counts);
        v1::Sample& out = state->block[j];
        out.set_id(who.id);
        out.set_tokens(who.tokens);
        out.set_group(who.group);
        EncodeCounts(counts, spec_.num_layers, encoding, out.mutable_counts());
      });
      state->next += size;
    }
    *sample = std::move(state->block[state->used++]);
    return true;
  };
}

absl::StatusOr<Window> Workload::MakeWindow() const {
  absl::StatusOr<WindowSpec> spec = DecodeSpec(header_);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<WindowBuilder> builder =
      WindowBuilder::Create(*std::move(spec));
  if (!builder.ok()) return builder.status();
  const size_t item = size_t{spec_.num_layers} * spec_.num_experts;
  std::vector<uint32_t> counts(kBlock * item);
  for (uint32_t begin = 0; begin < num_samples(); begin += kBlock) {
    const uint32_t size = std::min(kBlock, num_samples() - begin);
    tbb::parallel_for(uint32_t{0}, size, [&](uint32_t j) {
      Counts(begin + j, std::span(counts).subspan(j * item, item));
    });
    for (uint32_t j = 0; j < size; ++j) {
      builder->AddSample(info(begin + j),
                         std::span(counts).subspan(j * item, item));
    }
  }
  return std::move(*builder).Seal();
}

}  // namespace routepack
