"""The page, the table of all numbers and the picture."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from grow import EVERY, GAMMA, SIZES, SKEW, Growth

from psfit.admm.setup import PRESSURES

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment
from pictures import finish

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SENT = ("reductions", "numbers", "bytes")


@dataclass(frozen=True)
class Count:
    """What one rank sent: reductions, numbers and bytes of the set-up, then of one iteration."""

    case: str
    nodes: int
    blocks: int
    ranks: int
    model: tuple[float, ...]
    counted: tuple[float, ...]


@dataclass(frozen=True)
class Sent:
    """Reductions and numbers of a whole fit by phase."""

    loss: str
    samples: int
    features: int
    ranks: int
    n_iter: int
    phases: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Timing:
    """Seconds of an iteration: the model's parts, and what was measured."""

    loss: str
    nodes: int
    ranks: int
    rows: int
    columns: int
    gflops: float
    other_gflops: float
    by_rows: bool
    local: float
    reduction: float
    central: float
    rest: float
    measured: float

    @property
    def narrow(self) -> float:
        """Only what a product and an all-reduce calibrate."""
        return self.local + self.reduction

    @property
    def model(self) -> float:
        """All four parts."""
        return self.narrow + self.central + self.rest


@dataclass(frozen=True)
class Network:
    """The machine of the extrapolation: seconds for a message of no length, bytes a second."""

    nodes: int
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Far:
    """Seconds of an iteration on that machine by part; seconds and gigabytes of the set-up."""

    loss: str
    columns: int
    blocks: int
    local: float
    within: float
    tree: float
    ring: float
    central: float
    rest: float
    set_up: float
    gigabytes: float

    @property
    def total(self) -> float:
        """With the quicker of the two reductions."""
        return self.local + self.within + min(self.tree, self.ring) + self.central + self.rest


