"""Nonnegative least squares with many features: PsFiT beside scipy.optimize.nnls and a nonnegative lasso, refitted.

The judge is the benchmark's own: nonnegative least squares with a ridge on the support, by SciPy's bounded minimiser in
float64.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

# Seconds for which a peer is expected to end: with so many features scipy.optimize.nnls does.
NNLS_FEATURES = 2_000
GAMMA = 1e3
NOISE = 2.0
LASSO_PENALTIES = 20

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Data with `true` positive coefficients; neighbours have the correlation `correlation`."""

    samples: int
    features: int
    true: int
    correlation: float

    @property
    def name(self) -> str:
        kind = f"AR(1) {self.correlation}" if self.correlation else "independent"
        return f"{self.samples:,} x {self.features:,}, {self.true} true, {kind}"

    def draw(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, y and the true features."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((self.samples, self.features), dtype=np.float32)
        if self.correlation:
            fresh = np.float32(np.sqrt(1 - self.correlation**2))
            for j in range(1, self.features):
                X[:, j] = np.float32(self.correlation) * X[:, j - 1] + fresh * X[:, j]
        place = np.sort(rng.choice(self.features, self.true, replace=False))
        y = X[:, place] @ rng.uniform(0.5, 1.5, self.true).astype(np.float32)
        return X, y + NOISE * rng.standard_normal(self.samples, dtype=np.float32), place


def judge(X: np.ndarray, y: np.ndarray, support: np.ndarray) -> float:
    """The least objective with nonnegative coefficients on a support, without an intercept."""
    A, b = X[:, support].astype(np.float64), y.astype(np.float64)
    G, q = A.T @ A, A.T @ b

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        Gx = G @ x
        return b @ b - 2 * q @ x + x @ Gx + x @ x / (2 * GAMMA), 2 * (Gx - q) + x / GAMMA

    bounds, options = [(0.0, None)] * len(support), {"maxiter": 10_000, "ftol": 1e-13, "gtol": 1e-9}
    start = np.zeros(len(support))
    found = optimize.minimize(evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun)


def by_psfit(X: np.ndarray, y: np.ndarray, kappa: int, device: str) -> np.ndarray:
    from psfit import GridSpec, SparseLinearRegression

    model = SparseLinearRegression(kappa, gamma=GAMMA, fit_intercept=False, positive=True, grid=GridSpec(device=device))
    return np.flatnonzero(model.fit(X, y).coef_)


def by_nnls(X: np.ndarray, y: np.ndarray, kappa: int, device: str) -> np.ndarray:
    """The largest coefficients of the nonnegative solution, which has no limit of its own."""
    coef = optimize.nnls(X.astype(np.float64), y.astype(np.float64), maxiter=10 * X.shape[1])[0]
    return np.sort(np.argsort(-coef)[:kappa])


def by_lasso(X: np.ndarray, y: np.ndarray, kappa: int, device: str) -> np.ndarray:
    """The largest coefficients of the first model along falling penalties that has at least kappa."""
    from sklearn.linear_model import Lasso

    most = float((X.T @ y).max()) / len(X)
    model = Lasso(alpha=most, positive=True, fit_intercept=False, warm_start=True, max_iter=2_000, tol=1e-3)
    for alpha in most * np.geomspace(0.5, 1e-3, LASSO_PENALTIES):
        coef = model.set_params(alpha=alpha).fit(X, y).coef_
        if (coef > 0).sum() >= kappa:
            break
    return np.sort(np.argsort(-coef)[:kappa])


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, int, str], np.ndarray]] = {
    "PsFiT, positive=True": by_psfit,
    "Lasso(positive=True), refitted": by_lasso,
    "scipy.optimize.nnls, largest, refitted": by_nnls,
}


def measure(tasks: list[Task], device: str, methods: list[str]) -> list[Row]:
    """A row for every problem and method; nnls only where it ends in reasonable time."""
    rows = []
    for task in tasks:
        X, y, true = task.draw()
        for name in methods:
            if METHODS[name] is by_nnls and task.features > NNLS_FEATURES:
                continue
            begin = time.perf_counter()
            support = METHODS[name](X, y, task.true, device)
            seconds = time.perf_counter() - begin
            found = len(np.intersect1d(support, true))
            row = {"problem": task.name, "method": name, "features": len(support), "true found": found}
            rows.append(row | {"objective": judge(X, y, support), "seconds": seconds})
            print(rows[-1], flush=True)
    return rows


def table(rows: list[Row]) -> list[str]:
    """All rows."""
    lines = ["| problem | method | features | true ones found | judged objective | seconds |", "|---" * 6 + "|"]
    for row in rows:
        numbers = f"{row['features']} | {row['true found']} | {row['objective']:.6g} | {row['seconds']:.1f}"
        lines.append(f"| {row['problem']} | {row['method']} | {numbers} |")
    return lines
