#include "planner/placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "oneapi/tbb/parallel_for.h"
#include "planner/digest.h"
#include "planner/errors.h"

namespace routepack {
namespace {

struct Expert {
  uint64_t deficit;  // load of the layer's heaviest expert less its own
  uint32_t id;
};

// By decreasing load, ties by lower id: counting sorts over the bytes of the
// deficit, lowest first, each keeping the order of equals.
std::vector<Expert> SortByLoad(std::span<const uint64_t> loads) {
  const uint64_t heaviest = *std::max_element(loads.begin(), loads.end());
  const uint64_t lightest = *std::min_element(loads.begin(), loads.end());
  std::vector<Expert> experts(loads.size());
  for (uint32_t e = 0; e < loads.size(); ++e) {
    experts[e] = {heaviest - loads[e], e};
  }
  std::vector<Expert> sorted(experts.size());
  const int bits = std::bit_width(heaviest - lightest);
  for (int shift = 0; shift < bits; shift += 8) {
    const auto digit = [shift](const Expert& expert) {
      return (expert.deficit >> shift) & 0xFF;
    };
    std::array<uint32_t, 257> begin = {};
    for (const Expert& expert : experts) ++begin[digit(expert) + 1];
    for (size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
    for (const Expert& expert : experts) {
      sorted[begin[digit(expert)]++] = expert;
    }
    experts.swap(sorted);
  }
  return experts;
}

// The open rank with the least load, ties to the lower rank: a tournament tree
// with a leaf per rank, where each node repeats the winner of its two children.
class Tournament {
 public:
  explicit Tournament(uint32_t num_ranks)
      : first_leaf_(std::bit_ceil(num_ranks)), nodes_(size_t{2} * first_leaf_) {
    for (uint32_t p = 0; p < first_leaf_; ++p) {
      nodes_[first_leaf_ + p] = {p < num_ranks ? 0 : kClosed, p};
    }
    for (uint32_t node = first_leaf_ - 1; node > 0; --node) Play(node);
  }

  uint32_t rank() const { return nodes_[1].rank; }
  uint64_t load() const { return nodes_[1].load; }
  void SetLoad(uint32_t rank, uint64_t load) {
    uint32_t node = first_leaf_ + rank;
    nodes_[node].load = load;
    for (node /= 2; node > 0; node /= 2) Play(node);
  }
  void Close(uint32_t rank) { SetLoad(rank, kClosed); }

 private:
  static constexpr uint64_t kClosed = std::numeric_limits<uint64_t>::max();

  struct Entry {
    uint64_t load;
    uint32_t rank;
  };

  // Lower ranks are left, so the left child wins ties.
  void Play(uint32_t node) {
    const Entry& left = nodes_[size_t{2} * node];
    const Entry& right = nodes_[size_t{2} * node + 1];
    const bool right_wins = right.load < left.load;
    nodes_[node].load = right_wins ? right.load : left.load;
    nodes_[node].rank = right_wins ? right.rank : left.rank;
  }

  uint32_t first_leaf_;
  std::vector<Entry> nodes_;  // [2 first_leaf], the root is 1
};

void LptLayer(std::span<const uint64_t> loads, uint32_t num_ranks,
              std::span<uint32_t> slot_of_expert,
              std::span<uint32_t> expert_of_slot) {
  const uint32_t slots_per_rank =
      static_cast<uint32_t>(loads.size()) / num_ranks;
  std::vector<uint32_t> used(num_ranks, 0);
  Tournament ranks(num_ranks);
  for (const Expert& expert : SortByLoad(loads)) {
    const uint32_t p = ranks.rank();
    const uint64_t load = ranks.load() + loads[expert.id];
    const uint32_t slot = p * slots_per_rank + used[p]++;
    slot_of_expert[expert.id] = slot;
    expert_of_slot[slot] = expert.id;
    if (used[p] < slots_per_rank) {
      ranks.SetLoad(p, load);
    } else {
      ranks.Close(p);
    }
  }
}

void CheckLayer(const Placement& placement, uint32_t l,
                const std::string& field, Violations& bad) {
  const uint32_t num_experts = placement.num_experts;
  const size_t begin = size_t{l} * num_experts;
  const uint32_t* slot_of = placement.slot_of_expert.data() + begin;
  const uint32_t* expert_of = placement.expert_of_slot.data() + begin;
  const auto check = [&](const char* name, const uint32_t* map,
                         const char* what) {
    std::vector<uint32_t> seen(num_experts, num_experts);
    for (uint32_t j = 0; j < num_experts; ++j) {
      const auto path = [&] {
        return absl::StrCat(field, ".layers[", l, "].", name, "[", j, "]");
      };
      if (map[j] >= num_experts) {
        bad.Add(path(),
                absl::StrCat("must be below ", num_experts, ", is ", map[j]));
      } else if (seen[map[j]] != num_experts) {
        bad.Add(path(), absl::StrCat(what, " ", map[j],
                                     " is already at position ", seen[map[j]]));
      } else {
        seen[map[j]] = j;
      }
    }
  };
  const size_t before = bad.total();
  check("slot_of_expert", slot_of, "slot");
  check("expert_of_slot", expert_of, "expert");
  if (bad.total() != before) return;
  for (uint32_t e = 0; e < num_experts; ++e) {
    if (expert_of[slot_of[e]] == e) continue;
    bad.Add(absl::StrCat(field, ".layers[", l, "].expert_of_slot[", slot_of[e],
                         "]"),
            absl::StrCat("must be ", e, " because slot_of_expert[", e, "] is ",
                         slot_of[e], ", is ", expert_of[slot_of[e]]));
  }
}

}  // namespace

Placement IdentityPlacement(uint32_t num_layers, uint32_t num_experts,
                            uint32_t num_ranks) {
  Placement placement{num_layers, num_experts, num_ranks, {}, {}};
  const size_t size = size_t{num_layers} * num_experts;
  placement.slot_of_expert.resize(size);
  for (size_t j = 0; j < size; ++j) {
    placement.slot_of_expert[j] = static_cast<uint32_t>(j % num_experts);
  }
  placement.expert_of_slot = placement.slot_of_expert;
  return placement;
}

Placement LptPlacement(std::span<const uint64_t> loads, uint32_t num_layers,
                       uint32_t num_experts, uint32_t num_ranks) {
  assert(num_ranks > 0 && num_experts % num_ranks == 0);
  assert(loads.size() == size_t{num_layers} * num_experts);
  Placement placement{num_layers, num_experts, num_ranks, {}, {}};
  placement.slot_of_expert.resize(loads.size());
  placement.expert_of_slot.resize(loads.size());
  tbb::parallel_for(uint32_t{0}, num_layers, [&](uint32_t l) {
    const size_t begin = size_t{l} * num_experts;
    LptLayer(loads.subspan(begin, num_experts), num_ranks,
             std::span(placement.slot_of_expert).subspan(begin, num_experts),
             std::span(placement.expert_of_slot).subspan(begin, num_experts));
  });
  return placement;
}

std::vector<uint64_t> RankLoads(const Placement& placement,
                                std::span<const uint64_t> expert_loads) {
  const uint32_t num_experts = placement.num_experts;
  const uint32_t slots_per_rank = placement.slots_per_rank();
  std::vector<uint64_t> loads(size_t{placement.num_layers} *
                              placement.num_ranks);
  for (size_t j = 0; j < placement.expert_of_slot.size(); ++j) {
    const size_t l = j / num_experts;
    const size_t p = j % num_experts / slots_per_rank;
    loads[l * placement.num_ranks + p] +=
        expert_loads[l * num_experts + placement.expert_of_slot[j]];
  }
  return loads;
}

PlacementChange ComparePlacements(const Placement& from, const Placement& to) {
  assert(from.slot_of_expert.size() == to.slot_of_expert.size());
  PlacementChange change;
  change.experts_total = to.slot_of_expert.size();
  for (size_t j = 0; j < to.slot_of_expert.size(); ++j) {
    const uint32_t old_slot = from.slot_of_expert[j];
    const uint32_t new_slot = to.slot_of_expert[j];
    change.experts_to_other_slot += old_slot != new_slot;
    change.experts_to_other_rank +=
        old_slot / from.slots_per_rank() != new_slot / to.slots_per_rank();
  }
  return change;
}

std::string PlacementDigest(const Placement& placement) {
  Digest digest;
  digest.AddU32(placement.num_layers);
  digest.AddU32(placement.num_experts);
  digest.AddU32(placement.num_ranks);
  digest.AddArray(std::span(placement.slot_of_expert));
  return digest.Hex();
}

absl::Status ValidatePlacement(const Placement& placement,
                               std::string_view prefix) {
  const std::string field(prefix);
  Violations bad;
  if (placement.num_ranks == 0 ||
      placement.num_experts % placement.num_ranks != 0) {
    bad.Add(field,
            absl::StrCat(placement.num_experts, " experts do not divide into ",
                         placement.num_ranks, " EP ranks"));
  }
  const size_t size = size_t{placement.num_layers} * placement.num_experts;
  const auto check_size = [&](const char* name, size_t got) {
    if (got == size) return;
    bad.Add(absl::StrCat(field, ".", name),
            absl::StrCat("must have num_layers * num_experts = ", size,
                         " entries, has ", got));
  };
  check_size("slot_of_expert", placement.slot_of_expert.size());
  check_size("expert_of_slot", placement.expert_of_slot.size());
  if (!bad.empty()) return bad.ToStatus();
  for (uint32_t l = 0; l < placement.num_layers; ++l) {
    CheckLayer(placement, l, field, bad);
  }
  return bad.ToStatus();
}

}  // namespace routepack
