#!/usr/bin/env python3
"""Runs all benchmarks and their Python peers, and prints one table.

    tests/bench/run.py --build=build/release-bench

writes tests/bench/results/DATE-CPU.md as well. Figures of one table come from
one run on one machine; compare ratios, not tables. Times are the best of the
repetitions: on a shared machine the best is what the code needs, the rest is
the neighbours.

    tests/bench/run.py --packing

says how good plans are instead, and writes DATE-CPU-packing.md; and

    tests/bench/run.py --replay

what each placement policy moves over sequences of windows and what it leaves,
in DATE-CPU-replay.md and pareto.svg. All of it but the seconds is the same on
every machine.
"""

import argparse
import datetime
import json
import pathlib
import platform
import re
import subprocess
import sys

import replay

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Binary: flags. Short benchmarks are repeated, in random order, so that a busy
# moment of the machine does not hit one of them alone.
BINARIES = {
    "planner_bench": [
        [
            "--benchmark_filter=^Lpt",
            "--benchmark_repetitions=10",
            "--benchmark_min_time=0.003",
        ],
        [
            "--benchmark_filter=-^Lpt",
            "--benchmark_repetitions=3",
            "--benchmark_min_time=0.1",
        ],
    ],
    "histogram_bench": [
        [
            "--benchmark_filter=shape:0",
            "--benchmark_repetitions=10",
            "--benchmark_min_time=0.05",
            "--benchmark_enable_random_interleaving=true",
        ],
    ],
    "search_bench": [
        [
            "--benchmark_filter=^(Stream|Evaluate|Try|Run|Anneal)",
            "--benchmark_repetitions=5",
            "--benchmark_min_time=0.1",
            "--benchmark_enable_random_interleaving=true",
        ],
        ["--benchmark_filter=^Balanced", "--benchmark_repetitions=5"],
        ["--benchmark_filter=^PlanMemory"],
    ],
    "server_bench": [["--benchmark_min_time=0.3"]],
}
PRESETS = ("tiny", "flash", "xl")


def run_binary(path, flags):
    """Entries of single runs, by benchmark name."""
    print(f"running {path.name} {' '.join(flags)}", file=sys.stderr)
    output = subprocess.run(
        [path, "--benchmark_format=json", *flags],
        check=True,
        stdout=subprocess.PIPE,
    )
    entries = {}
    for entry in json.loads(output.stdout)["benchmarks"]:
        if entry.get("run_type") == "aggregate":
            continue
        if entry.get("error_occurred"):
            raise SystemExit(f"{entry['name']}: {entry['error_message']}")
        name = re.sub(r"/(iterations:\d+|real_time)", "", entry["run_name"])
        entries.setdefault(name, []).append(entry)
    return entries


def collect(build):
    entries = {}
    for name, runs in BINARIES.items():
        for flags in runs:
            entries.update(run_binary(build / "tests" / "bench" / name, flags))
    return entries


