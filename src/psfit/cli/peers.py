"""What scikit-learn offers for the same task: l1 penalties, lowered until kappa coefficients are not zero.

`psfit bench` and the benchmarks measure it beside PsFiT, in the same run.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, lasso_path
from sklearn.svm import LinearSVC, l1_min_c

# Penalties on a path at most, and by how much the last is below the first.
STEPS, SPAN = 20, 1e-3


def lasso(A: np.ndarray, b: np.ndarray, kappa: int) -> tuple[np.ndarray, float]:
    """The kappa largest coefficients of the first lasso with as many, sorted, and the seconds that the path took.

    The path runs on the Gram matrix, which is made within the time.
    """
    began = time.perf_counter()
    gram, cross = (A.T @ A).astype(np.float64), (A.T @ b).astype(np.float64)
    # All that scikit-learn needs of the data beside these is the size of the target and a number of rows, here two.
    stand_in = np.zeros((2, A.shape[1])), np.array([np.linalg.norm(b), 0.0])
    coef = np.zeros(A.shape[1])
    for alpha in np.abs(cross).max() / 2 * np.geomspace(1, SPAN, STEPS):
        given = {"precompute": gram, "Xy": cross, "alphas": [alpha], "coef_init": coef, "check_input": False}
        coef = lasso_path(*stand_in, **given)[1][:, 0]
        if np.count_nonzero(coef) >= kappa:
            break
    return _largest(coef, kappa), time.perf_counter() - began


def l1_logistic(A: np.ndarray, b: np.ndarray, kappa: int) -> tuple[np.ndarray, float]:
    """The same for logistic regression, by liblinear; b is -1 or +1."""
    # Newer versions of scikit-learn have another name for it, and warn of the old one.
    penalty = {"l1_ratio": 1.0} if LogisticRegression().penalty == "deprecated" else {"penalty": "l1"}
    settings: dict[str, Any] = penalty | {"solver": "liblinear", "fit_intercept": False}
    return _rising(lambda C: LogisticRegression(C=C, **settings), "log", A, b, kappa)


def l1_svm(A: np.ndarray, b: np.ndarray, kappa: int) -> tuple[np.ndarray, float]:
    """The same for the squared hinge, by liblinear; b is -1 or +1."""
    settings = {"penalty": "l1", "loss": "squared_hinge", "dual": False, "fit_intercept": False}
    return _rising(lambda C: LinearSVC(C=C, **settings), "squared_hinge", A, b, kappa)


def _rising(
    model: Callable[[float], Any], loss: str, A: np.ndarray, b: np.ndarray, kappa: int
) -> tuple[np.ndarray, float]:
    """Fits with rising C; liblinear cannot go on from the last one, and works in float64 only."""
    A = A.astype(np.float64)
    began = time.perf_counter()
    least = l1_min_c(A, b, loss=loss, fit_intercept=False)
    coef = np.zeros(A.shape[1])
    for C in least * np.geomspace(1, 1 / SPAN, STEPS):
        with warnings.catch_warnings():
            # A fit that ends at liblinear's limit of iterations is taken as it is: only its support counts.
            warnings.simplefilter("ignore", ConvergenceWarning)
            coef = model(C).fit(A, b).coef_[0]
        if np.count_nonzero(coef) >= kappa:
            break
    return _largest(coef, kappa), time.perf_counter() - began


def _largest(coef: np.ndarray, kappa: int) -> np.ndarray:
    order = np.argsort(-np.abs(coef), kind="stable")[:kappa]
    return np.sort(order[coef[order] != 0])
