// How well windows are packed: guided packing against length-only packing
// (RoutePack paper, Table 4), against other frameworks' allocators and plain
// annealing under the same placement, rows and cap, and against the optimum of
// small cases.
//
//   packing_bench                 # all, some minutes
//   packing_bench --quick         # two windows a setting, no effort "best"
//   packing_bench --sections=exhaustive --format=json
//
// All figures but times are the same on every machine. Exits with 1 when a
// layout is invalid or a plan is worse than length-only packing.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "oneapi/tbb/parallel_for.h"
#include "planner/joint_search.h"
#include "planner/plan.h"
#include "planner/search.h"
#include "planner/search_space.h"
#include "tests/bench/packing_cases.h"
#include "tests/bench/packing_peers.h"
#include "tests/bench/packing_report.h"
#include "tests/planner/exhaustive.h"
#include "tests/planner/search_problems.h"

ABSL_FLAG(bool, quick, false, "Two windows a setting, no effort \"best\".");
ABSL_FLAG(uint32_t, windows, 7, "Windows of a setting, at most.");
ABSL_FLAG(std::string, format, "markdown", "markdown or json.");
ABSL_FLAG(std::string, sections, "table4,peers,annealing,exhaustive,placement",
          "What to run.");
ABSL_FLAG(std::string, data, ROUTEPACK_TEST_DATA,
          "Folder of the recorded windows.");
ABSL_FLAG(uint64_t, seed, 0, "Seed of all searches.");

namespace routepack {
namespace {

constexpr double kPlainScales[] = {1.0 / 3, 1, 3};

// Plain annealing under two rules of what a proposal is.
struct PlainRule {
  const char* name;
  int draws;  // until one fits
};
// A pair that does not fit spends the step, as in the paper.
constexpr PlainRule kPlain = {"plain annealing", 1};
// Draws cost nothing: nearly all proposals fit and are evaluated.
constexpr PlainRule kFreeDraws = {"plain annealing, free draws", 1000};
constexpr PlainRule kPlainRules[] = {kPlain, kFreeDraws};
constexpr uint32_t kExhaustiveCases = 200;

// One way to pack a window.
struct Outcome {
  Metrics metrics;
  double seconds = 0;
  uint64_t proposals = 0;
  bool repaired = false;
  bool failed = false;
};

struct Packed {
  const PackingCase* from = nullptr;
  std::map<std::string, Outcome> arms;  // "length-only", "balanced", ...

