"""What constraints cost: the processor time of constrained fits beside the same fits without constraints.

The problems are those of `benchmarks/peers`. Fits of one problem are made in turn, in one process and one thread, and
the least time of several rounds counts. The forced features and the signs of features outside the plain answer are
drawn at random.
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("peers", "quality"))
from problems import problems
from suite import Case

from psfit import GridSpec, SparseLinearRegression, SparseLogisticRegression

KINDS = {"linear": SparseLinearRegression, "logistic": SparseLogisticRegression}
# Fits of each problem; a problem whose fits take longer than so many seconds is fitted once.
ROUNDS, LONG = 3, 2.0
GOAL = 1.5
WIDTH = 5
# The fit without constraints that the one with forced features is compared with.
WIDE = "plain, as many features"

Row = dict[str, Any]


def fit(case: Case, kappa: int, **demands: Any) -> tuple[float, Any]:
    """Seconds of the processor, and the model."""
    model = KINDS[case.spec.model](kappa, gamma=case.spec.gamma, grid=GridSpec(device="cpu"), **demands)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(case.X, case.y)
    return time.process_time() - begin, model


def list_fits(case: Case, plain: Any) -> dict[str, Callable[[], tuple[float, Any]]]:
    """The fits of a problem, by name; `plain` is the answer without constraints."""
    rng, p, kappa = np.random.default_rng(0), case.X.shape[1], case.spec.kappa
    coef = np.asarray(plain.coef_).reshape(-1)
    forced = rng.choice(p, max(1, p // 10), replace=False).tolist()
    sign = np.where(coef != 0, np.sign(coef), rng.choice([-1.0, 1.0], p))
    signs = {"lower": np.where(sign > 0, 0.0, -np.inf), "upper": np.where(sign > 0, np.inf, 0.0)}
    # Groups of neighbours, and groups that hold the features of the plain answer together.
    together = np.empty(p, int)
    together[np.argsort(coef == 0, kind="stable")] = np.arange(p) // WIDTH
    few = max(1, round(kappa / WIDTH))
    fits = {
        "plain": lambda: fit(case, kappa),
        "10 % forced": lambda: fit(case, kappa, include=forced),
        "signs fixed": lambda: fit(case, kappa, **signs),
        "groups of neighbours": lambda: fit(case, few, groups=np.arange(p) // WIDTH),
        "groups of the answer": lambda: fit(case, few, groups=together),
    }
    # More features than samples are no problem to compare with.
    if kappa + len(forced) <= min(case.X.shape):
        fits[WIDE] = lambda: fit(case, kappa + len(forced))
    return fits


def measure(sets: list[str], folder: Path | None, parts: list[str]) -> list[Row]:
    """A row for every problem: seconds without constraints, and the ratios."""
    rows: list[Row] = []
    for problem in problems(sets, folder, parts):
        case = problem.make()
        fits = list_fits(case, fit(case, case.spec.kappa)[1])
        least = dict.fromkeys(fits, np.inf)
        for number in range(ROUNDS):
            for name, run in fits.items():
                least[name] = min(least[name], run()[0])
            if number == 0 and max(least.values()) > LONG:
                break
        wide = least.pop(WIDE, np.nan)
        row: Row = {"problem": problem.name, "model": case.spec.model, "plain": least["plain"]}
        row |= {name: seconds / least["plain"] for name, seconds in least.items() if name != "plain"}
        row["10 % forced, beside as many features"] = least["10 % forced"] / wide
        rows.append(row)
        print(row, flush=True)
    return rows


def table(rows: list[Row]) -> list[str]:
    """The rows, and the mean and the largest ratio of every kind for each loss."""
    names = [name for name in rows[0] if name not in ("problem", "model", "plain")]
    lines = [f"| problem | plain, ms | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for row in rows:
        ratios = " | ".join("" if np.isnan(row[name]) else f"{row[name]:.2f}" for name in names)
        lines.append(f"| {row['problem']} | {1e3 * row['plain']:.0f} | {ratios} |")
    for model in dict.fromkeys(row["model"] for row in rows):
        some = np.array([[row[name] for name in names] for row in rows if row["model"] == model])
        for title, numbers in (("mean", np.nanmean(some, axis=0)), ("largest", np.nanmax(some, axis=0))):
            lines.append(f"| **{model}, {title}** | | {' | '.join(f'{number:.2f}' for number in numbers)} |")
        within = " | ".join(
            f"{100 * share:.0f} %" for share in np.nanmean(np.where(np.isnan(some), np.nan, some <= GOAL), axis=0)
        )
        lines.append(f"| {model}, at most {GOAL} | | {within} |")
    return lines
