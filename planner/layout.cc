#include "planner/layout.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "oneapi/tbb/parallel_for.h"
#include "planner/multiversion.h"

namespace routepack {
namespace {

// Tells the compiler that loops over a padded row need no remainder.
constexpr uint32_t kLanes = 8;

// Loads that are accumulated at a time stay in the first-level cache.
constexpr uint32_t kBlockLoads = 4096;

struct RowLoad {
  uint32_t peak = 0;   // max_p W
  uint64_t total = 0;  // sum_p W
};

ROUTEPACK_MULTIVERSION
RowLoad MeasureRow(const uint32_t* loads, uint32_t stride) {
  const uint32_t size = stride / kLanes * kLanes;
  RowLoad row;
  for (uint32_t p = 0; p < size; ++p) row.peak = std::max(row.peak, loads[p]);
  for (uint32_t p = 0; p < size; ++p) row.total += loads[p];
  return row;
}

// What a row and a block of layers add to an Evaluation.
struct BlockEvaluation {
  std::vector<int64_t> expert;  // [g]
  std::vector<uint32_t> peaks;  // [l of the block] max_{g,p} W
  uint64_t balance_load = 0;
};

BlockEvaluation EvaluateBlock(const PackingProblem& problem,
                              const Layout& layout, uint32_t r,
                              uint32_t first_layer, uint32_t num_layers) {
  const Topology& topology = problem.topology;
  const uint32_t stride = problem.demand.stride;
  const size_t offset = size_t{first_layer} * stride;
  const size_t size = size_t{num_layers} * stride;

  BlockEvaluation block;
  block.expert.resize(topology.num_shards());
  std::vector<uint32_t> loads(size);         // [l][stride] of one shard
  std::vector<RowLoad> maximum(num_layers);  // over shards
  for (uint32_t g = 0; g < topology.num_shards(); ++g) {
    std::fill(loads.begin(), loads.end(), 0);
    for (uint32_t d : topology.slots_of_shard(g)) {
      for (uint32_t i : layout.cell(r, d)) {
        AddLoads(problem.demand.item(i) + offset, size, loads.data());
      }
    }
    for (uint32_t l = 0; l < num_layers; ++l) {
      const RowLoad row = MeasureRow(loads.data() + size_t{l} * stride, stride);
      block.expert[g] += row.peak;
      maximum[l].peak = std::max(maximum[l].peak, row.peak);
      maximum[l].total = std::max(maximum[l].total, row.total);
    }
  }
  for (const RowLoad& row : maximum) {
    block.peaks.push_back(row.peak);
    block.balance_load += row.total;
  }
  return block;
}

void EvaluateExperts(const PackingProblem& problem, const Layout& layout,
                     Evaluation& evaluation) {
  const uint32_t num_layers = problem.demand.num_layers;
  const uint32_t num_shards = problem.topology.num_shards();
  const uint32_t step = std::clamp(
      kBlockLoads / std::max(problem.demand.stride, 1u), 1u, num_layers);
  const uint32_t blocks_per_row = (num_layers + step - 1) / step;

  std::vector<BlockEvaluation> blocks(size_t{layout.rows} * blocks_per_row);
  tbb::parallel_for(size_t{0}, blocks.size(), [&](size_t b) {
    const uint32_t first = static_cast<uint32_t>(b % blocks_per_row) * step;
    blocks[b] = EvaluateBlock(problem, layout,
                              static_cast<uint32_t>(b / blocks_per_row), first,
                              std::min(step, num_layers - first));
  });

  evaluation.expert.assign(size_t{layout.rows} * num_shards, 0);
  evaluation.layers.resize(num_layers);
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (uint32_t g = 0; g < num_shards; ++g) {
      evaluation.expert[b / blocks_per_row * num_shards + g] +=
          blocks[b].expert[g];
    }
    LoadPeaks* layer = &evaluation.layers[b % blocks_per_row * step];
    for (uint32_t peak : blocks[b].peaks) {
      layer->sum += peak;
      layer->largest = std::max(layer->largest, peak);
      ++layer;
    }
    evaluation.balance_load += blocks[b].balance_load;
  }
  for (const LoadPeaks& layer : evaluation.layers) {
    evaluation.ep_peak_sum += layer.sum;
    evaluation.tail_peak = std::max(evaluation.tail_peak, layer.largest);
  }
}

void EvaluateAttention(const PackingProblem& problem, const Layout& layout,
                       Evaluation& evaluation) {
  const uint32_t num_shards = problem.topology.num_shards();
  const size_t num_stages = problem.attention.size();
  evaluation.attention.assign(size_t{layout.rows} * num_shards, 0);
  std::vector<int64_t> slowest(num_shards * num_stages);  // [g][s]
  for (uint32_t r = 0; r < layout.rows; ++r) {
    std::fill(slowest.begin(), slowest.end(), 0);
    for (uint32_t d = 0; d < layout.slots; ++d) {
      uint64_t sum_t = 0;
      uint64_t sum_t2 = 0;
      for (uint32_t i : layout.cell(r, d)) {
        sum_t += problem.tokens[i];
        sum_t2 += uint64_t{problem.tokens[i]} * problem.tokens[i];
      }
      const size_t first = problem.topology.shard_of_slot(d) * num_stages;
      for (size_t s = 0; s < num_stages; ++s) {
        slowest[first + s] = std::max(
            slowest[first + s],
            CellCost(problem.attention[s], sum_t, sum_t2, problem.token_cap));
      }
    }
    for (size_t k = 0; k < slowest.size(); ++k) {
      evaluation.attention[size_t{r} * num_shards + k / num_stages] +=
          slowest[k];
    }
  }
}

Score ScoreOf(const Evaluation& evaluation, uint32_t rows,
              uint32_t num_shards) {
  Score score;
  for (uint32_t g = 0; g < num_shards; ++g) {
    int64_t shard = 0;
    for (uint32_t r = 0; r < rows; ++r) {
      const int64_t cost = evaluation.row_cost(size_t{r} * num_shards + g);
      shard += cost;
      score.worst_row = std::max(score.worst_row, cost);
    }
    score.slowest_shard = std::max(score.slowest_shard, shard);
    score.total += shard;
  }
  return score;
}

}  // namespace