  const Metrics& metrics(const std::string& arm) const {
    return arms.at(arm).metrics;
  }
  // Change against length-only packing, in percent.
  template <typename F>
  double Change(const std::string& arm, F value) const {
    return 100 * (static_cast<double>(value(metrics(arm))) /
                      static_cast<double>(value(metrics("length-only"))) -
                  1);
  }
  double JointChange(const std::string& arm) const {
    return Change(arm, [](const Metrics& m) { return m.joint; });
  }
  // Share of what is above the bound that was closed, in percent.
  double Closed(const std::string& arm) const {
    const int64_t first = metrics("length-only").score.slowest_shard;
    const int64_t now = metrics(arm).score.slowest_shard;
    return 100 * static_cast<double>(first - now) /
           static_cast<double>(first - from->bounds.for_placement);
  }
};

// Windows of one setting, one after another.
using Group = std::vector<const Packed*>;

std::vector<Group> Grouped(const std::vector<Packed>& all) {
  std::vector<Group> groups;
  for (const Packed& packed : all) {
    if (groups.empty() ||
        groups.back().front()->from->setting != packed.from->setting) {
      groups.emplace_back();
    }
    groups.back().push_back(&packed);
  }
  return groups;
}

template <typename F>
std::vector<double> Values(const Group& group, F value) {
  std::vector<double> values;
  for (const Packed* packed : group) values.push_back(value(*packed));
  return values;
}

Group All(const std::vector<Packed>& all) {
  Group group;
  for (const Packed& packed : all) group.push_back(&packed);
  return group;
}

Metrics Measured(const PackingCase& from, const Layout& layout,
                 const std::string& arm) {
  if (absl::Status valid = ValidateLayout(from.problem, layout); !valid.ok()) {
    std::cerr << from.setting << ", " << from.window << ", " << arm << ": "
              << valid << "\n";
    std::exit(1);
  }
  return MakeMetrics(from.problem, EvaluateLayout(from.problem, layout), 0);
}

Outcome Search(const PackingCase& from, Effort effort,
               const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  const SearchResult result =
      SearchLayout(from.problem, from.length, from.bounds.for_placement,
                   {.effort = effort}, absl::GetFlag(FLAGS_seed));
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  Outcome out = {.metrics = Measured(from, result.layout, name),
                 .seconds = time.count(),
                 .proposals = result.report.proposals.steps};
  const Score first = EvaluateLayout(from.problem, from.length).score;
  if (out.metrics.score != result.score || first < result.score) {
    std::cerr << from.setting << ", " << from.window << ", " << name
              << ": the score is wrong or above that of length-only packing\n";
    std::exit(1);
  }
  return out;
}

Outcome Peer(const PackingCase& from, const PeerLayout& peer,
             const std::string& name) {
  return {.metrics = Measured(from, peer.layout, name),
          .repaired = peer.repaired,
          .failed = peer.failed};
}

std::string ScaledName(const PlainRule& rule, double scale) {
  return absl::StrFormat("%s, T_0 x %.2g", rule.name, scale);
}

// As many proposals as `balanced` may make. All run in parallel: they are
// single chains. Of the scales the one counts that is best on the average of
// all windows, as the planner's own constants were chosen.
void AddPlainAnnealing(std::vector<Packed>& all, const PlainRule& rule) {
  const size_t scales = std::size(kPlainScales);
  std::vector<Outcome> outcomes(all.size() * scales);
  tbb::parallel_for(size_t{0}, outcomes.size(), [&](size_t k) {
    const PackingCase& from = *all[k / scales].from;
    const SearchOptions options =
        ResolveSearch({.effort = Effort::kBalanced}, from.problem.num_items());
    const SearchSpace space(from.problem, from.length.rows);
    const Layout layout = PlainAnnealing(space, from.length,
                                         {.steps = options.steps,
                                          .levels = options.levels,
                                          .draws = rule.draws,
                                          .scale = kPlainScales[k % scales]},
                                         absl::GetFlag(FLAGS_seed));
    outcomes[k] = {.metrics = Measured(from, layout, rule.name)};
  });
  std::string best;
  double least = 0;
  for (size_t s = 0; s < scales; ++s) {
    const std::string name = ScaledName(rule, kPlainScales[s]);
    for (size_t k = 0; k < all.size(); ++k) {
      all[k].arms[name] = outcomes[k * scales + s];
    }
    const double mean = Mean(Values(All(all), [&](const Packed& packed) {
      return packed.JointChange(name);
    }));
    if (best.empty() || mean < least) {
      best = name;
      least = mean;
    }
  }
  std::cerr << "the best scale: " << best << "\n";
  for (Packed& packed : all) packed.arms[rule.name] = packed.arms[best];
}

// Room that the bound leaves in the EP peak sum, in percent.
double PeakRoom(const Packed& packed) {
  const auto first =
      static_cast<double>(packed.metrics("length-only").ep_peak_sum);
  return 100 * (1 - static_cast<double>(packed.from->peak_floor) / first);
}

std::string Percent(const std::vector<double>& values) {
  return MeanAndDeviation(values, 2);
}

Table Table4(const std::vector<Packed>& all, const std::string& effort) {
  Table table = {
      .title = absl::StrCat(
          "Length-only to guided packing (", effort,
          "): the same LPT placement and rows, change in %, mean ± deviation"),
      .columns = {"setting", "windows", "rows", "peak sum", "room by bound",
                  "tail", "efficiency", "attention", "joint", "closed %",
                  "seconds"}};
  for (const Group& group : Grouped(all)) {
    const auto change = [&](auto value) {
      return Percent(Values(group, [&](const Packed& packed) {
        return packed.Change(effort, value);
      }));
    };
    const auto efficiency = [&](const std::string& arm) {
      return Mean(Values(group, [&](const Packed& packed) {
        return packed.metrics(arm).balance_efficiency;
      }));
    };
    table.rows.push_back(
        {group.front()->from->setting, absl::StrCat(group.size()),
         absl::StrCat(group.front()->from->length.rows),
         change([](const Metrics& m) { return m.ep_peak_sum; }),
         Percent(Values(group, PeakRoom)),
         change([](const Metrics& m) { return m.tail_peak; }),
         absl::StrFormat("%.3f -> %.3f", efficiency("length-only"),
                         efficiency(effort)),
         change([](const Metrics& m) { return m.attention; }),
         change([](const Metrics& m) { return m.joint; }),
         MeanAndDeviation(Values(group,
                                 [&](const Packed& packed) {
                                   return packed.Closed(effort);
                                 }),
                          1),
         absl::StrFormat("%.2f", Mean(Values(group, [&](const Packed& packed) {
                           return packed.arms.at(effort).seconds;
                         })))});
  }
  table.rows.push_back({"paper, Tiny, one shard", "", "", "-3.13", "", "-11.04",
                        "0.891 -> 0.920", "+0.09", "-1.53", "", ""});
  table.rows.push_back({"paper, Flash, two shards", "", "", "-3.24", "",
                        "-11.62", "0.844 -> 0.869", "+0.77", "-1.35", "", ""});
  return table;
}

Table PeersTable(const std::vector<Packed>& all,
                 const std::vector<std::string>& arms) {
  Table table = {
      .title =
          "Joint cost against length-only first-fit decreasing, change in "
          "%, mean ± deviation; in brackets the share of the gap closed",
      .columns = {"setting"}};
  table.columns.insert(table.columns.end(), arms.begin(), arms.end());
  const auto add = [&](const std::string& name, const Group& group) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(name);
    for (const std::string& arm : arms) {
      row.push_back(absl::StrFormat(
          "%s (%.0f %%)",
          Percent(Values(
              group,
              [&](const Packed& packed) { return packed.JointChange(arm); })),
          Mean(Values(group, [&](const Packed& packed) {
            return packed.Closed(arm);
          }))));
    }
  };
  for (const Group& group : Grouped(all)) {
    add(group.front()->from->setting, group);
  }
  add("all", All(all));
  for (const char* arm : {"fewest samples", "largest differencing"}) {
    int repaired = 0;
    int failed = 0;
    for (const Packed& packed : all) {
      repaired += packed.arms.at(arm).repaired;
      failed += packed.arms.at(arm).failed;
    }
    table.notes.push_back(
        absl::StrCat(arm, ": cells over the cap had to be repaired in ",
                     repaired, " of ", all.size(), " windows; not possible in ",
                     failed, ", where it counts as length-only."));
  }
  table.notes.push_back(
      "fewest samples: AReaL's default allocator. largest differencing: "
      "Karmarkar-Karp on linear plus quadratic work, as in verl and slime. "
      "plain annealing: one chain, uniform swaps and relocations, as many "
      "proposals as balanced; a pair that does not fit is a proposal, or, with "
      "free draws, is not.");
  return table;
}

Table AnnealingTable(const std::vector<Packed>& all,
                     std::vector<std::vector<std::string>>& checks) {
  Table table = {
      .title =
          "Population annealing (balanced) against plain annealing with "
          "as many proposals: joint cost",
      .columns = {"setting", "window", "population", "plain", "difference %",
                  "plain, free draws", "difference %"}};
  const auto difference = [](const Packed& packed, const PlainRule& rule) {
    const auto joint = [&](const std::string& arm) {
      return static_cast<double>(packed.metrics(arm).score.slowest_shard);
    };
    return 100 * (joint("balanced") / joint(rule.name) - 1);
  };
  for (const Packed& packed : all) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {packed.from->setting, packed.from->window,
           absl::StrFormat("%.4f", packed.metrics("balanced").joint)};
    for (const PlainRule& rule : kPlainRules) {
      row.push_back(absl::StrFormat("%.4f", packed.metrics(rule.name).joint));
      row.push_back(absl::StrFormat("%+.3f", difference(packed, rule)));
    }
  }
  const auto mean = [&](const Group& group, const PlainRule& rule) {
    const std::vector<double> values = Values(
        group, [&](const Packed& packed) { return difference(packed, rule); });
    return values.size() < 2 ? absl::StrFormat("%+.3f", Mean(values))
                             : absl::StrFormat("%+.3f ± %.3f", Mean(values),
                                               Interval95(values));
  };
  const auto add = [&](const std::string& name, const Group& group) {
    table.rows.push_back({name, "mean", "", "", mean(group, kPlain), "",
                          mean(group, kFreeDraws)});
  };
  for (const Group& group : Grouped(all)) {
    add(group.front()->from->setting, group);
  }
  add("all", All(all));
  table.notes.push_back(
      "± is half the paired 95 % interval of the mean (Student's t). Plain "
      "annealing's temperature is found from its own proposals as the "
      "planner's is, times a third, one or three, whichever is best on the "
      "average of all windows.");
  for (const PlainRule& rule : kPlainRules) {
    std::vector<std::string> losses;
    for (const Packed& packed : all) {
      const double percent = difference(packed, rule);
      if (percent <= 0) continue;
      losses.push_back(absl::StrFormat("%s, %s: %+.3f %%", packed.from->setting,
                                       packed.from->window, percent));
    }
    table.notes.push_back(
        absl::StrCat("Population annealing loses to ", rule.name, " in ",
                     losses.size(), " of ", all.size(), " windows",
                     losses.empty() ? "." : ": ", absl::StrJoin(losses, "; ")));
  }
  const std::vector<double> values =
      Values(All(all),
             [&](const Packed& packed) { return difference(packed, kPlain); });
  checks.push_back({"balanced against plain annealing, joint, mean %",
                    mean(All(all), kPlain), "below 0",
                    Mean(values) < 0 ? "yes" : "no"});
  return table;
}

