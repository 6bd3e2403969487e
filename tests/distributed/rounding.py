"""Run on every rank: searches where each rank solves its equations with rounding errors of its own.

Arguments: backend, folder for the answers of every rank, blocks.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from psfit import (
    GridSpec,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSVC,
    sparse_path,
)

SAMPLES, FEATURES, KAPPA = 120, 16, 4
# Far above the errors of a real processor, far below what an answer is compared with.
ERROR = 1e-9


def data() -> tuple[np.ndarray, np.ndarray]:
    """Features that depend on each other, two of them nearly, and a target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(SAMPLES, FEATURES)) + rng.normal(size=(SAMPLES, 1))
    X[:, 1] = X[:, 0] + 1e-7 * rng.normal(size=SAMPLES)
    return X, X[:, :6] @ [1.0, 0.0, -1.5, 1.0, 0.8, -0.5] + rng.normal(size=SAMPLES)


def fit_all(rows: slice, grid: GridSpec) -> dict[str, list[float]]:
    """Objectives and coefficients by all ways to search: by a form, by models, with kinks, along a path."""
    X, y = data()
    text, counts = np.where(y > 0, "yes", "no"), np.random.default_rng(1).poisson(np.exp(y / 5))
    options = {"gamma": 10.0, "grid": grid}
    models = {
        "squared": (SparseLinearRegression(KAPPA, **options), y),
        "huber": (SparseLinearRegression(KAPPA, loss="huber", **options), y),
        "logistic": (SparseLogisticRegression(KAPPA, **options), text),
        "hinge": (SparseSVC(KAPPA, loss="hinge", **options), text),
        "poisson": (SparsePoissonRegression(KAPPA, **options), counts),
    }
    found = {}
    for name, (model, target) in models.items():
        result = model.fit(X[rows], target[rows]).result_
        found[name] = [result.objective, *result.coef.flatten().tolist()]
    for loss, target in (("squared", y), ("logistic", text)):
        path = sparse_path(X[rows], target[rows], [2, KAPPA], gammas=10.0, loss=loss, grid=grid)
        found[f"{loss} path"] = [float(path.objectives.sum()), *path.coefs.flatten().tolist()]
    return found


def disturb(rank: int) -> None:
    """Add errors to the solutions of equations, different on every rank."""
    generator = torch.Generator().manual_seed(rank)

    def add_errors(solve):
        def solve_with_errors(*arguments, **options):
            found = solve(*arguments, **options)
            return found * (1 + ERROR * torch.randn(found.shape, generator=generator, dtype=found.dtype))

        return solve_with_errors

    torch.cholesky_solve = add_errors(torch.cholesky_solve)
    torch.linalg.solve = add_errors(torch.linalg.solve)
    torch.linalg.solve_triangular = add_errors(torch.linalg.solve_triangular)


if __name__ == "__main__":
    backend, folder, blocks = sys.argv[1:]
    spec = GridSpec(backend=backend, blocks=int(blocks), device="cpu", timeout=60)
    grid = spec.build()
    disturb(grid.world.rank)
    answers = fit_all(grid.rows(SAMPLES), spec)
    Path(folder, f"{grid.world.rank}.json").write_text(json.dumps(answers))