PackingProblem MakeProblem(const Window& window, uint32_t num_fillers) {
  const WindowSpec& spec = window.spec();
  PackingProblem problem{.num_samples = window.num_samples(),
                         .token_cap = spec.token_cap,
                         .attention = spec.attention,
                         .topology = spec.topology,
                         .pipeline = spec.pipeline};
  const size_t num_items = size_t{window.num_samples()} + num_fillers;
  problem.tokens.reserve(num_items);
  problem.occupancy.reserve(num_items);
  for (uint32_t i = 0; i < window.num_samples(); ++i) {
    problem.tokens.push_back(window.tokens(i));
    problem.occupancy.push_back(window.occupancy(i));
  }
  problem.tokens.resize(num_items, 0);
  problem.occupancy.resize(num_items, spec.length_multiple);
  return problem;
}

Layout LayoutFromCells(uint32_t rows, uint32_t slots,
                       const std::vector<std::vector<uint32_t>>& cells) {
  Layout layout{.rows = rows, .slots = slots};
  layout.cell_begin.reserve(cells.size() + 1);
  layout.cell_begin.push_back(0);
  for (const std::vector<uint32_t>& cell : cells) {
    layout.items.insert(layout.items.end(), cell.begin(), cell.end());
    layout.cell_begin.push_back(static_cast<uint32_t>(layout.items.size()));
  }
  return layout;
}

int64_t CellCost(const AttentionStage& stage, uint64_t sum_t, uint64_t sum_t2,
                 uint32_t token_cap) {
  const double linear = stage.alpha * static_cast<double>(sum_t);
  // Without the division where it changes nothing.
  const double pairs = stage.beta == 0
                           ? 0
                           : stage.beta * static_cast<double>(sum_t2) /
                                 static_cast<double>(token_cap);
  // llround of what is not negative and below 2^53, without the call.
  const double cost = static_cast<double>(kScoreScale) * (linear + pairs);
  const auto whole = static_cast<int64_t>(cost);
  return whole + (cost - static_cast<double>(whole) >= 0.5 ? 1 : 0);
}

void CellCosts(std::span<const AttentionStage> stages, uint64_t sum_t,
               uint64_t sum_t2, uint32_t token_cap, int64_t* costs) {
  for (const AttentionStage& stage : stages) {
    *costs++ = CellCost(stage, sum_t, sum_t2, token_cap);
  }
}

