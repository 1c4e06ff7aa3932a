// Guided packing: which layout the planner answers with (RoutePack paper,
// section 4.1; spec 1.6 and 1.7). Diverse seeds, then population annealing.
//
// Same problem, options and seed, same layout, whatever the number of threads:
// budgets count proposals. A deadline cuts the search (`truncated`).

#ifndef ROUTEPACK_PLANNER_SEARCH_H_
#define ROUTEPACK_PLANNER_SEARCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "planner/budget.h"
#include "planner/errors.h"
#include "planner/layout.h"

namespace routepack {

// How much work a plan is worth. kSeeds: the best seed, no annealing.
enum class Effort { kSeeds, kFast, kBalanced, kBest };

// Absent or 0: what the effort says (see ResolveSearch).
struct SearchOptions {
  Effort effort = Effort::kBalanced;
  uint64_t steps = 0;         // proposals of all members and levels together,
                              // at most 2^40
  uint32_t levels = 0;        // temperatures, in [2, 1024]
  uint32_t population = 0;    // members, in [1, 1024]
  uint32_t candidates = 0;    // M, seeds tried, in [1, 2^16]
  uint32_t choice_width = 0;  // w, of random choices in seeds, in [1, 2^16]
  uint32_t projections = 0;   // q, of the sliced-Wasserstein sketch, in
                              // [1, 1024]
  std::optional<double> diversity_penalty;       // eta, in [0, 1e6]
  std::optional<double> guided_probability;      // in [0, 1]
  std::optional<double> relocation_probability;  // rho, in [0, 1]

  friend bool operator==(const SearchOptions&, const SearchOptions&) = default;
};

// Every field set. Steps grow with the window: 200 N (fast), 2,000 N
// (balanced), 20,000 N (best), within 20 and 800 thousand, 0.2 and 5 million, 2
// and 80 million.
SearchOptions ResolveSearch(const SearchOptions& options, uint32_t num_items);

// Adds a violation for every option out of range, with paths below `field`
// ("header.options.search").
void CheckSearch(const SearchOptions& options, std::string_view field,
                 Violations& violations);

// What became of proposals.
struct ProposalCounts {
  uint64_t steps = 0;          // drawn
  uint64_t infeasible = 0;     // of these: no feasible partner was found
  uint64_t stopped_early = 0;  // evaluated until they could not be accepted
  uint64_t evaluated = 0;      // evaluated to the end
  uint64_t accepted = 0;       // of the evaluated

  ProposalCounts& operator+=(const ProposalCounts& other);
};

// A stage of the search and the best score after it.
struct SearchStage {
  // "length-only", "paired", "best seed", "annealed"; of a joint search
  // "attention first", "placement", "annealed", "placement".
  std::string name;
  Score score;
  absl::Duration duration;  // of this stage alone
};

// One temperature.
struct AnnealLevel {
  double temperature = 0;  // relative to the energy
  ProposalCounts proposals;
  Score incumbent;                 // best so far
  int64_t lowest_terminal = 0;     // s0 of the best terminal state
  uint32_t surviving_members = 0;  // members with descendants after resampling
};

enum class SearchEnd {
  kSeedsOnly,      // as asked
  kStepsSpent,     // the budget
  kBoundReached,   // the gap closed
  kNoImprovement,  // nothing improved over the horizon, nor in two restarts
  kNothingToGain,  // the best seed is within 0.01 % of the bound, or no
                   // move fits
  kTimeLimit,
};

struct SearchReport {
  std::vector<SearchStage> stages;
  std::vector<AnnealLevel> levels;
  ProposalCounts proposals;  // all levels
  uint32_t candidates = 0;   // seeds tried, the first two included
  uint32_t distinct = 0;     // that differ in canonical form
  uint32_t population = 0;
  uint32_t restarts = 0;
  double diversity = 0;  // mean distance between different members at the start
  SearchEnd end = SearchEnd::kSeedsOnly;
};

struct SearchProgress {
  double fraction = 0;  // of the steps
  Score incumbent;
  ProposalCounts proposals;
  absl::Duration annealing;  // time spent on the proposals
};

struct SearchResult {
  Layout layout;
  Score score;
  bool truncated = false;  // by the deadline
  SearchReport report;
};

// When annealing ends because nothing improves, it starts again from other
// random seeds with the steps that are left, until two restarts in a row bring
// nothing: small windows with full cells fall into parts that no swap joins.
//
// The best layout found, see MatchShardRows for the order of its rows; never
// worse than `length`, a valid layout. `bound` is
// a lower bound of s0, in score units. `options` are resolved first.
// `on_progress` may be empty; it is called from the calling thread between
// temperatures. When the budget is cancelled the result is `length` or better.
// O(steps (L P + R G)); memory: demand once more in 16 or 32 bits, and
// 4 R G L P bytes a member.
SearchResult SearchLayout(
    const PackingProblem& problem, const Layout& length, int64_t bound,
    const SearchOptions& options, uint64_t seed, const Budget& budget = {},
    const std::function<void(const SearchProgress&)>& on_progress = {});

// Goes on from one layout: every member of the population begins there, and
// the first temperature is a tenth of what it would be.
SearchResult SearchFrom(
    const PackingProblem& problem, const Layout& layout, int64_t bound,
    const SearchOptions& options, uint64_t seed, const Budget& budget = {},
    const std::function<void(const SearchProgress&)>& on_progress = {});

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_SEARCH_H_
