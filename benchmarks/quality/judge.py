"""The judge: the objective of an answer, and the least one on its support, by NumPy and SciPy alone.

The objective is ``sum_k loss(a_k'x + t, b_k) + ||x||^2 / (2 gamma)`` with a free intercept ``t``. Nothing of PsFiT is
used, so that PsFiT is not measured by itself.
"""

import numpy as np
from basis import Basis, Unknowns, basis_of
from formulas import FORMULAS, target_of
from scipy.linalg import cho_factor, cho_solve
from suite import Case

MOST_STEPS = 200
# Stop when a Newton step promises less than this share of the objective.
PROMISE = 1e-14
# An answer that could fall by a larger share of the objective is refused.
ACCEPTED = 1e-9


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
        """The best numbers for the unknowns and their objective, by Newton's method with halved steps.

        At the end the gradient is checked: a next step must promise next to nothing.
        """
        basis = basis_of(unknowns)
        u = np.zeros(basis.back.shape[1]) if theta is None else basis.start(theta)
        value = self._value(basis, u)
        for _ in range(MOST_STEPS):
            move, promise = self._newton(basis, u)
            if promise <= PROMISE * value:
                break
            step, tried = 1.0, self._value(basis, u + move)
            while not tried <= value - 1e-4 * step * promise and step > 1e-10:
                step /= 2
                tried = self._value(basis, u + step * move)
            if step <= 1e-10:
                # Rounding hides what is left to gain.
                break
            u, value = u + step * move, tried
        if not self._newton(basis, u)[1] <= ACCEPTED * value:
            raise ArithmeticError(f"the refit of {self.case.name} found no minimum on {len(u)} unknowns")
        return basis.back @ u, value

    def _newton(self, basis: Basis, u: np.ndarray) -> tuple[np.ndarray, float]:
        """Newton's step ``(d,)`` and twice the decrease that it promises."""
        slope, bend = self.slopes(basis.unknowns, u)
        inside = basis.unknowns
        gradient = (inside.columns * slope[:, inside.outputs]).sum(axis=0) + basis.penalty @ u
        hessian = inside.products(inside, bend) + basis.penalty
        move = -cho_solve(cho_factor(shifted(hessian)), gradient)
        return move, -float(gradient @ move)

    def slopes(self, unknowns: Unknowns, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First ``(m, c)`` and second ``(m, c, c)`` derivatives of the losses."""
        eta = unknowns.predictors(theta, self.outputs)
        return self.formula.gradient(eta, self.target), self.formula.curvature(eta, self.target)

    def _value(self, basis: Basis, u: np.ndarray) -> float:
        losses = self.formula.value(basis.unknowns.predictors(u, self.outputs), self.target)
        return float(losses.sum() + 0.5 * u @ basis.penalty @ u)


def shifted(hessian: np.ndarray) -> np.ndarray:
    """An intercept has no curvature where no margin falls short; a shift near rounding keeps the factor."""
    return hessian + 1e-12 * (1 + np.trace(hessian)) * np.eye(len(hessian))
