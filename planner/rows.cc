#include "planner/rows.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/bin_completion.h"
#include "planner/errors.h"

namespace routepack {
namespace {

constexpr uint64_t kMaxCells = uint64_t{1} << 31;

// The admissible numbers of rows: first, first + step, ...
struct RowGrid {
  uint64_t first;
  uint64_t step;
  uint64_t slots;

  // The least admissible R with R D >= bins.
  uint64_t Fewest(uint64_t bins) const {
    const uint64_t needed = (bins + slots - 1) / slots;
    if (needed <= first) return first;
    return first + (needed - first + step - 1) / step * step;
  }
};

RowGrid MakeGrid(const RowConstraints& constraints) {
  const uint64_t step = constraints.row_multiple;
  const uint64_t least = std::max(constraints.min_rows, 1u);
  return {.first = (least + step - 1) / step * step,
          .step = step,
          .slots = constraints.num_slots};
}

absl::Status CheckInput(std::span<const uint32_t> occupancy,
                        const RowConstraints& constraints) {
  Violations bad;
  if (constraints.num_slots == 0) {
    bad.Add("header.topology", "must have at least 1 DP slot");
  }
  if (constraints.token_cap == 0) {
    bad.Add("header.token_cap", "must be at least 1");
  }
  if (constraints.row_multiple == 0) {
    bad.Add("header.options.row_multiple", "must be at least 1");
  }
  if (!bad.empty()) return bad.ToStatus();
  const RowGrid grid = MakeGrid(constraints);
  if (grid.first * grid.slots > kMaxCells) {
    bad.Add(
        constraints.min_rows > constraints.row_multiple
            ? "header.options.min_rows"
            : "header.options.row_multiple",
        absl::StrCat("asks for at least ", grid.first, " rows of ", grid.slots,
                     " cells; the limit is ", kMaxCells, " cells"));
  }
  for (size_t i = 0; i < occupancy.size(); ++i) {
    if (occupancy[i] >= 1 && occupancy[i] <= constraints.token_cap) continue;
    bad.Add(absl::StrCat("samples[", i, "].tokens"),
            absl::StrCat("occupies ", occupancy[i],
                         " tokens; must be in [1, token_cap = ",
                         constraints.token_cap, "]"));
  }
  return bad.ToStatus();
}

// What is known of opt, and of the rows that follow from it.
class Bracket {
 public:
  Bracket(std::span<const uint32_t> occupancy, const RowConstraints& c)
      : grid_(MakeGrid(c)) {
    Raise(CapacityBound(occupancy, c.token_cap), "capacity");
    Lower(FirstFitDecreasing(occupancy, c.token_cap));
    if (open()) Lower(BestFitDecreasing(occupancy, c.token_cap));
    if (open()) {
      Raise(MartelloTothL2(occupancy, c.token_cap), "martello-toth-l2");
    }
    if (open()) {
      Raise(DualFeasibleBound(occupancy, c.token_cap), "dual-feasible");
    }
  }

  bool open() const { return rows_low() < rows_high(); }
  uint64_t rows_low() const { return grid_.Fewest(lower_); }
  uint64_t rows_high() const { return grid_.Fewest(bins_.size()); }
  const RowGrid& grid() const { return grid_; }
  uint64_t lower() const { return lower_; }
  Bins& bins() { return bins_; }

  void Raise(uint64_t lower, std::string_view proof) {
    if (lower <= lower_) return;
    lower_ = lower;
    // A bound that excludes no more rows than those before it proves nothing.
    if (excluded_.empty() || NeededRows(lower) > excluded_.back().rows) {
      excluded_.push_back({NeededRows(lower), proof});
    }
  }

  void Lower(Bins bins) {
    if (bins_.empty() || bins.size() < bins_.size()) bins_ = std::move(bins);
  }

  // Why fewer than `rows` rows are not possible.
  std::string_view Proof(uint64_t rows, const RowConstraints& c) const {
    // With a smaller admissible number, a bound excludes that; else the
    // constraints are the reason unless a bound says as much.
    const uint64_t excluded = rows > grid_.first ? rows - grid_.step : rows - 1;
    for (const auto& [needed, proof] : excluded_) {
      if (needed > excluded) return proof;
    }
    return rows == c.min_rows ? "min-rows" : "row-multiple";
  }

 private:
  struct Exclusion {
    uint64_t rows;  // fewer are excluded
    std::string_view proof;
  };

  uint64_t NeededRows(uint64_t bins) const {
    return (bins + grid_.slots - 1) / grid_.slots;
  }

