#include "planner/relabel.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>

#include "oneapi/tbb/parallel_for.h"
#include "planner/assignment.h"

namespace routepack {
namespace {

// Larger ranks than this give freed slots to newcomers in order.
constexpr uint32_t kMaxSlotAssignment = 256;

struct Freed {
  std::vector<uint32_t> newcomers;  // positions in the group
  std::vector<uint32_t> slots;
};

Freed FreeSlots(uint32_t p, std::span<const uint32_t> home,
                std::span<const uint32_t> experts) {
  const auto size = static_cast<uint32_t>(experts.size());
  std::vector<char> kept(size, 0);
  Freed freed;
  for (uint32_t k = 0; k < size; ++k) {
    const uint32_t slot = home[experts[k]];
    if (slot / size == p) {
      kept[slot % size] = 1;
    } else {
      freed.newcomers.push_back(k);
    }
  }
  for (uint32_t h = 0; h < size; ++h) {
    if (!kept[h]) freed.slots.push_back(p * size + h);
  }
  return freed;
}

class LayerRelabelling {
 public:
  LayerRelabelling(const MovementModel& model, uint32_t l,
                   std::span<const uint32_t> home)
      : model_(model),
        layer_(l),
        home_(home),
        ranks_(model.spec().num_ranks),
        size_(model.spec().slots_per_rank),
        freed_(size_) {}

  // `groups` [P][H] experts. Writes both directions of the layer's map.
  void Run(std::span<const uint32_t> groups, std::span<uint32_t> slot_of_expert,
           std::span<uint32_t> expert_of_slot) {
    const std::vector<uint32_t> rank_of_group =
        MinCostAssignment(Costs(groups), ranks_);
    std::vector<uint32_t> slots(size_);
    for (uint32_t k = 0; k < ranks_; ++k) {
      const auto group = groups.subspan(size_t{k} * size_, size_);
      ChooseSlots(model_, layer_, rank_of_group[k], home_, group, slots);
      for (uint32_t j = 0; j < size_; ++j) {
        slot_of_expert[group[j]] = slots[j];
        expert_of_slot[slots[j]] = group[j];
      }
    }
  }

 private:
  // [group][rank]
  std::vector<int64_t> Costs(std::span<const uint32_t> groups) {
    const uint64_t work =
        uint64_t{ranks_} * ranks_ * size_ * size_ * uint64_t{size_};
    const bool exact = model_.SlotsDiffer(layer_) && work <= kExactSlotWork;
    std::vector<int64_t> costs(size_t{ranks_} * ranks_);
    std::vector<uint32_t> slots(size_);
    for (uint32_t k = 0; k < ranks_; ++k) {
      const auto group = groups.subspan(size_t{k} * size_, size_);
      for (uint32_t p = 0; p < ranks_; ++p) {
        costs[size_t{k} * ranks_ + p] =
            exact ? ChooseSlots(model_, layer_, p, home_, group, slots)
                  : LeastCost(p, group);
      }
    }
    return costs;
  }

  // Cost if each newcomer could have the cheapest freed slot.
  int64_t LeastCost(uint32_t p, std::span<const uint32_t> experts) {
    std::fill(freed_.begin(), freed_.end(), 1);
    int64_t cost = 0;
    for (const uint32_t expert : experts) {
      const uint32_t from = home_[expert];
      if (from / size_ == p) freed_[from % size_] = 0;
      cost += model_.SendCost(layer_, from, p);
    }
    if (!model_.SlotsDiffer(layer_)) return cost;
    for (const uint32_t expert : experts) {
      const uint32_t h = home_[expert] % size_;
      // Its own place in the rank costs nothing.
      if (home_[expert] / size_ == p || freed_[h]) continue;
      int64_t least = std::numeric_limits<int64_t>::max();
      for (uint32_t to = 0; to < size_; ++to) {
        if (!freed_[to]) continue;
        least = std::min(least, model_.RepartitionCost(layer_, p, h, to));
      }
      cost += least;
    }
    return cost;
  }

  const MovementModel& model_;
  uint32_t layer_;
  std::span<const uint32_t> home_;  // [E]
  uint32_t ranks_;
  uint32_t size_;
  std::vector<char> freed_;  // [h] of the rank looked at
};

}  // namespace

int64_t ChooseSlots(const MovementModel& model, uint32_t l, uint32_t p,
                    std::span<const uint32_t> home,
                    std::span<const uint32_t> experts,
                    std::span<uint32_t> slots) {
  const Freed freed = FreeSlots(p, home, experts);
  const auto count = static_cast<uint32_t>(freed.newcomers.size());
  for (size_t k = 0; k < experts.size(); ++k) slots[k] = home[experts[k]];
  const bool choose = model.SlotsDiffer(l) && count <= kMaxSlotAssignment;
  std::vector<uint32_t> order;
  if (choose) {
    std::vector<int64_t> costs;
    costs.reserve(size_t{count} * count);
    for (const uint32_t k : freed.newcomers) {
      for (const uint32_t slot : freed.slots) {
        costs.push_back(model.MoveCost(l, home[experts[k]], slot));
      }
    }
    order = MinCostAssignment(costs, count);
  }
  int64_t cost = 0;
  for (uint32_t j = 0; j < count; ++j) {
    const uint32_t k = freed.newcomers[j];
    slots[k] = freed.slots[choose ? order[j] : j];
    cost += model.MoveCost(l, home[experts[k]], slots[k]);
  }
  return cost;
}

Placement RelabelledLptPlacement(std::span<const uint64_t> loads,
                                 const Placement& current,
                                 const MovementModel& model) {
  const uint32_t num_experts = current.num_experts;
  assert(model.num_experts() == num_experts);
  Placement placement =
      LptPlacement(loads, current.num_layers, num_experts, current.num_ranks);
  tbb::parallel_for(uint32_t{0}, current.num_layers, [&](uint32_t l) {
    const size_t begin = size_t{l} * num_experts;
    const auto expert_of_slot =
        std::span(placement.expert_of_slot).subspan(begin, num_experts);
    const std::vector<uint32_t> groups(expert_of_slot.begin(),
                                       expert_of_slot.end());
    LayerRelabelling relabelling(
        model, l,
        std::span(current.slot_of_expert).subspan(begin, num_experts));
    relabelling.Run(
        groups, std::span(placement.slot_of_expert).subspan(begin, num_experts),
        expert_of_slot);
  });
  return placement;
}

}  // namespace routepack
