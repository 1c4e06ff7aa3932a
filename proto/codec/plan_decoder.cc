#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "planner/errors.h"
#include "proto/codec/duration.h"
#include "proto/codec/movement_codec.h"
#include "proto/codec/plan_codec.h"
#include "proto/codec/score_units.h"
#include "proto/codec/search_codec.h"
#include "proto/codec/window_codec.h"

namespace routepack {
namespace {

// Adds a violation when a stated number is not the one recomputed.
void CheckStated(std::string_view field, uint64_t stated, uint64_t actual,
                 Violations& bad) {
  if (stated == actual) return;
  bad.Add(field, absl::StrCat("is ", stated, ", recomputed ", actual));
}

// Reads a layout: turns ids into items and checks sums and coverage.
class LayoutDecoder {
 public:
  LayoutDecoder(const Window& window, const v1::Layout& message,
                Violations& bad)
      : window_(window), message_(message), bad_(bad) {}

  Layout Decode() {
    IndexIds();
    const uint32_t slots = window_.spec().topology.num_slots();
    if (message_.rows().empty()) bad_.Add("layout.rows", "is empty");
    Layout layout{.rows = static_cast<uint32_t>(message_.rows_size()),
                  .slots = slots,
                  .cell_begin = {0}};
    for (int r = 0; r < message_.rows_size(); ++r) {
      DecodeRow(absl::StrCat("layout.rows[", r, "]"), message_.rows(r), layout);
    }
    for (uint32_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i]) continue;
      bad_.Add("layout.rows",
               absl::StrCat(i < window_.num_samples() ? "sample " : "filler ",
                            IdOf(i), " is in no cell"));
    }
    CheckStated("layout.window_tokens", message_.window_tokens(),
                window_.total_tokens(), bad_);
    return layout;
  }

 private:
  uint64_t IdOf(uint32_t item) const {
    const uint32_t n = window_.num_samples();
    return item < n ? window_.samples()[item].id
                    : message_.filler_sample_ids(item - n);
  }

  void IndexIds() {
    for (uint32_t i = 0; i < window_.num_samples(); ++i) {
      item_of_id_.emplace(IdOf(i), i);
    }
    for (int f = 0; f < message_.filler_sample_ids_size(); ++f) {
      const uint64_t id = message_.filler_sample_ids(f);
      if (!item_of_id_.emplace(id, window_.num_samples() + f).second) {
        bad_.Add(absl::StrCat("layout.filler_sample_ids[", f, "]"),
                 absl::StrCat("id ", id, " is taken"));
      }
    }
    seen_.assign(window_.num_samples() + message_.filler_sample_ids_size(),
                 false);
  }

  void DecodeRow(const std::string& field, const v1::Row& row, Layout& layout) {
    if (static_cast<uint32_t>(row.cells_size()) != layout.slots) {
      bad_.Add(absl::StrCat(field, ".cells"),
               absl::StrCat("has ", row.cells_size(),
                            " cells, expected D = ", layout.slots));
    }
    uint64_t tokens = 0;
    for (int d = 0; d < row.cells_size(); ++d) {
      tokens += DecodeCell(absl::StrCat(field, ".cells[", d, "]"), row.cells(d),
                           layout);
    }
    CheckStated(absl::StrCat(field, ".tokens"), row.tokens(), tokens, bad_);
  }

  // Returns the cell's tokens.
  uint64_t DecodeCell(const std::string& field, const v1::Cell& cell,
                      Layout& layout) {
    uint64_t tokens = 0;
    uint64_t occupancy = 0;
    for (int j = 0; j < cell.sample_ids_size(); ++j) {
      const std::optional<uint32_t> item = TakeItem(
          absl::StrCat(field, ".sample_ids[", j, "]"), cell.sample_ids(j));
      if (!item.has_value()) continue;
      layout.items.push_back(*item);
      const bool filler = *item >= window_.num_samples();
      tokens += filler ? 0 : window_.tokens(*item);
      occupancy +=
          filler ? window_.spec().length_multiple : window_.occupancy(*item);
    }
    layout.cell_begin.push_back(static_cast<uint32_t>(layout.items.size()));
    if (cell.sample_ids().empty()) bad_.Add(field, "is empty");
    CheckStated(absl::StrCat(field, ".tokens"), cell.tokens(), tokens, bad_);
    CheckStated(absl::StrCat(field, ".occupancy"), cell.occupancy(), occupancy,
                bad_);
    return tokens;
  }

  std::optional<uint32_t> TakeItem(const std::string& field, uint64_t id) {
    const auto it = item_of_id_.find(id);
    if (it == item_of_id_.end()) {
      bad_.Add(field, absl::StrCat("the window has no sample ", id));
      return std::nullopt;
    }
    if (seen_[it->second]) {
      bad_.Add(field, absl::StrCat("sample ", id, " is in two cells"));
      return std::nullopt;
    }
    seen_[it->second] = true;
    return it->second;
  }

  const Window& window_;
  const v1::Layout& message_;
  Violations& bad_;
  absl::flat_hash_map<uint64_t, uint32_t> item_of_id_;
  std::vector<bool> seen_;  // [items]
};

