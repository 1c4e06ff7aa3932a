#include "planner/bin_packing.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

namespace routepack {
namespace {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// The first of a row of bins with room for an item, in O(log n): a tree of the
// largest room below each node.
class RoomTree {
 public:
  RoomTree(size_t num_bins, uint32_t capacity)
      : leaves_(std::bit_ceil(std::max<size_t>(num_bins, 1))),
        room_(2 * leaves_, capacity) {}

  // Takes `size` from the first bin that has it; returns that bin.
  uint32_t TakeFirst(uint32_t size) {
    size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (room_[node] < size) ++node;
    }
    const size_t bin = node - leaves_;
    room_[node] -= size;
    while (node > 1) {
      node /= 2;
      room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    }
    return static_cast<uint32_t>(bin);
  }

 private:
  size_t leaves_;
  std::vector<uint32_t> room_;
};

void PutInto(Bins& bins, uint32_t bin, uint32_t item) {
  if (bin == bins.size()) bins.emplace_back();
  bins[bin].push_back(item);
}

// The best over eps of the function u^(k) applied after U^(eps), which rounds
// sizes above C - eps to C and those below eps to 0. In units of 1 / (k C).
uint64_t RoundedBound(std::span<const SizeGroup> groups, uint64_t capacity,
                      uint64_t k) {
  const uint64_t full = k * capacity;
  std::vector<uint64_t> mapped_sum(groups.size() + 1, 0);
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint64_t scaled = (k + 1) * groups[g].size;
    const uint64_t mapped = scaled % capacity == 0
                                ? k * groups[g].size
                                : scaled / capacity * capacity;
    mapped_sum[g + 1] = mapped_sum[g] + mapped * groups[g].count;
  }
  uint64_t best = 0;
  uint64_t num_full = 0;  // items above C - eps
  for (const SizeGroup& group : groups) num_full += group.count;
  size_t first_partial = groups.size();  // groups before are full
  // eps falls from C / 2, so fewer groups are full and fewer vanish.
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint64_t eps = groups[g].size;
    if (2 * eps > capacity && g + 1 < groups.size()) continue;
    const uint64_t threshold = capacity - std::min(eps, capacity / 2);
    while (first_partial > 0 && groups[first_partial - 1].size <= threshold) {
      num_full -= groups[--first_partial].count;
    }
    const uint64_t partial = g + 1 > first_partial
                                 ? mapped_sum[g + 1] - mapped_sum[first_partial]
                                 : 0;
    best = std::max(best, CeilDiv(num_full * full + partial, full));
  }
  return best;
}

// The function f_eps of Carlier, Clautiaux and Moukrim: counts whole eps, the
// room beside large items rounded down.
uint64_t GridBound(std::span<const SizeGroup> groups, uint64_t capacity,
                   uint64_t eps) {
  const uint64_t steps = capacity / eps;
  uint64_t sum = 0;
  for (const SizeGroup& group : groups) {
    const uint64_t size = group.size;
    uint64_t mapped = 2 * (size / eps);
    if (2 * size > capacity) mapped = 2 * (steps - (capacity - size) / eps);
    if (2 * size == capacity) mapped = steps;
    sum += mapped * group.count;
  }
  return CeilDiv(sum, 2 * steps);
}

// Values of eps worth trying in GridBound: sizes, and just more than the room
// beside large items.
std::vector<uint32_t> GridSteps(std::span<const SizeGroup> groups,
                                uint32_t capacity) {
  constexpr size_t kMaxEvaluations = 2'000'000;
  std::vector<uint32_t> steps;
  for (const SizeGroup& group : groups) {
    const uint32_t eps = std::min(group.size, capacity - group.size + 1);
    if (eps <= capacity / 2) steps.push_back(eps);
  }
  for (uint32_t parts = 2; parts <= 20; ++parts) {
    if (capacity / parts + 1 <= capacity / 2) {
      steps.push_back(capacity / parts + 1);
    }
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const size_t wanted = std::max<size_t>(
      kMaxEvaluations / std::max<size_t>(groups.size(), 1), 32);
  if (steps.size() <= wanted) return steps;
  std::vector<uint32_t> spaced;
  for (size_t i = 0; i < wanted; ++i) {
    spaced.push_back(steps[i * steps.size() / wanted]);
  }
  return spaced;
}

}  // namespace

