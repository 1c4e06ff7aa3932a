#include "planner/joint_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/counter_random.h"
#include "planner/demand.h"
#include "planner/stopwatch.h"

namespace routepack {
namespace {

// Of the steps: the first search, and the one after placement was refined.
// Measured on `tiny`, `flash` and recorded windows, like the weight.
constexpr double kFirstShare = 0.85;
constexpr double kAttentionWeight = 1.5;
// Proposals to exchange experts, over the steps: each is some times cheaper.
constexpr uint64_t kExchangesPerStep = 2;
constexpr uint64_t kLeastPerExpert = 50;
constexpr uint64_t kMostPerExpert = 2000;

constexpr uint64_t kTurnStream = 0x31;

// Scales the attention of a problem while it lives.
class WeighedAttention {
 public:
  WeighedAttention(PackingProblem& problem, double weight)
      : problem_(problem), attention_(problem.attention) {
    for (AttentionStage& stage : problem_.attention) {
      stage.alpha *= weight;
      stage.beta *= weight;
    }
  }
  ~WeighedAttention() { problem_.attention = std::move(attention_); }
  WeighedAttention(const WeighedAttention&) = delete;
  WeighedAttention& operator=(const WeighedAttention&) = delete;

 private:
  PackingProblem& problem_;
  std::vector<AttentionStage> attention_;
};

// What the slots of all experts cost, in assignments.
double PriceOf(const Placement& placement, const SlotPrice& price) {
  if (!price) return 0;
  double sum = 0;
  for (uint32_t l = 0; l < placement.num_layers; ++l) {
    for (uint32_t e = 0; e < placement.num_experts; ++e) {
      sum += price(
          l, e,
          placement.slot_of_expert[size_t{l} * placement.num_experts + e]);
    }
  }
  return sum;
}

class JointSearch {
 public:
  JointSearch(const Window& window, PackingProblem& problem,
              const ScoreBounds& bounds, const SearchOptions& options,
              const SlotPrice& price, uint64_t seed, const Budget& budget,
              const std::function<void(const SearchProgress&)>& on_progress)
      : window_(window),
        problem_(problem),
        bounds_(bounds),
        options_(options),
        price_(price),
        seed_(seed),
        budget_(budget),
        on_progress_(on_progress) {}

  JointSearchResult Run(const Layout& length, const Placement& placement) {
    placement_ = placement;
    best_.placement = placement;
    best_.packing.layout = length;
    best_.packing.score = ScoreOf(length);
    best_cost_ = CostOf(best_.packing.score);

    SearchResult first = SearchFirst(length);
    report() = std::move(first.report);
    AddStage("attention first", first.layout);
    Refine(first.layout, 1);
    if (options_.effort != Effort::kSeeds) {
      SearchResult second = SearchAgain(first.layout);
      Append(second.report);
      Keep(second.layout, second.score);
      Refine(second.layout, 2);
    }

    if (placement_ != best_.placement) Project(best_.placement);
    best_.refined = best_.placement != placement;
    Evaluation evaluation = EvaluateLayout(problem_, best_.packing.layout);
    best_.packing.layout =
        MatchShardRows(problem_, best_.packing.layout, evaluation);
    best_.packing.truncated = report().end == SearchEnd::kTimeLimit || cut_;
    return std::move(best_);
  }

 private:
  SearchReport& report() { return best_.packing.report; }
  Score ScoreOf(const Layout& layout) const {
    return EvaluateLayout(problem_, layout).score;
  }
  uint64_t Seed(uint64_t turn) const {
    return CounterRandom(seed_, kTurnStream, turn).At(0);
  }
  uint64_t FirstSteps() const {
    return std::max<uint64_t>(
        1, static_cast<uint64_t>(static_cast<double>(options_.steps) *
                                 kFirstShare));
  }

  uint64_t ProposalsPerExpert() const {
    const uint64_t experts =
        uint64_t{window_.num_layers()} * window_.num_experts();
    return std::clamp(kExchangesPerStep * options_.steps / experts,
                      kLeastPerExpert, kMostPerExpert);
  }

