#include "client/routing_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/workload.h"
#include "planner/counter_random.h"

namespace routepack {
namespace {

// Random streams of a workload's seed; workload.cc has others.
enum Stream : uint64_t {
  kCommonOrder = 1,
  kClassOrder = 2,
  kDriftOrder = 3,
  kGroupMixture = 4,
  kRankChoice = 5,
};

constexpr uint32_t kHotspotSegments = 8;
constexpr uint32_t kBurstKinds = 8;

// Lowers what is above `cap` to it and spreads the excess over the rest in
// proportion. Needs a sum of 1 and at least 1 / cap positive values.
void CapProbabilities(double cap, std::span<double> p) {
  for (bool changed = true; changed;) {
    changed = false;
    double capped = 0;
    double rest = 0;
    for (const double x : p) (x >= cap ? capped : rest) += x >= cap ? cap : x;
    const double scale = rest > 0 ? (1 - capped) / rest : 1;
    for (double& x : p) {
      if (x >= cap) {
        x = cap;
      } else {
        x *= scale;
        changed = changed || x > cap;
      }
    }
  }
}

// Zipf weights by rank, adding up to 1.
std::vector<double> ZipfWeights(uint32_t size, double exponent) {
  std::vector<double> weights(size);
  double sum = 0;
  for (uint32_t r = 0; r < size; ++r) {
    weights[r] = std::exp(-exponent * std::log(r + 1.0));
    sum += weights[r];
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// `hot` take hot_share in equal parts, the others the rest.
void SetHot(std::span<const uint32_t> hot, double hot_share,
            std::span<double> p) {
  const double others = static_cast<double>(p.size() - hot.size());
  std::fill(p.begin(), p.end(), others > 0 ? (1 - hot_share) / others : 0);
  for (const uint32_t e : hot) p[e] = hot_share / hot.size();
}

// The rank that is hot or empty: the same in all layers, as it would be for a
// rank that is slow or badly placed.
uint32_t ChosenRank(const WorkloadSpec& spec) {
  return static_cast<uint32_t>(
      CounterRandom(spec.seed, kRankChoice).BelowAt(0, spec.mesh.ep));
}

void FillTopics(const WorkloadSpec& spec, uint32_t layer, uint32_t topic,
                std::span<const double> zipf, std::span<double> p) {
  const uint32_t size = spec.num_experts;
  const std::vector<uint32_t> common =
      CounterRandom(spec.seed, kCommonOrder, layer).Permutation(size);
  const std::vector<uint32_t> own =
      CounterRandom(spec.seed, kClassOrder, topic, layer).Permutation(size);
  for (uint32_t e = 0; e < size; ++e) {
    p[e] = (1 - spec.topic_share) * zipf[common[e]] +
           spec.topic_share * zipf[own[e]];
  }
  CapProbabilities(1.0 / spec.top_k, p);
}

void FillEmpty(const WorkloadSpec& spec, uint32_t layer, std::span<double> p) {
  const uint32_t per_rank = spec.num_experts / spec.mesh.ep;
  const uint32_t rank = ChosenRank(spec);
  const uint32_t others = spec.num_experts - per_rank;
  uint32_t empty = static_cast<uint32_t>(spec.empty_share * others);
  const uint32_t used = others - empty;
  for (const uint32_t e : CounterRandom(spec.seed, kClassOrder, 0, layer)
                              .Permutation(spec.num_experts)) {
    p[e] = 1.0 / used;
    if (e / per_rank == rank) {
      p[e] = 0;
    } else if (empty > 0) {
      p[e] = 0;
      --empty;
    }
  }
}

// The hot experts of class c in a layer.
std::vector<uint32_t> HotExperts(const WorkloadSpec& spec, uint32_t c,
                                 uint32_t layer) {
  const uint32_t per_rank = spec.num_experts / spec.mesh.ep;
  const CounterRandom random(spec.seed, kClassOrder, c, layer);
  std::vector<uint32_t> hot;
  switch (spec.imbalance) {
    case Imbalance::kHotRank:
      for (uint32_t h = 0; h < per_rank; ++h) {
        hot.push_back(ChosenRank(spec) * per_rank + h);
      }
      break;
    case Imbalance::kSpreadHotExperts:
      for (uint32_t rank = 0; rank < spec.mesh.ep; ++rank) {
        hot.push_back(rank * per_rank +
                      static_cast<uint32_t>(random.BelowAt(rank, per_rank)));
      }
      break;
    default:
      hot = random.Permutation(spec.num_experts);
      hot.resize(spec.hot_experts);
  }
  return hot;
}

bool HasHotExperts(Imbalance imbalance) {
  switch (imbalance) {
    case Imbalance::kHotExperts:
    case Imbalance::kHotRank:
    case Imbalance::kSpreadHotExperts:
    case Imbalance::kRotatingHotspot:
    case Imbalance::kBursts:
      return true;
    default:
      return false;
  }
}

absl::Status CheckShares(const WorkloadSpec& spec) {
  const uint32_t per_rank = spec.num_experts / spec.mesh.ep;
  if (HasHotExperts(spec.imbalance)) {
    const uint32_t hot = spec.imbalance == Imbalance::kHotRank ? per_rank
                         : spec.imbalance == Imbalance::kSpreadHotExperts
                             ? spec.mesh.ep
                             : spec.hot_experts;
    const double most = std::min(1.0, static_cast<double>(hot) / spec.top_k);
    // The others must be able to take the rest.
    const double least =
        1 - static_cast<double>(spec.num_experts - hot) / spec.top_k;
    if (spec.hot_share > most || spec.hot_share < least) {
      return absl::InvalidArgumentError(absl::StrCat(
          "hot_share ", spec.hot_share, " is not possible: ", hot, " of ",
          spec.num_experts, " experts take between ", std::max(0.0, least),
          " and ", most, " when each token chooses ", spec.top_k,
          " distinct ones"));
    }
  }
  if (spec.imbalance == Imbalance::kEmptyExpertsAndRanks) {
    const uint32_t others = spec.num_experts - per_rank;
    const uint32_t used =
        others - static_cast<uint32_t>(spec.empty_share * others);
    if (used < spec.top_k) {
      return absl::InvalidArgumentError(
          absl::StrCat("empty_share ", spec.empty_share, " leaves ", used,
                       " experts, fewer than top_k ", spec.top_k));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RoutingModel> RoutingModel::Create(const WorkloadSpec& spec) {
  if (absl::Status s = CheckShares(spec); !s.ok()) return s;
  RoutingModel model;
  model.num_layers_ = spec.num_layers;
  model.num_experts_ = spec.num_experts;
  model.seed_ = spec.seed;
  model.step_ = spec.step;
  switch (spec.imbalance) {
    case Imbalance::kTopics:
      model.mixing_ = Mixing::kTopics;
      model.weights_.assign(spec.topics, 1.0 / spec.topics);
      break;
    case Imbalance::kRotatingHotspot:
      model.mixing_ = Mixing::kRotating;
      model.weights_.assign(kHotspotSegments, 1.0 / kHotspotSegments);
      break;
    case Imbalance::kBursts:
      model.mixing_ = Mixing::kBursts;
      model.weights_.assign(1 + kBurstKinds, spec.burst_share / kBurstKinds);
      model.weights_[0] = 1 - spec.burst_share;
      break;
    default:
      model.mixing_ = Mixing::kSingle;
      model.weights_.assign(1, 1.0);
  }

  const size_t num_experts = spec.num_experts;
  const std::vector<double> zipf = ZipfWeights(spec.num_experts, spec.zipf);
  model.popularity_.assign(
      model.weights_.size() * spec.num_layers * num_experts, 1.0 / num_experts);
  std::span<double> rest(model.popularity_);
  for (uint32_t c = 0; c < model.num_classes(); ++c) {
    for (uint32_t l = 0; l < spec.num_layers; ++l) {
      const std::span<double> p = rest.first(num_experts);
      rest = rest.subspan(num_experts);
      if (spec.imbalance == Imbalance::kTopics) {
        FillTopics(spec, l, c, zipf, p);
      } else if (spec.imbalance == Imbalance::kEmptyExpertsAndRanks) {
        FillEmpty(spec, l, p);
      } else if (HasHotExperts(spec.imbalance) &&
                 !(spec.imbalance == Imbalance::kBursts && c == 0)) {
        SetHot(HotExperts(spec, c, l), spec.hot_share, p);
      }
    }
  }
  for (uint32_t l = 0; spec.drift > 0 && l < spec.num_layers; ++l) {
    absl::Status drifted = model.DriftLayer(l, spec.drift, spec.step);
    if (!drifted.ok()) return drifted;
  }
  return model;
}

ClassMixture RoutingModel::MixtureOfGroup(uint32_t g,
                                          uint32_t num_groups) const {
  const CounterRandom random(seed_, kGroupMixture, step_, g);
  switch (mixing_) {
    case Mixing::kTopics: {
      const auto a = static_cast<uint32_t>(random.BelowAt(0, num_classes()));
      const auto b = static_cast<uint32_t>(random.BelowAt(1, num_classes()));
      return {.a = a, .b = b, .share = 0.5 + 0.5 * random.UniformAt(2)};
    }
    case Mixing::kRotating: {
      const uint64_t segment = uint64_t{g} * kHotspotSegments / num_groups;
      const auto c =
          static_cast<uint32_t>((segment + step_) % kHotspotSegments);
      return {.a = c, .b = c};
    }
    case Mixing::kBursts: {
      if (random.UniformAt(0) >= 1 - weights_[0]) return {};
      const auto c = static_cast<uint32_t>(1 + random.BelowAt(1, kBurstKinds));
      return {.a = c, .b = c};
    }
    case Mixing::kSingle:
      break;
  }
  return {};
}

std::vector<double> RoutingModel::Expected(uint32_t l) const {
  std::vector<double> expected(num_experts_);
  for (uint32_t c = 0; c < num_classes(); ++c) {
    const std::span<const double> p = popularity(c, l);
    for (uint32_t e = 0; e < num_experts_; ++e) {
      expected[e] += weights_[c] * p[e];
    }
  }
  return expected;
}

namespace {

// Disjoint pairs of the experts to swap, as consecutive entries: random ones,
// or, where all of these together move the routing by less than `wanted`, the
// most popular with the least popular and so on, which move it the most.
std::vector<uint32_t> SwapOrder(const CounterRandom& random,
                                std::span<const double> expected,
                                std::span<const uint32_t> without,
                                double wanted) {
  std::vector<uint32_t> order =
      random.Permutation(static_cast<uint32_t>(expected.size()));
  std::erase_if(order, [&](uint32_t e) {
    return std::find(without.begin(), without.end(), e) != without.end();
  });
  double reach = 0;
  for (size_t i = 0; i + 1 < order.size(); i += 2) {
    reach += std::abs(expected[order[i]] - expected[order[i + 1]]);
  }
  if (reach >= wanted) return order;
  std::vector<uint32_t> sorted = order;
  std::stable_sort(sorted.begin(), sorted.end(), [&](uint32_t x, uint32_t y) {
    return expected[x] > expected[y];
  });
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = sorted[i % 2 == 0 ? i / 2 : order.size() - 1 - i / 2];
  }
  return order;
}

}  // namespace

double RoutingModel::Advance(uint32_t l, double left, Swap& swap) {
  double gain = 0;
  for (uint32_t c = 0; c < num_classes(); ++c) {
    gain += weights_[c] * swap.difference[c];
  }
  gain = std::abs(gain);
  const double rest = 1 - swap.done;
  const double part = gain * rest <= left ? rest : left / gain;
  for (uint32_t c = 0; c < num_classes(); ++c) {
    double* p =
        popularity_.data() + (size_t{c} * num_layers_ + l) * num_experts_;
    p[swap.x] -= part * swap.difference[c];
    p[swap.y] += part * swap.difference[c];
  }
  swap.done = part == rest ? 1 : swap.done + part;
  return swap.done == 1 ? left - gain * rest : 0;
}

absl::Status RoutingModel::DriftLayer(uint32_t l, double distance,
                                      uint64_t steps) {
  std::optional<Swap> open;  // begun in an earlier step
  for (uint64_t step = 1; step <= steps; ++step) {
    double left = distance;
    std::vector<uint32_t> moved;
    if (open) {
      moved = {open->x, open->y};
      left = Advance(l, left, *open);
      if (open->done == 1) open.reset();
    }
    const std::vector<double> expected = Expected(l);
    const std::vector<uint32_t> order = SwapOrder(
        CounterRandom(seed_, kDriftOrder, step, l), expected, moved, left);
    for (size_t i = 0; i + 1 < order.size() && left > 0; i += 2) {
      Swap swap = {.x = order[i], .y = order[i + 1]};
      for (uint32_t c = 0; c < num_classes(); ++c) {
        swap.difference.push_back(popularity(c, l)[swap.x] -
                                  popularity(c, l)[swap.y]);
      }
      left = Advance(l, left, swap);
      if (swap.done < 1) open = std::move(swap);
    }
    if (left > 1e-9) {  // rounding may leave a few units in the last place
      return absl::InvalidArgumentError(absl::StrCat(
          "drift ", distance, " is beyond what the routing of layer ", l,
          " allows: swapping all experts moves it by ", distance - left));
    }
  }
  return absl::OkStatus();
}

}  // namespace routepack