std::vector<SizeGroup> GroupBySize(std::span<const uint32_t> sizes) {
  std::vector<uint32_t> sorted(sizes.begin(), sizes.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<SizeGroup> groups;
  for (uint32_t size : sorted) {
    if (groups.empty() || groups.back().size != size) {
      groups.push_back({.size = size});
    }
    ++groups.back().count;
  }
  return groups;
}

std::vector<uint32_t> DecreasingOrder(std::span<const uint32_t> sizes) {
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  return order;
}

Bins FirstFitDecreasing(std::span<const uint32_t> sizes, uint32_t capacity) {
  Bins bins;
  RoomTree room(sizes.size(), capacity);
  for (uint32_t item : DecreasingOrder(sizes)) {
    PutInto(bins, room.TakeFirst(sizes[item]), item);
  }
  return bins;
}

Bins BestFitDecreasing(std::span<const uint32_t> sizes, uint32_t capacity) {
  Bins bins;
  std::set<std::pair<uint32_t, uint32_t>> room;  // (room, bin)
  for (uint32_t item : DecreasingOrder(sizes)) {
    const uint32_t size = sizes[item];
    const auto fullest = room.lower_bound({size, 0});
    if (fullest == room.end()) {
      room.emplace(capacity - size, static_cast<uint32_t>(bins.size()));
      PutInto(bins, static_cast<uint32_t>(bins.size()), item);
      continue;
    }
    const auto [left, bin] = *fullest;
    room.erase(fullest);
    room.emplace(left - size, bin);
    PutInto(bins, bin, item);
  }
  return bins;
}

uint32_t CapacityBound(std::span<const uint32_t> sizes, uint32_t capacity) {
  const uint64_t sum = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  return static_cast<uint32_t>(CeilDiv(sum, capacity));
}

uint32_t MartelloTothL2(std::span<const SizeGroup> groups, uint32_t capacity) {
  const uint64_t cap = capacity;
  uint64_t num_large = 0;
  uint64_t room = 0;  // beside them
  size_t end_large = 0;
  while (end_large < groups.size() &&
         2 * uint64_t{groups[end_large].size} > cap) {
    num_large += groups[end_large].count;
    ++end_large;
  }
  uint64_t best = num_large;
  uint64_t small_sum = 0;
  size_t end_full = end_large;  // groups before exceed C - k
  for (size_t g = end_large; g < groups.size(); ++g) {
    const uint64_t k = groups[g].size;
    small_sum += k * groups[g].count;
    while (end_full > 0 && groups[end_full - 1].size <= cap - k) {
      --end_full;
      room += (cap - groups[end_full].size) * groups[end_full].count;
    }
    if (small_sum > room) {
      best = std::max(best, num_large + CeilDiv(small_sum - room, cap));
    }
  }
  return static_cast<uint32_t>(best);
}

uint32_t MartelloTothL2(std::span<const uint32_t> sizes, uint32_t capacity) {
  return MartelloTothL2(GroupBySize(sizes), capacity);
}

uint32_t DualFeasibleBound(std::span<const uint32_t> sizes, uint32_t capacity) {
  const std::vector<SizeGroup> groups = GroupBySize(sizes);
  uint64_t best = 0;
  for (uint64_t k = 1; k <= 20; ++k) {
    best = std::max(best, RoundedBound(groups, capacity, k));
  }
  for (uint32_t eps : GridSteps(groups, capacity)) {
    best = std::max(best, GridBound(groups, capacity, eps));
  }
  return static_cast<uint32_t>(best);
}

}  // namespace routepack
