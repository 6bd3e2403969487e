"""A loss of one's own: pseudo-Huber, a Huber loss without kinks in its slope.

``2 delta^2 (sqrt(1 + (r / delta)^2) - 1)`` with ``r = eta - b``: about ``r^2`` for small residuals, about
``2 delta |r|`` for large ones. ``python examples/extending/pseudo_huber.py`` fits it to data with outliers.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from psfit import Dense, Problem, Result, Source, SparseLinearRegression, solve
from psfit.estimators.registry import Entry, register
from psfit.estimators.targets import Numbers
from psfit.losses import Loss


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """All methods are pure functions of predictors ``eta`` and targets ``b``, tensors of shape ``(m, c)``."""

    delta: float = 1.35
    name: ClassVar[str] = "pseudo_huber"
    # The prox below looks at its numbers to decide when to stop.
    steady: ClassVar[bool] = False
    # What reports print; without these, they call the loss by its name.
    fits: ClassVar[str | None] = "robust linear regression (pseudo-Huber loss)"
    formula: ClassVar[str | None] = "2\u03b4\u00b2 (sqrt(1 + ((\u03b7 \u2212 y) / \u03b4)\u00b2) \u2212 1)"
    meanings: ClassVar[dict[str, str]] = {"delta": "much larger residuals count linearly"}

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        r = (eta - b) / self.delta
        # The same as sqrt(1 + r^2) - 1, without cancellation near zero.
        return 2 * self.delta**2 * r.square() / (1 + (1 + r.square()).sqrt())

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return 2 * (eta - b) / (1 + ((eta - b) / self.delta).square()).sqrt()

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return 2 * (1 + ((eta - b) / self.delta).square()) ** -1.5

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        """The root ``r`` of ``r + step slope(r) = u`` with ``u = |v - b|``.

        The left side grows and is concave, so Newton's method started below the root climbs to it and never passes it.
        """
        u = (v - b).abs()
        r = torch.maximum(u / (1 + 2 * step), u - 2 * step * self.delta)
        for _ in range(60):
            root = (1 + (r / self.delta).square()).sqrt()
            move = (u - r - 2 * step * r / root) / (1 + 2 * step * root**-3)
            r = r + move
            if bool((move.abs() <= torch.finfo(v.dtype).eps * (1 + r)).all()):
                break
        return b + (v - b).sign() * r

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        """What the certificate is made of; infinite for slopes that the loss does not have."""
        w = a / (2 * self.delta)
        inside = w.abs() <= 1
        root = (1 - w.clamp(-1, 1).square()).sqrt()
        return torch.where(inside, a * b + 2 * self.delta**2 * w.square() / (1 + root), torch.inf)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        """The unit in which penalties are chosen: the curvature at a residual of zero."""
        return 2.0


# The targets are numbers, the estimator has a parameter `loss`, and its `huber_delta` sets the field `delta`.
ENTRY = Entry(PseudoHuber, Numbers, "SparseLinearRegression", {"delta": "huber_delta"})


def fit(X: np.ndarray, y: np.ndarray, kappa: int, gamma: float = 1.0, delta: float = 1.35) -> Result:
    """A fit to tensors: `psfit.solve` takes any loss."""
    matrix, target = Dense(torch.from_numpy(X)), torch.from_numpy(y).reshape(-1, 1)
    source = Source(matrix, target, torch.ones_like(target))
    return solve(Problem(PseudoHuber(delta), (kappa,), gamma), source)


def main() -> None:
    """Three true features, and a tenth of the targets far off."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    y = X[:, 2] - 2 * X[:, 7] + 1.5 * X[:, 13] + 0.3 * rng.normal(size=300)
    y[::10] += 30 * rng.normal(size=30)
    result = fit(X, y, kappa=3, gamma=0.1)
    print(result)
    print("coefficients", result.coef[result.support, 0].round(2))
    register(ENTRY)
    model = SparseLinearRegression(3, gamma=0.1, loss="pseudo_huber").fit(X, y)
    print("the estimator's", model.coef_[model.support_].round(2))


if __name__ == "__main__":
    main()
