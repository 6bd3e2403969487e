"""The main job: a sparse regression over four nodes, on generated data and on a real data set.

Run it with ``make demo``, or ``python examples/four_nodes.py --output FOLDER``. It prints each result and saves the
three residuals of the paper as pictures.
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures

from psfit import GridSpec, SparseLinearRegression
from psfit.data.synthetic import paper_recipe
from psfit.plots import plot_convergence

matplotlib.use("Agg")


def generated(samples: int, features: int, folder: Path) -> None:
    """Recover a sparse truth: 90 % of the coefficients are zero."""
    data = paper_recipe(samples, features, sparsity_level=0.9, nodes=4, noise=0.001)
    model = SparseLinearRegression(kappa=data.kappa, gamma=1000.0, fit_intercept=False, grid=GridSpec(nodes=4))
    model.fit(data.A, data.b[:, 0])
    truth = np.flatnonzero(data.x[:, 0])
    print("Generated data of the paper's kind")
    print(model.result_)
    print(f"  recovered  {len(np.intersect1d(truth, model.support_))} of the {data.kappa} true features\n")
    save(model, folder / "convergence-generated.png")


def diabetes(folder: Path) -> None:
    """Eight of the 65 main effects, squares and interactions that describe the progression of diabetes."""
    frame = load_diabetes(as_frame=True)
    terms = PolynomialFeatures(2, include_bias=False).set_output(transform="pandas")
    X = terms.fit_transform(frame.data)
    model = SparseLinearRegression(kappa=8, gamma=1000.0, grid=GridSpec(nodes=4)).fit(X, frame.target)
    print("Diabetes data: 442 patients, 65 candidate terms")
    print(model.result_)
    print(f"  R^2        {model.score(X, frame.target):.3f} with these terms:")
    for j in model.support_:
        print(f"    {X.columns[j]:>10} {model.coef_[j]:+12.1f}")
    save(model, folder / "convergence-diabetes.png")


def save(model: SparseLinearRegression, path: Path) -> None:
    """Draw the residuals of a fit."""
    axes = plot_convergence(model.result_)
    axes.figure.savefig(path, dpi=120)
    print(f"  picture    {path}\n")


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the pictures")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=1_000)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    generated(options.samples, options.features, options.output)
    diabetes(options.output)


if __name__ == "__main__":
    main()
