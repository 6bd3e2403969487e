"""The main job: a sparse regression over four nodes, on generated data and on a real data set.

``torchrun --standalone --nproc-per-node 4 examples/four_nodes.py --output FOLDER`` (or ``make demo``) gives every node
a process of its own; ``mpirun -n 4 python`` does, too, and plain ``python`` hosts all four nodes in one process. Each
rank fits with its own rows only. The first one prints the results and saves the paper's three residuals as pictures.
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

FOUR_NODES = GridSpec(nodes=4)


def generated(samples: int, features: int) -> tuple[SparseLinearRegression, list[str]]:
    """Recover a sparse truth: 90 % of the coefficients are zero."""
    data = paper_recipe(samples, features, sparsity_level=0.9, nodes=4, noise=0.001)
    mine = FOUR_NODES.build().rows(samples)
    model = SparseLinearRegression(kappa=data.kappa, gamma=1000.0, fit_intercept=False, grid=FOUR_NODES)
    model.fit(data.A[mine], data.b[mine, 0])
    truth = np.flatnonzero(data.x[:, 0])
    found = len(np.intersect1d(truth, model.support_))
    return model, [f"  recovered  {found} of the {data.kappa} true features"]


def diabetes() -> tuple[SparseLinearRegression, list[str]]:
    """Eight of the 65 main effects, squares and interactions that describe the progression of diabetes."""
    frame = load_diabetes(as_frame=True)
    terms = PolynomialFeatures(2, include_bias=False).set_output(transform="pandas")
    X = terms.fit_transform(frame.data)
    mine = FOUR_NODES.build().rows(len(X))
    model = SparseLinearRegression(kappa=8, gamma=1000.0, grid=FOUR_NODES).fit(X[mine], frame.target[mine])
    lines = [f"  R^2        {model.score(X, frame.target):.3f} with these terms:"]
    return model, lines + [f"    {X.columns[j]:>10} {model.coef_[j]:+12.1f}" for j in model.support_]


def report(title: str, model: SparseLinearRegression, lines: list[str], picture: Path) -> None:
    """Print a fit and draw its residuals."""
    axes = plot_convergence(model.result_)
    axes.figure.savefig(picture, dpi=120)
    print("\n".join([title, str(model.result_), *lines, f"  picture    {picture}\n"]), flush=True)


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the pictures")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=1_000)
    options = parser.parse_args()
    fits = {
        "generated": ("Generated data of the paper's kind", generated(options.samples, options.features)),
        "diabetes": ("Diabetes data: 442 patients, 65 candidate terms", diabetes()),
    }
    if FOUR_NODES.build().world.rank == 0:
        options.output.mkdir(parents=True, exist_ok=True)
        for name, (title, (model, lines)) in fits.items():
            report(title, model, lines, options.output / f"convergence-{name}.png")


if __name__ == "__main__":
    main()
