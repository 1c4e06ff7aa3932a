"""Writes megatron_meshes.txt: EDP shards as megatron-core's ranks have them.

For each mesh the rank groups come from megatron-core's own RankGenerator, for
attention (tp, cp, dp, pp) and for experts (etp, ep, edp, pp), in the order
tp-cp-ep-dp-pp. The DP slot of a rank is its model replica; its EP communicator
is its expert "tp-ep" group. If all ranks of every slot are in one communicator
(and the same in every pipeline stage), the line gives the shard of each slot;
else "unimplemented". A mesh whose ranks do not divide into communicators is
"invalid".

    python make_megatron_meshes.py            # print
    python make_megatron_meshes.py --check    # compare with the file
"""

import argparse
import pathlib
import random
import sys

import megatron.core
from megatron.core.parallel_state import RankGenerator

ORDER = "tp-cp-ep-dp-pp"
NUM_RANDOM = 240
MAX_WORLD = 4096
HEADER = """\
# EDP shards of Megatron meshes, from megatron-core {version}'s RankGenerator.
# Written by make_megatron_meshes.py; ./dev test-torch regenerates and compares.
# tp cp pp ep etp dp | shard of each DP slot, or unimplemented, or invalid
"""


def shards(tp, cp, pp, ep, etp, dp):
    """Shard of each DP slot, or the word for why there is none."""
    world = tp * cp * pp * dp
    if world % (etp * ep * pp) != 0:
        return "invalid"
    edp = world // (etp * ep * pp)
    attention = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order=ORDER)
    experts = RankGenerator(tp=etp, ep=ep, dp=edp, pp=pp, cp=1, order=ORDER)

    # A model replica of a stage is a tp-cp group; its slot is its position in
    # the dp groups of its ranks.
    slot_of_rank = {}
    for group in attention.get_ranks("dp"):
        for slot, rank in enumerate(group):
            slot_of_rank[rank] = slot
    # Communicators of a stage in order of their first rank: shard 0, 1, ...
    stage_of_rank = {}
    for group in attention.get_ranks("pp"):
        for stage, rank in enumerate(group):
            stage_of_rank[rank] = stage
    seen = [0] * pp
    shard_of_slot = {}
    for group in sorted(experts.get_ranks("tp-ep"), key=min):
        (stage,) = {stage_of_rank[rank] for rank in group}
        shard = seen[stage]
        seen[stage] += 1
        for rank in group:
            slot = slot_of_rank[rank]
            if shard_of_slot.setdefault(slot, shard) != shard:
                return "unimplemented"
    return ",".join(str(shard_of_slot[d]) for d in range(dp))


def meshes():
    """Random sizes; small powers of two and a few odd ones."""
    rng = random.Random(20261130)

    def pick(values):
        return values[int(rng.random() * len(values))]

    chosen = []
    while len(chosen) < NUM_RANDOM:
        mesh = (
            pick([1, 1, 2, 4, 8]),
            pick([1, 1, 1, 2, 3, 4]),
            pick([1, 1, 2, 4]),
            pick([1, 2, 4, 6, 8, 16, 32]),
            pick([1, 1, 2, 4]),
            pick([1, 2, 3, 4, 6, 8, 12, 16, 32, 64]),
        )
        tp, cp, pp, ep, etp, dp = mesh
        if mesh in chosen or tp * cp * pp * dp > MAX_WORLD:
            continue
        # Meshes without partition are many and alike: keep a few.
        if (tp * cp * dp) % (etp * ep) != 0 and rng.random() > 0.125:
            continue
        if (etp * ep) % (tp * cp) != 0 and rng.random() > 0.3:
            continue
        chosen.append(mesh)
    return chosen


def render():
    lines = [HEADER.format(version=megatron.core.__version__)]
    for mesh in meshes():
        lines.append(f"{' '.join(map(str, mesh))} | {shards(*mesh)}\n")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = render()
    if not args.check:
        sys.stdout.write(text)
        return 0
    path = pathlib.Path(__file__).with_name("megatron_meshes.txt")
    if path.read_text() == text:
        print(f"{path.name}: {NUM_RANDOM} meshes as megatron-core has them")
        return 0
    print(
        f"{path.name} differs from megatron-core; run this script and compare",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
