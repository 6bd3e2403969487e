"""How many features? Cross-validation, its curve in words, and pictures, on real data.

``python examples/choose_kappa.py --output FOLDER`` uses a data set of scikit-learn: diabetes with
all squares and products. With ``--data FOLDER`` it also uses what is found there: ``leukemia_golub.npz`` (gene
expression: 7,129 genes of 72 patients) and ``blogfeedback.npz`` (280 numbers about each of 52,397 blog posts, and how
many comments followed), arrays ``X`` and ``y`` each.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from psfit.plots import plot_gaps, plot_path, plot_selection, plot_stability
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold
from sklearn.preprocessing import PolynomialFeatures

from psfit import SparseLinearRegressionCV, SparseLogisticRegressionCV, sparse_path, stability_selection

matplotlib.use("Agg")


def explain(model: Any) -> list[str]:
    """The curve in words."""
    choice = model.selection_
    rows, columns = choice.gammas.tolist(), choice.kappas.tolist()
    best = rows.index(choice.best_gamma), columns.index(choice.best_kappa)
    chosen = rows.index(choice.gamma), columns.index(choice.kappa)
    losses, errors = -choice.scores, choice.errors
    lines = [
        f"  one feature      loss {losses[best[0], 0]:.4g}",
        f"  best score       loss {losses[best]:.4g} +- {errors[best]:.2g} at kappa = {choice.best_kappa}, "
        f"gamma = {choice.best_gamma:g}",
        f"  chosen           loss {losses[chosen]:.4g} at kappa = {choice.kappa}, gamma = {choice.gamma:g}: "
        "the fewest features within one standard error",
    ]
    rise = (losses[best[0], -1] - losses[best]) / errors[best] if errors[best] > 0 else 0.0
    if rise > 1:
        lines.append(f"  beyond the best  the loss rises by {rise:.1f} standard errors: more features fit noise")
    else:
        lines.append("  beyond the best  the curve is flat: more features do no harm, and no good")
    return lines


def study(title: str, model: Any, X: np.ndarray, y: np.ndarray, names: np.ndarray, folder: Path, loss: str) -> None:
    """Choose kappa, say why, and draw the curve, the coefficients and the certified gaps."""
    model.set_params(one_standard_error=True).fit(X, y)
    lines = [f"{title}: {X.shape[0]:,} samples, {X.shape[1]:,} features", *explain(model)]
    lines.append(f"  certified        gap {model.gap_:.2g} for the chosen model")
    sizes = np.abs(np.atleast_2d(model.coef_)).max(axis=0)
    order = model.support_[np.argsort(-(sizes * X.std(axis=0))[model.support_])]
    lines.append(
        f"  features         {', '.join(str(names[j]) for j in order[:10])}{', ...' if len(order) > 10 else ''}"
    )
    # In units of standard deviations the coefficients of all columns can share a picture.
    spread = X.std(axis=0)
    scaled = pd.DataFrame(X / np.where(spread > 0, spread, 1.0), columns=names)
    path = sparse_path(scaled, y, model.selection_.kappas, gammas=model.gamma_, loss=loss, standardize=True)
    pictures = {"choice": plot_selection(model.selection_), "path": plot_path(path), "gaps": plot_gaps(path)}
    slug = title.split(",")[0].lower().replace(" ", "-")
    for kind, axes in pictures.items():
        target = folder / f"{slug}-{kind}.png"
        axes.figure.savefig(target, dpi=100)
        lines.append(f"  picture          {target}")
    print("\n".join(lines), flush=True)


def diabetes(folder: Path, most: int, resamples: int) -> None:
    """65 main effects, squares and products; the stable ones among them, too."""
    data = load_diabetes(as_frame=True)
    terms = PolynomialFeatures(2, include_bias=False).set_output(transform="pandas").fit_transform(data.data)
    X, y, names = terms.to_numpy(), data.target.to_numpy(), terms.columns.to_numpy()
    model = SparseLinearRegressionCV(range(1, min(30, most) + 1), gammas=[0.01, 1.0], standardize=True, cv=10)
    study("Diabetes, all products", model, X, y, names, folder, "squared")
    limits = range(1, min(8, most) + 1)
    stable = stability_selection(terms, data.target, limits, standardize=True, resamples=resamples, random_state=0)
    picture = folder / "diabetes-stability.png"
    plot_stability(stable).figure.savefig(picture, dpi=100)
    print(f"  stable           {', '.join(names[stable.support])}\n  picture          {picture}\n", flush=True)


def genes(file: Path, folder: Path, most: int) -> None:
    """Two kinds of leukemia from the expression of thousands of genes."""
    data = np.load(file)
    X = data["X"].astype(np.float64)
    model = SparseLogisticRegressionCV(range(1, min(15, most) + 1), gammas=[0.1, 1.0, 10.0], standardize=True)
    names = np.array([f"gene {j}" for j in range(X.shape[1])])
    study("Leukemia, gene expression", model, X, data["y"], names, folder, "logistic")
    print()


def posts(file: Path, folder: Path, most: int) -> None:
    """Comments on blog posts; their number is heavy-tailed, its logarithm is not."""
    data = np.load(file)
    X, y = data["X"].astype(np.float64), np.log1p(data["y"].astype(np.float64))
    # Posts of the same blog lie side by side; whole blogs left out would measure something else.
    folds = KFold(5, shuffle=True, random_state=0)
    model = SparseLinearRegressionCV(range(1, min(50, most) + 1), standardize=True, cv=folds)
    names = np.array([f"column {j}" for j in range(X.shape[1])])
    study("Blog posts, tall", model, X, y, names, folder, "squared")
    if "X_test" in data:
        print(f"  later posts      R^2 {model.score(data['X_test'], np.log1p(data['y_test'])):.3f}\n", flush=True)


def main() -> None:
    """Run all parts whose data are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the pictures")
    parser.add_argument("--data", type=Path, help="folder with leukemia_golub.npz and blogfeedback.npz")
    parser.add_argument("--most", type=int, default=50, help="the largest limit to look at")
    parser.add_argument("--resamples", type=int, default=50, help="halves of the data for the stable features")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    diabetes(options.output, options.most, options.resamples)
    for name, part in (("leukemia_golub.npz", genes), ("blogfeedback.npz", posts)):
        if options.data is not None and (options.data / name).is_file():
            part(options.data / name, options.output, options.most)


if __name__ == "__main__":
    main()
