"""`stability_selection`: how often features are chosen in fits to random halves of the samples."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import torch

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import NONE, integer, number, satisfying
from psfit.common.progress import Callback
from psfit.estimators.constraints import ConstraintArguments
from psfit.estimators.display import label_round, require_complete, show_progress
from psfit.estimators.folds import Folds
from psfit.estimators.posing import Given, Posed, pose_samples
from psfit.estimators.registry import check_loss
from psfit.estimators.results import Stability
from psfit.estimators.settings import RULES, Settings, start_grid
from psfit.estimators.shared_arguments import add_parameters, complete_arguments
from psfit.estimators.warning import count_unfinished, warn
from psfit.pipeline.path import Points
from psfit.pipeline.subsamples import Subsamples
from psfit.problem import Sparsity

RESAMPLES = satisfying("an even integer of at least 2", lambda value: integer(2).read(value) % 2 == 0)
THRESHOLD = number("a number above 0.5 and at most 1", lambda value: 0.5 < value <= 1)
SEED = integer(0) | NONE


@add_parameters
def stability_selection(
    X: Any,
    y: Any = None,
    kappas: Iterable[int] | None = None,
    *,
    gamma: float | str = "auto",
    loss: str = "squared",
    resamples: int = 100,
    threshold: float = 0.75,
    random_state: int | None = None,
    sample_weight: Any = None,
    target: str | int | None = None,
    offset: Any = None,
    fit_intercept: bool = True,
    standardize: bool = False,
    sparsity: Sparsity = "element",
    solver: BiCADMM | None = None,
    grid: GridSpec | Grid | None = None,
    verbose: int = 0,
    callback: Callback | None = None,
    **constraints: Unpack[ConstraintArguments],
) -> Stability:
    """Fit to many random halves of the samples, and count which features are chosen.

    Every node divides its own samples, class by class if the targets are classes.

    Parameters
    ----------
    X, y, sample_weight, target, offset :
        As in `SparseModel.fit`.
    kappas : iterable of int, optional
        The limits. The frequency of a feature is the highest one over the limits. By default 1, 2, ..., at most 50.
    gamma, loss, fit_intercept, standardize, sparsity, solver, grid :
        As in `sparse_path`.
    resamples : int, default=100
        An even number: halves come in pairs without common samples, and both are fitted in the same passes.
    threshold : float in (0.5, 1], default=0.75
        A feature with at least this frequency is stable.
    random_state : int or None
        Seed of the halves.
    verbose : int, default=0
        1 shows the progress.
    callback : callable or None
        Called with a `psfit.Progress`; if it returns True, `StoppedError` is raised.
    include, exclude, count_included, lower, upper, positive, groups, kappa_counts, at_most, heredity, parents :
        Constraints on coefficients, as in the estimators.

    Returns
    -------
    Stability
        The frequencies, and the features that are stable.
    """
    start_time = time.perf_counter()
    resamples, threshold = int(RESAMPLES("resamples", resamples)), THRESHOLD("threshold", threshold)
    random_state = SEED("random_state", random_state)
    problem: dict[str, Any] = {"gamma": gamma, "fit_intercept": fit_intercept}
    problem |= {"standardize": standardize, "sparsity": sparsity}
    completed = complete_arguments(constraints, ConstraintArguments, "stability_selection")
    settings = Settings(check_loss(loss), **problem, parameters=completed)
    arguments = {"solver": solver, "grid": grid, "verbose": verbose, "callback": callback}
    posed = pose_samples(
        settings,
        "stability_selection",
        Given(X, y, sample_weight, target, offset),
        start_grid(RULES, problem | arguments | completed, X),
    )
    limits = posed.read_limits(kappas)
    posed.grid.require_same(kappas=limits, resamples=resamples, random_state=random_state)
    # A half that was cut short cannot be counted.
    solver = replace(solver or BiCADMM(), interruptible=False)
    counts = np.zeros((len(limits), posed.source.matrix.shape[1]))
    sizes, paths = 0, []
    halves = draw_halves(posed, resamples // 2, random_state)
    with show_progress(verbose, posed.grid, callback) as report:
        for points in _fit_halves(posed, halves, limits, solver, resamples, report):
            paths.append([points])
            chosen = (points.coefs != 0).any(axis=2)
            counts += chosen
            sizes += int(chosen.any(axis=0).sum())
    warn(count_unfinished(paths, "resamples"), posed.grid)
    return Stability(
        kappas=np.array(limits),
        frequencies=counts / resamples,
        average_size=sizes / resamples,
        resamples=resamples,
        threshold=threshold,
        feature_names=posed.learned.features.names,
        seconds=time.perf_counter() - start_time,
    )


def _fit_halves(
    posed: Posed,
    halves: Iterable[np.ndarray],
    limits: Sequence[int],
    solver: BiCADMM,
    resamples: int,
    callback: Callback | None,
) -> Iterator[Points]:
    """A path for each half and for its complement, which share passes over the data."""
    begin = time.perf_counter()
    for pair, half in enumerate(halves):
        masks = torch.from_numpy(np.stack([half, ~half]))
        Folds(masks, masks).require_enough(posed)
        parts = Subsamples.of(posed.problem, posed.source, posed.grid, masks, solver)
        for side in range(2):
            report = label_round(callback, "half", 2 * pair + side + 1, resamples, begin)
            (points,) = require_complete(parts.path(side, limits, [posed.problem.gamma], report))
            yield points


def draw_halves(posed: Posed, pairs: int, seed: int | None) -> Iterable[np.ndarray]:
    """Masks ``(m,)`` of random halves; each node draws its own; they do not depend on which rank hosts the node."""
    grid = posed.grid
    start = _agree_on_seed(grid, seed)
    bounds = list(pairwise(posed.source.split(len(grid.nodes.hosted)).bounds))
    draws = [np.random.default_rng([start, node]) for node in grid.nodes.hosted]
    for _ in range(pairs):
        half = np.zeros(len(posed.y), dtype=bool)
        for (first, last), rng in zip(bounds, draws, strict=True):
            order = rng.permutation(last - first)
            if not posed.learned.target.numeric:
                order = order[np.argsort(np.unique(posed.y[first:last], return_inverse=True)[1][order], kind="stable")]
            # Every second sample of a class. If their number is odd, it is random which half gets one more.
            half[first + order[rng.integers(2) :: 2]] = True
        yield half


def _agree_on_seed(grid: Grid, seed: int | None) -> int:
    """The given seed, or a random seed from the first rank."""
    if seed is not None:
        return seed
    own = int(np.random.default_rng().integers(2**31))
    return int(grid.world.broadcast(torch.tensor([own])))
