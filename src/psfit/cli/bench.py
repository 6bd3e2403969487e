"""``psfit bench``: how fast and how good PsFiT is on this machine, beside scikit-learn, in one run."""

import statistics
import time
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.cli import l1_baselines, options
from psfit.cli.output import Printer
from psfit.cli.parsing import default_grid
from psfit.comm import Grid, GridSpec
from psfit.common.environment import environment
from psfit.data.synthetic import draw_signs, paper_recipe
from psfit.estimators.factory import make_estimator
from psfit.estimators.model import SparseModel

# The losses for which scikit-learn has a sparse model.
BASELINES = {
    "squared": l1_baselines.lasso,
    "logistic": l1_baselines.l1_logistic,
    "squared_hinge": l1_baselines.l1_svm,
}
BaselineLoss = Enum("BaselineLoss", {name: name for name in BASELINES}, type=str)  # type: ignore[misc]
BASELINE = "scikit-learn, l1 path"
NOTES = (
    "seconds: median of the runs, the methods in turn, after one run of each that does not count; PsFiT's with proof",
    "F1: agreement of the support with the true one; 1 means that both are the same",
    "objective: of PsFiT's problem; scikit-learn's support is refitted for it, which its seconds do not include",
    "gap: no answer within the limit is better by more than this share; scikit-learn proves nothing",
)


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


def bench(
    samples: Annotated[int, typer.Option(help="Samples to generate.")] = 5_000,
    features: Annotated[int, typer.Option(help="Features to generate.")] = 200,
    kappa: Annotated[
        int | None, typer.Option(help="Features that matter, and the limit; a tenth of all if not given.")
    ] = None,
    loss: Annotated[BaselineLoss, typer.Option(help="What to fit.")] = BaselineLoss.squared,  # type: ignore[attr-defined]
    nodes: Annotated[
        int | None,
        typer.Option(
            help="Nodes; if not given, one for each rank, or four in a single process.",
            rich_help_panel=options.GRID_PANEL,
        ),
    ] = None,
    device: options.Device = "auto",
    repeats: Annotated[int, typer.Option(help="Runs of each method; their median counts.")] = 3,
    json: options.Json = False,
) -> None:
    """Measure PsFiT beside scikit-learn on generated data; under torchrun or mpirun, PsFiT runs over all ranks."""
    grid = default_grid(nodes, device)
    printer = Printer(grid, json, quiet=False)
    kappa = max(1, features // 10) if kappa is None else kappa
    grid.run_together(lambda: _check(samples, features, kappa, repeats, grid.nodes.size) if printer.first else None)
    case = _make_case(loss.value, samples, features, kappa, grid)
    found = _measure(case, repeats, printer.first)
    where = environment() | {"device": str(grid.device), "ranks": str(grid.world.size)}
    settings = {"samples": samples, "features": features, "kappa": kappa, "loss": case.loss, "nodes": grid.nodes.size}
    printer.print(
        {**settings, "repeats": repeats, "methods": [one.facts() for one in found], "environment": where},
        [
            f"{samples:,} samples x {features:,} features in float32, {kappa} of them matter, {case.loss} loss, "
            f"{grid.nodes.size} node{'s' * (grid.nodes.size > 1)}, {repeats} run{'s' * (repeats > 1)}",
            f"  {'method':<24} {'seconds':>9} {'F1':>7} {'objective':>14} {'gap':>9}",
            *(one.line() for one in found),
            *NOTES,
            "run on: " + ", ".join(f"{name} {value}" for name, value in where.items()),
        ],
    )


def _check(samples: int, features: int, kappa: int, repeats: int, nodes: int) -> None:
    if features < 1:
        raise ValueError(f"--features: {features} must be at least 1")
    if samples < nodes:
        raise ValueError(f"--samples: {samples} is too few for {nodes} nodes; use at least {nodes}")
    if not 1 <= kappa <= features:
        raise ValueError(f"--kappa: {kappa} must be between 1 and {features}, the number of features")
    if repeats < 1:
        raise ValueError(f"--repeats: {repeats} must be at least 1")


def _make_case(loss: str, samples: int, features: int, kappa: int, grid: Grid) -> Case:
    """Make the same data on every rank, on the device of the fit; each rank uses its own rows."""
    level = 1 - kappa / features
    made = paper_recipe(samples, features, level, grid.nodes.size, dtype=torch.float32, device=grid.device)
    b = made.b if loss == "squared" else draw_signs(made)
    truth = np.flatnonzero(made.x[:, 0].cpu().numpy())
    return Case(loss, kappa, made.A, b[:, 0], truth, grid, grid.rows(samples))


def _measure(case: Case, repeats: int, first: bool) -> list[Measurement]:
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
    return make_estimator(case.loss).set_params(kappa=case.kappa, fit_intercept=False, solver=solver, grid=grid)


def _f1(found: np.ndarray, true: np.ndarray) -> float:
    """Twice the number of common features over the number of features in both lists."""
    return 2 * len(np.intersect1d(found, true)) / (len(found) + len(true))
