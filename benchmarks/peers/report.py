"""The page and the picture of all rows: excess over the best known objective, and seconds."""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from pictures import finish

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS = "PsFiT"
RIVAL = "abess"
# PsFiT is above a peer if its objective is larger by more than this share.
TIE = 1e-6
# Seconds that are fine in any case, and how many times abess's seconds are.
ALLOWED = {"linear": (0.05, 2.0), "logistic": (0.1, 3.0)}
# Where the picture draws an excess of zero, in %.
FLOOR = 1e-5
NOTES = (
    "Excess is that of the judged objective over the best known one, in %, then the median seconds. The judge refits "
    "every support in float64 with the benchmark's own code. Of a path (l1, MCP) the judge takes the best of at most "
    "eight supports, and this choice costs the path no time. PsFiT's time includes its certificate. Methods with "
    "one run a problem only (PsFiT high, PsFiT exact) serve the best known objective; their seconds include loading "
    "and compiling."
)

Row = dict[str, str]
Problems = dict[tuple[str, str], dict[str, Row]]


def write_page(rows: Sequence[Row], absent: Sequence[str], folder: Path) -> None:
    """``peers.md`` and ``peers.png``."""
    found = by_problem(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    page = ["# PsFiT beside other packages", "", NOTES, ""]
    if absent:
        page += [f"Not installed in the last run: {', '.join(absent)}.", ""]
    page += ["## Summary", "", *summary(found, methods), ""]
    page += ["## PsFiT above the best peer", "", *above(found), ""]
    page += ["## PsFiT beyond the time allowed", "", *slow(found), ""]
    for group in dict.fromkeys(group for group, _ in found):
        page += [f"## Problems: {group}", "", *table(found, methods, group), ""]
    page += ["## Without an answer", "", *without(rows), ""]
    page += ["Run on:", "", *(f"- {line}" for line in places(rows)), ""]
    (folder / "peers.md").write_text("\n".join(page))
    draw(found, methods, folder / "peers.png")
    print("\n".join(page))


def by_problem(rows: Sequence[Row]) -> Problems:
    """Rows by problem and method."""
    found: Problems = {}
    for row in rows:
        found.setdefault((row["group"], row["problem"]), {})[row["method"]] = row
    return found


def best_known(rows: dict[str, Row]) -> float:
    """The least objective of anyone."""
    return min(float(row["objective"]) for row in rows.values())


def excess(row: Row, best: float) -> float:
    """In %; infinite without an answer."""
    return 100 * (float(row["objective"]) / best - 1)


def _seconds(row: Row | None) -> float:
    return float(row["seconds"]) if row else float("nan")


def summary(found: Problems, methods: Sequence[str]) -> list[str]:
    """Mean and worst excess and the times of each method, by group."""
    lines = ["| group | method | answers | mean excess % | worst excess % | mean s | median of PsFiT's time / its |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    for group in dict.fromkeys(group for group, _ in found):
        problems = [rows for (where, _), rows in found.items() if where == group]
        for method in methods:
            mine = [(rows[method], rows) for rows in problems if method in rows]
            done = [(row, rows) for row, rows in mine if row["status"] == "done"]
            if not done:
                continue
            over = np.array([excess(row, best_known(rows)) for row, rows in done])
            ratios = np.array([_seconds(rows.get(OURS)) / _seconds(row) for row, rows in done])
            ratio = f"{np.nanmedian(ratios):.2f}" if np.isfinite(ratios).any() else ""
            mean = np.mean([_seconds(row) for row, _ in done])
            figures = f"{over.mean():.5f} | {over.max():.5f} | {mean:.3g} | {ratio}"
            lines.append(f"| {group} | {method} | {len(done)} of {len(mine)} | {figures} |")
    return lines


def above(found: Problems) -> list[str]:
    """Problems where a peer has a better support than PsFiT's default."""
    lines = ["| group | problem | best peer | PsFiT above it, % |", "|---|---|---|---:|"]
    for (group, problem), rows in found.items():
        peers = {name: row for name, row in rows.items() if not name.startswith(OURS)}
        if OURS not in rows or not peers:
            continue
        best = min(peers, key=lambda name: float(peers[name]["objective"]))
        over = excess(rows[OURS], float(peers[best]["objective"]))
        if over > 100 * TIE:
            lines.append(f"| {group} | {problem} | {best} | {over:.5f} |")
    return lines if len(lines) > 2 else ["None."]


def slow(found: Problems) -> list[str]:
    """Problems where PsFiT takes longer than it may beside abess at the same size."""
    rules = [f"{least * 1000:g} ms or {times:g} x abess for {model} loss" for model, (least, times) in ALLOWED.items()]
    lines = [f"Allowed is the larger of {', and of '.join(rules)}.", ""]
    lines += ["| group | problem | PsFiT s | abess s | allowed s |", "|---|---|---:|---:|---:|"]
    for (group, problem), rows in found.items():
        mine, theirs = _seconds(rows.get(OURS)), _seconds(rows.get(RIVAL))
        if OURS not in rows or not np.isfinite(theirs):
            continue
        least, times = ALLOWED[rows[OURS]["model"]]
        allowed = max(least, times * theirs)
        if not mine <= allowed:
            lines.append(f"| {group} | {problem} | {mine:.3f} | {theirs:.3f} | {allowed:.3f} |")
    return lines if len(lines) > 4 else [*lines[:2], "None."]


def table(found: Problems, methods: Sequence[str], group: str) -> list[str]:
    """A line a problem."""
    lines = ["| problem | best known | " + " | ".join(methods) + " |", "|---|---:|" + "---:|" * len(methods)]
    for (where, problem), rows in found.items():
        if where == group:
            best = best_known(rows)
            cells = [_cell(rows.get(method), best) for method in methods]
            lines.append(f"| {problem} | {best:.8g} | " + " | ".join(cells) + " |")
    return lines


def _cell(row: Row | None, best: float) -> str:
    if row is None:
        return ""
    if row["status"] != "done":
        return row["status"].partition(":")[0]
    return f"{excess(row, best):.5f} / {_seconds(row):.3g} s"


def without(rows: Sequence[Row]) -> list[str]:
    """Runs that were stopped or failed, and answers that break the limit."""
    lines = [f"- {row['problem']}, {row['method']}: {row['status']}" for row in rows if row["status"] != "done"]
    return lines or ["None."]


def places(rows: Sequence[Row]) -> list[str]:
    """Each machine and set of versions that rows come from."""
    keys = list(rows[0])[list(rows[0]).index("runs") + 1 :]
    return list(dict.fromkeys(", ".join(f"{key} {row[key]}" for key in keys) for row in rows))


def draw(found: Problems, methods: Sequence[str], path: Path) -> None:
    """A point for each method and problem; a large one at the median time and the mean excess of a method."""
    figure, axes = plt.subplots(figsize=(9.6, 5.4), layout="constrained")
    timed = [method for method in methods if method == OURS or not method.startswith(OURS)]
    for k, method in enumerate(timed):
        pairs = [(rows[method], best_known(rows)) for rows in found.values() if method in rows]
        done = [(_seconds(row), max(excess(row, best), FLOOR)) for row, best in pairs if row["status"] == "done"]
        if done:
            seconds, over = np.array(done).T
            marker, colour = "o^vsDPX*"[k % 8], f"C{k}"
            axes.scatter(seconds, over, s=24, alpha=0.5, marker=marker, color=colour, linewidths=0)
            middle = (np.median(seconds), over.mean())
            axes.scatter(*middle, s=130, marker=marker, color=colour, edgecolors="black", label=method, zorder=3)
    axes.axhline(FLOOR, color="black", linewidth=0.8, linestyle=":")
    place = {"xycoords": ("axes fraction", "data"), "xytext": (0, -14), "textcoords": "offset points"}
    axes.annotate("the best known objective, excess 0, is drawn here", (0.99, FLOOR), **place, ha="right", va="top")
    axes.margins(0.08)
    axes.set_ylim(FLOOR / 8, 3 * max(FLOOR, *(axis.get_offsets()[:, 1].max() for axis in axes.collections)))
    title = "A point for each problem; large ones: median time and mean excess"
    finish(figure, axes, path, across="seconds a fit", up="excess over the best known objective, %", title=title)
    plt.close(figure)
