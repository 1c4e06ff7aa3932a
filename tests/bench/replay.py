"""Replays sequences of windows with every placement policy.

Windows are planned in order, each from the placement of the step before, by
`routepackctl replay`. Means are over the steps after the first, which every
policy begins from the identity placement.
"""

import json
import statistics
import subprocess
import sys

DRIFTS = (1, 5, 20)  # percent a step
# Kind: flags of generated windows. The recorded ones come besides.
KINDS = {
    "tiny": ["--preset=tiny"],
    "flash": ["--preset=flash"],
    "rotating hotspot": ["--preset=tiny", "--shape=rotating-hotspot"],
    # Rarer bursts leave no room for a drift of 20 %.
    "bursts": [
        "--preset=tiny",
        "--shape=bursts",
        "--burst_share=0.5",
        "--hot_share=0.5",
    ],
}
# Four GPUs a node, so that the smallest mesh has two nodes.
NODES = ["--ranks_per_node=4"]
POLICIES = ("identity", "keep", "lpt", "lpt-relabel", "incremental")
PAYING = "incremental, paying at once"
LABEL_OFFSETS = {0: (-6, -13), 0.001: (14, 5), 0.003: (-6, -13)}
GAP_TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.6)
TARGETS = (0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2)


def replay(ctl, flags):
    """Steps of each policy."""
    print(f"replaying {' '.join(map(str, flags))}", file=sys.stderr)
    output = subprocess.run(
        [ctl, "replay", "--json", *flags, *NODES],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    policies = {}
    for line in output.stdout.splitlines():
        step = json.loads(line)
        policies.setdefault(step["policy"], []).append(step)
    return policies


def mean(steps, field):
    return statistics.fmean(step[field] for step in steps[1:])


def share_moved(steps):
    return mean(steps, "experts_to_other_rank") / steps[0]["experts_total"]


def compare(ctl, title, flags):
    """Rows of the table for one sequence."""
    policies = replay(
        ctl, [*flags, "--policies=all", "--break_even=false", "--effort=fast"]
    )
    paying = replay(ctl, [*flags, "--placement=incremental", "--effort=fast"])
    policies[PAYING] = paying["incremental"]
    lpt = policies["lpt"]
    for policy in (*POLICIES, PAYING):
        steps = policies[policy]
        weighted = mean(steps, "weighted_bytes")
        against = mean(steps, "joint") / mean(lpt, "joint") - 1
        yield (
            title,
            policy,
            f"{mean(steps, 'cv'):.2%}",
            f"{against:+.2%}",
            f"{mean(steps, 'gap_for_any_placement'):.2%}",
            f"{share_moved(steps):.1%}",
            f"{weighted / 1e9:.2f}",
            f"{mean(lpt, 'weighted_bytes') / weighted:.1f} x"
            if weighted
            else "-",
            f"{mean(steps, 'plan_seconds') * 1e3:.0f} ms",
        )


def sequences(recorded, windows):
    """Titles and flags."""
    yield "GSM8K, recorded", [str(path) for path in recorded]
    for kind, flags in KINDS.items():
        for drift in DRIFTS:
            yield (
                f"{kind}, {drift} %",
                [*flags, f"--windows={windows}", f"--drift={drift / 100}"],
            )


def policy_table(ctl, recorded, windows):
    yield (
        "sequence, drift a step",
        "policy",
        "CV",
        "joint against lpt",
        "gap",
        "experts moved",
        "weighted GB a step",
        "lpt moves",
        "plan time",
    )
    for title, flags in sequences(recorded, windows):
        yield from compare(ctl, title, flags)


def pareto(ctl, recorded, windows):
    """Points (share of LPT's bytes, gap) of targets and of policies, for two
    sequences."""
    curves = {}
    flash = [*KINDS["flash"], f"--windows={windows}", "--drift=0.05"]
    for title, flags in (
        ("GSM8K, recorded", [str(path) for path in recorded]),
        ("flash, 5 % drift", flash),
    ):
        flags = [*flags, "--break_even=false", "--effort=fast"]
        policies = replay(ctl, [*flags, "--policies=keep,lpt,lpt-relabel"])
        whole = mean(policies["lpt"], "weighted_bytes")

        def point(steps, whole=whole):
            return (
                mean(steps, "weighted_bytes") / whole,
                mean(steps, "gap_for_any_placement"),
            )

        curves[title] = {
            "policies": {name: point(s) for name, s in policies.items()},
            "incremental": [
                (
                    target,
                    *point(
                        replay(
                            ctl,
                            [
                                *flags,
                                "--placement=incremental",
                                f"--target_imbalance={target}",
                            ],
                        )["incremental"]
                    ),
                )
                for target in TARGETS
            ],
        }
    return curves


def plot(curves, path):
    import matplotlib  # not needed for the table

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator, PercentFormatter

    pyplot.rcParams["svg.hashsalt"] = "routepack"  # the same file every time
    figure, panels = pyplot.subplots(
        1, len(curves), figsize=(9, 3.6), layout="constrained"
    )
    for panel, (title, curve) in zip(panels, curves.items(), strict=True):
        points = curve["incremental"]
        panel.plot(
            [moved for _, moved, _ in points],
            [gap for *_, gap in points],
            "o-",
            label="incremental, by target imbalance",
        )
        # The curve first falls, then is flat.
        for target, moved, gap in points:
            panel.annotate(
                f"{target:.1%}",
                (moved, gap),
                xytext=LABEL_OFFSETS.get(target, (7, 2)),
                textcoords="offset points",
                fontsize=7,
            )
        for marker, (name, (moved, gap)) in zip(
            "sD^", curve["policies"].items(), strict=True
        ):
            panel.plot([moved], [gap], marker, label=name)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("weighted bytes moved a step, of LPT's")
        panel.set_yscale("log")
        panel.set_yticks(GAP_TICKS)
        panel.set_ylim(GAP_TICKS[0], GAP_TICKS[-1])
        panel.xaxis.set_major_formatter(PercentFormatter(1, 0))
        panel.yaxis.set_major_formatter(lambda gap, _: f"{100 * gap:g}%")
        panel.yaxis.set_minor_locator(NullLocator())
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("gap to the bound over all placements")
    panels[0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
