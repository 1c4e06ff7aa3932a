#include "planner/incremental.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "oneapi/tbb/parallel_for.h"
#include "planner/layer_swaps.h"
#include "planner/movement_report.h"
#include "planner/relabel.h"

namespace routepack {
namespace {

using Wide = __int128;

// What a layer could do.
struct LayerPlan {
  LoadFloor floor;
  uint64_t peak = 0;  // max_p load of the current map
  std::vector<SlotSwap> swaps;
};

// Swaps [begin, end) of a layer: from one corner of its hull to the next.
struct Segment {
  uint32_t layer = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  int64_t gain = 0;  // fall of the layer's peak
  int64_t cost = 0;
};

// Whether a has the higher gain per cost; what costs nothing comes first.
bool Steeper(const Segment& a, const Segment& b) {
  const bool a_free = a.cost <= 0;
  const bool b_free = b.cost <= 0;
  if (a_free || b_free) return a_free && (!b_free || a.gain > b.gain);
  return Wide{a.gain} * b.cost > Wide{b.gain} * a.cost;
}

// The upper concave hull of (cost, gain) along the swaps.
std::vector<Segment> Hull(const LayerPlan& plan, uint32_t layer) {
  std::vector<Segment> hull;
  Segment next{.layer = layer};
  uint64_t peak = plan.peak;
  for (uint32_t k = 0; k < plan.swaps.size(); ++k) {
    next.end = k + 1;
    next.gain += static_cast<int64_t>(peak - plan.swaps[k].peak);
    next.cost += plan.swaps[k].cost;
    peak = plan.swaps[k].peak;
    if (next.gain <= 0) continue;
    while (!hull.empty() && !Steeper(hull.back(), next)) {
      next.begin = hull.back().begin;
      next.gain += hull.back().gain;
      next.cost += hull.back().cost;
      hull.pop_back();
    }
    hull.push_back(next);
    next = {.layer = layer, .begin = k + 1, .end = k + 1};
  }
  return hull;
}

class Joiner {
 public:
  Joiner(std::span<const uint64_t> loads, const Placement& current,
         const MovementModel& model, const IncrementalOptions& options)
      : loads_(loads),
        current_(current),
        model_(model),
        options_(options),
        plans_(current.num_layers) {}

  IncrementalResult Run() {
    tbb::parallel_for(uint32_t{0}, current_.num_layers,
                      [&](uint32_t l) { PlanLayer(l); });
    for (const LayerPlan& plan : plans_) {
      result_.floor_sum += plan.floor.peak;
      result_.peak_sum_before += plan.peak;
      result_.hot_expert_layers += plan.floor.hot_expert ? 1 : 0;
    }
    Build(Choose());
    return std::move(result_);
  }

 private:
  template <typename T>
  std::span<T> Layer(std::span<T> all, uint32_t l) const {
    return all.subspan(size_t{l} * current_.num_experts, current_.num_experts);
  }
  std::span<const uint32_t> Map(uint32_t l) const {
    return Layer(std::span(current_.expert_of_slot), l);
  }

  uint64_t Target(uint64_t floor) const {
    return floor + static_cast<uint64_t>(static_cast<double>(floor) *
                                         options_.target_imbalance);
  }

  void PlanLayer(uint32_t l) {
    const std::span<const uint64_t> loads = Layer(loads_, l);
    const std::span<const uint32_t> map = Map(l);
    LayerPlan& plan = plans_[l];
    const uint32_t slots = current_.slots_per_rank();
    for (uint32_t p = 0; p < current_.num_ranks; ++p) {
      uint64_t load = 0;
      for (const uint32_t e : map.subspan(size_t{p} * slots, slots)) {
        load += loads[e];
      }
      plan.peak = std::max(plan.peak, load);
    }
    plan.floor = FloorOf(loads, current_.num_ranks);
    // Half-way below the target: layers that level well make up for those
    // that do not, and swaps can be left out where they gain least.
    const uint64_t target = (plan.floor.peak + Target(plan.floor.peak)) / 2;
    plan.swaps = LevelLayer(model_, l, loads, map, target);
  }

  // The segments to make, in order.
  std::vector<Segment> Choose() {
    std::vector<Segment> segments;
    for (uint32_t l = 0; l < current_.num_layers; ++l) {
      const std::vector<Segment> hull = Hull(plans_[l], l);
      segments.insert(segments.end(), hull.begin(), hull.end());
    }
    std::ranges::stable_sort(segments, Steeper);

    const uint64_t target = Target(result_.floor_sum);
    uint64_t peak_sum = result_.peak_sum_before;
    int64_t cost = 0;
    std::vector<char> closed(current_.num_layers, 0);
    std::vector<Segment> made;
    bool over_budget = false;
    for (const Segment& segment : segments) {
      if (peak_sum <= target) break;
      const int64_t after = cost + segment.cost;
      if (static_cast<double>(after) >
          options_.movement_budget * MovementModel::kCostUnit) {
        closed[segment.layer] = 1;
      }
      if (closed[segment.layer]) {
        over_budget = true;
        continue;
      }
      cost = after;
      peak_sum -= static_cast<uint64_t>(segment.gain);
      made.push_back(segment);
    }
    result_.stop = peak_sum <= target ? IncrementalStop::kTarget
                   : over_budget      ? IncrementalStop::kBudget
                                      : IncrementalStop::kStalled;
    if (options_.break_even && KnowsTimes(model_)) CutWhereItPays(made);
    return made;
  }

