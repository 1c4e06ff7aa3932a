#include "planner/diversity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "oneapi/tbb/parallel_for.h"
#include "planner/counter_random.h"
#include "planner/multiversion.h"

namespace routepack {
namespace {

// Projections at a time: their sums stay in registers.
constexpr uint32_t kLanes = 16;

// Directions are the same for every problem and seed.
constexpr uint64_t kDirectionsStream = 0x646972;

constexpr uint64_t Pairs(uint64_t items) { return items * (items - 1) / 2; }

// sums[k] += sum_f +-values[f], minus where bit k of signs[f] is set.
ROUTEPACK_MULTIVERSION
void AddSigned(std::span<const double> values, const uint64_t* signs,
               double* sums) {
  double lanes[kLanes];
  std::copy_n(sums, kLanes, lanes);
  for (size_t f = 0; f < values.size(); ++f) {
    const uint64_t value = std::bit_cast<uint64_t>(values[f]);
    for (uint64_t k = 0; k < kLanes; ++k) {
      lanes[k] += std::bit_cast<double>(value ^ ((signs[f] >> k) << 63));
    }
  }
  std::copy_n(lanes, kLanes, sums);
}

using Loads = AlignedVector<uint32_t>;

// Sums over the features of a row of +-feature, the sign by feature and
// direction.
class RowProjection {
 public:
  explicit RowProjection(uint32_t projections)
      : sums_(size_t{(projections + kLanes - 1) / kLanes} * kLanes) {}

  // The next features of the row.
  void Add(std::span<const double> features) {
    signs_.resize(features.size());
    for (size_t k = 0; k < sums_.size(); k += kLanes) {
      const CounterRandom random(0, kDirectionsStream, k);
      for (size_t f = 0; f < features.size(); ++f) {
        signs_[f] = random.At(num_features_ + f);
      }
      AddSigned(features, signs_.data(), sums_.data() + k);
    }
    num_features_ += features.size();
  }
  double sum(uint32_t k) const { return sums_[k]; }

