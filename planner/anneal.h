// Population annealing (RoutePack paper, Algorithm 3; spec 1.7).
//
// Every member is a chain of Metropolis steps of its own; temperatures fall
// geometrically, and between them terminal states are resampled in proportion
// to their Boltzmann weights. The incumbent is the best state on any
// trajectory and can only improve.
//
// Choices. The first level has temperature 0: seeds are far from any local
// optimum, and what they lose there tells nothing about a good temperature.
// T_0 is then the one at which a worsening proposal to the best member is
// accepted with mean probability 0.15, and the last temperature is T_0 / 100:
// both follow from the window alone. Levels get equal shares of the steps.
//
// Members run in parallel; streams of random numbers depend on seed, level and
// member, so the result does not depend on the number of threads.

#ifndef ROUTEPACK_PLANNER_ANNEAL_H_
#define ROUTEPACK_PLANNER_ANNEAL_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "planner/budget.h"
#include "planner/chain.h"
#include "planner/proposal.h"
#include "planner/search.h"
#include "planner/search_space.h"

namespace routepack {

struct AnnealOptions {
  uint64_t steps = 0;   // of all members and levels together
  uint32_t levels = 2;  // the first one included; at least 2
  ProposalOptions proposals;
  int64_t bound = 0;  // s0 cannot be less
  double heat = 1;    // T_0 over the one that follows from the window
};

struct AnnealResult {
  Layout layout;
  Score score;
  std::vector<AnnealLevel> levels;
  SearchEnd end = SearchEnd::kStepsSpent;
};

// `members`: the initial population, at least one. `on_level` may be empty.
// Stops early when the incumbent is within 0.01 % of the bound, when no member
// found a move that fits, and when over a quarter of the levels (the horizon)
// neither the incumbent nor the lowest terminal energy fell; at the budget's
// deadline or cancellation within some hundred steps.
AnnealResult AnnealPopulation(
    const SearchSpace& space, std::vector<Chain> members,
    const AnnealOptions& options, uint64_t seed, const Budget& budget,
    const std::function<void(const AnnealLevel&)>& on_level = {});

// Runs `steps` steps of one chain; `temperature` is relative to the energy.
ProposalCounts RunChain(const SearchSpace& space, Chain& chain, uint64_t steps,
                        double temperature, const ProposalOptions& options,
                        const CounterRandom& random, const Budget& budget);

// Whether s0 is within 0.01 % of its lower bound: not worth a search.
bool GapClosed(const Score& score, int64_t bound);

// The T_0 at which worsening proposals, whose energy grows by these shares, are
// accepted with mean probability 0.15; 0 if there are none.
double FirstTemperature(std::span<const double> growths);

// [levels] 0, then falling geometrically from `first` to `first` / 100.
std::vector<double> TemperatureSchedule(double first, uint32_t levels);

// Systematic resampling: member m of the next population descends from
// parent[m], the least j with F_j >= (u + m) / population, where F cumulates
// the weights exp(-(1/next - 1/now) (E_j - min) / max(|min|, 1)), normalised.
// `u` in [0, 1).
std::vector<uint32_t> ResampledParents(const std::vector<double>& energies,
                                       double temperature, double next,
                                       double u);

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_ANNEAL_H_
