"""Correlated features: one fit has to choose among twins; many fits to halves of the samples show where it does so.

``python examples/stable_features.py --output FOLDER`` uses a data set of scikit-learn: 30 numbers
about the cell nuclei of 569 tumours, among them radius, perimeter and area, which say nearly the same. Stability
selection counts how often each of them is chosen. A picture shows the counts beside the correlations.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from psfit.plots import plot_stability
from sklearn.datasets import load_breast_cancer

from psfit import SparseLogisticRegression, Stability, stability_selection

matplotlib.use("Agg")

SHOWN = 12


def draw(stable: Stability, table: pd.DataFrame, picture: Path) -> None:
    """How often features are chosen, and how similar they are."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.6), layout="constrained", width_ratios=[1.0, 1.0])
    plot_stability(stable, most=SHOWN, ax=left)
    left.set_title("How often it is chosen", fontsize="medium")
    names = [row["feature"] for row in stable.rows()[:SHOWN]]
    alike = np.abs(np.corrcoef(table[names].to_numpy().T))
    image = right.imshow(alike, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    right.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize="small")
    right.set_yticks([])
    right.set_title("How much alike they are", fontsize="medium")
    figure.colorbar(image, ax=right, label="absolute correlation")
    figure.savefig(picture, dpi=100)


def main() -> None:
    """Fit once, then many times, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--resamples", type=int, default=100, help="halves of the samples to fit to, an even number")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    data = load_breast_cancer(as_frame=True)
    table, malignant = data.data, (data.target == 0).astype(int)
    once = SparseLogisticRegression(3, gamma=0.1, standardize=True).fit(table, malignant)
    print(f"Breast cancer: one fit with kappa = 3 takes {', '.join(table.columns[once.support_])}")
    stable = stability_selection(
        table, malignant, [2, 3], loss="logistic", gamma=0.1, standardize=True, resamples=options.resamples,
        random_state=0,
    )  # fmt: skip
    print(stable)
    alike = table.corr().abs()
    for row in stable.rows()[:5]:
        name = row["feature"]
        twin = alike[name].drop(name).idxmax()
        print(f"  {name:>24} is most like {twin}: correlation {alike.loc[name, twin]:.3f}")
    picture = options.output / "stable-features.png"
    draw(stable, table, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
