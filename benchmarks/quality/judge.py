"""The judge: the objective of an answer, and the least one on its support, by NumPy and SciPy alone.

The objective is ``sum_k loss(a_k'x + t, b_k) + ||x||^2 / (2 gamma)`` with a free intercept ``t``. Nothing of PsFiT is
used, so that PsFiT is not measured by itself.
"""

from dataclasses import dataclass

import numpy as np
from formulas import FORMULAS, target_of
from scipy.linalg import cho_factor, cho_solve
from suite import Case

MOST_STEPS = 200
# Stop when a Newton step promises less than this share of the objective.
PROMISE = 1e-14


@dataclass(frozen=True)
class Unknowns:
    """The numbers that a support leaves free: what each is multiplied by, its output and its ridge.

    `columns` is ``(m, d)``, `outputs` and `ridge` are ``(d,)``.
    """

    columns: np.ndarray
    outputs: np.ndarray
    ridge: np.ndarray

    def predictors(self, theta: np.ndarray, width: int) -> np.ndarray:
        """``(m, width)``."""
        spread = np.zeros((len(theta), width))
        spread[np.arange(len(theta)), self.outputs] = theta
        return self.columns @ spread

    def products(self, other: "Unknowns", bend: np.ndarray) -> np.ndarray:
        """Second derivatives ``(d, d')`` of the losses, whose curvature is ``bend (m, c, c)``."""
        table = np.empty((len(self.outputs), len(other.outputs)))
        for k in np.unique(self.outputs):
            mine = self.outputs == k
            table[mine] = self.columns[:, mine].T @ (bend[:, k, other.outputs] * other.columns)
        return table


class Judge:
    """One case with everything that scoring needs.

    An item is a feature; or entry ``j * c + k`` of the coefficients where softmax limits single ones.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.formula = FORMULAS[case.spec.model]
        self.target = target_of(case.spec.model, case.y)
        self.outputs = self.target.shape[1]
        self.by_entry = case.spec.sparsity == "element"
        self.items = case.X.shape[1] * (self.outputs if self.by_entry else 1)

    def value(self, coef: np.ndarray, intercept: np.ndarray) -> float:
        """The objective of given coefficients ``(p, c)`` and intercept ``(c,)``."""
        losses = self.formula.value(self.case.X @ coef + intercept, self.target)
        return float(losses.sum() + np.square(coef).sum() / (2 * self.case.spec.gamma))

    def objective(self, support: np.ndarray) -> float:
        """The least objective on a support; infinite if it breaks the limit."""
        if len(support) > self.case.spec.kappa:
            return float("inf")
        return self.refit(self.unknowns(support))[1]

    def unknowns(self, items: np.ndarray) -> Unknowns:
        """The coefficients of some items, in their order, then the intercepts.

        Softmax does not change if a number is added to all outputs: its last intercept stays zero.
        """
        items, c = np.asarray(items, dtype=int), self.outputs
        if self.by_entry:
            rows, outputs = np.divmod(items, c)
        else:
            rows, outputs = np.repeat(items, c), np.tile(np.arange(c), len(items))
        free = np.arange(max(1, c - 1))
        columns = np.hstack([self.case.X[:, rows], np.ones((len(self.case.X), len(free)))])
        ridge = np.concatenate([np.full(len(rows), 1 / self.case.spec.gamma), np.zeros(len(free))])
        return Unknowns(columns, np.concatenate([outputs, free]), ridge)

    def refit(self, unknowns: Unknowns, theta: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """The best numbers for the unknowns and their objective, by Newton's method with halved steps."""
        theta = np.zeros(len(unknowns.outputs)) if theta is None else theta
        value = self._value(unknowns, theta)
        for _ in range(MOST_STEPS):
            gradient, hessian = self.derivatives(unknowns, theta)
            move = -cho_solve(cho_factor(hessian), gradient)
            promise = -float(gradient @ move)
            if promise <= PROMISE * value:
                break
            step = 1.0
            while (tried := self._value(unknowns, theta + step * move)) > value - 1e-4 * step * promise:
                step /= 2
                if step < 1e-10:
                    # Rounding hides what is left to gain.
                    return theta, value
            theta, value = theta + step * move, tried
        return theta, value

    def derivatives(self, unknowns: Unknowns, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient ``(d,)`` and Hessian ``(d, d)`` of the objective."""
        slope, bend = self.slopes(unknowns, theta)
        gradient = (unknowns.columns * slope[:, unknowns.outputs]).sum(axis=0) + unknowns.ridge * theta
        hessian = unknowns.products(unknowns, bend) + np.diag(unknowns.ridge)
        # An intercept has no curvature where no margin falls short; a shift near rounding keeps the factor.
        return gradient, hessian + 1e-12 * (1 + np.trace(hessian)) * np.eye(len(theta))

    def slopes(self, unknowns: Unknowns, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First ``(m, c)`` and second ``(m, c, c)`` derivatives of the losses."""
        eta = unknowns.predictors(theta, self.outputs)
        return self.formula.gradient(eta, self.target), self.formula.curvature(eta, self.target)

    def _value(self, unknowns: Unknowns, theta: np.ndarray) -> float:
        losses = self.formula.value(unknowns.predictors(theta, self.outputs), self.target)
        return float(losses.sum() + 0.5 * (unknowns.ridge * np.square(theta)).sum())