RowResult DecodeRows(const v1::RowCertificate& message, uint32_t fillers,
                     Violations& bad) {
  RowResult rows{.rows = message.rows(),
                 .rows_lower_bound = message.rows_lower_bound(),
                 .bins_lower_bound = message.bins_lower_bound(),
                 .bins_upper_bound = message.bins_upper_bound(),
                 .proof = message.proof(),
                 .fillers = fillers,
                 .nodes = message.nodes()};
  switch (message.outcome()) {
    case v1::ROW_OUTCOME_CERTIFIED:
      rows.outcome = RowOutcome::kCertified;
      break;
    case v1::ROW_OUTCOME_BEST_KNOWN:
      rows.outcome = RowOutcome::kBestKnown;
      break;
    default:
      bad.Add("rows.outcome",
              absl::StrCat("must be CERTIFIED or BEST_KNOWN, is ",
                           static_cast<int>(message.outcome())));
  }
  return rows;
}

PlacementChange DecodeChange(const v1::PlacementChange& message) {
  return {.experts_to_other_rank = message.experts_to_other_rank(),
          .experts_to_other_slot = message.experts_to_other_slot(),
          .experts_total = message.experts_total()};
}

Metrics DecodeMetrics(const v1::Metrics& message) {
  Metrics metrics{.cv_global = message.cv_global(),
                  .ep_peak_sum = message.ep_peak_sum(),
                  .tail_peak = message.tail_peak(),
                  .balance_efficiency = message.balance_efficiency(),
                  .attention = message.attention(),
                  .joint = message.joint(),
                  .score = DecodeScore(message.score())};
  for (const v1::StageMetrics& stage : message.stages()) {
    metrics.stages.push_back({.num_layers = stage.num_layers(),
                              .ep_peak_sum = stage.ep_peak_sum(),
                              .tail_peak = stage.tail_peak()});
  }
  return metrics;
}

std::vector<StageTiming> DecodeTimings(const v1::Plan& message,
                                       Violations& bad) {
  std::vector<StageTiming> timings;
  for (int j = 0; j < message.timings_size(); ++j) {
    const v1::StageTiming& timing = message.timings(j);
    const std::optional<absl::Duration> duration =
        DecodeDuration(timing.duration());
    if (!duration.has_value()) {
      bad.Add(absl::StrCat("timings[", j, "].duration"), "is out of range");
    }
    timings.push_back({.stage = timing.stage(),
                       .duration = duration.value_or(absl::ZeroDuration())});
  }
  return timings;
}

// Every expert's home; problems go to `bad`.
Placement DecodePlanPlacement(const Window& window, const v1::Plan& message,
                              Violations& bad) {
  absl::StatusOr<Placement> placement = DecodePlacement(
      message.placement(), window.num_layers(), window.num_experts(),
      window.spec().topology.num_ranks(), "placement");
  if (!placement.ok()) {
    for (const FieldViolation& v : ViolationsOf(placement.status())) {
      bad.Add(v.field, v.description);
    }
    return {};
  }
  if (PlacementDigest(*placement) != message.placement_digest()) {
    bad.Add("placement_digest",
            absl::StrCat("is \"", message.placement_digest(), "\", recomputed ",
                         PlacementDigest(*placement)));
  }
  return *std::move(placement);
}

}  // namespace

absl::StatusOr<Plan> DecodePlan(const Window& window, const v1::Plan& message) {
  Violations bad;
  if (message.window_digest() != window.digest()) {
    bad.Add("window_digest",
            absl::StrCat("is \"", message.window_digest(),
                         "\", but the window's is ", window.digest(),
                         ": this is the plan of another window"));
    return bad.ToStatus();
  }
  Plan plan;
  plan.placement = DecodePlanPlacement(window, message, bad);
  plan.movement = DecodeMovement(message.movement());
  plan.movement.change = DecodeChange(message.placement_change());
  plan.transfer = DecodeTransfer(message.transfer());
  plan.incremental_stop = DecodeStop(message.incremental_stop());
  if (message.has_refinement()) {
    plan.refinement =
        Refinement{.announced_digest = message.refinement().announced_digest(),
                   .change = DecodeChange(message.refinement().change()),
                   .floor_layers = message.refinement().floor_layers()};
  }
  const auto& fillers = message.layout().filler_sample_ids();
  plan.filler_ids.assign(fillers.begin(), fillers.end());
  plan.num_fillers = static_cast<uint32_t>(fillers.size());
  plan.rows = DecodeRows(message.rows(), plan.num_fillers, bad);
  plan.layout = LayoutDecoder(window, message.layout(), bad).Decode();
  CheckStated("rows.rows", plan.rows.rows, plan.layout.rows, bad);
  plan.baseline = DecodeMetrics(message.baseline());
  plan.reorder = DecodeMetrics(message.reorder());
  plan.routepack = DecodeMetrics(message.routepack());
  plan.evaluation.score = plan.routepack.score;
  plan.bounds = {
      .for_placement = DecodeCost(message.bounds().joint_for_placement(),
                                  window, "bounds.joint_for_placement", bad),
      .for_any_placement =
          DecodeCost(message.bounds().joint_for_any_placement(), window,
                     "bounds.joint_for_any_placement", bad),
      .hot_expert_layers = {message.bounds().hot_expert_layers().begin(),
                            message.bounds().hot_expert_layers().end()}};
  if (message.has_search_report()) {
    plan.search = DecodeSearchReport(window, message.search_report(), bad);
  }
  plan.timings = DecodeTimings(message, bad);
  plan.truncated = message.truncated();
  plan.warnings.assign(message.warnings().begin(), message.warnings().end());
  if (!bad.empty()) return bad.ToStatus();
  return plan;
}

}  // namespace routepack
