#include "planner/histogram.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "oneapi/tbb/enumerable_thread_specific.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/task_arena.h"
#include "planner/window.h"

namespace routepack {
namespace {

static_assert(std::endian::native == std::endian::little,
              "ids are taken from 64-bit words lowest byte first");

constexpr size_t kNone = std::numeric_limits<size_t>::max();

// Splitting a sample over threads pays from about this many ids on, and in
// pieces of this many.
constexpr size_t kMinParallelIds = size_t{1} << 19;
constexpr size_t kIdsPerTask = size_t{1} << 17;

// Eight bytes hold several ids; a word is taken apart in registers.
template <typename Id>
struct Word {
  static constexpr size_t kLanes = sizeof(uint64_t) / sizeof(Id);
  static constexpr int kBits = 8 * sizeof(Id);
  static constexpr uint64_t kMask = ~uint64_t{0} >> (64 - kBits);
  static constexpr uint64_t kOnes = ~uint64_t{0} / kMask;
  static constexpr uint64_t kTops = kOnes << (kBits - 1);
  // Ids that the type can hold are below this.
  static constexpr uint64_t kEnd =
      static_cast<uint64_t>(std::numeric_limits<Id>::max()) + 1;

  static uint64_t Load(const Id* ids) {
    uint64_t word;
    std::memcpy(&word, ids, sizeof(word));
    return word;
  }
  static size_t Lane(uint64_t word, size_t lane) {
    return word >> (kBits * lane) & kMask;
  }
};

// Tests all ids of a word at once for being outside [0, E), E a power of two
// or beyond the type: costs nothing beside the counting.
template <typename Id>
class PowerOfTwoCheck {
 public:
  static bool Handles(uint64_t num_experts) {
    return std::has_single_bit(num_experts) || num_experts >= Word<Id>::kEnd;
  }
  explicit PowerOfTwoCheck(uint64_t num_experts)
      : bad_bits_(
            Word<Id>::kOnes *
            (Word<Id>::kMask & ~(std::min(num_experts, Word<Id>::kEnd) - 1))) {}
  bool Bad(uint64_t word) const { return (word & bad_bits_) != 0; }

 private:
  uint64_t bad_bits_;
};

// The same for any E, with no carry from one id to the next: an id is its top
// bit and the rest below. With E <= half the range, ids are bad if the top bit
// is set or the rest reaches E; else if both hold for E - half.
template <typename Id>
class AnyCheck {
 public:
  explicit AnyCheck(uint64_t num_experts) {
    constexpr uint64_t kHalf = uint64_t{1} << (Word<Id>::kBits - 1);
    const uint64_t limit = std::min(num_experts, Word<Id>::kEnd);
    small_ = limit <= kHalf ? ~uint64_t{0} : 0;
    add_ = Word<Id>::kOnes * ((limit <= kHalf ? kHalf : 2 * kHalf) - limit);
  }
  bool Bad(uint64_t word) const {
    const uint64_t reaches = (word & ~Word<Id>::kTops) + add_;
    return (((reaches & (word | small_)) | (word & small_)) &
            Word<Id>::kTops) != 0;
  }

