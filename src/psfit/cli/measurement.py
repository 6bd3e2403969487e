"""What `psfit bench` measures: PsFiT and scikit-learn on the same generated data."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.cli import l1_baselines
from psfit.comm import Grid, GridSpec
from psfit.data.synthetic import draw_signs, paper_recipe
from psfit.estimators.factory import make_estimator
from psfit.estimators.model import SparseModel

BASELINES = {
    "squared": l1_baselines.lasso,
    "logistic": l1_baselines.l1_logistic,
    "squared_hinge": l1_baselines.l1_svm,
}
BASELINE = "scikit-learn, l1 path"

# One ridge for all methods, so that their objectives can be compared.
GAMMA = 1.0


@dataclass(frozen=True)
class Case:
    """The generated problem: all rows, which of them are this rank's (`mine`), and the true features' numbers."""

    loss: str
    kappa: int
    A: Tensor
    b: Tensor
    truth: np.ndarray
    grid: Grid
    mine: slice


@dataclass(frozen=True)
class Measurement:
    """One method: the seconds of every run, and how good its support is."""

    method: str
    runs: list[float]
    f1: float
    objective: float
    gap: float | None

    def facts(self) -> dict[str, Any]:
        """The same as plain values, with the median."""
        return vars(self) | {"seconds": statistics.median(self.runs)}

    def line(self) -> str:
        gap = "-" if self.gap is None else f"{self.gap:.1e}"
        return (
            f"  {self.method:<24} {statistics.median(self.runs):>9.3f} {self.f1:>7.3f} {self.objective:>14.8g} {gap:>9}"
        )


def make_case(loss: str, samples: int, features: int, kappa: int, grid: Grid) -> Case:
    """Make the same data on every rank, on the device of the fit; each rank uses its own rows."""
    level = 1 - kappa / features
    made = paper_recipe(samples, features, level, grid.nodes.size, dtype=torch.float32, device=grid.device)
    b = made.b if loss == "squared" else draw_signs(made)
    truth = np.flatnonzero(made.x[:, 0].cpu().numpy())
    return Case(loss, kappa, made.A, b[:, 0], truth, grid, grid.rows(samples))


def measure(case: Case, repeats: int, first: bool) -> list[Measurement]:
    """Run in turn: PsFiT with default and with low effort over all ranks, and scikit-learn on the first rank."""
    solvers = {"PsFiT, default": BiCADMM(), "PsFiT, effort low": BiCADMM(effort="low")}
    runs: dict[str, list[float]] = {method: [] for method in (*solvers, BASELINE)}
    models: dict[str, SparseModel] = {}
    A, b = case.A.cpu().numpy(), case.b.cpu().numpy()
    for _ in range(1 + repeats):
        for method, solver in solvers.items():
            began = time.perf_counter()
            models[method] = _model(case, solver, case.grid).fit(case.A[case.mine], case.b[case.mine])
            runs[method].append(time.perf_counter() - began)
        if first:
            kept, seconds = BASELINES[case.loss](A, b, case.kappa)
            runs[BASELINE].append(seconds)
    found = [
        Measurement(method, runs[method][1:], _f1(model.support_, case.truth), model.objective_, model.gap_)
        for method, model in models.items()
    ]
    if first:
        refit = _model(case, BiCADMM(effort="low"), GridSpec(backend="serial", device="cpu"))
        refit.set_params(kappa=len(kept), certify=False).fit(A[:, kept], b)
        found.append(Measurement(BASELINE, runs[BASELINE][1:], _f1(kept, case.truth), refit.objective_, None))
    return found


def _model(case: Case, solver: BiCADMM, grid: Grid | GridSpec) -> SparseModel:
    settings = {"kappa": case.kappa, "gamma": GAMMA, "fit_intercept": False, "solver": solver, "grid": grid}
    return make_estimator(case.loss).set_params(**settings)


def _f1(found: np.ndarray, true: np.ndarray) -> float:
    """Twice the number of common features over the number of features in both lists."""
    return 2 * len(np.intersect1d(found, true)) / (len(found) + len(true))
