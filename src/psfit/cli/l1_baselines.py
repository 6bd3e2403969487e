"""scikit-learn's models for the same task: the l1 penalty is lowered until kappa coefficients are not zero.

`psfit bench` and the benchmarks measure them beside PsFiT, in the same run.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, lasso_path
from sklearn.svm import LinearSVC, l1_min_c

# The most penalties on a path, and the last penalty as a share of the first.
STEPS, SPAN = 20, 1e-3


def lasso(A: np.ndarray, b: np.ndarray, kappa: int) -> tuple[np.ndarray, float]:
    """The kappa largest coefficients of the first lasso that has as many, sorted, and the seconds of the path.

    The path uses the Gram matrix; the seconds include its computation.
    """
    began = time.perf_counter()
    gram, cross = (A.T @ A).astype(np.float64), (A.T @ b).astype(np.float64)
    # scikit-learn needs two more facts of the data: the norm of the target and a number of rows, here two.
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
    # Newer versions of scikit-learn have another name for the penalty, and warn about the old one.
    penalty = {"l1_ratio": 1.0} if LogisticRegression().penalty == "deprecated" else {"penalty": "l1"}
    settings: dict[str, Any] = penalty | {"solver": "liblinear", "fit_intercept": False}
    return _fit_with_rising_c(lambda C: LogisticRegression(C=C, **settings), "log", A, b, kappa)


def l1_svm(A: np.ndarray, b: np.ndarray, kappa: int) -> tuple[np.ndarray, float]:
    """The same for the squared hinge, by liblinear; b is -1 or +1."""
    settings = {"penalty": "l1", "loss": "squared_hinge", "dual": False, "fit_intercept": False}
    return _fit_with_rising_c(lambda C: LinearSVC(C=C, **settings), "squared_hinge", A, b, kappa)


def _fit_with_rising_c(
    model: Callable[[float], Any], loss: str, A: np.ndarray, b: np.ndarray, kappa: int
) -> tuple[np.ndarray, float]:
    """Fit with rising C; liblinear cannot start from the last fit, and works in float64 only."""
    A = A.astype(np.float64)
    began = time.perf_counter()
    least = l1_min_c(A, b, loss=loss, fit_intercept=False)
    coef = np.zeros(A.shape[1])
    for C in least * np.geomspace(1, 1 / SPAN, STEPS):
        with warnings.catch_warnings():
            # A fit that stops at liblinear's limit of iterations is used as it is: only its support counts.
            warnings.simplefilter("ignore", ConvergenceWarning)
            coef = model(C).fit(A, b).coef_[0]
        if np.count_nonzero(coef) >= kappa:
            break
    return _largest(coef, kappa), time.perf_counter() - began


def _largest(coef: np.ndarray, kappa: int) -> np.ndarray:
    order = np.argsort(-np.abs(coef), kind="stable")[:kappa]
    return np.sort(order[coef[order] != 0])