 private:
  uint64_t small_;
  uint64_t add_;
};

// Counts the ids of `layers` layers one by one; false if one is bad.
template <typename Id>
bool CountSlowly(const Id* ids, size_t layers, size_t top_k, size_t num_experts,
                 uint32_t* counts) {
  for (size_t l = 0; l < layers; ++l) {
    for (size_t j = 0; j < top_k; ++j) {
      const auto id = static_cast<uint32_t>(ids[l * top_k + j]);
      if (id >= num_experts) return false;
      ++counts[l * num_experts + id];
    }
  }
  return true;
}

// Counts tokens word by word, top-K known to the compiler: where a word's ids
// belong is then fixed. Token by token, so that a counter is rarely touched
// again before its last increment has left the store queue. Returns the first
// token with a bad id, or kNone.
template <typename Id, size_t K, typename Check>
size_t CountTokens(const Id* ids, size_t num_tokens, const RoutingShape& shape,
                   uint32_t* counts) {
  constexpr size_t kLanes = Word<Id>::kLanes;
  // Whole layers in whole words.
  constexpr size_t kLayers = kLanes / std::gcd(K, kLanes);
  constexpr size_t kWords = K * kLayers / kLanes;
  const Check check(shape.num_experts);
  const size_t num_experts = shape.num_experts;
  const size_t num_layers = shape.num_layers;
  const size_t num_steps = num_layers / kLayers;

  // Ids first, first + 1, ... of a step, whose layers have tables `table`,
  // table + E, ...
  const auto count_word = [&]<size_t kFirst, size_t... kLane>(
      std::integral_constant<size_t, kFirst>, std::index_sequence<kLane...>,
      uint64_t word, uint32_t * table) {
    uint32_t* const tables[] = {table + (kFirst + kLane) / K * num_experts...};
    (++tables[kLane][Word<Id>::Lane(word, kLane)], ...);
  };
  const auto count_step = [&]<size_t... kWord>(
      std::index_sequence<kWord...>, const Id* step, uint32_t* table) {
    const uint64_t words[] = {Word<Id>::Load(step + kWord * kLanes)...};
    if ((check.Bad(words[kWord]) || ...)) return false;
    (count_word(std::integral_constant<size_t, kWord * kLanes>(),
                std::make_index_sequence<kLanes>(), words[kWord], table),
     ...);
    return true;
  };

  for (size_t t = 0; t < num_tokens; ++t) {
    uint32_t* table = counts;
    for (size_t s = 0; s < num_steps; ++s) {
      if (!count_step(std::make_index_sequence<kWords>(), ids, table)) return t;
      ids += kWords * kLanes;
      table += kLayers * num_experts;
    }
    const size_t rest = num_layers - num_steps * kLayers;
    if (!CountSlowly(ids, rest, K, num_experts, table)) return t;
    ids += rest * K;
  }
  return kNone;
}

template <typename Id, size_t K>
size_t CountTokens(const Id* ids, size_t num_tokens, const RoutingShape& shape,
                   uint32_t* counts) {
  return PowerOfTwoCheck<Id>::Handles(shape.num_experts)
             ? CountTokens<Id, K, PowerOfTwoCheck<Id>>(ids, num_tokens, shape,
                                                       counts)
             : CountTokens<Id, K, AnyCheck<Id>>(ids, num_tokens, shape, counts);
}

template <typename Id>
size_t CountTokensOfAnyTopK(const Id* ids, size_t num_tokens,
                            const RoutingShape& shape, uint32_t* counts) {
  switch (shape.top_k) {
    case 1:
      return CountTokens<Id, 1>(ids, num_tokens, shape, counts);
    case 2:
      return CountTokens<Id, 2>(ids, num_tokens, shape, counts);
    case 4:
      return CountTokens<Id, 4>(ids, num_tokens, shape, counts);
    case 6:
      return CountTokens<Id, 6>(ids, num_tokens, shape, counts);
    case 8:
      return CountTokens<Id, 8>(ids, num_tokens, shape, counts);
    case 10:
      return CountTokens<Id, 10>(ids, num_tokens, shape, counts);
    default:
      break;
  }
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  for (size_t t = 0; t < num_tokens; ++t) {
    if (!CountSlowly(ids + t * per_token, shape.num_layers, shape.top_k,
                     shape.num_experts, counts)) {
      return t;
    }
  }
  return kNone;
}

// Counts pieces of a long sample into one table per thread and adds those up.
template <typename Id>
size_t CountInParallel(std::span<const Id> ids, size_t num_tokens,
                       const RoutingShape& shape, std::span<uint32_t> counts) {
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  const size_t tokens_per_task = std::max<size_t>(kIdsPerTask / per_token, 1);
  const size_t num_tasks = (num_tokens + tokens_per_task - 1) / tokens_per_task;
  tbb::enumerable_thread_specific<std::vector<uint32_t>> tables(
      [&] { return std::vector<uint32_t>(counts.size()); });
  std::atomic<size_t> first_bad = kNone;
  tbb::parallel_for(size_t{0}, num_tasks, [&](size_t task) {
    const size_t begin = task * tokens_per_task;
    const size_t end = std::min(begin + tokens_per_task, num_tokens);
    const size_t bad =
        CountTokensOfAnyTopK(ids.data() + begin * per_token, end - begin, shape,
                             tables.local().data());
    if (bad == kNone) return;
    size_t seen = first_bad;
    while (begin + bad < seen &&
           !first_bad.compare_exchange_weak(seen, begin + bad)) {
    }
  });
  for (const std::vector<uint32_t>& table : tables) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += table[i];
  }
  return first_bad;
}

// Names the first bad id of a token that has one.
template <typename Id>
absl::Status BadIdError(std::span<const Id> ids, size_t token,
                        const RoutingShape& shape) {
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  size_t i = 0;
  while (static_cast<uint32_t>(ids[token * per_token + i]) <
         shape.num_experts) {
    ++i;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "token ", token, ", layer ", i / shape.top_k, ": expert id ",
      ids[token * per_token + i], " is outside [0, ", shape.num_experts, ")"));
}

