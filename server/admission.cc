#include "server/admission.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/demand.h"
#include "planner/load_lanes.h"
#include "planner/planner.h"
#include "planner/search.h"
#include "proto/codec/status.h"

namespace routepack::server {

namespace {

// Samples and fillers. Rows grow in steps until there is a cell for each
// sample, which is more than any window needs; what is then empty is filled.
absl::uint128 MostItems(const WindowSpec& spec, const PlanOptions& options) {
  const absl::uint128 samples = spec.num_samples;
  if (!options.allow_filler) return samples;
  const absl::uint128 step =
      absl::uint128(spec.topology.num_slots()) * options.row_multiple;
  const absl::uint128 least =
      absl::uint128(spec.topology.num_slots()) * options.min_rows;
  const absl::uint128 cells =
      (std::max(samples, least) + step - 1) / step * step;
  return std::min(cells, samples + MostFillers(spec));
}

// What the packing of a window can grow to: a cell for each item, and G
// row-shards for D cells.
struct PackingSize {
  absl::uint128 items;
  absl::uint128 row_shards;
};

// First layouts: each candidate is kept, 8 bytes an item, and for a restart
// made anew with its sketch, 20 bytes an item and q floats a row; pairing holds
// the loads of its cells and row-shards, as often as they fit into those of the
// items, at least once.
absl::uint128 CandidateBytes(const WindowSpec& spec, const PackingSize& size,
                             const SearchOptions& options) {
  const absl::uint128 rows = size.items / spec.topology.num_slots();
  return options.candidates *
         (28 * size.items + 4 * options.projections * rows);
}
absl::uint128 PairingBytes(const PackingSize& size, absl::uint128 loads) {
  return (size.items + size.row_shards) * loads;
}

// Lanes of loads (planner/load_lanes.h): blocks of eight layers, ranks padded
// to pairs.
absl::uint128 LaneBlocks(const WindowSpec& spec) {
  return (absl::uint128(spec.num_layers) + 7) / 8;
}
absl::uint128 Lanes(const WindowSpec& spec) {
  return LaneBlocks(spec) * 8 *
         ((absl::uint128(spec.topology.num_ranks()) + 1) / 2 * 2);
}

// Demand in lanes, two bytes where no sample can exceed them.
absl::uint128 LaneDemandBytes(const WindowSpec& spec, const PackingSize& size) {
  const bool narrow =
      uint64_t{spec.top_k} * spec.token_cap <= LaneDemand::kMostNarrow;
  return size.items * Lanes(spec) * (narrow ? 2 : 4);
}

// Each member (planner/chain.h) has the loads of row-shards and some numbers of
// every row-shard, cell and item. While members are resampled there are twice
// as many.
absl::uint128 PopulationBytes(const WindowSpec& spec, const PackingSize& size,
                              const SearchOptions& options) {
  const absl::uint128 stages = spec.attention.size();
  const absl::uint128 member =
      size.row_shards *
          (6 * Lanes(spec) + 16 * LaneBlocks(spec) + 36 * stages + 32) +
      size.items * (12 * stages + 96);
  return 2 * options.population * member;
}

absl::uint128 SearchBytes(const WindowSpec& spec, const PackingSize& size,
                          absl::uint128 loads, const SearchOptions& options) {
  const absl::uint128 candidates = CandidateBytes(spec, size, options);
  const absl::uint128 pairing = PairingBytes(size, loads);
  if (options.effort == Effort::kSeeds) return candidates + pairing;
  // Seeds and members take turns.
  return candidates + LaneDemandBytes(spec, size) +
         std::max(pairing, PopulationBytes(spec, size, options));
}

}  // namespace

uint64_t PlanningBytes(const WindowSpec& spec, const PlanOptions& options) {
  const absl::uint128 window = WindowBytes(spec.num_samples, spec.num_layers,
                                           spec.num_experts, spec.token_cap);
  const absl::uint128 items = MostItems(spec, options);
  const PackingSize size{.items = items,
                         .row_shards = items * spec.topology.num_shards() /
                                       spec.topology.num_slots()};
  const absl::uint128 loads = absl::uint128(spec.num_layers) *
                              DemandStride(spec.topology.num_ranks()) *
                              sizeof(uint32_t);
  const SearchOptions search = ResolveSearch(options.search, spec.num_samples);
  const absl::uint128 experts =
      absl::uint128(spec.num_layers) * spec.num_experts * (4 + 8 + 16 + 24);
  const absl::uint128 bytes =
      window + experts + items * loads + SearchBytes(spec, size, loads, search);
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  return bytes > kMax ? kMax : static_cast<uint64_t>(bytes);
}

struct Reservation::Ledger {
  const uint32_t max_windows;
  const uint64_t max_bytes;
  mutable std::mutex mu;
  uint32_t windows ABSL_GUARDED_BY(mu) = 0;
  uint64_t bytes ABSL_GUARDED_BY(mu) = 0;
};

Reservation::Reservation(std::shared_ptr<Ledger> ledger, uint64_t bytes)
    : ledger_(std::move(ledger)), bytes_(bytes) {}

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::move(other.ledger_)), bytes_(other.bytes_) {
  other.ledger_ = nullptr;
  other.bytes_ = 0;
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  ledger_ = std::exchange(other.ledger_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void Reservation::Release() {
  if (ledger_ == nullptr) return;
  {
    const std::lock_guard lock(ledger_->mu);
    --ledger_->windows;
    ledger_->bytes -= bytes_;
  }
  ledger_ = nullptr;
  bytes_ = 0;
}

Admission::Admission(uint32_t max_windows, uint64_t max_bytes)
    : ledger_(new Reservation::Ledger{.max_windows = max_windows,
                                      .max_bytes = max_bytes}) {}

absl::StatusOr<Reservation> Admission::Admit(uint64_t bytes) {
  if (bytes > ledger_->max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the window needs ", bytes,
                     " bytes of memory, more than the server has for all "
                     "windows (",
                     ledger_->max_bytes, ", --window_memory_mb)"));
  }
  const std::lock_guard lock(ledger_->mu);
  if (ledger_->windows >= ledger_->max_windows) {
    return RetryableError(absl::StatusCode::kResourceExhausted,
                          absl::StrCat("the server has ", ledger_->windows,
                                       " open windows, as many as it takes "
                                       "(--max_open_windows); try again later"),
                          kRetryAfter);
  }
  if (bytes > ledger_->max_bytes - ledger_->bytes) {
    return RetryableError(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("the window needs ", bytes, " bytes of memory, ",
                     ledger_->max_bytes - ledger_->bytes, " of ",
                     ledger_->max_bytes,
                     " are free (--window_memory_mb); try again later"),
        kRetryAfter);
  }
  ++ledger_->windows;
  ledger_->bytes += bytes;
  return Reservation(ledger_, bytes);
}

uint32_t Admission::open_windows() const {
  const std::lock_guard lock(ledger_->mu);
  return ledger_->windows;
}

uint64_t Admission::reserved_bytes() const {
  const std::lock_guard lock(ledger_->mu);
  return ledger_->bytes;
}

}  // namespace routepack::server
