#include "planner/search.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/anneal.h"
#include "planner/chain.h"
#include "planner/diversity.h"
#include "planner/search_space.h"
#include "planner/seed.h"
#include "planner/stopwatch.h"

namespace routepack {
namespace {

struct EffortDefaults {
  uint64_t steps_per_item;
  uint64_t least_steps;
  uint64_t most_steps;
  uint32_t levels;
  uint32_t population;
  uint32_t candidates;
};

EffortDefaults DefaultsOf(Effort effort) {
  switch (effort) {
    case Effort::kSeeds:
      return {.population = 1, .candidates = 32};
    case Effort::kFast:
      return {200, 20'000, 800'000, 16, 2, 8};
    case Effort::kBalanced:
      return {2'000, 200'000, 5'000'000, 32, 4, 16};
    case Effort::kBest:
      return {20'000, 2'000'000, 80'000'000, 64, 8, 32};
  }
  return {};
}

// The members to start from, by quality and diversity.
std::vector<uint32_t> ChooseMembers(const PackingProblem& problem,
                                    const SeedPool& pool,
                                    const SearchOptions& options,
                                    SearchReport& report) {
  std::vector<LayoutSketch> sketches;
  sketches.reserve(pool.layouts.size());
  for (const Layout& layout : pool.layouts) {
    sketches.push_back(SketchLayout(problem, layout, options.projections));
  }
  std::vector<uint32_t> chosen =
      QualityDiversitySelect(sketches, pool.scores, options.population,
                             options.diversity_penalty.value());
  double sum = 0;
  uint32_t pairs = 0;
  for (size_t a = 0; a < chosen.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (chosen[a] == chosen[b]) continue;
      sum += LayoutDistance(sketches[chosen[a]], sketches[chosen[b]]);
      ++pairs;
    }
  }
  report.diversity = pairs == 0 ? 0 : sum / pairs;
  return chosen;
}

constexpr uint64_t kRestartStream = 0x20;
// Restarts in a row that may bring nothing.
constexpr int kFruitlessRestarts = 2;

// Of T_0: going on from a good layout, its like should not be left far behind.
constexpr double kHeatToGoOn = 0.1;

// One search, from seeds to the end.
class Search {
 public:
  Search(const PackingProblem& problem, const Layout& length, int64_t bound,
         const SearchOptions& options, uint64_t seed, const Budget& budget,
         const std::function<void(const SearchProgress&)>& on_progress)
      : problem_(problem),
        length_(length),
        bound_(bound),
        options_(options),
        seed_(seed),
        budget_(budget),
        on_progress_(on_progress) {}

  SearchResult Run() {
    const SeedPool pool = Seeds(seed_);
    result_.layout = pool.layouts[pool.best()];
    result_.score = pool.scores[pool.best()];
    report().candidates = pool.trials + 2;
    report().distinct = static_cast<uint32_t>(pool.layouts.size());
    report().population = options_.population;
    report().stages = {
        {.name = "length-only", .score = pool.length_score},
        {.name = "paired",
         .score = std::min(pool.length_score, pool.paired_score)},
        {.name = "best seed",
         .score = result_.score,
         .duration = watch_.Lap()}};
    report().end = Refine(pool);
    result_.truncated = report().end == SearchEnd::kTimeLimit;
    Evaluation evaluation = EvaluateLayout(problem_, result_.layout);
    result_.layout = MatchShardRows(problem_, result_.layout, evaluation);
    return std::move(result_);
  }

  // From `length_` alone, without seeds.
  SearchResult Continue() {
    result_.layout = length_;
    result_.score = EvaluateLayout(problem_, length_).score;
    report().population = options_.population;
    const SearchSpace space(problem_, length_.rows);
    report().end = AnnealFrom(
        space, std::vector<Chain>(options_.population, Chain(space, length_)),
        seed_, kHeatToGoOn);
    AddAnnealedStage();
    result_.truncated = report().end == SearchEnd::kTimeLimit;
    return std::move(result_);
  }

 private:
  SearchReport& report() { return result_.report; }

  void AddAnnealedStage() {
    report().stages.push_back(
        {.name = "annealed", .score = result_.score, .duration = watch_.Lap()});
  }

  SeedPool Seeds(uint64_t seed) const {
    return MakeSeeds(problem_, length_,
                     {.candidates = options_.candidates,
                      .choice_width = options_.choice_width},
                     seed, budget_);
  }

  SearchEnd Refine(const SeedPool& pool) {
    if (budget_.Exhausted()) return SearchEnd::kTimeLimit;
    if (options_.effort == Effort::kSeeds) return SearchEnd::kSeedsOnly;
    if (GapClosed(result_.score, bound_)) return SearchEnd::kNothingToGain;
    annealing_ = {};
    const SearchSpace space(problem_, length_.rows);
    SearchEnd end = Anneal(space, pool, seed_);
    int fruitless = 0;
    for (uint64_t restart = 1;
         end == SearchEnd::kNoImprovement && fruitless < kFruitlessRestarts;
         ++restart) {
      const Score before = result_.score;
      const uint64_t seed = CounterRandom(seed_, kRestartStream, restart).At(0);
      end = Anneal(space, Seeds(seed), seed);
      fruitless = result_.score < before ? 0 : fruitless + 1;
      ++report().restarts;
    }
    AddAnnealedStage();
    return end;
  }

