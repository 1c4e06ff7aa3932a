#include "planner/anneal.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "oneapi/tbb/parallel_for.h"
#include "planner/search_math.h"

namespace routepack {
namespace {

// Streams of random numbers.
constexpr uint64_t kStepStream = 0x10;
constexpr uint64_t kResampleStream = 0x11;
constexpr uint64_t kCalibrateStream = 0x12;

constexpr uint64_t kStepsBetweenLooks = 256;
constexpr int kCalibrationDraws = 2000;
constexpr double kFirstAcceptance = 0.15;
constexpr double kCooling = 0.01;  // last temperature over first

// How much worsening proposals to the chain's state add to its energy, as
// shares of it.
std::vector<double> WorseningGrowths(const SearchSpace& space, Chain& chain,
                                     const ProposalOptions& options,
                                     uint64_t seed) {
  DrawStream draws(CounterRandom(seed, kCalibrateStream));
  Proposer proposer(space, options);
  std::vector<double> growths;
  Move move;
  for (int k = 0; k < kCalibrationDraws; ++k) {
    if (!proposer.Propose(chain, draws, &move)) continue;
    const double growth =
        chain.EnergyOf(chain.ScoreAfter(move)) - chain.energy();
    if (growth > 0) growths.push_back(growth / std::max(chain.energy(), 1.0));
  }
  return growths;
}

// One search: the population and what is known so far.
class Annealer {
 public:
  Annealer(const SearchSpace& space, std::vector<Chain> members,
           const AnnealOptions& options, uint64_t seed, const Budget& budget)
      : space_(space),
        members_(std::move(members)),
        options_(options),
        seed_(seed),
        budget_(budget),
        temperatures_(options.levels) {
    const Chain& best = BestMember();
    result_.score = best.score();
    result_.layout = best.layout();
  }

  AnnealResult Run(const std::function<void(const AnnealLevel&)>& on_level) {
    for (uint32_t level = 0; level < options_.levels; ++level) {
      if (IsOver(level)) break;
      const bool whole = RunLevel(level);
      if (whole) {
        if (level == 0) SetTemperatures();
        Resample(level);
      }
      if (on_level) on_level(result_.levels.back());
      if (!whole) {
        result_.end = SearchEnd::kTimeLimit;
        break;
      }
    }
    return std::move(result_);
  }

 private:
  Chain& BestMember() {
    return *std::min_element(
        members_.begin(), members_.end(),
        [](const Chain& a, const Chain& b) { return a.score() < b.score(); });
  }

  bool IsOver(uint32_t level) {
    const auto end = [&](SearchEnd reason) {
      result_.end = reason;
      return true;
    };
    if (budget_.Exhausted()) return end(SearchEnd::kTimeLimit);
    if (GapClosed(result_.score, options_.bound)) {
      return end(SearchEnd::kBoundReached);
    }
    if (level == 0) return false;
    const ProposalCounts& last = result_.levels.back().proposals;
    if (last.infeasible == last.steps) return end(SearchEnd::kNothingToGain);
    const uint32_t horizon = std::max(options_.levels / 4, 2u);
    if (level - last_improvement_ > horizon) {
      return end(SearchEnd::kNoImprovement);
    }
    return false;
  }

  // False when the budget cut it.
  bool RunLevel(uint32_t level) {
    std::vector<ProposalCounts> counts(members_.size());
    tbb::parallel_for(
        tbb::blocked_range<size_t>(0, members_.size(), 1),
        [&](const tbb::blocked_range<size_t>& range) {
          for (size_t m = range.begin(); m < range.end(); ++m) {
            members_[m].StartTrajectory();
            counts[m] =
                RunChain(space_, members_[m], StepsOf(level, m),
                         temperatures_[level], options_.proposals,
                         CounterRandom(seed_, kStepStream, level, m), budget_);
          }
        },
        tbb::simple_partitioner());
    AnnealLevel& record = result_.levels.emplace_back();
    record.temperature = temperatures_[level];
    uint64_t steps = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      record.proposals += counts[m];
      steps += StepsOf(level, m);
    }
    UpdateIncumbent(level);
    record.incumbent = result_.score;
    record.lowest_terminal = BestMember().score().slowest_shard;
    return record.proposals.steps == steps;
  }

  // Members and levels share the steps evenly; the first ones get the rest.
  uint64_t StepsOf(uint32_t level, size_t member) const {
    const uint64_t shares = uint64_t{options_.levels} * members_.size();
    const uint64_t share = level * members_.size() + member;
    return options_.steps / shares + (share < options_.steps % shares ? 1 : 0);
  }

  void UpdateIncumbent(uint32_t level) {
    for (const Chain& member : members_) {
      if (member.best_score() < result_.score) {
        result_.score = member.best_score();
        result_.layout = member.BestLayout();
        last_improvement_ = level;
      }
    }
    const double energy = LowestEnergy();
    if (level <= 1 || energy < lowest_energy_) {
      lowest_energy_ = energy;
      last_improvement_ = level;
    }
  }

  double LowestEnergy() const {
    double lowest = members_.front().energy();
    for (const Chain& member : members_) {
      lowest = std::min(lowest, member.energy());
    }
    return lowest;
  }

  void SetTemperatures() {
    temperatures_ = TemperatureSchedule(
        options_.heat * FirstTemperature(WorseningGrowths(
                            space_, BestMember(), options_.proposals, seed_)),
        options_.levels);
  }