def run_peers(python, turns):
    print(f"running {python} peers.py", file=sys.stderr)
    output = subprocess.run(
        [python, HERE / "peers.py", f"--turns={turns}"],
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(output.stdout)


class Results:
    """The best figure of each benchmark."""

    def __init__(self, entries):
        self._entries = entries

    def milliseconds(self, name):
        scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
        return min(
            e["real_time"] * scale[e["time_unit"]] for e in self._entries[name]
        )

    def most(self, name, counter):
        return max(e[counter] for e in self._entries[name])


def lpt_rows(results, peers):
    ours = results.milliseconds("Lpt")
    if int(results.most("Lpt", "peaks")) != peers["lpt_peaks"]:
        raise SystemExit("Lpt and peers.py balance differently")
    times = f"{ours:.2f} ms"
    yield (
        "LPT, 60 layers x 384 experts, 64 ranks",
        times,
        f"{peers['lpt_seconds'] * 1e3:.0f} ms (NumPy and Python)",
        f"{peers['lpt_seconds'] * 1e3 / ours:.0f} x",
    )
    if "lpt_torch_seconds" in peers:
        yield (
            "LPT, the same",
            times,
            f"{peers['lpt_torch_seconds'] * 1e3:.0f} ms (torch and Python)",
            f"{peers['lpt_torch_seconds'] * 1e3 / ours:.0f} x",
        )


def counting_rows(results, peers):
    speed = {
        name: results.most(f"{name}/shape:0", "bytes_per_second")
        for name in ("Copy", "PlainLoop", "CountOneThread", "CountTwoThreads")
    }
    numpy = peers["count_bytes"] / min(
        peers["bincount_seconds"], peers["one_bincount_seconds"]
    )
    what = "count u8 ids, 47 layers, 64 experts, top-4"
    one = f"{speed['CountOneThread'] / 1e9:.2f} GB/s"
    yield (
        f"{what}, 1 thread",
        one,
        f"{speed['Copy'] / 1e9:.2f} GB/s (memcpy)",
        f"{speed['CountOneThread'] / speed['Copy']:.0%}",
    )
    yield (
        "the same",
        one,
        f"{speed['PlainLoop'] / 1e9:.2f} GB/s (plain loop)",
        f"{speed['CountOneThread'] / speed['PlainLoop']:.2f} x",
    )
    yield (
        "the same",
        one,
        f"{numpy / 1e9:.3f} GB/s (NumPy bincount)",
        f"{speed['CountOneThread'] / numpy:.0f} x",
    )
    two = f"{speed['CountTwoThreads'] / 1e9:.2f} GB/s"
    yield (
        f"{what}, 2 threads",
        two,
        f"{one} (1 thread)",
        f"{speed['CountTwoThreads'] / speed['CountOneThread']:.2f} x",
    )
    yield (
        "the same",
        two,
        f"{numpy / 1e9:.3f} GB/s (NumPy bincount)",
        f"{speed['CountTwoThreads'] / numpy:.0f} x",
    )


def planner_rows(results):
    names = {
        "DemandProjection": "demand projection",
        "FullScore": "full score",
        "Rows": "fewest rows",
        "Pair": "EDP-aware pairing",
        "Generate": "generate the window",
    }
    for index, preset in enumerate(("flash", "xl")):
        for name, text in names.items():
            time = results.milliseconds(f"{name}/xl:{index}")
            yield (f"{text}, {preset}", f"{time:.2f} ms", "", "")


def search_rows(results):
    def rate(name, counter="items_per_second"):
        return results.most(name, counter)

    for index, preset in enumerate(PRESETS):
        for name, stream, text in (
            ("EvaluateWhole", "StreamWhole", "evaluated to the end"),
            ("TryStopped", "StreamStopped", "stopped early"),
        ):
            if preset == "tiny" and name == "TryStopped":
                continue  # none stops early
            ours = rate(f"{name}/preset:{index}")
            read = rate(f"{stream}/preset:{index}")
            yield (
                f"proposals {text}, {preset}, 1 thread",
                f"{ours / 1e6:.2f} M/s",
                f"{read / 1e6:.2f} M/s (reading the same bytes)",
                f"{ours / read:.0%}",
            )
        for heat in ("Warm", "Cold"):
            name = f"RunChain{heat}/preset:{index}"
            shares = ", ".join(
                f"{rate(name, share):.0%} {share.replace('_', ' ')}"
                for share in ("evaluated", "stopped_early", "infeasible")
            )
            yield (
                f"annealing steps, {heat.lower()}, {preset}, 1 thread",
                f"{rate(name, 'steps_per_second') / 1e6:.2f} M/s",
                shares,
                "",
            )
    one = rate("AnnealOneThread/preset:1")
    two = rate("AnnealTwoThreads/preset:1")
    yield (
        "annealing steps, flash, 2 threads",
        f"{two / 1e6:.2f} M/s",
        f"{one / 1e6:.2f} M/s (1 thread)",
        f"{two / one:.2f} x",
    )
    for index in (1, 2):
        time = results.milliseconds(f"BalancedPlan/preset:{index}")
        yield (
            f"whole plan, balanced, {PRESETS[index]}",
            f"{time:.0f} ms",
            "",
            "",
        )
    size = rate("PlanMemory", "bytes")
    yield ("planner memory for xl", f"{size / 1e6:.0f} MB", "", "")


def server_rows(results):
    yield (
        "CreatePlan round trip, 64 samples x 20 x 128",
        f"{results.milliseconds('CreatePlan'):.2f} ms",
        "",
        "",
    )
    for index, preset in enumerate(("flash", "xl")):
        name = f"StreamPlan/xl:{index}"
        speed = results.most(name, "upload_bytes_per_second")
        yield (
            f"StreamPlan upload, {preset}",
            f"{speed / 1e6:.0f} MB/s",
            "",
            "",
        )
        yield (
            f"StreamPlan to the plan, {preset}",
            f"{results.milliseconds(name):.0f} ms",
            "",
            "",
        )
    name = "StreamPlan/xl:1"
    yield (
        "server memory for xl",
        "peak growth",
        f"{results.most(name, 'u16_bytes') / 1e6:.0f} MB (counts as u16)",
        f"{results.most(name, 'memory_over_u16'):.2f} x",
    )


def cpu_name():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.machine()


def table(rows):
    return markdown([("what", "RoutePack", "against", "ratio"), *rows])


def markdown(rows):
    """A table; the first row is its head."""
    columns = range(len(rows[0]))
    widths = [max(len(row[i]) for row in rows) for i in columns]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        + " |"
        for row in rows
    ]
    rule = (
        "| "
        + " | ".join(
            "-" * (width - 1) + (":" if i else "-")
            for i, width in enumerate(widths)
        )
        + " |"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def packing(build, quick):
    """Tables of packing_bench."""
    output = subprocess.run(
        [
            build / "tests" / "bench" / "packing_bench",
            "--format=json",
            f"--quick={str(quick).lower()}",
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    parts = []
    for entry in json.loads(output.stdout):
        parts.append(f"## {entry['title']}")
        parts.append(markdown([entry["columns"], *entry["rows"]]))
        parts += entry["notes"]
    return "\n\n".join(parts)


def replayed(build, folder, quick):
    """The table of policies; draws gap against bytes moved."""
    ctl = build / "client" / "cli" / "routepackctl"
    recorded = sorted((ROOT / "tests" / "data").glob("gsm8k-*.rpw"))
    windows = 4 if quick else 30
    rows = list(replay.policy_table(ctl, recorded, windows))
    folder.mkdir(parents=True, exist_ok=True)
    curves = replay.pareto(ctl, recorded, min(windows, 10))
    replay.plot(curves, folder / "pareto.svg")
    return markdown(rows)


def write_results(folder, suffix, title, made_by, text):
    cpu = cpu_name()
    date = datetime.date.today().isoformat()
    slug = re.sub(r"[^A-Za-z0-9]+", "-", cpu).strip("-").lower()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date}-{slug}{suffix}.md"
    path.write_text(f"# {title}, {date}\n\n{cpu}{made_by}\n\n{text}\n")
    print(f"written to {path}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=ROOT / "build" / "dev",
        help="build folder with the benchmarks",
    )
    torch = ROOT / ".venv-torch" / "bin" / "python"
    parser.add_argument(
        "--python",
        type=pathlib.Path,
        default=torch if torch.exists() else sys.executable,
        help="interpreter of the peers; with torch they are more",
    )
    parser.add_argument(
        "--turns", type=int, default=10, help="repetitions of the Python peers"
    )
    parser.add_argument(
        "--results",
        type=pathlib.Path,
        default=HERE / "results",
        help="folder for the table",
    )
    parser.add_argument(
        "--packing",
        action="store_true",
        help="how good plans are, instead of how fast all is",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="what placement policies move, instead of how fast all is",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="with --packing or --replay: fewer windows, no effort best",
    )
    args = parser.parse_args()
    quick = " --quick" if args.quick else ""

    if args.packing or args.replay:
        if args.packing:
            name, text = "packing", packing(args.build, args.quick)
        else:
            name = "replay"
            text = replayed(args.build, args.results, args.quick)
        print(text)
        made_by = f". Made by `tests/bench/run.py --{name}{quick}`."
        write_results(
            args.results, f"-{name}", name.capitalize(), made_by, text
        )
        return

    results = Results(collect(args.build))
    peers = run_peers(args.python, args.turns)
    text = table(
        [
            *lpt_rows(results, peers),
            *counting_rows(results, peers),
            *planner_rows(results),
            *search_rows(results),
            *server_rows(results),
        ]
    )
    print(text)
    made_by = f", NumPy {peers['numpy']}. Made by `tests/bench/run.py`."
    write_results(args.results, "", "Benchmarks", made_by, text)


if __name__ == "__main__":
    main()
