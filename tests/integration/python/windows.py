"""Windows for tests, and the requests that carry them."""

import pathlib
import random

from google.protobuf import json_format
from routepack.v1 import planner_service_pb2, window_pb2

DATA = pathlib.Path(__file__).parents[2] / "data"


def tiny(key=None):
    """The hand-written window: 16 samples, 2 layers, 8 experts, EP 4, DP 4,
    249 tokens, cap 40: two rows."""
    window = json_format.Parse(
        (DATA / "tiny_window.json").read_text(), window_pb2.Window()
    )
    if key is not None:
        window.header.key.CopyFrom(key)
    return window


def little_endian(values, width):
    return b"".join(value.to_bytes(width, "little") for value in values)


def routed(rng, tokens, layers, experts, top_k):
    """Counts [L, E] of tokens that choose top_k different experts each, low
    ids more often."""
    counts = [0] * (layers * experts)
    for layer in range(layers):
        for _ in range(tokens):
            chosen = set()
            while len(chosen) < top_k:
                chosen.add(min(rng.randrange(experts), rng.randrange(experts)))
            for expert in chosen:
                counts[layer * experts + expert] += 1
    return counts


def random_window(
    key, seed=1, samples=64, layers=3, experts=16, top_k=2, ep=4, dp=8, cap=400
):
    """Seeded; two EDP shards by default."""
    rng = random.Random(seed)
    window = window_pb2.Window()
    header = window.header
    header.key.CopyFrom(key)
    header.num_samples = samples
    header.num_layers = layers
    header.num_experts = experts
    header.top_k = top_k
    header.token_cap = cap
    header.topology.mesh.ep = ep
    header.topology.mesh.dp = dp
    header.attention.stages.add(name="mla", alpha=1.5, beta=4)
    header.counts.origin = window_pb2.COUNTS_ORIGIN_REPLAYED
    for i in range(samples):
        tokens = rng.randrange(1, cap // 2)
        sample = window.samples.add(
            id=1000 + 3 * i, tokens=tokens, group=i // 8
        )
        counts = routed(rng, tokens - 1, layers, experts, top_k)
        sample.counts.u16 = little_endian(counts, 2)
    return window


def hard_window(key, triplets=167):
    """Bin packing at its hardest: triplets that fill the cap exactly, so that
    the bound of one row per triplet is met by packings nobody finds. One slot,
    so every row counts; the row search runs until it is stopped."""
    rng = random.Random(1)
    window = window_pb2.Window()
    header = window.header
    header.key.CopyFrom(key)
    header.num_layers = header.num_experts = header.top_k = 1
    header.token_cap = 1000
    header.topology.mesh.dp = 1
    header.counts.partial_counts = True
    header.options.row_search_nodes = 1 << 60
    for _ in range(triplets):
        first = rng.randrange(380, 490)
        second = rng.randrange(250, (1000 - first) // 2 + 1)
        for tokens in (first, second, 1000 - first - second):
            window.samples.add(
                id=len(window.samples), tokens=tokens
            ).counts.u8 = b"\0"
    return window


def create(window):
    return planner_service_pb2.CreatePlanRequest(window=window)


def header_record(window):
    header = window_pb2.WindowHeader()
    header.CopyFrom(window.header)
    header.num_samples = len(window.samples)
    return window_pb2.WindowRecord(header=header)


def chunk_records(window, per_chunk=10):
    """The samples in chunks."""
    records = []
    for index, begin in enumerate(range(0, len(window.samples), per_chunk)):
        chunk = window_pb2.SampleChunk(index=index)
        chunk.samples.extend(window.samples[begin : begin + per_chunk])
        records.append(window_pb2.WindowRecord(chunk=chunk))
    return records


def seal_record(num_chunks):
    return window_pb2.WindowRecord(seal=window_pb2.Seal(num_chunks=num_chunks))


def records(window, per_chunk=10):
    chunks = chunk_records(window, per_chunk)
    return [header_record(window), *chunks, seal_record(len(chunks))]


def requests(records):
    return [
        planner_service_pb2.StreamPlanRequest(record=record)
        for record in records
    ]


def without_timings(plan):
    plan = type(plan).FromString(plan.SerializeToString())
    plan.ClearField("timings")
    if plan.HasField("search_report"):
        plan.search_report.ClearField("proposals_per_second")
        for stage in plan.search_report.stages:
            stage.ClearField("duration")
    return plan


def without_key(plan):
    """What two plans of one window under different keys have in common."""
    plan = without_timings(plan)
    plan.ClearField("key")
    plan.ClearField("placement_version")
    return plan
