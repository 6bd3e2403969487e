"""Which pixels matter? Softmax regression of handwritten digits that may look at kappa of 64 pixels only.

``python examples/digits.py --output FOLDER`` works on a data set that scikit-learn brings along: 1,797 pictures of
8 x 8 pixels. ``sparsity="feature"`` counts pixels, which all ten classes may use. One path gives the models of all
limits; a third of the pictures, held out, measures them.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from psfit import SparsePath, sparse_path

matplotlib.use("Agg")


def draw(
    path: SparsePath, accuracy: list[float], dense: float, average: np.ndarray, shown: list[int], to: Path
) -> None:
    """The accuracy against kappa, and the pixels of some limits on top of the average picture."""
    figure, axes = plt.subplots(1, 1 + len(shown), figsize=(4.2 + 2.0 * len(shown), 3.2), layout="constrained",
                                width_ratios=[2.0] + [1.0] * len(shown))  # fmt: skip
    axes[0].plot(path.kappas, 100 * np.array(accuracy), "o-", ms=4, label="chosen pixels")
    axes[0].axhline(100 * dense, color="black", ls="--", lw=1, label="scikit-learn, all 64")
    axes[0].set_xlabel("kappa, the limit on pixels")
    axes[0].set_ylabel("accuracy on held-out pictures, %")
    axes[0].grid(True, alpha=0.3)
    axes[0].legend(loc="lower right")
    for panel, kappa in zip(axes[1:], shown, strict=True):
        chosen = path.support(kappa)
        panel.imshow(average, cmap="Greys", vmin=0, vmax=1.5 * average.max())
        panel.plot(chosen % 8, chosen // 8, "s", ms=9, mfc="none", mec="tab:red", mew=2)
        panel.set_title(f"{kappa} pixels", fontsize="medium")
        panel.set_xticks([])
        panel.set_yticks([])
    figure.savefig(to, dpi=100)


def main() -> None:
    """Fit the path, measure it, draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--kappas", type=int, nargs="+", default=[1, 2, 4, 6, 8, 10, 15, 20, 25, 30, 40])
    parser.add_argument("--pictures", type=int, default=1797, help="use only the first so many pictures")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    X, y = load_digits(return_X_y=True)
    X, y = X[: options.pictures] / 16, y[: options.pictures]
    train, test, labels, truth = train_test_split(X, y, test_size=1 / 3, stratify=y, random_state=0)
    path = sparse_path(train, labels, options.kappas, loss="softmax", sparsity="feature", certify=False)
    predicted = [(test @ path.coef(k) + path.intercept(k)).argmax(axis=1) for k in path.kappas.tolist()]
    accuracy = [float(np.mean(classes == truth)) for classes in predicted]
    dense = LogisticRegression(C=1.0, max_iter=1000).fit(train, labels).score(test, truth)
    print(f"Digits: {len(train)} pictures to learn from, {len(test)} held out, 64 pixels, 10 classes")
    for kappa, score in zip(path.kappas.tolist(), accuracy, strict=True):
        print(f"  {kappa:>3} pixels  {100 * score:5.1f} %")
    print(f"  scikit-learn with all pixels: {100 * dense:.1f} %")
    never = np.flatnonzero(~np.any(path.coefs[0] != 0, axis=(0, 2)))
    print(f"  pixels that no limit uses: {len(never)}")
    shown = [k for k in path.kappas.tolist() if k in (5, 6, 10, 20)][:3]
    picture = options.output / "digits.png"
    draw(path, accuracy, dense, X.mean(axis=0).reshape(8, 8), shown, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
