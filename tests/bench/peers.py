#!/usr/bin/env python3
"""What the planner replaces: Python and NumPy, written as public code is.

With torch installed, also the balancer on torch tensors.

Prints one JSON object of best times in seconds. The inputs are those of
planner_bench.cc (Lpt) and histogram_bench.cc (shape 0).
"""

import argparse
import json
import time

import numpy as np


def peer_loads():
    """[60, 384] loads, as PeerLoads() of planner_bench.cc makes them."""
    layer = np.arange(60)[:, None]
    expert = np.arange(384)[None, :]
    place = (expert * 211 + layer * 97) % 384
    return 4_000_000 // (place + 8) + (expert * 37 + layer) % 101


def fill_ranks(loads, order, slot, num_ranks):
    """Experts in order, each to the least loaded rank with a free slot."""
    num_layers, num_experts = loads.shape
    per_rank = num_experts // num_ranks
    for layer in range(num_layers):
        rank_load = [0] * num_ranks
        rank_items = [0] * num_ranks
        for expert in order[layer]:
            rank = min(
                (r for r in range(num_ranks) if rank_items[r] < per_rank),
                key=rank_load.__getitem__,
            )
            slot[layer, expert] = rank * per_rank + rank_items[rank]
            rank_load[rank] += loads[layer, expert]
            rank_items[rank] += 1
    return slot


def balanced_packing(loads, num_ranks):
    """Expert load balancing as public balancers do it.

    Layer by layer, experts by decreasing load, each to the least loaded rank
    with a free slot: NumPy for the sort, a Python loop for the choice. Returns
    the slot of each expert, [layers, experts].
    """
    num_layers, num_experts = loads.shape
    order = np.argsort(-loads, axis=1, kind="stable")
    slot = np.full((num_layers, num_experts), -1, dtype=np.int64)
    return fill_ranks(loads, order, slot, num_ranks)


def balanced_packing_torch(loads, num_ranks):
    """The same on torch tensors, as the public ones hold the loads."""
    num_layers, num_experts = loads.shape
    order = loads.sort(dim=1, descending=True, stable=True).indices
    slot = loads.new_full((num_layers, num_experts), -1).long()
    return fill_ranks(loads, order, slot, num_ranks)


def count_with_bincount(ids, num_experts):
    """[tokens, layers, top_k] ids to [layers, experts] counts."""
    return np.stack(
        [
            np.bincount(ids[:, layer].ravel(), minlength=num_experts)
            for layer in range(ids.shape[1])
        ]
    )


def count_with_one_bincount(ids, num_experts):
    """The same in one call, with the layer added to the id."""
    layers = ids.shape[1]
    offset = np.arange(layers, dtype=np.int64) * num_experts
    flat = (ids + offset[None, :, None]).ravel()
    return np.bincount(flat, minlength=layers * num_experts).reshape(layers, -1)


def best_time(function, turns):
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    args = parser.parse_args()

    loads = peer_loads()
    slot = balanced_packing(loads, 64)
    rank_load = np.zeros((60, 64), dtype=np.int64)
    np.add.at(rank_load, (np.arange(60)[:, None], slot // 6), loads)

    rng = np.random.default_rng(1)
    ids = rng.integers(0, 64, size=(32_768, 47, 4), dtype=np.uint8)
    one_by_one = count_with_bincount(ids, 64)
    assert (one_by_one == count_with_one_bincount(ids, 64)).all()

    counting = {
        "bincount_seconds": count_with_bincount,
        "one_bincount_seconds": count_with_one_bincount,
    }
    result = {
        "numpy": np.__version__,
        "lpt_seconds": best_time(
            lambda: balanced_packing(loads, 64), args.turns
        ),
        "lpt_peaks": int(rank_load.max(axis=1).sum()),
        "count_bytes": ids.nbytes,
    }
    for name, count in counting.items():
        result[name] = best_time(lambda count=count: count(ids, 64), args.turns)
    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
        tensor = torch.from_numpy(loads).float()
        result["torch"] = torch.__version__
        result["lpt_torch_seconds"] = best_time(
            lambda: balanced_packing_torch(tensor, 64), min(args.turns, 3)
        )
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
