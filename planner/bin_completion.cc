#include "planner/bin_completion.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace routepack {
namespace {

// What makes a node cost about the same everywhere: an item tried takes some
// ten times as long as a group looked at.
constexpr uint64_t kStepsPerNode = 64;
constexpr uint64_t kGroupsPerStep = 16;
constexpr uint64_t kNodesBetweenBudgetChecks = 1000;

// How thoroughly completions of a bin are listed.
struct Effort {
  uint64_t max_steps;  // per bin
  size_t max_completions;
  uint64_t share;  // of the nodes left: 1 / share
};

constexpr Effort kEfforts[] = {
    {.max_steps = 256, .max_completions = 8, .share = 8},
    {.max_steps = 4096, .max_completions = 64, .share = 4},
    {.max_steps = 65'536, .max_completions = 1024, .share = 2},
    {.max_steps = 1 << 20, .max_completions = 16'384, .share = 1},
};

// Total picks of all completions on the stack, beyond which only the fullest
// completion of a bin is kept: bounds the memory of deep searches.
constexpr size_t kMaxPicks = size_t{1} << 22;

// A set of items that fills a bin beside the item that opened it.
struct Completion {
  uint32_t slack;               // room left
  std::vector<uint32_t> picks;  // groups, ascending, repeated per item
};

bool Fuller(const Completion& a, const Completion& b) {
  return a.slack < b.slack;
}

// Lists the completions of one bin: maximal sets of available items within
// `room` that no other set dominates. Set A is dominated if items of A can be
// exchanged for one larger item left out (singly or in pairs), or for equally
// much in fewer items: whatever held that item takes those of A instead.
class CompletionLister {
 public:
  // `available`: groups by decreasing size, with the group id of each. Both
  // spans must outlive the lister.
  CompletionLister(std::span<const SizeGroup> available,
                   std::span<const uint32_t> group_ids, uint64_t max_steps,
                   size_t max_completions)
      : available_(available),
        ids_(group_ids),
        max_steps_(max_steps),
        max_completions_(max_completions) {
    left_.reserve(available.size());
    for (const SizeGroup& group : available) left_.push_back(group.count);
    sum_from_.assign(available.size() + 1, 0);
    for (size_t g = available.size(); g-- > 0;) {
      sum_from_[g] =
          sum_from_[g + 1] + uint64_t{available[g].size} * available[g].count;
    }
  }

  // Completions with at most `max_slack` room left, fullest first.
  std::vector<Completion> List(uint32_t room, uint64_t max_slack) {
    room_ = room;
    slack_limit_ = std::min<uint64_t>(room, max_slack);
    // At least one set is reached, however many items it has.
    if (!available_.empty()) max_steps_ += room / available_.back().size;
    if (Descend(0)) Enumerate();
    std::stable_sort(found_.begin(), found_.end(), Fuller);
    Trim();
    return std::move(found_);
  }

  bool complete() const { return complete_; }
  uint64_t steps() const { return steps_; }

 private:
  struct Pick {
    size_t group;
    size_t first;           // the largest group that fitted here
    uint64_t slack_before;  // slack_limit_ before the pick
  };

  // The first group from `start` with an item left that fits.
  size_t FirstFitting(size_t start) const {
    const auto fits = [&](const SizeGroup& group, uint32_t room) {
      return group.size > room;
    };
    size_t g = std::lower_bound(available_.begin() + start, available_.end(),
                                room_, fits) -
               available_.begin();
    while (g < available_.size() && left_[g] == 0) ++g;
    return g;
  }

  // Picks the largest item from `start` that fits; records the set when none
  // does. True if it picked.
  bool Descend(size_t start) {
    const size_t g = FirstFitting(start);
    if (g == available_.size()) {
      if (room_ <= slack_limit_ && !PairDominated()) Record();
      return false;
    }
    return TryPick(g, g);
  }

  // False if no completion with this pick can be within the slack limit.
  bool TryPick(size_t g, size_t first) {
    ++steps_;
    if (sum_from_[g] < room_ && room_ - sum_from_[g] > slack_limit_) {
      return false;
    }
    picks_.push_back({g, first, slack_limit_});
    --left_[g];
    room_ -= available_[g].size;
    // An item left out that is larger than this one must not fit instead.
    size_t larger = g;
    while (larger > 0 && left_[larger - 1] == 0) --larger;
    if (larger > 0) {
      slack_limit_ = std::min<uint64_t>(
          slack_limit_, available_[larger - 1].size - available_[g].size - 1);
    }
    return true;
  }

  Pick Unpick() {
    const Pick pick = picks_.back();
    picks_.pop_back();
    ++left_[pick.group];
    room_ += available_[pick.group].size;
    slack_limit_ = pick.slack_before;
    return pick;
  }

  // Depth first, iteratively: bins may hold thousands of items.
  void Enumerate() {
    while (!picks_.empty()) {
      if (steps_ >= max_steps_) {
        complete_ = false;
        return;
      }
      if (Descend(picks_.back().group)) continue;
      while (!picks_.empty()) {
        const Pick last = Unpick();
        const size_t g = Next(last);
        if (g < available_.size() && TryPick(g, last.first)) break;
      }
    }
  }

  // The group to try instead of an undone pick, or the number of groups.
  size_t Next(const Pick& last) const {
    const uint32_t smallest = available_.back().size;
    // An item that fills the bin dominates whatever else fits.
    if (available_[last.first].size == room_) return available_.size();
    size_t g = last.group + 1;
    // A last item must be the largest that fits, so go on with those that
    // leave room for another.
    if (room_ < smallest) return available_.size();
    const uint32_t with_other = room_ - smallest;
    if (g < available_.size() && available_[g].size > with_other) {
      g = std::lower_bound(available_.begin() + g, available_.end(), with_other,
                           [](const SizeGroup& group, uint32_t size) {
                             return group.size > size;
                           }) -
          available_.begin();
    }
    while (g < available_.size() && left_[g] == 0) ++g;
    return g;
  }

  // Whether some item left out can take the place of two of the last picks.
  bool PairDominated() {
    constexpr size_t kMaxPicksChecked = 5;
    const size_t end = picks_.size();
    const size_t begin = end > kMaxPicksChecked ? end - kMaxPicksChecked : 0;
    for (size_t i = begin; i < end; ++i) {
      for (size_t j = i + 1; j < end; ++j) {
        ++steps_;
        if (HasLeft(uint64_t{available_[picks_[i].group].size} +
                    available_[picks_[j].group].size)) {
          return true;
        }
      }
    }
    return false;
  }

  // Whether an item of size in [size, size + room_] is left.
  bool HasLeft(uint64_t size) const {
    size_t g =
        std::lower_bound(available_.begin(), available_.end(), size + room_,
                         [](const SizeGroup& group, uint64_t most) {
                           return group.size > most;
                         }) -
        available_.begin();
    for (; g < available_.size() && available_[g].size >= size; ++g) {
      if (left_[g] > 0) return true;
    }
    return false;
  }

  void Record() {
    Completion completion{.slack = room_};
    completion.picks.reserve(picks_.size());
    for (const Pick& pick : picks_) {
      completion.picks.push_back(ids_[pick.group]);
    }
    found_.push_back(std::move(completion));
    if (found_.size() >= 2 * max_completions_) {
      std::stable_sort(found_.begin(), found_.end(), Fuller);
      Trim();
    }
  }

  void Trim() {
    if (found_.size() <= max_completions_) return;
    found_.resize(max_completions_);
    complete_ = false;
  }

  std::span<const SizeGroup> available_;
  std::span<const uint32_t> ids_;
  uint64_t max_steps_;
  size_t max_completions_;
  std::vector<uint32_t> left_;      // of each group, besides the picks
  std::vector<uint64_t> sum_from_;  // total size of groups from g
  std::vector<Pick> picks_;
  uint32_t room_ = 0;
  uint64_t slack_limit_ = 0;
  std::vector<Completion> found_;
  uint64_t steps_ = 0;
  bool complete_ = true;
};

// One depth-first search at one effort.
class BinCompletion {
 public:
  BinCompletion(std::span<const SizeGroup> groups, uint32_t capacity,
                uint64_t max_bins, const Effort& effort)
      : groups_(groups),
        capacity_(capacity),
        max_bins_(max_bins),
        effort_(effort) {
    uint64_t sum = 0;
    left_.reserve(groups.size());
    for (const SizeGroup& group : groups) {
      left_.push_back(group.count);
      sum += uint64_t{group.size} * group.count;
    }
    max_waste_ = max_bins * capacity - sum;
  }

  Fit Run(uint64_t max_nodes, const Budget& budget) {
    uint64_t next_check = kNodesBetweenBudgetChecks;
    OpenBin(max_nodes);
    while (!done_) {
      if (stack_.empty()) return complete_ ? Fit::kNo : Fit::kUnknown;
      if (nodes() >= max_nodes) return Fit::kUnknown;
      if (nodes() >= next_check) {
        next_check = nodes() + kNodesBetweenBudgetChecks;
        if (budget.Exhausted()) return Fit::kUnknown;
      }
      if (TakeNext()) {
        OpenBin(max_nodes);
      } else {
        PopBin();
      }
    }
    return Fit::kYes;
  }

  uint64_t nodes() const { return bins_opened_ + steps_ / kStepsPerNode; }

  // After kYes: the groups of the items of each bin.
  Bins GroupsOfBins() const {
    Bins bins;
    for (const Frame& frame : stack_) {
      bins.push_back({frame.seed});
      const std::vector<uint32_t>& picks = frame.current().picks;
      bins.back().insert(bins.back().end(), picks.begin(), picks.end());
    }
    return bins;
  }

 private:
  struct Frame {
    uint32_t seed;          // group of the item that opened the bin
    uint64_t waste_before;  // of the bins below
    std::vector<Completion> completions;
    size_t num_picks = 0;  // of all completions
    size_t tried = 0;      // completions up to the current one

    const Completion& current() const { return completions[tried - 1]; }
  };

  // Pushes a bin for the largest item left, with its completions. Nothing if
  // no item is left or the bins left cannot hold them.
  void OpenBin(uint64_t max_nodes) {
    const uint32_t start = stack_.empty() ? 0 : stack_.back().seed;
    available_.clear();
    ids_.clear();
    for (uint32_t g = start; g < groups_.size(); ++g) {
      if (left_[g] == 0) continue;
      available_.push_back({groups_[g].size, left_[g]});
      ids_.push_back(g);
    }
    if (available_.empty()) {
      done_ = true;
      return;
    }
    ++bins_opened_;
    steps_ += available_.size() / kGroupsPerStep;
    if (stack_.size() + MartelloTothL2(available_, capacity_) > max_bins_) {
      return;
    }
    Frame frame{.seed = ids_[0], .waste_before = 0};
    if (!stack_.empty()) {
      const Frame& below = stack_.back();
      frame.waste_before = below.waste_before + below.current().slack;
    }
    ListCompletions(max_nodes, frame);
    stack_.push_back(std::move(frame));
  }

  void ListCompletions(uint64_t max_nodes, Frame& frame) {
    const size_t skip = --available_[0].count == 0 ? 1 : 0;
    const uint64_t nodes_left = max_nodes - std::min(max_nodes, nodes());
    CompletionLister lister{
        std::span<const SizeGroup>(available_).subspan(skip),
        std::span<const uint32_t>(ids_).subspan(skip),
        std::min(effort_.max_steps, (nodes_left + 1) * kStepsPerNode),
        effort_.max_completions};
    frame.completions = lister.List(capacity_ - groups_[frame.seed].size,
                                    max_waste_ - frame.waste_before);
    steps_ += lister.steps();
    complete_ &= lister.complete();
    if (num_picks_ > kMaxPicks && frame.completions.size() > 1) {
      frame.completions.resize(1);
      complete_ = false;
    }
    // Room for thousands, on thousands of bins, would dwarf what is in it.
    frame.completions.shrink_to_fit();
    for (const Completion& completion : frame.completions) {
      frame.num_picks += completion.picks.size() + 1;
    }
    num_picks_ += frame.num_picks;
  }

  // Fills the top bin with its next completion that is not known to fail.
  bool TakeNext() {
    Frame& top = stack_.back();
    if (top.tried > 0) Move(top, 1);
    while (top.tried < top.completions.size()) {
      ++top.tried;
      if (!FailedBelow(top)) {
        Move(top, -1);
        return true;
      }
    }
    return false;
  }

  void PopBin() {
    num_picks_ -= stack_.back().num_picks;
    stack_.pop_back();
  }

  // Puts the items of a bin back (+1) or takes them (-1).
  void Move(const Frame& frame, int direction) {
    left_[frame.seed] += direction;
    for (uint32_t g : frame.current().picks) left_[g] += direction;
  }

  // Whether the same bin was tried below, where it led nowhere: the order of
  // bins makes no difference (Korf's nogoods). Looks at bins opened by an item
  // of the same size, a limited number of them.
  bool FailedBelow(const Frame& top) {
    constexpr size_t kMaxFrames = 64;
    const Completion& wanted = top.current();
    size_t frames = 0;
    for (size_t f = stack_.size() - 1; f-- > 0 && frames < kMaxFrames;) {
      const Frame& below = stack_[f];
      if (below.seed != top.seed) break;
      const auto failed =
          std::span<const Completion>(below.completions).first(below.tried - 1);
      auto [begin, end] =
          std::equal_range(failed.begin(), failed.end(), wanted, Fuller);
      steps_ += end - begin;
      const auto same = [&](const Completion& completion) {
        return completion.picks == wanted.picks;
      };
      if (std::any_of(begin, end, same)) return true;
      ++frames;
    }
    return false;
  }

  std::span<const SizeGroup> groups_;
  uint32_t capacity_;
  uint64_t max_bins_;
  const Effort& effort_;
  uint64_t max_waste_ = 0;
  std::vector<uint32_t> left_;  // [groups] items in no bin
  std::vector<Frame> stack_;    // the bins
  size_t num_picks_ = 0;        // on the stack
  uint64_t bins_opened_ = 0;
  uint64_t steps_ = 0;
  bool complete_ = true;  // no completion was left out unseen
  bool done_ = false;
  // Of OpenBin, kept for their memory.
  std::vector<SizeGroup> available_;
  std::vector<uint32_t> ids_;
};

// Replaces groups by items: the items of a group are handed out in order.
Bins ItemsOfGroups(Bins bins, std::span<const uint32_t> sizes,
                   std::span<const SizeGroup> groups) {
  const std::vector<uint32_t> order = DecreasingOrder(sizes);
  std::vector<uint32_t> next;
  uint32_t begin = 0;
  for (const SizeGroup& group : groups) {
    next.push_back(begin);
    begin += group.count;
  }
  for (std::vector<uint32_t>& bin : bins) {
    for (uint32_t& entry : bin) entry = order[next[entry]++];
  }
  return bins;
}

}  // namespace

PackingAttempt PackIntoBins(std::span<const uint32_t> sizes, uint32_t capacity,
                            uint64_t max_bins, uint64_t max_nodes,
                            const Budget& budget) {
  PackingAttempt attempt;
  if (CapacityBound(sizes, capacity) > max_bins) {
    attempt.fit = Fit::kNo;
    return attempt;
  }
  const std::vector<SizeGroup> groups = GroupBySize(sizes);
  for (const Effort& effort : kEfforts) {
    const uint64_t nodes_left = max_nodes - std::min(max_nodes, attempt.nodes);
    if (nodes_left == 0 || budget.Exhausted()) break;
    BinCompletion search(groups, capacity, max_bins, effort);
    attempt.fit =
        search.Run((nodes_left + effort.share - 1) / effort.share, budget);
    attempt.nodes += search.nodes();
    if (attempt.fit == Fit::kUnknown) continue;
    if (attempt.fit == Fit::kYes) {
      attempt.bins = ItemsOfGroups(search.GroupsOfBins(), sizes, groups);
    }
    break;
  }
  return attempt;
}

}  // namespace routepack
