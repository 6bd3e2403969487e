"""`sparse_path`: the best model for every limit kappa, in one solve."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.progress import Callback
from psfit.common.status import CLOSED_GAP
from psfit.estimators.concerns import warn_of_targets
from psfit.estimators.constraints import ConstraintArguments, given_arguments
from psfit.estimators.display import prints, show_progress
from psfit.estimators.posing import Given, Posed, pose_samples
from psfit.estimators.registry import check_loss
from psfit.estimators.results import SparsePath
from psfit.estimators.settings import AUTO, RULES, Settings, read_gammas, start_grid
from psfit.estimators.shared_arguments import add_parameters, complete_arguments
from psfit.estimators.warning import count_unfinished, warn
from psfit.pipeline.path import Points, solve_path
from psfit.problem import Sparsity
from psfit.problem.constraint_words import describe_count


@add_parameters
def sparse_path(
    X: Any,
    y: Any = None,
    kappas: Iterable[int] | None = None,
    *,
    gammas: float | str | Sequence[float] = "auto",
    loss: str = "squared",
    sample_weight: Any = None,
    target: str | int | None = None,
    offset: Any = None,
    fit_intercept: bool = True,
    standardize: bool = False,
    sparsity: Sparsity = "element",
    solver: BiCADMM | None = None,
    grid: GridSpec | Grid | None = None,
    certify: bool = True,
    verbose: int = 0,
    callback: Callback | None = None,
    **constraints: Unpack[ConstraintArguments],
) -> SparsePath:
    """Fit models for many limits on the nonzero coefficients at once.

    A larger limit never has a worse objective.

    Parameters
    ----------
    X, y, sample_weight, target, offset :
        As in `SparseModel.fit`: arrays, tables, tensors, sparse matrices or files.
    kappas : iterable of int, optional
        The limits; by default 1, 2, ... up to the number of features, 50 at most.
    gammas : float, sequence of float or "auto", default="auto"
        Inverse weights of the ridge; each has a path of its own. "auto" is one gamma, as in the estimators.
    loss : {"squared", "huber", "logistic", "softmax", "squared_hinge", "hinge", "poisson", "gamma", "tweedie"}
        The loss, or a registered one; "logistic" becomes softmax for more than two classes.
    fit_intercept, standardize, sparsity, solver, grid, certify, verbose, callback :
        As in the estimators. The solver's exact mode and checkpoints do not apply to paths. A path
        that is stopped refits and returns the best models so far, and gives a warning.
    include, exclude, count_included, lower, upper, positive, groups, kappa_counts, at_most, heredity, parents :
        Constraints on coefficients, as in the estimators.

    Returns
    -------
    SparsePath
        Coefficients, objectives and bounds for every limit.
    """
    start = time.perf_counter()
    problem: dict[str, Any] = {"fit_intercept": fit_intercept, "standardize": standardize, "sparsity": sparsity}
    completed = complete_arguments(constraints, ConstraintArguments, "sparse_path")
    ridges = read_gammas(gammas)
    # Paths replace the gamma of the problem, unless it is automatic.
    gamma = AUTO if ridges is None else ridges[0]
    settings = Settings(check_loss(loss), gamma=gamma, **problem, parameters=completed)
    arguments = {"solver": solver, "grid": grid, "certify": certify, "verbose": verbose, "callback": callback}
    posed = pose_samples(
        settings,
        "sparse_path",
        Given(X, y, sample_weight, target, offset),
        start_grid(RULES, problem | arguments | completed, X),
    )
    warn_of_targets(posed)
    limits = posed.read_limits(kappas)
    ridges = [posed.problem.gamma] if ridges is None else ridges
    problem["standardize"] = posed.problem.standardize
    with show_progress(verbose, posed.grid, callback) as report:
        paths = solve_path(
            posed.problem,
            posed.source,
            limits,
            ridges,
            solver,
            posed.grid,
            certify,
            callback=report,
            keyboard=verbose > 0,
        )
    path = _collect(posed, limits, ridges, paths, problem | given_arguments(completed), time.perf_counter() - start)
    if prints(verbose, posed.grid):
        print(path)
    if not (path.gaps <= CLOSED_GAP).all():
        warn(count_unfinished([[points] for points in paths], "paths"), posed.grid)
    return path


def _collect(
    posed: Posed,
    limits: Sequence[int],
    gammas: Sequence[float],
    paths: list[Points],
    settings: dict[str, Any],
    seconds: float,
) -> SparsePath:
    """The paths of all gammas as one result."""
    return SparsePath(
        kappas=np.array(limits),
        gammas=np.array(gammas),
        coefs=np.where(posed.constant or False, 0.0, np.stack([path.coefs for path in paths])),
        intercepts=np.stack([path.intercepts for path in paths]),
        objectives=np.stack([path.objectives for path in paths]),
        lower_bounds=np.stack([path.lower_bounds for path in paths]),
        loss=posed.problem.loss.name,
        seconds=seconds,
        samples=posed.samples,
        settings=settings,
        learned=posed.learned,
        constraints=posed.constraints.words,
        counted=describe_count(posed.problem.constraints),
        ended=next((points.ended for points in paths if points.ended is not None), None),
    )