  // Its levels are not comparable with the score and are not reported.
  SearchResult SearchFirst(const Layout& length) {
    SearchOptions options = options_;
    options.steps = FirstSteps();
    const WeighedAttention weighed(problem_, kAttentionWeight);
    SearchResult found = SearchLayout(problem_, length, 0, options, seed_,
                                      budget_, [this](SearchProgress progress) {
                                        progress.fraction *= kFirstShare;
                                        progress.incumbent =
                                            best_.packing.score;
                                        annealing_ = progress.annealing;
                                        if (on_progress_)
                                          on_progress_(progress);
                                      });
    found.report.stages.clear();
    found.report.levels.clear();
    return found;
  }

  SearchResult SearchAgain(const Layout& layout) {
    SearchOptions options = options_;
    options.steps = std::max<uint64_t>(1, options_.steps - FirstSteps());
    return SearchFrom(problem_, layout, bounds_.for_any_placement, options,
                      Seed(0), budget_, [this](SearchProgress progress) {
                        progress.fraction =
                            kFirstShare + (1 - kFirstShare) * progress.fraction;
                        progress.incumbent =
                            std::min(progress.incumbent, best_.packing.score);
                        progress.proposals += report().proposals;
                        progress.annealing += annealing_;
                        if (on_progress_) on_progress_(progress);
                      });
  }

  void Append(SearchReport& later) {
    report().levels = std::move(later.levels);
    report().proposals += later.proposals;
    report().end = later.end;
    report().stages.push_back(later.stages.back());
    watch_.Lap();
  }

  void Refine(const Layout& layout, uint64_t turn) {
    RowAwareResult refined =
        RefinePlacement(window_, layout, placement_,
                        {.proposals_per_expert = ProposalsPerExpert(),
                         .price = price_,
                         .seed = Seed(turn)},
                        budget_);
    best_.floor_layers = refined.floor_layers;
    cut_ |= budget_.Exhausted();
    Project(std::move(refined.placement));
    AddStage("placement", layout);
  }

  // The demand becomes that of `placement`.
  void Project(Placement placement) {
    placement_ = std::move(placement);
    const uint32_t fillers = problem_.num_items() - problem_.num_samples;
    problem_.demand = {};
    problem_.demand = ProjectDemand(window_, placement_, fillers);
  }

  void AddStage(const char* name, const Layout& layout) {
    const Score score = ScoreOf(layout);
    report().stages.push_back(
        {.name = name, .score = score, .duration = watch_.Lap()});
    Keep(layout, score);
  }

  void Keep(const Layout& layout, const Score& score) {
    const double cost = CostOf(score);
    if (std::pair(cost, score) >= std::pair(best_cost_, best_.packing.score)) {
      return;
    }
    best_cost_ = cost;
    best_.packing.layout = layout;
    best_.packing.score = score;
    best_.placement = placement_;
  }

  // s0 and, shared by the shards, what the placement's moves cost.
  double CostOf(const Score& score) const {
    return static_cast<double>(score.slowest_shard) +
           PriceOf(placement_, price_) * kScoreScale /
               problem_.topology.num_shards();
  }

  const Window& window_;
  PackingProblem& problem_;
  const ScoreBounds& bounds_;
  const SearchOptions& options_;
  const SlotPrice& price_;
  const uint64_t seed_;
  const Budget& budget_;
  const std::function<void(const SearchProgress&)>& on_progress_;
  Stopwatch watch_;
  absl::Duration annealing_;  // of the first search
  bool cut_ = false;          // a refinement may have been
  Placement placement_;       // of the problem's demand
  JointSearchResult best_;
  double best_cost_ = 0;
};

}  // namespace

JointSearchResult SearchJointly(
    const Window& window, PackingProblem& problem, const Layout& length,
    const Placement& placement, const ScoreBounds& bounds,
    const SearchOptions& options, const SlotPrice& price, uint64_t seed,
    const Budget& budget,
    const std::function<void(const SearchProgress&)>& on_progress) {
  if (2 * bounds.hot_expert_layers.size() > window.num_layers()) {
    return {.packing = SearchLayout(problem, length, bounds.for_placement,
                                    options, seed, budget, on_progress),
            .placement = placement};
  }
  const SearchOptions resolved = ResolveSearch(options, problem.num_items());
  return JointSearch(window, problem, bounds, resolved, price, seed, budget,
                     on_progress)
      .Run(length, placement);
}

}  // namespace routepack
