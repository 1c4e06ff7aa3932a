// How likely each expert is chosen: the expected routing behind a synthetic
// window.
//
// Expected routing is a mixture of classes. A class has one distribution over
// experts per layer, [c][l][e], none above 1 / top_k (a token chooses an expert
// at most once). Prompt groups mix classes: topics, the segments of a rotating
// hotspot, or bursts. See WorkloadSpec for the parameters.
//
// Drift swaps the popularity of random disjoint pairs of experts, in all
// classes alike, until the expected routing of every layer has moved by the
// stated total-variation distance; the last swap stops half way, so that the
// distance is exact, and goes on in the next step. So popularity keeps its
// shape however long the sequence is.
// (Where random pairs do not reach the distance, the most popular experts swap
// with the least popular.)

#ifndef ROUTEPACK_CLIENT_ROUTING_MODEL_H_
#define ROUTEPACK_CLIENT_ROUTING_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace routepack {

struct WorkloadSpec;

// The routing of one prompt group: `share` of class a, the rest of class b.
struct ClassMixture {
  uint32_t a = 0;
  uint32_t b = 0;
  double share = 1;
};

class RoutingModel {
 public:
  // The routing at spec.step, drifted that many times. O(step L E).
  // INVALID_ARGUMENT: parameters that cannot be met (a hot share above what
  // distinct experts can take, a drift that the popularity does not allow).
  static absl::StatusOr<RoutingModel> Create(const WorkloadSpec& spec);

  uint32_t num_classes() const {
    return static_cast<uint32_t>(weights_.size());
  }
  // [E] Distribution of class c in layer l.
  std::span<const double> popularity(uint32_t c, uint32_t l) const {
    return std::span(popularity_)
        .subspan((size_t{c} * num_layers_ + l) * num_experts_, num_experts_);
  }
  // Mixture of prompt group g, of `num_groups` in the window.
  ClassMixture MixtureOfGroup(uint32_t g, uint32_t num_groups) const;
  // [E] Expected distribution of the window's assignments in layer l.
  std::vector<double> Expected(uint32_t l) const;

 private:
  RoutingModel() = default;

  // Two experts that trade places, in all classes.
  struct Swap {
    uint32_t x = 0;
    uint32_t y = 0;
    double done = 0;                 // fraction, 1 when complete
    std::vector<double> difference;  // [c] p(x) - p(y) at the beginning
  };
  // Carries the swap on until it is complete or has moved the expected routing
  // by `left`; returns what is left.
  double Advance(uint32_t l, double left, Swap& swap);
  absl::Status DriftLayer(uint32_t l, double distance, uint64_t steps);

  uint32_t num_layers_ = 0;
  uint32_t num_experts_ = 0;
  std::vector<double> popularity_;  // [c][l][e]
  std::vector<double> weights_;     // [c] share of the groups' routing
  // What MixtureOfGroup needs of the spec.
  enum class Mixing { kSingle, kTopics, kRotating, kBursts };
  Mixing mixing_ = Mixing::kSingle;
  uint64_t seed_ = 0;
  uint64_t step_ = 0;
};

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_ROUTING_MODEL_H_
