"""The paper's third and fourth experiments: time against the number of features, and of samples, for N = 2, 4, 8.

``python benchmarks/paper/scaling.py features`` has 800 rows a node and n = 1,000 to 10,000; ``... samples`` has n =
4,000 and 25,000 to 300,000 rows a node; s_l = 0.8. On a GPU at the paper's size; on a CPU at a fifth of the width, and
fewer rows, unless ``--full`` says otherwise. Features: the paper's algorithm (effort "low") and, for the widest, the
default; samples: the default. With a certificate in all of them.
"""

import argparse
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
from common import (
    NODES,
    Setting,
    data,
    fit,
    recovered,
    regression,
    setting,
    source_of,
    table,
    timed,
    write_csv,
    write_page,
)

from psfit import BiCADMM

LEVEL = 0.8
ROWS = 800
WIDTHS = (1_000, 2_000, 4_000, 6_000, 8_000, 10_000)
HEIGHTS = (25_000, 50_000, 100_000, 200_000, 300_000)
WIDTH = 4_000
# What a CPU takes on: a part of the width, and so many samples in all.
PART = 5
MOST_ON_CPU = 200_000


def cases(kind: str, here: Setting, full: bool) -> list[tuple[int, int, int]]:
    """Nodes, samples and features of every point."""
    part = 1 if here.gpu or full else PART
    if kind == "features":
        return [(N, N * ROWS // part, n // part) for N in NODES for n in WIDTHS]
    points = [(N, N * rows, WIDTH // part) for N in NODES for rows in HEIGHTS]
    return [point for point in points if here.gpu or point[1] <= MOST_ON_CPU]


def main() -> None:
    here, options = setting(__doc__.splitlines()[0], _options)
    kind, points = options.kind, cases(options.kind, here, options.full)
    widest = max(n for _, _, n in points)
    rows = []
    for N, m, n in points:
        if kind == "samples":
            rows.append(measured(N, m, n, "medium", here))
            continue
        rows.append(measured(N, m, n, "low", here))
        if (N, n) == (max(NODES), widest):
            # The default searches for long where there are more features than samples: once is enough.
            rows.append(measured(N, m, n, "medium", replace(here, repeats=1)))
    name = f"{kind}-scaling"
    write_csv(rows, here.file(name, "csv"))
    place, repeats = ("GPU", here.repeats) if here.gpu else ("host", 1)
    lines = [f"s_l = {LEVEL}, float32 data on the {place}; medians of {repeats}.", ""]
    write_page(f"Scaling with {kind}", [*lines, *_table(rows)], here.file(name, "md"))
    draw(rows, kind, here)


def measured(N: int, m: int, n: int, effort: str, here: Setting) -> dict:
    """One point."""
    made = data(m, n, LEVEL, N, here.device)
    action = partial(fit, regression(made.kappa), source_of(made.A, made.b), N, here, BiCADMM(effort=effort))
    result, seconds = timed(action, here, None if here.gpu else 1)
    row = {"nodes": N, "m": m, "n": n, "effort": effort, "seconds": seconds, "iterations": result.n_iter}
    row |= {"gap": result.gap, "recovered": recovered(result, made.x)}
    print(row, flush=True)
    return row


def _table(rows: list[dict]) -> list[str]:
    head = ["N", "m", "n", "effort", "seconds", "iterations", "certified gap", "recovered"]
    formats = ("{}", "{:,}", "{:,}", "{}", "{:.3f}", "{}", "{:.1e}", "{:.3f}")
    return table(head, [[f.format(v) for f, v in zip(formats, row.values(), strict=True)] for row in rows])


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["features", "samples"])
    parser.add_argument("--full", action="store_true", help="the paper's width on a CPU, too")


def draw(rows: list[dict], kind: str, here: Setting) -> None:
    """Time against size, a line for each number of nodes."""
    figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
    for N in NODES:
        mine = [row for row in rows if row["nodes"] == N and row["effort"] == rows[0]["effort"]]
        across = [row["n"] if kind == "features" else row["m"] // N for row in mine]
        axes.plot(across, [row["seconds"] for row in mine], "o-", label=f"N = {N}")
    axes.set_xlabel("features n" if kind == "features" else "samples of each node")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Scaling with {kind}, {'GPU' if here.gpu else 'CPU'}")
    axes.grid(True, alpha=0.3)
    axes.legend()
    path = here.file(f"{kind}-scaling", "png")
    figure.savefig(path, dpi=130)
    print(path)


if __name__ == "__main__":
    main()
