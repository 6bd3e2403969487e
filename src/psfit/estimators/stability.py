"""`stability_selection`: which features are chosen again and again when half of the samples are drawn anew."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import NONE, integer, number, satisfying
from psfit.common.progress import Callback
from psfit.estimators.concerns import concerns_of_parts, warn_of
from psfit.estimators.display import require_whole, shown, within
from psfit.estimators.folds import Folds
from psfit.estimators.model import Posed
from psfit.estimators.path import limits_of, model_for
from psfit.pipeline.subsamples import Subsamples
from psfit.problem import Sparsity

RESAMPLES = satisfying("an even integer of at least 2", lambda value: integer(2).read(value) % 2 == 0)
THRESHOLD = number("a number above 0.5 and at most 1", lambda value: 0.5 < value <= 1)
SEED = integer(0) | NONE


@dataclass(frozen=True)
class Stability:
    """How often each feature was chosen.

    Parameters
    ----------
    kappas : ndarray (K,)
    frequencies : ndarray (K, p)
        The share of all resamples whose model with the limit kappa uses the feature.
    average_size : float
        Features that a resample chose, at any of the limits, on average.
    resamples : int
    threshold : float
    feature_names : ndarray (p,) or None
    seconds : float
    """

    kappas: np.ndarray
    frequencies: np.ndarray
    average_size: float
    resamples: int
    threshold: float
    feature_names: np.ndarray | None
    seconds: float

    @property
    def scores(self) -> np.ndarray:
        """The largest frequency of each feature over all limits, ``(p,)``."""
        return np.asarray(self.frequencies.max(axis=0))

    @property
    def support(self) -> np.ndarray:
        """Features whose score reaches the threshold, sorted."""
        return np.flatnonzero(self.scores >= self.threshold)

    @property
    def expected_false(self) -> float:
        """A bound on the expected number of features in `support` that do not belong there.

        ``q^2 / ((2 threshold - 1) p)`` with q the `average_size`: that of Meinshausen and Buehlmann, which holds if
        features without influence are exchangeable and a choice is no worse than a random guess.
        """
        return float(self.average_size**2 / ((2 * self.threshold - 1) * self.frequencies.shape[1]))

    def rows(self) -> list[dict[str, Any]]:
        """A line for each feature that was ever chosen, the most stable ones first."""
        order = np.argsort(-self.scores, kind="stable")
        names = np.arange(len(order)) if self.feature_names is None else self.feature_names
        return [
            {"feature": names[j], "frequency": float(self.scores[j]), "stable": bool(self.scores[j] >= self.threshold)}
            for j in order[self.scores[order] > 0]
        ]

    def __str__(self) -> str:
        lines = [
            f"Stability selection: {self.resamples} resamples, {self.seconds:.2f} s; {len(self.support)} feature(s) "
            f"chosen by {self.threshold:.0%} or more, of which at most {self.expected_false:.2g} expected false"
        ]
        lines += [f"{row['feature']!s:>24} {row['frequency']:>7.0%}" for row in self.rows()[:20]]
        return "\n".join(lines)


def stability_selection(
    X: Any,
    y: Any = None,
    kappas: Iterable[int] | None = None,
    *,
    gamma: float = 1.0,
    loss: str = "squared",
    resamples: int = 100,
    threshold: float = 0.75,
    random_state: int | None = None,
    sample_weight: Any = None,
    target: str | int | None = None,
    fit_intercept: bool = True,
    standardize: bool = False,
    sparsity: Sparsity = "element",
    solver: BiCADMM | None = None,
    grid: GridSpec | None = None,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Stability:
    """Fit to many random halves of the samples, and count which features are chosen.

    Every node halves its own samples, class by class where there are classes.

    Parameters
    ----------
    X, y, sample_weight, target :
        As in `SparseModel.fit`.
    kappas : iterable of int, optional
        Limits; a feature counts by the one that chooses it most often. By default 1, 2, ... 50 at most.
    gamma, loss, fit_intercept, standardize, sparsity, solver, grid :
        As in `sparse_path`.
    resamples : int, default=100
        An even number: halves come in pairs that share no sample, and a pair shares its passes over the data.
    threshold : float in (0.5, 1], default=0.75
        The frequency from which on a feature is called stable.
    random_state : int or None
        Seed of the halves.
    verbose : int, default=0
        1 shows how far it is.
    callback : callable or None
        Hears of `psfit.Progress`; if it returns True, `StoppedError` is raised.

    Returns
    -------
    Stability
        The frequencies, and the features that are stable.
    """
    began = time.perf_counter()
    resamples, threshold = int(RESAMPLES("resamples", resamples)), THRESHOLD("threshold", threshold)
    random_state = SEED("random_state", random_state)
    model = model_for(loss)
    model.set_params(
        gamma=gamma,
        fit_intercept=fit_intercept,
        standardize=standardize,
        sparsity=sparsity,
        solver=solver,
        grid=grid,
        verbose=verbose,
        callback=callback,
    )
    posed = model._posed(X, y, sample_weight, target)
    limits = limits_of(kappas, posed)
    posed.grid.require_alike(kappas=limits, resamples=resamples, random_state=random_state)
    # Halves that were cut short would count for nothing.
    solver = replace(solver or BiCADMM(), interruptible=False)
    counts = np.zeros((len(limits), posed.source.matrix.shape[1]))
    sizes, paths = 0, []
    halves = _halves(posed, is_classifier(model), resamples // 2, random_state)
    with shown(verbose > 0 and posed.grid.world.rank == 0, callback) as told:
        for pair, half in enumerate(halves):
            masks = torch.from_numpy(np.stack([half, ~half]))
            Folds(masks, masks).require_use(model, posed)
            parts = Subsamples.of(posed.problem, posed.source, posed.grid, masks, solver)
            for number in range(2):
                heard = within(told, f"half {2 * pair + number + 1} of {resamples}")
                (points,) = require_whole(parts.path(number, limits, [posed.problem.gamma], heard))
                paths.append([points])
                chosen = (points.coefs != 0).any(axis=2)
                counts += chosen
                sizes += int(chosen.any(axis=0).sum())
    warn_of(concerns_of_parts(paths, "resamples"), posed.grid)
    return Stability(
        kappas=np.array(limits),
        frequencies=counts / resamples,
        average_size=sizes / resamples,
        resamples=resamples,
        threshold=threshold,
        feature_names=getattr(model, "feature_names_in_", None),
        seconds=time.perf_counter() - began,
    )


def _halves(posed: Posed, classes: bool, pairs: int, seed: int | None) -> Iterable[np.ndarray]:
    """Masks ``(m,)`` of random halves; each node draws its own, the same wherever it is hosted."""
    grid = posed.grid
    start = _agreed_seed(grid, seed)
    bounds = list(pairwise(posed.source.split(len(grid.nodes.hosted)).bounds))
    draws = [np.random.default_rng([start, node]) for node in grid.nodes.hosted]
    for _ in range(pairs):
        half = np.zeros(len(posed.y), dtype=bool)
        for (first, last), rng in zip(bounds, draws, strict=True):
            order = rng.permutation(last - first)
            if classes:
                order = order[np.argsort(np.unique(posed.y[first:last], return_inverse=True)[1][order], kind="stable")]
            # Every other one of a class; who gets the odd one is up to chance.
            half[first + order[rng.integers(2) :: 2]] = True
        yield half


def _agreed_seed(grid: Grid, seed: int | None) -> int:
    """The seed that was given, or one that the first rank has drawn."""
    if seed is not None:
        return seed
    drawn = int(np.random.default_rng().integers(2**31))
    return int(grid.world.broadcast(torch.tensor([drawn])))