  // Keeps the prefix of the largest net gain in time.
  void CutWhereItPays(std::vector<Segment>& made) {
    LinkLoads links(model_);
    std::vector<uint32_t> home(loads_.size());
    for (size_t j = 0; j < home.size(); ++j) {
      home[j] = static_cast<uint32_t>(j % current_.num_experts);
    }
    int64_t gain = 0;
    double best = 0;
    size_t keep = 0;
    for (size_t k = 0; k < made.size(); ++k) {
      gain += made[k].gain;
      AddToLinks(made[k], Layer(std::span(home), made[k].layer), links);
      const double net =
          SavedSeconds(model_, gain) * options_.horizon_steps - links.Seconds();
      if (net <= best) continue;
      best = net;
      keep = k + 1;
    }
    if (keep == made.size()) return;
    made.resize(keep);
    result_.stop = IncrementalStop::kBreakEven;
  }

  // `home` [v]: where the expert in slot v came from, brought up to date.
  void AddToLinks(const Segment& segment, std::span<uint32_t> home,
                  LinkLoads& links) const {
    const uint32_t l = segment.layer;
    for (uint32_t k = segment.begin; k < segment.end; ++k) {
      const auto [u, v, peak, cost] = plans_[l].swaps[k];
      if (home[u] != u) links.Remove(l, home[u], u);
      if (home[v] != v) links.Remove(l, home[v], v);
      std::swap(home[u], home[v]);
      if (home[u] != u) links.Add(l, home[u], u);
      if (home[v] != v) links.Add(l, home[v], v);
    }
  }

  void Build(const std::vector<Segment>& made) {
    Placement& placement = result_.placement;
    placement = current_;
    result_.peak_sum_after = result_.peak_sum_before;
    std::vector<uint32_t> swaps(current_.num_layers, 0);
    for (const Segment& segment : made) {
      swaps[segment.layer] = segment.end;
      result_.peak_sum_after -= static_cast<uint64_t>(segment.gain);
    }
    result_.swaps = std::accumulate(swaps.begin(), swaps.end(), 0u);
    std::vector<int64_t> costs(current_.num_layers, 0);
    tbb::parallel_for(uint32_t{0}, current_.num_layers, [&](uint32_t l) {
      if (swaps[l] != 0) costs[l] = BuildLayer(l, swaps[l]);
    });
    result_.weighted_bytes = static_cast<double>(std::accumulate(
                                 costs.begin(), costs.end(), int64_t{0})) /
                             MovementModel::kCostUnit;
  }

  // Makes the first `swaps` swaps of a layer. Returns their cost.
  int64_t BuildLayer(uint32_t l, uint32_t swaps) {
    const auto map = Layer(std::span(result_.placement.expert_of_slot), l);
    const auto slot_of = Layer(std::span(result_.placement.slot_of_expert), l);
    const auto home = Layer(std::span(current_.slot_of_expert), l);
    int64_t cost = 0;
    for (uint32_t k = 0; k < swaps; ++k) {
      std::swap(map[plans_[l].swaps[k].hot_slot],
                map[plans_[l].swaps[k].cold_slot]);
      cost += plans_[l].swaps[k].cost;
    }
    // An expert may have left its rank and come back to another slot of it.
    const uint32_t size = current_.slots_per_rank();
    const std::vector<uint32_t> groups(map.begin(), map.end());
    std::vector<uint32_t> slots(groups.size());
    int64_t tidy = 0;
    for (uint32_t p = 0; p < current_.num_ranks; ++p) {
      const size_t begin = size_t{p} * size;
      tidy += ChooseSlots(model_, l, p, home,
                          std::span(groups).subspan(begin, size),
                          std::span(slots).subspan(begin, size));
    }
    for (size_t j = 0; tidy <= cost && j < groups.size(); ++j) {
      map[slots[j]] = groups[j];
    }
    for (uint32_t v = 0; v < map.size(); ++v) slot_of[map[v]] = v;
    return std::min(tidy, cost);
  }

  std::span<const uint64_t> loads_;
  const Placement& current_;
  const MovementModel& model_;
  const IncrementalOptions& options_;
  std::vector<LayerPlan> plans_;  // [l]
  IncrementalResult result_;
};

}  // namespace

IncrementalResult IncrementalPlacement(std::span<const uint64_t> loads,
                                       const Placement& current,
                                       const MovementModel& model,
                                       const IncrementalOptions& options) {
  assert(loads.size() == current.slot_of_expert.size());
  assert(model.num_experts() == current.num_experts);
  return Joiner(loads, current, model, options).Run();
}

}  // namespace routepack