  SearchEnd Anneal(const SearchSpace& space, const SeedPool& pool,
                   uint64_t seed) {
    std::vector<Chain> members;
    members.reserve(options_.population);
    for (uint32_t member : ChooseMembers(problem_, pool, options_, report())) {
      members.emplace_back(space, pool.layouts[member]);
    }
    return AnnealFrom(space, std::move(members), seed);
  }

  // With the steps that are left.
  SearchEnd AnnealFrom(const SearchSpace& space, std::vector<Chain> members,
                       uint64_t seed, double heat = 1) {
    AnnealResult annealed = AnnealPopulation(
        space, std::move(members),
        {.steps = options_.steps - report().proposals.steps,
         .levels = options_.levels,
         .proposals = {.guided = options_.guided_probability.value(),
                       .relocation = options_.relocation_probability.value()},
         .bound = bound_,
         .heat = heat},
        seed, budget_, [this](const AnnealLevel& level) { OnLevel(level); });
    if (annealed.score < result_.score) {
      result_.score = annealed.score;
      result_.layout = std::move(annealed.layout);
    }
    return annealed.end;
  }

  void OnLevel(AnnealLevel level) {
    level.incumbent = std::min(level.incumbent, result_.score);
    report().proposals += level.proposals;
    report().levels.push_back(level);
    if (!on_progress_) return;
    on_progress_({.fraction = static_cast<double>(report().proposals.steps) /
                              static_cast<double>(options_.steps),
                  .incumbent = level.incumbent,
                  .proposals = report().proposals,
                  .annealing = annealing_.Elapsed()});
  }

  const PackingProblem& problem_;
  const Layout& length_;
  const int64_t bound_;
  const SearchOptions& options_;
  const uint64_t seed_;
  const Budget& budget_;
  const std::function<void(const SearchProgress&)>& on_progress_;
  Stopwatch watch_;
  Stopwatch annealing_;
  SearchResult result_;
};

}  // namespace

SearchOptions ResolveSearch(const SearchOptions& options, uint32_t num_items) {
  const EffortDefaults defaults = DefaultsOf(options.effort);
  SearchOptions out = options;
  if (out.steps == 0) {
    out.steps = std::clamp(defaults.steps_per_item * num_items,
                           defaults.least_steps, defaults.most_steps);
  }
  if (out.levels == 0) out.levels = defaults.levels;
  if (out.population == 0) out.population = defaults.population;
  if (out.candidates == 0) {
    out.candidates = std::max(defaults.candidates, out.population);
  }
  if (out.choice_width == 0) out.choice_width = 4;
  if (out.projections == 0) out.projections = 16;
  if (!out.diversity_penalty) out.diversity_penalty = 1;
  if (!out.guided_probability) out.guided_probability = 0.8;
  if (!out.relocation_probability) out.relocation_probability = 0.2;
  return out;
}

void CheckSearch(const SearchOptions& options, std::string_view field,
                 Violations& violations) {
  const std::string prefix = std::string(field) + ".";
  const auto count = [&](const char* name, uint64_t value, uint64_t least,
                         uint64_t most) {
    if (value == 0 || (value >= least && value <= most)) return;
    violations.Add(prefix + name,
                   absl::StrCat("must be 0 (the effort's) or in [", least, ", ",
                                most, "], is ", value));
  };
  count("steps", options.steps, 1, uint64_t{1} << 40);
  count("levels", options.levels, 2, 1024);
  count("population", options.population, 1, 1024);
  count("candidates", options.candidates, 1, 1 << 16);
  count("choice_width", options.choice_width, 1, 1 << 16);
  count("projections", options.projections, 1, 1024);
  const auto real = [&](const char* name, std::optional<double> value,
                        double most) {
    if (!value || (*value >= 0 && *value <= most)) return;
    violations.Add(prefix + name,
                   absl::StrCat("must be in [0, ", most, "], is ", *value));
  };
  real("diversity_penalty", options.diversity_penalty, 1e6);
  real("guided_probability", options.guided_probability, 1);
  real("relocation_probability", options.relocation_probability, 1);
}

SearchResult SearchLayout(
    const PackingProblem& problem, const Layout& length, int64_t bound,
    const SearchOptions& options, uint64_t seed, const Budget& budget,
    const std::function<void(const SearchProgress&)>& on_progress) {
  const SearchOptions resolved = ResolveSearch(options, problem.num_items());
  return Search(problem, length, bound, resolved, seed, budget, on_progress)
      .Run();
}

SearchResult SearchFrom(
    const PackingProblem& problem, const Layout& layout, int64_t bound,
    const SearchOptions& options, uint64_t seed, const Budget& budget,
    const std::function<void(const SearchProgress&)>& on_progress) {
  const SearchOptions resolved = ResolveSearch(options, problem.num_items());
  return Search(problem, layout, bound, resolved, seed, budget, on_progress)
      .Continue();
}

}  // namespace routepack
