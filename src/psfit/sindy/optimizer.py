"""An optimizer in the place of pysindy's own: the best terms for each equation, and how good any others can be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pysindy.optimizers import BaseOptimizer

from psfit.admm.bicadmm import BiCADMM
from psfit.common.arguments import GAMMA, NONE, instance, integer, several
from psfit.common.status import relative_gap
from psfit.estimators import SparseLinearRegression

LIMIT = integer(1) | several("a list of such numbers, one for each equation", integer(1))


class SparseEquations(BaseOptimizer):
    """At most kappa terms in each equation: ``SINDy(optimizer=SparseEquations(3))``.

    Minimises ``||Theta x - dx/dt||^2 + ||D x||^2 / (2 gamma)`` for each equation, subject to ``||x||_0 <= kappa``,
    where D holds the norms of the columns of Theta per sample, so that the ridge does not depend on units.

    Parameters
    ----------
    kappa : int or list of int, default=3
        The limit on the terms of an equation: one for all of them, or one for each.
    gamma : float, default=1e6
        Inverse weight of the ridge; large, so that coefficients are hardly shrunk.
    solver : BiCADMM or None, default=None
        Configuration of the algorithm. ``BiCADMM(exact=True, time_limit=60)`` proves that no other terms are better, or
        how much better they can be.
    unbias : bool, default=True
        Fit the coefficients of the terms once more without the ridge.
    normalize_columns : bool, default=False
        Divide the columns of Theta by their norms before. The answer hardly depends on it.

    Attributes
    ----------
    coef_ : (equations, terms)
        Coefficients.
    lower_bounds_ : (equations,)
        No other terms have a smaller objective than this.
    gaps_ : (equations,)
        ``(objective - lower bound) / |objective|``, at most `gap_tol` where the terms are proved to be the best.
    """

    def __init__(
        self,
        kappa: int | Sequence[int] = 3,
        *,
        gamma: float = 1e6,
        solver: BiCADMM | None = None,
        unbias: bool = True,
        normalize_columns: bool = False,
        copy_X: bool = True,
    ) -> None:
        super().__init__(normalize_columns=normalize_columns, copy_X=copy_X, unbias=unbias)
        self.kappa = kappa
        self.gamma = gamma
        self.solver = solver

    def _reduce(self, x: Any, y: Any) -> None:
        """Fit the equations; those with the same limit share their passes over the data."""
        x, y = np.asarray(x), np.asarray(y)
        limits = self._read_limits(y.shape[1], x.shape[1])
        self.coef_ = np.zeros((y.shape[1], x.shape[1]))
        self.lower_bounds_, self.gaps_ = np.zeros(y.shape[1]), np.zeros(y.shape[1])
        for limit in np.unique(limits):
            rows = np.flatnonzero(limits == limit)
            model = SparseLinearRegression(
                int(limit), gamma=self.gamma, fit_intercept=False, standardize=True, solver=self.solver
            ).fit(x, y[:, rows])
            self.coef_[rows] = model.coef_
            self.lower_bounds_[rows] = model.result_.lower_bounds
            self.gaps_[rows] = list(map(relative_gap, model.result_.objectives, model.result_.lower_bounds))
        self.history_.append(self.coef_)

    def _unbias(self, x: Any, y: Any) -> None:
        """Least squares on the chosen terms, by columns of the same norm.

        pysindy's own takes singular values below a millionth of the largest for zero. Terms of high degree are larger
        than others by more than that, and would be left alone with the whole equation.
        """
        x, y = np.asarray(x), np.asarray(y)
        for coef, chosen, slope in zip(self.coef_, self.ind_, y.T, strict=True):
            terms = x[:, chosen]
            norms = np.linalg.norm(terms, axis=0)
            coef[chosen] = np.linalg.lstsq(terms / norms, slope)[0] / norms

    def _read_limits(self, equations: int, terms: int) -> np.ndarray:
        GAMMA("gamma", self.gamma)
        (instance("a psfit.BiCADMM", BiCADMM) | NONE)("solver", self.solver)
        given = LIMIT("kappa", self.kappa)
        limits = np.array(given if isinstance(given, list) else [given] * equations)
        if len(limits) != equations:
            raise ValueError(
                f"kappa has {len(limits)} limits for {equations} equations; give one for each, or one number"
            )
        if limits.max() > terms:
            raise ValueError(f"kappa={int(limits.max())} must be at most {terms}, the number of terms in the library")
        return limits
