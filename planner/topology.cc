#include "planner/topology.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/errors.h"

namespace routepack {
namespace {

constexpr char kMeshField[] = "header.topology.mesh";

void CheckSize(std::string_view field, uint64_t size, uint64_t max,
               Violations& bad) {
  if (size == 0 || size > max) {
    bad.Add(field, absl::StrCat("must be in [1, ", max, "], is ", size));
  }
}

void CheckMesh(const MeshSizes& mesh, Violations& bad) {
  const auto check = [&](const char* name, uint32_t size, uint32_t max) {
    CheckSize(absl::StrCat(kMeshField, ".", name), size, max, bad);
  };
  check("tp", mesh.tp, Topology::kMaxDegree);
  check("cp", mesh.cp, Topology::kMaxDegree);
  check("pp", mesh.pp, Topology::kMaxDegree);
  check("ep", mesh.ep, Topology::kMaxRanks);
  check("etp", mesh.etp, Topology::kMaxDegree);
  check("dp", mesh.dp, Topology::kMaxSlots);
}

// Slots of shards are in range and in one shard each, and none is left out.
void CheckPartition(uint32_t dp_slots,
                    const std::vector<std::vector<uint32_t>>& shards,
                    const std::string& field, Violations& bad) {
  constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<uint32_t> owner(dp_slots, kNone);
  for (uint32_t g = 0; g < shards.size(); ++g) {
    const auto path = [&](size_t j) {
      return absl::StrCat(field, ".shards[", g, "].slots[", j, "]");
    };
    if (shards[g].empty()) {
      bad.Add(absl::StrCat(field, ".shards[", g, "].slots"),
              "is empty: a shard holds at least one slot");
    }
    for (size_t j = 0; j < shards[g].size(); ++j) {
      const uint32_t slot = shards[g][j];
      if (slot >= dp_slots) {
        bad.Add(path(j), absl::StrCat("must be below dp_slots = ", dp_slots,
                                      ", is ", slot));
      } else if (owner[slot] != kNone) {
        bad.Add(path(j), absl::StrCat("slot ", slot, " is already in shard ",
                                      owner[slot]));
      } else {
        owner[slot] = g;
      }
    }
  }
  for (uint32_t slot = 0; slot < dp_slots; ++slot) {
    if (owner[slot] == kNone) {
      bad.Add(absl::StrCat(field, ".shards"),
              absl::StrCat("slot ", slot, " is in no shard"));
    }
  }
}

}  // namespace

Topology::Topology(uint32_t num_ranks, uint32_t num_slots,
                   std::vector<std::vector<uint32_t>> slots_of_shard)
    : num_ranks_(num_ranks),
      shard_of_slot_(num_slots),
      slots_of_shard_(std::move(slots_of_shard)) {
  for (uint32_t g = 0; g < slots_of_shard_.size(); ++g) {
    std::sort(slots_of_shard_[g].begin(), slots_of_shard_[g].end());
    for (uint32_t slot : slots_of_shard_[g]) shard_of_slot_[slot] = g;
  }
}

absl::StatusOr<Topology> Topology::FromMesh(const MeshSizes& mesh) {
  Violations bad;
  CheckMesh(mesh, bad);
  if (!bad.empty()) return bad.ToStatus();

  // All factors are at most 2^16, so no product passes 2^48.
  const uint64_t slot_gpus = uint64_t{mesh.tp} * mesh.cp;
  const uint64_t stage_gpus = slot_gpus * mesh.dp;
  const uint64_t communicator_gpus = uint64_t{mesh.etp} * mesh.ep;
  if (stage_gpus % communicator_gpus != 0) {
    bad.Add(
        absl::StrCat(kMeshField, ".ep"),
        absl::StrCat("tp cp dp = ", mesh.tp, " * ", mesh.cp, " * ", mesh.dp,
                     " = ", stage_gpus,
                     " GPUs of a pipeline stage do not divide into EP "
                     "communicators of etp ep = ",
                     mesh.etp, " * ", mesh.ep, " = ", communicator_gpus,
                     "; choose ep and etp whose product divides ", stage_gpus));
    return bad.ToStatus();
  }
  if (communicator_gpus % slot_gpus != 0) {
    return absl::UnimplementedError(absl::StrCat(
        kMeshField,
        ": no EDP partition of the DP slots exists: an EP "
        "communicator has etp ep = ",
        mesh.etp, " * ", mesh.ep, " = ", communicator_gpus,
        " GPUs, which is no multiple of the tp cp = ", mesh.tp, " * ", mesh.cp,
        " = ", slot_gpus,
        " GPUs of a DP slot, so "
        "that a slot's tokens span several communicators; choose sizes where "
        "tp cp divides etp ep"));
  }
  const uint64_t slots_per_shard = communicator_gpus / slot_gpus;
  const uint64_t num_shards = stage_gpus / communicator_gpus;
  std::vector<std::vector<uint32_t>> shards(num_shards);
  for (uint32_t slot = 0; slot < mesh.dp; ++slot) {
    shards[slot / slots_per_shard].push_back(slot);
  }
  return Topology(mesh.ep, mesh.dp, std::move(shards));
}

absl::StatusOr<Topology> Topology::FromShards(
    uint32_t dp_slots, uint32_t ep_ranks,
    const std::vector<std::vector<uint32_t>>& shards, std::string_view prefix) {
  const std::string field(prefix);
  Violations bad;
  CheckSize(absl::StrCat(field, ".dp_slots"), dp_slots, kMaxSlots, bad);
  CheckSize(absl::StrCat(field, ".ep_ranks"), ep_ranks, kMaxRanks, bad);
  if (dp_slots <= kMaxSlots && !shards.empty()) {
    CheckPartition(dp_slots, shards, field, bad);
  }
  if (!bad.empty()) return bad.ToStatus();

  if (!shards.empty()) return Topology(ep_ranks, dp_slots, shards);
  std::vector<uint32_t> all(dp_slots);
  for (uint32_t slot = 0; slot < dp_slots; ++slot) all[slot] = slot;
  return Topology(ep_ranks, dp_slots, {std::move(all)});
}

}  // namespace routepack