absl::Status CheckShape(const RoutingShape& shape) {
  const auto within = [](uint32_t size, uint32_t most) {
    return size >= 1 && size <= most;
  };
  // A token's ids and a sample's counts are then below 2^28 each.
  if (within(shape.num_layers, kMaxLayers) &&
      within(shape.num_experts, kMaxExperts) &&
      within(shape.top_k, kMaxExperts)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shape: num_layers ", shape.num_layers, ", num_experts ",
                   shape.num_experts, " and top_k ", shape.top_k,
                   " must be at least 1 and at most ", kMaxLayers, ", ",
                   kMaxExperts, " and ", kMaxExperts));
}

template <typename Id>
absl::Status CountSample(std::span<const Id> ids, const RoutingShape& shape,
                         std::span<uint32_t> counts) {
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  if (ids.size() % per_token != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids: ", ids.size(), " values, not a multiple of L k = ",
                     shape.num_layers, " * ", shape.top_k, " = ", per_token));
  }
  const size_t num_tokens = ids.size() / per_token;
  const bool parallel = ids.size() >= kMinParallelIds &&
                        tbb::this_task_arena::max_concurrency() > 1;
  const size_t bad = parallel ? CountInParallel(ids, num_tokens, shape, counts)
                              : CountTokensOfAnyTopK(ids.data(), num_tokens,
                                                     shape, counts.data());
  return bad == kNone ? absl::OkStatus() : BadIdError(ids, bad, shape);
}

template <typename Id>
absl::StatusOr<std::vector<uint32_t>> CountBatch(std::span<const Id> ids,
                                                 std::span<const uint32_t> rows,
                                                 const RoutingShape& shape) {
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  const size_t size = size_t{shape.num_layers} * shape.num_experts;
  std::vector<size_t> begin(rows.size() + 1, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    begin[i + 1] = begin[i] + rows[i] * per_token;
  }
  std::vector<uint32_t> counts(rows.size() * size);
  std::vector<absl::Status> statuses(rows.size());
  tbb::parallel_for(size_t{0}, rows.size(), [&](size_t i) {
    statuses[i] = CountSample(ids.subspan(begin[i], begin[i + 1] - begin[i]),
                              shape, std::span(counts).subspan(i * size, size));
  });
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) continue;
    return absl::Status(
        statuses[i].code(),
        absl::StrCat("sample ", i, ", ", statuses[i].message()));
  }
  return counts;
}

}  // namespace

absl::Status CountRoutedExperts(ExpertIds ids, const RoutingShape& shape,
                                std::span<uint32_t> counts) {
  if (absl::Status status = CheckShape(shape); !status.ok()) return status;
  const size_t size = size_t{shape.num_layers} * shape.num_experts;
  if (counts.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("counts: room for ", counts.size(), " values, not L E = ",
                     shape.num_layers, " * ", shape.num_experts, " = ", size));
  }
  try {
    return std::visit(
        [&](auto span) { return CountSample(span, shape, counts); }, ids);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory to count routed experts");
  }
}

absl::StatusOr<std::vector<uint32_t>> CountRoutedExperts(
    ExpertIds ids, std::span<const uint32_t> rows, const RoutingShape& shape) {
  if (absl::Status status = CheckShape(shape); !status.ok()) return status;
  const size_t num_ids = std::visit([](auto span) { return span.size(); }, ids);
  const size_t per_token = size_t{shape.num_layers} * shape.top_k;
  const uint64_t num_rows =
      std::accumulate(rows.begin(), rows.end(), uint64_t{0});
  // By division: the product may not fit.
  if (num_ids % per_token != 0 || num_ids / per_token != num_rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ids: ", num_ids, " values, not sum(rows) L k = ", num_rows, " * ",
        shape.num_layers, " * ", shape.top_k));
  }
  try {
    return std::visit([&](auto span) { return CountBatch(span, rows, shape); },
                      ids);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the counts of ", rows.size(), " samples"));
  }
}

}  // namespace routepack