  RowGrid grid_;
  uint64_t lower_ = 0;
  Bins bins_;
  std::vector<Exclusion> excluded_;  // weakest first
};

// Takes what an attempt says of `bins` bins.
void Learn(PackingAttempt attempt, uint64_t bins, Bracket& bracket) {
  if (attempt.fit == Fit::kNo) {
    bracket.Raise(bins + 1, "exhaustive-search");
  } else if (attempt.fit == Fit::kYes) {
    bracket.Lower(std::move(attempt.bins));
  }
}

// One step fewer than what is certain is likeliest to be found: as long as it
// is, at small cost, and more than one number is open. So that a time limit
// which ends the search later finds most of the gain. Returns the nodes
// visited.
uint64_t StepDown(std::span<const uint32_t> occupancy,
                  const RowConstraints& constraints, const Budget& budget,
                  Bracket& bracket) {
  const RowGrid grid = bracket.grid();
  const uint64_t share = constraints.max_nodes / 8;
  uint64_t nodes = 0;
  while (nodes < share && !budget.Exhausted() &&
         bracket.rows_low() + grid.step < bracket.rows_high()) {
    const uint64_t rows = bracket.rows_high() - grid.step;
    PackingAttempt attempt =
        PackIntoBins(occupancy, constraints.token_cap, rows * grid.slots,
                     share - nodes, budget);
    nodes += attempt.nodes;
    const bool found = attempt.fit == Fit::kYes;
    Learn(std::move(attempt), rows * grid.slots, bracket);
    if (!found) break;
  }
  return nodes;
}

// Settles open numbers of rows by exact search, fewest first. Returns the nodes
// visited.
uint64_t SearchOpenRows(std::span<const uint32_t> occupancy,
                        const RowConstraints& constraints, const Budget& budget,
                        Bracket& bracket) {
  const RowGrid grid = bracket.grid();
  uint64_t nodes = StepDown(occupancy, constraints, budget, bracket);
  for (uint64_t rows = bracket.rows_low(); rows < bracket.rows_high();
       rows += grid.step) {
    if (nodes >= constraints.max_nodes || budget.Exhausted()) break;
    const uint64_t num_open =
        (bracket.rows_high() - rows + grid.step - 1) / grid.step;
    const uint64_t left = constraints.max_nodes - nodes;
    const uint64_t share = left / num_open + (left % num_open != 0 ? 1 : 0);
    PackingAttempt attempt = PackIntoBins(occupancy, constraints.token_cap,
                                          rows * grid.slots, share, budget);
    nodes += attempt.nodes;
    Learn(std::move(attempt), rows * grid.slots, bracket);
  }
  return nodes;
}

RowOutcome Judge(bool open, uint64_t cells, uint64_t num_samples) {
  if (cells <= num_samples) {
    return open ? RowOutcome::kBestKnown : RowOutcome::kCertified;
  }
  return open ? RowOutcome::kNotFound : RowOutcome::kInfeasible;
}

RowOutcome WithFillers(RowOutcome outcome) {
  return outcome == RowOutcome::kInfeasible ? RowOutcome::kCertified
                                            : RowOutcome::kBestKnown;
}

}  // namespace

absl::StatusOr<RowResult> FewestRows(std::span<const uint32_t> occupancy,
                                     const RowConstraints& constraints,
                                     const Budget& budget) {
  if (absl::Status input = CheckInput(occupancy, constraints); !input.ok()) {
    return input;
  }
  Bracket bracket(occupancy, constraints);
  RowResult result;
  result.nodes = SearchOpenRows(occupancy, constraints, budget, bracket);
  if (budget.Cancelled()) {
    return absl::CancelledError("cancelled while rows were minimised");
  }
  const uint64_t rows = bracket.rows_high();
  const uint64_t cells = rows * constraints.num_slots;
  result.outcome = Judge(bracket.open(), cells, occupancy.size());
  if (cells > occupancy.size()) {
    result.fillers = static_cast<uint32_t>(cells - occupancy.size());
    if (constraints.allow_filler) result.outcome = WithFillers(result.outcome);
  }
  result.rows = static_cast<uint32_t>(rows);
  result.rows_lower_bound = static_cast<uint32_t>(bracket.rows_low());
  result.bins_lower_bound = static_cast<uint32_t>(bracket.lower());
  result.bins_upper_bound = static_cast<uint32_t>(bracket.bins().size());
  result.truncated = bracket.open();
  if (!bracket.open()) result.proof = bracket.Proof(rows, constraints);
  result.bins = std::move(bracket.bins());
  return result;
}

void SplitToCells(std::span<const uint32_t> occupancy, uint32_t cells,
                  Bins& bins) {
  // (occupancy, reversed index): the fullest first, then the lowest index.
  std::priority_queue<std::pair<uint64_t, uint32_t>> fullest;
  const auto offer = [&](uint32_t bin) {
    if (bins[bin].size() < 2) return;
    uint64_t total = 0;
    for (uint32_t item : bins[bin]) total += occupancy[item];
    fullest.emplace(total, ~bin);
  };
  for (uint32_t bin = 0; bin < bins.size(); ++bin) offer(bin);
  while (bins.size() < cells && !fullest.empty()) {
    const uint32_t bin = ~fullest.top().second;
    fullest.pop();
    std::vector<uint32_t> items = std::move(bins[bin]);
    std::stable_sort(items.begin(), items.end(), [&](uint32_t a, uint32_t b) {
      return std::make_pair(occupancy[b], a) < std::make_pair(occupancy[a], b);
    });
    std::vector<uint32_t> half[2];
    uint64_t total[2] = {0, 0};
    for (uint32_t item : items) {
      const int lighter = total[1] < total[0] ? 1 : 0;
      half[lighter].push_back(item);
      total[lighter] += occupancy[item];
    }
    bins[bin] = std::move(half[0]);
    bins.push_back(std::move(half[1]));
    offer(bin);
    offer(static_cast<uint32_t>(bins.size() - 1));
  }
}

}  // namespace routepack
