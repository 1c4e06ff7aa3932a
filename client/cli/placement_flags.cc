#include "client/cli/placement_flags.h"

#include <algorithm>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"

ABSL_FLAG(std::string, placement, "",
          "Expert placement: incremental (from the current map, the swaps that "
          "balance most for what they move), lpt (the paper's, afresh), "
          "lpt-relabel (the same loads at less movement), keep (the current "
          "map) or identity. Empty: the window's, else incremental.");
ABSL_FLAG(bool, refine_after_announce, false,
          "Search placement and packing in turn: a better plan, but trainers "
          "must wait for it before they move experts.");

ABSL_FLAG(
    uint64_t, parameters_per_expert, 0,
    "Parameters of an expert on one GPU, to count bytes and time: BF16 "
    "weights, FP32 master weights and two moments in a distributed "
    "optimizer. 0: the window's; if another flag about movement is given, "
    "those of the window's model.");
ABSL_FLAG(uint32_t, ranks_per_node, 0,
          "Consecutive global ranks of a node; 0: the window's, else all in "
          "one.");
ABSL_FLAG(std::optional<double>, inter_node_cost, std::nullopt,
          "What a byte between nodes costs; one inside a node costs 1. Empty: "
          "the window's, else 3.");
ABSL_FLAG(double, intra_node_bandwidth, 0,
          "Bytes a second of a GPU inside its node, each way; 0: the window's, "
          "else 300e9.");
ABSL_FLAG(double, inter_node_bandwidth, 0,
          "Bytes a second of a GPU to other nodes, each way; 0: the window's, "
          "else 50e9.");
ABSL_FLAG(double, node_bandwidth, 0,
          "Bytes a second of a node's uplink, each way; 0: the window's, else "
          "never the bottleneck.");

ABSL_FLAG(std::optional<double>, target_imbalance, std::nullopt,
          "incremental stops where the busiest ranks are within this of the "
          "lowest peaks that any placement could have. Empty: the window's, "
          "else 0.003.");
ABSL_FLAG(std::optional<double>, movement_budget, std::nullopt,
          "incremental moves at most so many weighted bytes, e.g. 2e9; experts "
          "if their size is not known. Empty: the window's, else no limit.");
ABSL_FLAG(std::optional<bool>, break_even, std::nullopt,
          "incremental stops where time saved does not pay for the transfer, "
          "if times are known. Empty: the window's, else true.");
ABSL_FLAG(double, horizon_steps, 0,
          "Steps over which a move has to pay; 0: the window's, else 1.");

ABSL_FLAG(uint32_t, experts_per_round, 0,
          "Experts that a rank sends, and receives, in a round of the "
          "transfer; 0: the window's, else 1.");
ABSL_FLAG(uint32_t, max_staging, 0,
          "Experts that a rank may hold besides its slots during the transfer; "
          "0: the window's, else 4.");
ABSL_FLAG(uint32_t, max_uplink, 0,
          "Experts that leave, and enter, a node in a round; 0: the window's, "
          "else no limit.");