 private:
  std::vector<double> sums_;     // [q], padded to whole lanes
  std::vector<uint64_t> signs_;  // of the features at hand
  uint64_t num_features_ = 0;
};

// The moments of a row: sums over the items of each cell.
struct CellMoments {
  std::vector<double> tokens;   // [d] sum t
  std::vector<double> squares;  // [d] sum t^2
};

CellMoments MomentsOfRow(const PackingProblem& problem, const Layout& layout,
                         uint32_t r) {
  CellMoments moments{.tokens = std::vector<double>(layout.slots),
                      .squares = std::vector<double>(layout.slots)};
  for (uint32_t d = 0; d < layout.slots; ++d) {
    for (uint32_t i : layout.cell(r, d)) {
      const double t = problem.tokens[i];
      moments.tokens[d] += t;
      moments.squares[d] += t * t;
    }
  }
  return moments;
}

// [r][g][l][stride], ranks of a layer in ascending order of load.
Loads SortedLoads(const PackingProblem& problem, const Layout& layout) {
  const Demand& demand = problem.demand;
  const uint32_t num_shards = problem.topology.num_shards();
  Loads loads(size_t{layout.rows} * num_shards * demand.item_size());
  tbb::parallel_for(uint32_t{0}, layout.rows * num_shards, [&](uint32_t rg) {
    uint32_t* row_shard = loads.data() + rg * demand.item_size();
    for (uint32_t d : problem.topology.slots_of_shard(rg % num_shards)) {
      for (uint32_t i : layout.cell(rg / num_shards, d)) {
        AddLoads(demand.item(i), demand.item_size(), row_shard);
      }
    }
    for (uint32_t l = 0; l < demand.num_layers; ++l) {
      uint32_t* layer = row_shard + size_t{l} * demand.stride;
      std::sort(layer, layer + demand.num_ranks);
    }
  });
  return loads;
}

double InverseOrZero(double value) { return value > 0 ? 1 / value : 0; }

// Factors that make features comparable. The means are over the window, so
// they are the same for every layout of R rows; the roots make all moments
// together, and all loads together, one direction of unit length.
struct FeatureScale {
  double tokens = 0;          // 1 / (mean over cells sqrt(2 D))
  double squares = 0;         // 1 / (mean over cells sqrt(2 D))
  std::vector<double> loads;  // [l] 1 / (mean over ranks sqrt(L G P))
};

FeatureScale ScaleOf(const PackingProblem& problem, uint32_t rows,
                     const Loads& loads) {
  const Demand& demand = problem.demand;
  FeatureScale scale;
  double tokens = 0;
  double squares = 0;
  for (double t : problem.tokens) {
    tokens += t;
    squares += t * t;
  }
  const double cells = double{1} * rows * problem.topology.num_slots();
  const double moments = std::sqrt(2.0 * problem.topology.num_slots());
  scale.tokens = InverseOrZero(tokens / cells * moments);
  scale.squares = InverseOrZero(squares / cells * moments);

  std::vector<uint64_t> totals(demand.num_layers);
  for (auto first = loads.begin(); first != loads.end();) {
    for (uint64_t& total : totals) {
      total = std::accumulate(first, first + demand.num_ranks, total);
      first += demand.stride;
    }
  }
  const double ranks =
      double{1} * problem.topology.num_shards() * demand.num_ranks;
  for (uint64_t total : totals) {
    scale.loads.push_back(
        InverseOrZero(static_cast<double>(total) / (rows * ranks) *
                      std::sqrt(demand.num_layers * ranks)));
  }
  return scale;
}

void ProjectMoments(const PackingProblem& problem, const FeatureScale& scale,
                    const CellMoments& moments, RowProjection& projection) {
  for (uint32_t g = 0; g < problem.topology.num_shards(); ++g) {
    std::vector<double> tokens;
    std::vector<double> squares;
    for (uint32_t d : problem.topology.slots_of_shard(g)) {
      tokens.push_back(moments.tokens[d] * scale.tokens);
      squares.push_back(moments.squares[d] * scale.squares);
    }
    std::sort(tokens.begin(), tokens.end());
    std::sort(squares.begin(), squares.end());
    projection.Add(tokens);
    projection.Add(squares);
  }
}

// `loads` of the row, [g][l][stride].
void ProjectLoads(const PackingProblem& problem, const FeatureScale& scale,
                  const uint32_t* loads, RowProjection& projection) {
  const Demand& demand = problem.demand;
  std::vector<double> ranks(demand.num_ranks);
  for (uint32_t g = 0; g < problem.topology.num_shards(); ++g) {
    for (uint32_t l = 0; l < demand.num_layers; ++l, loads += demand.stride) {
      for (uint32_t p = 0; p < demand.num_ranks; ++p) {
        ranks[p] = loads[p] * scale.loads[l];
      }
      projection.Add(ranks);
    }
  }
}

// Sorted projections of the rows, [q][R].
std::vector<float> ProfileOf(const PackingProblem& problem,
                             const Layout& layout, uint32_t projections) {
  const Loads loads = SortedLoads(problem, layout);
  const FeatureScale scale = ScaleOf(problem, layout.rows, loads);
  std::vector<float> profile(size_t{projections} * layout.rows);
  tbb::parallel_for(uint32_t{0}, layout.rows, [&](uint32_t r) {
    RowProjection projection(projections);
    ProjectMoments(problem, scale, MomentsOfRow(problem, layout, r),
                   projection);
    ProjectLoads(problem, scale,
                 loads.data() + r * (loads.size() / layout.rows), projection);
    for (uint32_t k = 0; k < projections; ++k) {
      profile[size_t{k} * layout.rows + r] =
          static_cast<float>(projection.sum(k));
    }
  });
  for (uint32_t k = 0; k < projections; ++k) {
    const auto first = profile.begin() + size_t{k} * layout.rows;
    std::sort(first, first + layout.rows);
  }
  return profile;
}

// Of the pairs together in a group of either labelling, the share that is
// together in one only. `order` lists a's items group by group; the labels are
// below its size.
double CoassignmentDistance(std::span<const uint32_t> order,
                            std::span<const uint32_t> a,
                            std::span<const uint32_t> b, uint64_t pairs_a,
                            uint64_t pairs_b) {
  uint64_t both = 0;
  std::vector<uint32_t> met(order.size());  // [b's group] of a's group at hand
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && a[order[end]] == a[order[begin]]) {
      both += met[b[order[end++]]]++;
    }
    while (begin < end) met[b[order[begin++]]] = 0;
  }
  const uint64_t either = pairs_a + pairs_b - both;
  return either == 0
             ? 0
             : static_cast<double>(either - both) / static_cast<double>(either);
}

double ProfileDistance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    sum += std::abs(static_cast<double>(a[k]) - b[k]);
  }
  return a.empty() ? 0 : sum / static_cast<double>(a.size());
}

// The better half of the candidates by s0 (ties: lower index).
std::vector<bool> BetterHalf(std::span<const Score> scores) {
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return scores[a].slowest_shard < scores[b].slowest_shard;
  });
  std::vector<bool> better(scores.size());
  for (size_t k = 0; 2 * k < order.size(); ++k) better[order[k]] = true;
  return better;
}

}  // namespace

