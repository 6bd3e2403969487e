"""PsFiT as a solver of benchopt's benchmark of sparse support recovery; README.md says how to run it."""

from typing import ClassVar

import numpy as np
from benchmark_utils.stopping_criterion import RunOnGridCriterion
from benchopt import BaseSolver

from psfit import BiCADMM, SparseLinearRegression


class Solver(BaseSolver):
    """At most k nonzero coefficients, for the shares of nonzeros that the benchmark asks for."""

    name = "psfit"
    stopping_criterion = RunOnGridCriterion(grid=np.linspace(0, 0.1, 10))
    requirements: ClassVar[list[str]] = ["pip::psfit-toolbox"]
    parameters: ClassVar[dict[str, list[str]]] = {"effort": ["medium"]}

    def set_objective(self, X, y):  # type: ignore[no-untyped-def]
        self.X, self.y = X, y
        # Compiled loops are loaded before the clock starts.
        SparseLinearRegression(1, certify=False).fit(X[:20, :5], y[:20])

    def run(self, grid_value):  # type: ignore[no-untyped-def]
        """Fit with the limit floor(share * features); a huge gamma leaves hardly any ridge."""
        k = int(np.floor(grid_value * self.X.shape[1]))
        self.w = np.zeros(self.X.shape[1])
        if k > 0:
            solver = BiCADMM(effort=self.effort)
            model = SparseLinearRegression(k, gamma=1e6, fit_intercept=False, certify=False, solver=solver)
            self.w = model.fit(self.X, self.y).coef_

    def get_result(self):  # type: ignore[no-untyped-def]
        return {"w": self.w}