struct SmallOutcome {
  Score found;
  Score optimum;
  uint64_t nodes = 0;
};

Table ExhaustiveTable(uint32_t cases,
                      std::vector<std::vector<std::string>>& checks) {
  std::vector<SmallOutcome> outcomes(cases);
  tbb::parallel_for(uint32_t{0}, cases, [&](uint32_t seed) {
    const SearchCase small = SmallSearchCase(seed);
    SmallOutcome& out = outcomes[seed];
    out.found = SearchLayout(small.problem, small.length, small.bound, {},
                             absl::GetFlag(FLAGS_seed))
                    .score;
    ExhaustiveSearch search(small.problem, small.length.rows);
    out.optimum = search.Optimum(out.found);
    out.nodes = search.nodes();
  });
  uint32_t optimal = 0;
  uint32_t joint_optimal = 0;
  uint64_t nodes = 0;
  std::vector<double> gaps;
  for (const SmallOutcome& out : outcomes) {
    optimal += out.found == out.optimum;
    joint_optimal += out.found.slowest_shard == out.optimum.slowest_shard;
    nodes += out.nodes;
    if (out.found != out.optimum) {
      gaps.push_back(100 * (static_cast<double>(out.found.slowest_shard) /
                                static_cast<double>(out.optimum.slowest_shard) -
                            1));
    }
  }
  const auto share = [&](uint32_t count) {
    return absl::StrFormat("%.1f %%", 100.0 * count / cases);
  };
  checks.push_back({"balanced is optimal on small cases", share(optimal),
                    "at least 95 %",
                    optimal * 20 >= cases * 19 ? "yes" : "no"});
  Table table = {
      .title =
          "Balanced against the optimum: 9 to 12 samples in 4 to 6 cells, "
          "4 to 6 layers, one or two shards",
      .columns = {"cases", "optimal", "optimal in the joint cost",
                  "mean gap of the others %", "largest gap %", "nodes a case"}};
  table.rows.push_back(
      {absl::StrCat(cases), share(optimal), share(joint_optimal),
       gaps.empty() ? "" : absl::StrFormat("%.4f", Mean(gaps)),
       gaps.empty() ? ""
                    : absl::StrFormat(
                          "%.4f", *std::max_element(gaps.begin(), gaps.end())),
       absl::StrCat(nodes / cases)});
  return table;
}

