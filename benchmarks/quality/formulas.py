"""The losses of the suite in NumPy: what the judge computes with."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp, softmax


@dataclass(frozen=True)
class Formula:
    """A loss of predictors ``eta (m, c)`` and targets ``b (m, c)``.

    `value` gives ``(m,)``, `gradient` ``(m, c)``, `curvature` ``(m, c, c)``.
    """

    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    gradient: Callable[[np.ndarray, np.ndarray], np.ndarray]
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _short(eta: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By how much each margin falls short of one."""
    return np.maximum(1 - b * eta, 0)


def _softmax_curvature(eta: np.ndarray, b: np.ndarray) -> np.ndarray:
    share = softmax(eta, axis=1)
    return share[:, :, None] * (np.eye(eta.shape[1]) - share[:, None, :])


FORMULAS = {
    "linear": Formula(
        value=lambda eta, b: np.square(eta - b)[:, 0],
        gradient=lambda eta, b: 2 * (eta - b),
        curvature=lambda eta, b: np.full((len(eta), 1, 1), 2.0),
    ),
    "logistic": Formula(
        value=lambda eta, b: np.logaddexp(0, -b * eta)[:, 0],
        gradient=lambda eta, b: -b * expit(-b * eta),
        curvature=lambda eta, b: (expit(eta) * expit(-eta))[:, :, None],
    ),
    "svm": Formula(
        value=lambda eta, b: np.square(_short(eta, b))[:, 0],
        gradient=lambda eta, b: -2 * b * _short(eta, b),
        curvature=lambda eta, b: 2.0 * (_short(eta, b) > 0)[:, :, None],
    ),
    "softmax": Formula(
        value=lambda eta, b: logsumexp(eta, axis=1) - (b * eta).sum(axis=1),
        gradient=lambda eta, b: softmax(eta, axis=1) - b,
        curvature=_softmax_curvature,
    ),
}


def target_of(model: str, y: np.ndarray) -> np.ndarray:
    """Targets ``(m, c)`` as the formulas take them: numbers, labels of plus and minus one, or one column a class."""
    if model == "linear":
        return y.astype(float)[:, None]
    if model == "softmax":
        return np.eye(int(y.max()) + 1)[y.astype(int)]
    return np.where(y > 0, 1.0, -1.0)[:, None]