Layout Canonicalize(const PackingProblem& problem, const Layout& layout) {
  const Topology& topology = problem.topology;
  Layout sorted = layout;
  const auto items = [&](uint32_t c) {
    return std::span(sorted.items)
        .subspan(sorted.cell_begin[c],
                 sorted.cell_begin[c + 1] - sorted.cell_begin[c]);
  };
  for (uint32_t c = 0; c < layout.num_cells(); ++c) {
    std::sort(items(c).begin(), items(c).end());
  }
  const auto by_first_item = [&](uint32_t a, uint32_t b) {
    return items(a).front() < items(b).front();
  };

  std::vector<std::vector<uint32_t>> rows;  // cells in their new slots
  for (uint32_t r = 0; r < layout.rows; ++r) {
    std::vector<uint32_t> cells(layout.slots);
    for (uint32_t g = 0; g < topology.num_shards(); ++g) {
      std::vector<uint32_t> of_shard;
      for (uint32_t d : topology.slots_of_shard(g)) {
        of_shard.push_back(r * layout.slots + d);
      }
      std::sort(of_shard.begin(), of_shard.end(), by_first_item);
      for (size_t k = 0; k < of_shard.size(); ++k) {
        cells[topology.slots_of_shard(g)[k]] = of_shard[k];
      }
    }
    rows.push_back(std::move(cells));
  }
  std::sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
    return by_first_item(a.front(), b.front());
  });

  Layout canonical{.rows = layout.rows, .slots = layout.slots};
  canonical.cell_begin.push_back(0);
  for (const std::vector<uint32_t>& cells : rows) {
    for (uint32_t c : cells) {
      canonical.items.insert(canonical.items.end(), items(c).begin(),
                             items(c).end());
      canonical.cell_begin.push_back(
          static_cast<uint32_t>(canonical.items.size()));
    }
  }
  return canonical;
}

LayoutSketch SketchLayout(const PackingProblem& problem, const Layout& layout,
                          uint32_t projections) {
  LayoutSketch sketch{
      .items = layout.items,
      .cell_of_item = std::vector<uint32_t>(layout.items.size()),
      .row_of_item = std::vector<uint32_t>(layout.items.size()),
      .profile = ProfileOf(problem, layout, projections)};
  for (uint32_t r = 0; r < layout.rows; ++r) {
    uint64_t in_row = 0;
    for (uint32_t d = 0; d < layout.slots; ++d) {
      for (uint32_t i : layout.cell(r, d)) {
        sketch.cell_of_item[i] = r * layout.slots + d;
        sketch.row_of_item[i] = r;
      }
      in_row += layout.cell(r, d).size();
      sketch.cell_pairs += Pairs(layout.cell(r, d).size());
    }
    sketch.row_pairs += Pairs(in_row);
  }
  return sketch;
}

double LayoutDistance(const LayoutSketch& a, const LayoutSketch& b) {
  const double cells = CoassignmentDistance(
      a.items, a.cell_of_item, b.cell_of_item, a.cell_pairs, b.cell_pairs);
  const double rows = CoassignmentDistance(
      a.items, a.row_of_item, b.row_of_item, a.row_pairs, b.row_pairs);
  return 0.25 * (cells + rows) + 0.5 * ProfileDistance(a.profile, b.profile);
}

std::vector<uint32_t> QualityDiversitySelect(
    std::span<const LayoutSketch> sketches, std::span<const Score> scores,
    uint32_t population, double penalty) {
  const uint32_t size = static_cast<uint32_t>(scores.size());
  if (size == 0 || population == 0) return {};
  const uint32_t picks = std::min(population, size);
  const uint32_t winner = static_cast<uint32_t>(
      std::min_element(scores.begin(), scores.end()) - scores.begin());
  const double best = static_cast<double>(scores[winner].slowest_shard);
  const std::vector<bool> better = BetterHalf(scores);

  std::vector<uint32_t> picked = {winner};
  std::vector<bool> taken(size);
  taken[winner] = true;
  std::vector<double> nearest(size, std::numeric_limits<double>::infinity());
  while (picked.size() < picks) {
    tbb::parallel_for(uint32_t{0}, size, [&](uint32_t x) {
      if (taken[x]) return;
      nearest[x] = std::min(
          nearest[x], LayoutDistance(sketches[picked.back()], sketches[x]));
    });
    const bool gated = 2 * picked.size() < picks;
    uint32_t next = size;
    double highest = 0;
    for (uint32_t x = 0; x < size; ++x) {
      if (taken[x] || (gated && !better[x])) continue;
      const double excess =
          (static_cast<double>(scores[x].slowest_shard) - best) /
          std::max(best, 1.0);
      const double merit = nearest[x] - penalty * excess;
      if (next == size || merit > highest) {
        next = x;
        highest = merit;
      }
    }
    taken[next] = true;
    picked.push_back(next);
  }
  for (uint32_t k = picks; k < population; ++k) {
    picked.push_back(picked[k - picks]);
  }
  return picked;
}

}  // namespace routepack