// What the tables should show, over all windows.
void CheckTable4(const std::vector<Packed>& all, const std::string& effort,
                 double closed, std::vector<std::vector<std::string>>& checks) {
  const auto add = [&](const std::string& what, const std::string& figure,
                       const std::string& target, bool met) {
    checks.push_back(
        {absl::StrCat(effort, ": ", what), figure, target, met ? "yes" : "no"});
  };
  const auto mean = [&](auto value) {
    return Mean(Values(All(all), [&](const Packed& packed) {
      return packed.Change(effort, value);
    }));
  };
  const double share = Mean(Values(
      All(all), [&](const Packed& packed) { return packed.Closed(effort); }));
  add("share of the gap to the bound closed, mean",
      absl::StrFormat("%.1f %%", share),
      absl::StrFormat("at least %.0f %%", closed), share >= closed);
  for (const Group& group : Grouped(all)) {
    const double room = Mean(Values(group, PeakRoom));
    const double peak = Mean(Values(group, [&](const Packed& packed) {
      return packed.Change(effort,
                           [](const Metrics& m) { return m.ep_peak_sum; });
    }));
    if (room < 3) continue;
    add(absl::StrCat("peak sum, ", group.front()->from->setting),
        absl::StrFormat("%.2f %%", peak), "at most -3 %", peak <= -3);
  }
  const double tail = mean([](const Metrics& m) { return m.tail_peak; });
  add("tail, mean", absl::StrFormat("%.2f %%", tail), "below 0 (paper -11 %)",
      tail < 0);
  const double attention = mean([](const Metrics& m) { return m.attention; });
  add("attention, mean", absl::StrFormat("%+.2f %%", attention), "at most +1 %",
      attention <= 1);
  // Search() ends the program where it is not so.
  add("joint no worse than length-only", absl::StrCat(all.size(), " windows"),
      "all", true);
}