ROUTEPACK_MULTIVERSION
LoadPeaks PeaksOfSum(const uint32_t* a, const uint32_t* b, uint32_t num_layers,
                     uint32_t stride) {
  const uint32_t size = stride / kLanes * kLanes;
  LoadPeaks peaks;
  for (uint32_t l = 0; l < num_layers; ++l) {
    uint32_t peak = 0;
    for (uint32_t p = 0; p < size; ++p) peak = std::max(peak, a[p] + b[p]);
    peaks.sum += peak;
    peaks.largest = std::max(peaks.largest, peak);
    a += stride;
    b += stride;
  }
  return peaks;
}

ROUTEPACK_MULTIVERSION
void AddLoads(const uint32_t* from, size_t size, uint32_t* into) {
  for (size_t k = 0; k < size; ++k) into[k] += from[k];
}

Evaluation EvaluateLayout(const PackingProblem& problem, const Layout& layout) {
  Evaluation evaluation;
  EvaluateAttention(problem, layout, evaluation);
  EvaluateExperts(problem, layout, evaluation);
  evaluation.score =
      ScoreOf(evaluation, layout.rows, problem.topology.num_shards());
  return evaluation;
}

Layout MatchShardRows(const PackingProblem& problem, const Layout& layout,
                      Evaluation& evaluation) {
  const Topology& topology = problem.topology;
  const uint32_t shards = topology.num_shards();
  if (shards == 1 || layout.rows == 1) return layout;
  // Rows by decreasing expert term; ties: lower row.
  const auto ranked = [&](uint32_t g) {
    std::vector<uint32_t> rows(layout.rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
      return evaluation.expert[size_t{a} * shards + g] >
             evaluation.expert[size_t{b} * shards + g];
    });
    return rows;
  };
  const std::vector<uint32_t> to = ranked(0);
  std::vector<std::vector<uint32_t>> cells(layout.num_cells());
  for (uint32_t g = 0; g < shards; ++g) {
    const std::vector<uint32_t> from = ranked(g);
    for (uint32_t k = 0; k < layout.rows; ++k) {
      for (uint32_t d : topology.slots_of_shard(g)) {
        const auto items = layout.cell(from[k], d);
        cells[to[k] * layout.slots + d].assign(items.begin(), items.end());
      }
    }
  }
  Layout matched = LayoutFromCells(layout.rows, layout.slots, cells);
  Evaluation after = EvaluateLayout(problem, matched);
  if (after.ep_peak_sum >= evaluation.ep_peak_sum) return layout;
  evaluation = std::move(after);
  return matched;
}

absl::Status ValidateLayout(const PackingProblem& problem,
                            const Layout& layout) {
  const uint32_t slots = problem.topology.num_slots();
  if (layout.rows == 0 || layout.slots != slots) {
    return absl::InternalError(
        absl::StrCat("layout of ", layout.rows, " rows and ", layout.slots,
                     " slots; expected at least 1 row and ", slots, " slots"));
  }
  const uint64_t num_cells = uint64_t{layout.rows} * slots;
  if (layout.cell_begin.size() != num_cells + 1 ||
      layout.cell_begin.front() != 0 ||
      layout.cell_begin.back() != layout.items.size()) {
    return absl::InternalError(absl::StrCat("layout offsets do not describe ",
                                            num_cells, " cells of ",
                                            layout.items.size(), " items"));
  }
  if (layout.items.size() != problem.num_items()) {
    return absl::InternalError(
        absl::StrCat("layout holds ", layout.items.size(), " items; expected ",
                     problem.num_items()));
  }
  std::vector<bool> seen(problem.num_items());
  for (uint64_t c = 0; c < num_cells; ++c) {
    const uint32_t begin = layout.cell_begin[c];
    const uint32_t end = layout.cell_begin[c + 1];
    const auto where = [&] {
      return absl::StrCat("cell (row ", c / slots, ", slot ", c % slots, ")");
    };
    if (begin >= end || end > layout.items.size()) {
      return absl::InternalError(absl::StrCat(where(), " is empty"));
    }
    uint64_t occupancy = 0;
    for (uint32_t k = begin; k < end; ++k) {
      const uint32_t i = layout.items[k];
      if (i >= problem.num_items() || seen[i]) {
        return absl::InternalError(absl::StrCat(
            where(), i < problem.num_items() ? " repeats" : " holds unknown",
            " item ", i));
      }
      seen[i] = true;
      occupancy += problem.occupancy[i];
    }
    if (occupancy > problem.token_cap) {
      return absl::InternalError(absl::StrCat(where(), " holds ", occupancy,
                                              " tokens; the cap is ",
                                              problem.token_cap));
    }
  }
  return absl::OkStatus();
}

}  // namespace routepack