namespace routepack::cli {
namespace {

constexpr struct {
  const char* name;
  v1::PlacementPolicy policy;
} kPolicies[] = {{"incremental", v1::PLACEMENT_POLICY_INCREMENTAL},
                 {"lpt", v1::PLACEMENT_POLICY_LPT},
                 {"lpt-relabel", v1::PLACEMENT_POLICY_LPT_RELABEL},
                 {"keep", v1::PLACEMENT_POLICY_KEEP},
                 {"identity", v1::PLACEMENT_POLICY_IDENTITY}};

absl::Status ApplyPolicyFlag(v1::PlanOptions& options) {
  const std::string placement = absl::GetFlag(FLAGS_placement);
  if (placement.empty()) return absl::OkStatus();
  for (const auto& known : kPolicies) {
    if (placement != known.name) continue;
    options.set_placement(known.policy);
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("--placement=", placement,
                                 ": must be incremental, lpt, lpt-relabel, "
                                 "keep or identity"));
}

void ApplyMovementFlags(v1::WindowHeader& header) {
  // A message without fields would make the header another one.
  v1::MovementOptions movement = header.options().movement();
  Override(FLAGS_parameters_per_expert,
           [&](uint64_t value) { movement.set_parameters_per_expert(value); });
  Override(FLAGS_ranks_per_node,
           [&](uint32_t value) { movement.set_ranks_per_node(value); });
  if (const auto value = absl::GetFlag(FLAGS_inter_node_cost)) {
    movement.set_inter_node_cost(*value);
  }
  Override(FLAGS_intra_node_bandwidth,
           [&](double value) { movement.set_intra_node_bandwidth(value); });
  Override(FLAGS_inter_node_bandwidth,
           [&](double value) { movement.set_inter_node_bandwidth(value); });
  Override(FLAGS_node_bandwidth,
           [&](double value) { movement.set_node_bandwidth(value); });
  if (movement.ByteSizeLong() == 0) return;
  const uint32_t etp = std::max(header.topology().mesh().etp(), 1u);
  const v1::ModelShape& model = header.attention().model();
  if (movement.parameters_per_expert() == 0 && movement.kinds_size() == 0) {
    movement.set_parameters_per_expert(uint64_t{3} * model.hidden_size() *
                                       model.moe_intermediate_size() / etp);
  }
  if (movement.gpus_per_rank() == 0) movement.set_gpus_per_rank(etp);
  *header.mutable_options()->mutable_movement() = movement;
}

void ApplyIncrementalFlags(v1::PlanOptions& options) {
  v1::IncrementalOptions incremental = options.incremental();
  if (const auto value = absl::GetFlag(FLAGS_target_imbalance)) {
    incremental.set_target_imbalance(*value);
  }
  if (const auto value = absl::GetFlag(FLAGS_movement_budget)) {
    incremental.set_movement_budget(*value);
  }
  if (const auto value = absl::GetFlag(FLAGS_break_even)) {
    incremental.set_break_even(*value);
  }
  Override(FLAGS_horizon_steps,
           [&](double value) { incremental.set_horizon_steps(value); });
  if (incremental.ByteSizeLong() != 0) {
    *options.mutable_incremental() = incremental;
  }
}

void ApplyTransferFlags(v1::PlanOptions& options) {
  v1::TransferOptions transfer = options.transfer();
  Override(FLAGS_experts_per_round,
           [&](uint32_t value) { transfer.set_experts_per_round(value); });
  Override(FLAGS_max_staging,
           [&](uint32_t value) { transfer.set_max_staging(value); });
  Override(FLAGS_max_uplink,
           [&](uint32_t value) { transfer.set_max_uplink(value); });
  if (transfer.ByteSizeLong() != 0) *options.mutable_transfer() = transfer;
}

}  // namespace

std::vector<std::string> PlacementFlags() {
  return {"placement",
          "refine_after_announce",
          "parameters_per_expert",
          "ranks_per_node",
          "inter_node_cost",
          "intra_node_bandwidth",
          "inter_node_bandwidth",
          "node_bandwidth",
          "target_imbalance",
          "movement_budget",
          "break_even",
          "horizon_steps",
          "experts_per_round",
          "max_staging",
          "max_uplink"};
}

absl::Status ApplyPlacementFlags(v1::WindowHeader& header) {
  v1::PlanOptions& options = *header.mutable_options();
  if (absl::Status status = ApplyPolicyFlag(options); !status.ok()) {
    return status;
  }
  if (absl::GetFlag(FLAGS_refine_after_announce)) {
    options.set_refine_after_announce(true);
  }
  ApplyMovementFlags(header);
  ApplyIncrementalFlags(options);
  ApplyTransferFlags(options);
  return absl::OkStatus();
}

}  // namespace routepack::cli