// Placement and packing in turn against packing alone, which gets half as many
// steps again in the place of refinements.
Table PlacementTable(const std::vector<PackingCase>& cases,
                     std::vector<std::vector<std::string>>& checks) {
  Table table = {
      .title =
          "Placement refined for the packing: what is left above the bound of "
          "any placement, in %; balanced, mean",
      .columns = {"setting", "windows", "LPT, packing alone", "seconds",
                  "placement and packing", "seconds", "of packing's %",
                  "worst %", "layers bound by a hot expert"}};
  std::vector<double> recorded;
  std::vector<double> generated;
  std::map<std::string, std::array<std::vector<double>, 5>> rows;
  std::vector<std::string> order;
  double worst = 0;
  for (const PackingCase& from : cases) {
    std::cerr << "refining " << from.setting << ", " << from.window << "\n";
    SearchOptions options = ResolveSearch({}, from.problem.num_items());
    const auto left = [&](const Score& score) {
      return 100 * Gap(score.slowest_shard, from.bounds.for_any_placement);
    };
    const auto seconds = [start = std::chrono::steady_clock::now()] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                           start)
          .count();
    };
    PackingProblem problem = from.problem;
    const double jointly =
        left(SearchJointly(*from.samples, problem, from.length, from.placement,
                           from.bounds, options, {}, absl::GetFlag(FLAGS_seed))
                 .packing.score);
    const double joint_seconds = seconds();
    // Where placement was left alone there was no time for it either.
    if (2 * from.bounds.hot_expert_layers.size() <=
        from.samples->num_layers()) {
      options.steps += options.steps / 2;
    }
    const double alone =
        left(SearchLayout(from.problem, from.length, from.bounds.for_placement,
                          options, absl::GetFlag(FLAGS_seed))
                 .score);
    const double part = 100 * jointly / alone;
    auto& row = rows[from.setting];
    if (row[0].empty()) order.push_back(from.setting);
    row[0].push_back(alone);
    row[1].push_back(seconds() - joint_seconds);
    row[2].push_back(jointly);
    row[3].push_back(joint_seconds);
    row[4].push_back(part);
    worst = std::max(worst, part);
    (from.setting.starts_with("recorded") ? recorded : generated)
        .push_back(part);
    if (row[0].size() == 1) {
      table.rows.push_back({from.setting, "", "", "", "", "", "", "",
                            absl::StrCat(from.bounds.hot_expert_layers.size(),
                                         " of ", from.samples->num_layers())});
    }
  }
  for (size_t k = 0; k < order.size(); ++k) {
    const auto& row = rows[order[k]];
    std::vector<std::string>& cells = table.rows[k];
    cells[1] = absl::StrCat(row[0].size());
    for (size_t c = 0; c < 4; ++c) {
      cells[2 + c] = absl::StrFormat("%.2f", Mean(row[c]));
    }
    cells[6] = absl::StrFormat("%.0f", Mean(row[4]));
    cells[7] = absl::StrFormat("%.0f",
                               *std::max_element(row[4].begin(), row[4].end()));
  }
  const auto check = [&](const char* what, double value, double most) {
    checks.push_back({what, absl::StrFormat("%.1f %%", value),
                      absl::StrFormat("at most %.0f %%", most),
                      value <= most + 1e-9 ? "yes" : "no"});
  };
  check("refined placement leaves, of packing alone: tiny and flash, mean",
        Mean(generated), 50);
  check("the same: recorded windows, mean", Mean(recorded), 85);
  check("the same: worst window", worst, 100);
  return table;
}