def messages(counts: list[Count]) -> list[str]:
    """Counted beside expected; a row that differs says so."""
    lines = [
        "| fit | nodes x blocks | ranks | set-up: reductions | numbers | iteration: reductions | numbers | bytes | |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for count in counts:
        shown = [f"{count.counted[k]:,g}" for k in (0, 1, 3, 4, 5)]
        verdict = "as the model" if count.counted == count.model else f"model {count.model}"
        grid = f"{count.nodes} x {count.blocks}"
        lines.append(f"| {count.case} | {grid} | {count.ranks} | {' | '.join(shown)} | {verdict} |")
    return lines


def whole(sent: list[Sent]) -> list[str]:
    """Where a whole fit's messages go."""
    phases = list(sent[0].phases)
    lines = ["| fit | iterations | " + " | ".join(phases) + " |", "|---|---|" + "---|" * len(phases)]
    for s in sent:
        cells = [f"{s.phases[phase][0]:,g} / {s.phases[phase][1]:,g}" for phase in phases]
        name = f"{s.loss}, {s.samples:,} x {s.features}, {s.ranks} ranks"
        lines.append(f"| {name} | {s.n_iter} | " + " | ".join(cells) + " |")
    return lines


def times(timings: list[Timing]) -> list[str]:
    """Milliseconds of an iteration by part, and how far the model is off."""
    layouts = ("by rows", "by columns")[:: 1 if timings[0].by_rows else -1]
    head = f"| loss | nodes | ranks | m_i x n | products, GF/s | GF/s {layouts[1]} | local | reduction | global | rest "
    lines = [head + "| model | measured | measured / (local + reduction) | measured / model |", "|---" * 14 + "|"]
    for t in timings:
        parts = " | ".join(f"{1e3 * s:.2f}" for s in (t.local, t.reduction, t.central, t.rest, t.model, t.measured))
        ratios = f"{t.measured / t.narrow:.2f} | {t.measured / t.model:.2f}"
        name = f"{t.loss} | {t.nodes} | {t.ranks} | {t.rows:,} x {t.columns:,}"
        lines.append(f"| {name} | {t.gflops:.1f} | {t.other_gflops:.1f} | {parts} | {ratios} |")
    return lines


def distance(found: list[Far]) -> list[str]:
    """Milliseconds of an iteration far away, by part."""
    head = (
        "| loss | n | blocks | local | inside a node | tree | ring | global | rest | total | set-up, s | memory, GB |"
    )
    lines = [head, "|---" * 12 + "|"]
    for f in found:
        parts = (f.local, f.within, f.tree, f.ring, f.central, f.rest, f.total)
        cells = " | ".join(f"{1e3 * s:.2f}" for s in parts)
        lines.append(f"| {f.loss} | {f.columns:,} | {f.blocks} | {cells} | {f.set_up:.1f} | {f.gigabytes:.2f} |")
    return lines


def iterations(grown: list[Growth]) -> list[str]:
    """A line for each case, a column for each number of nodes; then every answer that is not that of one node."""
    nodes = sorted({g.job.nodes for g in grown})
    lines = ["| case | " + " | ".join(f"N = {N:,}" for N in nodes) + " |", "|---|" + "---|" * len(nodes)]
    for name in dict.fromkeys(g.job.name for g in grown):
        found = {g.job.nodes: g for g in grown if g.job.name == name}
        lines.append(f"| {name} | " + " | ".join(_outcome(found.get(N)) for N in nodes) + " |")
    return lines


def _outcome(g: Growth | None) -> str:
    if g is None:
        return ""
    return f"{g.n_iter}" if g.same else f"{g.n_iter} ({100 * g.excess:+.4f} %)"


def rows(
    counts: list[Count], sent: list[Sent], timings: list[Timing], found: list[Far], grown: list[Growth]
) -> Iterator[tuple]:
    """Everything as part, case, nodes, ranks, quantity, model, measured."""
    for count in counts:
        names = [f"{phase} {what}" for phase in ("set-up", "iteration") for what in SENT]
        for name, model, counted in zip(names, count.model, count.counted, strict=True):
            yield "messages", f"{count.case}, {count.blocks} blocks", count.nodes, count.ranks, name, model, counted
    for s in sent:
        for phase, values in s.phases.items():
            for name, value in zip(SENT, values, strict=False):
                yield "fit", f"{s.loss} {s.samples} x {s.features}", "", s.ranks, f"{phase} {name}", "", value
    for t in timings:
        case = f"{t.loss} {t.rows} x {t.columns}"
        for name in ("local", "reduction", "central", "rest"):
            yield "time", case, t.nodes, t.ranks, f"{name} seconds", getattr(t, name), ""
        yield "time", case, t.nodes, t.ranks, "iteration seconds", t.model, t.measured
    for f in found:
        case = f"{f.loss} n={f.columns} blocks={f.blocks}"
        for name in ("local", "within", "tree", "ring", "central", "rest", "total", "set_up"):
            yield "far", case, "", "", f"{name} seconds", getattr(f, name), ""
    for g in grown:
        for name in ("n_iter", "status", "same", "excess", "seconds"):
            yield "iterations", g.job.name, g.job.nodes, 1, name, "", getattr(g, name)


def draw(alone: list[Timing], grown: list[Growth], path: Path) -> None:
    """Iterations against nodes, and the time of one in a single process beside the model's."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(15.0, 5.0), layout="constrained")
    marks = {"medium": "o-", "low": "s--", "weak": "^:"}
    # A color for each way to deal out each loss's samples, a line for each solver.
    colors = {deal: f"C{k}" for k, deal in enumerate(dict.fromkeys((g.job.loss, g.job.deal) for g in grown))}
    for name in dict.fromkeys(g.job.name for g in grown):
        mine = [g for g in grown if g.job.name == name]
        job, nodes = mine[0].job, [g.job.nodes for g in mine]
        color = colors[job.loss, job.deal]
        left.plot(nodes, [g.n_iter for g in mine], marks[job.solver], color=color, label=name)
    for loss, color in (("squared", "tab:blue"), ("logistic", "tab:orange")):
        mine = [t for t in alone if t.loss == loss]
        nodes = [t.nodes for t in mine]
        right.plot(nodes, [1e3 * t.measured for t in mine], "o", color=color, label=f"{loss}, measured")
        right.plot(nodes, [1e3 * t.model for t in mine], color=color, label=f"{loss}, model")
        right.plot(nodes, [1e3 * t.narrow for t in mine], ":", color=color, label=f"{loss}, products alone")
    finish(figure, left, path, across="nodes N, same samples", up="iterations", title="Iterations to tolerance")
    title = "An iteration with all nodes in one process"
    finish(figure, right, path, across="nodes N, as many samples on each", up="ms an iteration", title=title)
    right.set_xticks(nodes, [str(N) for N in nodes])
    right.minorticks_off()
    figure.savefig(path, dpi=130)


def write(
    folder: Path,
    counts: list[Count],
    sent: list[Sent],
    alone: list[Timing],
    on_ranks: list[Timing],
    network: Network,
    found: list[Far],
    grown: list[Growth],
) -> None:
    """All three files."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "scaling.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["part", "case", "nodes", "ranks", "quantity", "model", "measured"])
        writer.writerows(rows(counts, sent, [*alone, *on_ranks], found, grown))
    page = [
        "# Scaling",
        "",
        "The cost model and what follows from it: docs/scaling.md. float64, one thread for each process.",
        "",
        "## Messages on real ranks",
        "",
        "Handed over by one rank: in the set-up, and in an outer iteration (difference of two runs).",
        "",
        *messages(counts),
        "",
        "A whole fit with all defaults, reductions / numbers by phase (the polish with a few checks):",
        "",
        *whole(sent),
        "",
        "## Time of an iteration, ms",
        "",
        "Local: the products, at the speed of such products alone, and other vectors by their bytes. Global: the "
        "data-free step alone. Rest: the same loop with two features, less its global step. The second speed is that "
        "of the same products with the factor in the other layout. All nodes in one process:",
        "",
        *times(alone),
        "",
        "Nodes on ranks of this machine (gloo):",
        "",
        *times(on_ranks),
        "",
        f"## {network.nodes:,} nodes",
        "",
        f"From parts measured here one by one; latency {1e6 * network.latency:g} us, {network.bandwidth / 1e9:g} GB/s. "
        "A node, or a block of one, is as fast as one core here. The total takes the quicker reduction. In ms:",
        "",
        *distance(found),
        "",
        "## Iterations",
        "",
        f"The same samples on N nodes: {_sizes()}, gamma = {GAMMA:g}, no intercept. In brackets, where the support is "
        "not that of N = 1: the objective's difference from it. Skewed: every "
        f"{EVERY}th node has {SKEW} times the rows. Weak: effort low "
        f"with rho_b = {PRESSURES[0]:g} rho_c, without the factor N.",
        "",
        *iterations(grown),
        "",
        "Run on: " + ", ".join(f"{key} {value}" for key, value in environment().items()) + ".",
        "",
    ]
    (folder / "scaling.md").write_text("\n".join(page))
    draw(alone, grown, folder / "scaling.png")


def _sizes() -> str:
    return ", ".join(f"{loss} {rows:,} x {features}" for loss, (rows, features) in SIZES.items())