  // Not after the first level, which has no temperature, nor after the last.
  void Resample(uint32_t level) {
    AnnealLevel& record = result_.levels.back();
    record.surviving_members = static_cast<uint32_t>(members_.size());
    if (level == 0 || level + 1 == options_.levels || members_.size() == 1 ||
        temperatures_[level] == 0) {
      return;
    }
    std::vector<double> energies;
    for (const Chain& member : members_) energies.push_back(member.energy());
    const std::vector<uint32_t> parents = ResampledParents(
        energies, temperatures_[level], temperatures_[level + 1],
        CounterRandom(seed_, kResampleStream, level).UniformAt(0));
    std::vector<Chain> next;
    next.reserve(members_.size());
    record.surviving_members = 0;
    for (size_t m = 0; m < parents.size(); ++m) {
      // Parents ascend: the last descendant takes the parent's state over.
      const bool last = m + 1 == parents.size() || parents[m + 1] != parents[m];
      if (last) {
        next.push_back(std::move(members_[parents[m]]));
        ++record.surviving_members;
      } else {
        next.push_back(members_[parents[m]]);
      }
    }
    members_ = std::move(next);
  }

  const SearchSpace& space_;
  std::vector<Chain> members_;
  const AnnealOptions& options_;
  const uint64_t seed_;
  const Budget& budget_;
  std::vector<double> temperatures_;  // [levels]
  double lowest_energy_ = 0;
  uint32_t last_improvement_ = 0;  // level
  AnnealResult result_;
};

}  // namespace

ProposalCounts& ProposalCounts::operator+=(const ProposalCounts& other) {
  steps += other.steps;
  infeasible += other.infeasible;
  stopped_early += other.stopped_early;
  evaluated += other.evaluated;
  accepted += other.accepted;
  return *this;
}

AnnealResult AnnealPopulation(
    const SearchSpace& space, std::vector<Chain> members,
    const AnnealOptions& options, uint64_t seed, const Budget& budget,
    const std::function<void(const AnnealLevel&)>& on_level) {
  return Annealer(space, std::move(members), options, seed, budget)
      .Run(on_level);
}

ProposalCounts RunChain(const SearchSpace& space, Chain& chain, uint64_t steps,
                        double temperature, const ProposalOptions& options,
                        const CounterRandom& random, const Budget& budget) {
  ProposalCounts counts;
  DrawStream draws(random);
  Proposer proposer(space, options);
  Move move;
  for (; counts.steps < steps; ++counts.steps) {
    if (counts.steps % kStepsBetweenLooks == 0 && budget.Exhausted()) break;
    if (!proposer.Propose(chain, draws, &move)) {
      ++counts.infeasible;
      continue;
    }
    // u < exp(-delta / T), solved for delta before it is known.
    const double tolerance =
        temperature == 0
            ? 0
            : temperature * std::max(chain.energy(), 1.0) * draws.Exponential();
    switch (chain.Try(move, tolerance)) {
      case Chain::Verdict::kStopped:
        ++counts.stopped_early;
        break;
      case Chain::Verdict::kAccepted:
        ++counts.accepted;
        [[fallthrough]];
      case Chain::Verdict::kRejected:
        ++counts.evaluated;
        break;
    }
  }
  return counts;
}

bool GapClosed(const Score& score, int64_t bound) {
  return score.slowest_shard - bound <= bound / 10'000;
}

double FirstTemperature(std::span<const double> growths) {
  if (growths.empty()) return 0;
  double low = 0;
  double high = 1;
  for (int bit = 0; bit < 60; ++bit) {
    const double middle = (low + high) / 2;
    double accepted = 0;
    for (double growth : growths) accepted += ExpOfNegative(-growth / middle);
    (accepted < kFirstAcceptance * static_cast<double>(growths.size()) ? low
                                                                       : high) =
        middle;
  }
  return high;
}

std::vector<double> TemperatureSchedule(double first, uint32_t levels) {
  const uint32_t falls = std::max(levels, 3u) - 2;
  const double ratio = ExpOfNegative(Log(kCooling) / falls);
  std::vector<double> temperatures(levels);
  double temperature = first;
  for (uint32_t level = 1; level < levels; ++level) {
    temperatures[level] = temperature;
    temperature *= ratio;
  }
  return temperatures;
}

std::vector<uint32_t> ResampledParents(const std::vector<double>& energies,
                                       double temperature, double next,
                                       double u) {
  const double lowest = *std::min_element(energies.begin(), energies.end());
  const double scale = std::max(std::fabs(lowest), 1.0);
  std::vector<double> cumulative;
  double sum = 0;
  for (double energy : energies) {
    sum += ExpOfNegative(-(1 / next - 1 / temperature) *
                         ((energy - lowest) / scale));
    cumulative.push_back(sum);
  }
  std::vector<uint32_t> parents;
  uint32_t j = 0;
  for (size_t m = 0; m < energies.size(); ++m) {
    const double place = (u + static_cast<double>(m)) /
                         static_cast<double>(energies.size()) * sum;
    // The last one counts as 1, whatever rounding made of it.
    while (j + 1 < cumulative.size() && cumulative[j] < place) ++j;
    parents.push_back(j);
  }
  return parents;
}

}  // namespace routepack