std::vector<Packed> PackAll(const std::vector<PackingCase>& cases,
                            bool with_best) {
  std::vector<Packed> all(cases.size());
  for (size_t k = 0; k < cases.size(); ++k) {
    const PackingCase& from = cases[k];
    std::cerr << "packing " << from.setting << ", " << from.window << "\n";
    all[k].from = &from;
    std::map<std::string, Outcome>& arms = all[k].arms;
    arms["length-only"] = {.metrics =
                               Measured(from, from.length, "length-only")};
    arms["fewest samples"] =
        Peer(from, FewestSamplesDecreasing(from.problem, from.length),
             "fewest samples");
    arms["largest differencing"] =
        Peer(from, LargestDifferencing(from.problem, from.length),
             "largest differencing");
    arms["seeds"] = Search(from, Effort::kSeeds, "seeds");
    arms["fast"] = Search(from, Effort::kFast, "fast");
    arms["balanced"] = Search(from, Effort::kBalanced, "balanced");
    if (with_best) arms["best"] = Search(from, Effort::kBest, "best");
  }
  return all;
}

int Main() {
  const bool quick = absl::GetFlag(FLAGS_quick);
  const std::string sections = absl::GetFlag(FLAGS_sections);
  const auto wanted = [&](const char* name) {
    return sections.find(name) != std::string::npos;
  };
  const bool table4 = wanted("table4");
  const bool peers = wanted("peers");
  const bool annealing = wanted("annealing");

  std::vector<Table> tables;
  std::vector<std::vector<std::string>> checks;
  if (table4 || peers || annealing) {
    const std::vector<PackingCase> cases = PackingCases(
        absl::GetFlag(FLAGS_data), quick ? 2 : absl::GetFlag(FLAGS_windows));
    const bool with_best = !quick && (table4 || peers);
    std::vector<Packed> all = PackAll(cases, with_best);
    if (peers || annealing) {
      for (const PlainRule& rule : kPlainRules) AddPlainAnnealing(all, rule);
    }
    if (table4) {
      tables.push_back(Table4(all, "balanced"));
      CheckTable4(all, "balanced", 72, checks);
      if (with_best) {
        tables.push_back(Table4(all, "best"));
        CheckTable4(all, "best", 80, checks);
      }
    }
    if (peers) {
      std::vector<std::string> arms = {"fewest samples", "largest differencing",
                                       kPlain.name,      kFreeDraws.name,
                                       "seeds",          "fast",
                                       "balanced"};
      if (with_best) arms.push_back("best");
      tables.push_back(PeersTable(all, arms));
    }
    if (annealing) {
      tables.push_back(AnnealingTable(all, checks));
    }
  }
  if (wanted("placement")) {
    tables.push_back(
        PlacementTable(PackingCases(absl::GetFlag(FLAGS_data),
                                    quick ? 2 : absl::GetFlag(FLAGS_windows)),
                       checks));
  }
  if (wanted("exhaustive")) {
    tables.push_back(ExhaustiveTable(kExhaustiveCases, checks));
  }
  tables.push_back({.title = "What was asked for",
                    .columns = {"figure", "measured", "asked", "met"},
                    .rows = checks});
  if (absl::GetFlag(FLAGS_format) == "json") {
    WriteJson(tables, std::cout);
  } else {
    WriteMarkdown(tables, std::cout);
  }
  return 0;
}

}  // namespace
}  // namespace routepack

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return routepack::Main();
}
