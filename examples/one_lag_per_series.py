"""One lag of each series: neighbouring lags are nearly the same, and a model should not spend its features on twins.

``python examples/one_lag_per_series.py --output FOLDER`` generates series with a long memory and a target that
depends on one lag of a few of them. All lags of all series are features. Models with at most so many features as
there are true ones are fitted twice: freely, and with at most one lag of each series (``groups`` and ``at_most``).
The picture shows how often each lag was chosen over many repetitions.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from psfit import SparseLinearRegression

matplotlib.use("Agg")

SERIES, LAGS, SAMPLES = 8, 12, 60
MEMORY, NOISE = 0.9, 3.0
# The lag that matters, and its coefficient, for some of the series.
TRUTH = {"s1": (2, 1.0), "s3": (7, -1.0), "s4": (11, 0.7), "s6": (4, 0.7)}
MODELS = {"one lag of each series": True, "any lags": False}


def draw_series(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, dict[str, list[str]]]:
    """All lags as a table, the target, and the columns of each series."""
    steps = rng.normal(size=(SAMPLES + LAGS, SERIES))
    values = np.zeros_like(steps)
    for time in range(1, len(steps)):
        values[time] = MEMORY * values[time - 1] + steps[time]
    names = [f"s{k}" for k in range(1, SERIES + 1)]
    series = dict(zip(names, values.T, strict=True))
    lagged = {f"{name} lag {lag}": one[LAGS - lag : -lag] for name, one in series.items() for lag in range(1, LAGS + 1)}
    target = NOISE * rng.normal(size=SAMPLES)
    for name, (lag, coefficient) in TRUTH.items():
        target += coefficient * lagged[f"{name} lag {lag}"]
    groups = {name: [f"{name} lag {lag}" for lag in range(1, LAGS + 1)] for name in names}
    return pd.DataFrame(lagged), target, groups


def fit(table: pd.DataFrame, target: np.ndarray, groups: dict[str, list[str]], single: bool) -> np.ndarray:
    """Which lags are chosen, ``(SERIES, LAGS)``."""
    limits = {"groups": groups, "at_most": 1} if single else {}
    model = SparseLinearRegression(len(TRUTH), gamma=10.0, certify=False, **limits).fit(table, target)
    return (model.coef_ != 0).reshape(SERIES, LAGS)


def draw(counts: dict[str, np.ndarray], repetitions: int, picture: Path) -> None:
    """How often each lag was chosen; the true ones are framed."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained", sharey=True)
    for axes, (title, count) in zip(panels, counts.items(), strict=True):
        image = axes.imshow(count / repetitions, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for name, (lag, _) in TRUTH.items():
            place = lag - 1.5, int(name[1:]) - 1.5
            axes.add_patch(plt.Rectangle(place, 1, 1, fill=False, edgecolor="crimson", lw=1.5))
        axes.set_xticks(range(LAGS), range(1, LAGS + 1))
        axes.set_xlabel("lag")
        axes.set_title(title, fontsize="medium")
    panels[0].set_yticks(range(SERIES), [f"series {k}" for k in range(1, SERIES + 1)])
    figure.colorbar(image, ax=panels, label="chosen, share of fits (framed: true)")
    figure.savefig(picture, dpi=100)


def main() -> None:
    """Fit many times, count, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--repetitions", type=int, default=100, help="how many data sets to generate")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    counts = {title: np.zeros((SERIES, LAGS)) for title in MODELS}
    found, twins = dict.fromkeys(MODELS, 0), dict.fromkeys(MODELS, 0)
    truth = np.zeros((SERIES, LAGS), dtype=bool)
    for name, (lag, _) in TRUTH.items():
        truth[int(name[1:]) - 1, lag - 1] = True
    for seed in range(options.repetitions):
        table, target, groups = draw_series(np.random.default_rng(seed))
        for title, single in MODELS.items():
            chosen = fit(table, target, groups, single)
            counts[title] += chosen
            found[title] += int((chosen.any(axis=1) & truth.any(axis=1)).sum())
            twins[title] += int((chosen.sum(axis=1) > 1).any())
    print(f"{SERIES} series, {LAGS} lags of each, {SAMPLES} samples, {options.repetitions} repetitions")
    for title in MODELS:
        share = found[title] / options.repetitions
        print(f"  {title:>22}: {share:.2f} of {len(TRUTH)} true series, two lags of a series in {twins[title]} fits")
    picture = options.output / "one-lag-per-series.png"
    draw(counts, options.repetitions, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
