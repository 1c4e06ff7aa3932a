#!/usr/bin/env python3
"""Cuts the first samples of a raw trace folder into a smaller one.

tests/data/raw-trace was made by
    make_raw_trace.py FOLDER tests/data/raw-trace --samples=16 --part=4
from a recorded GSM8K window (TRACES.md). Lengths, groups and ids are cut;
counts are counted anew from the ids that are left.
"""

import argparse
import json
import pathlib

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument(
        "--part", type=int, default=4, help="keep the first 1/part of each"
    )
    args = parser.parse_args()

    meta = json.loads((args.source / "meta.json").read_text())
    layers, experts, top_k = meta["layers"], meta["experts"], meta["top_k"]
    lengths = np.fromfile(args.source / "lengths.u32", "<u4").astype(int)
    groups = np.fromfile(args.source / "groups.u32", "<u4")
    ids = np.fromfile(args.source / "routed_experts.u8", "u1")
    ids = ids.reshape(-1, layers, top_k)
    begins = np.concatenate([[0], np.cumsum(lengths)])[:-1]

    kept, counts = [], []
    for i in range(args.samples):
        tokens = max(int(lengths[i]) // args.part, 1)
        sample = ids[begins[i] : begins[i] + tokens]
        kept.append(sample)
        counts.append(
            [
                np.bincount(sample[:, layer].ravel(), minlength=experts)
                for layer in range(layers)
            ]
        )
    args.target.mkdir(parents=True, exist_ok=True)
    cut = np.array([len(sample) for sample in kept], "<u4")
    cut.tofile(args.target / "lengths.u32")
    groups[: args.samples].astype("<u4").tofile(args.target / "groups.u32")
    np.concatenate(kept).tofile(args.target / "routed_experts.u8")
    np.array(counts).astype("<u2").tofile(args.target / "counts.u16")
    meta.update(
        name=meta["name"] + "-cut",
        about=f"the first {args.samples} samples of {meta['name']}, "
        f"the first 1/{args.part} of each",
        samples=args.samples,
        tokens=int(cut.sum()),
    )
    (args.target / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


if __name__ == "__main__":
    main()
