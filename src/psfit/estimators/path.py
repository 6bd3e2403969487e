"""`sparse_path`: the best model for every limit kappa, in one solve."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.common.arguments import GAMMAS, one_of
from psfit.common.progress import Callback
from psfit.common.status import CLOSED_GAP, Status
from psfit.data.schema import Schema
from psfit.estimators.classification import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.concerns import concerns_of_parts, warn_of
from psfit.estimators.display import shown
from psfit.estimators.model import Posed, SparseModel
from psfit.estimators.reading import summed
from psfit.estimators.regression import SparseLinearRegression, SparsePoissonRegression
from psfit.pipeline.path import check_kappas, solve_path
from psfit.problem import Sparsity

# The estimator of each loss.
LOSSES: dict[str, Callable[[], SparseModel]] = {
    "squared": SparseLinearRegression,
    "huber": partial(SparseLinearRegression, loss="huber"),
    "logistic": SparseLogisticRegression,
    "softmax": SparseSoftmaxRegression,
    "squared_hinge": SparseSVC,
    "hinge": partial(SparseSVC, loss="hinge"),
    "poisson": SparsePoissonRegression,
}
# Limits of a path that was asked for without any.
MOST_KAPPAS = 50


@dataclass(frozen=True)
class Path:
    """Models for every gamma and every rising limit.

    Parameters
    ----------
    kappas : ndarray (K,)
    gammas : ndarray (G,)
    coefs : ndarray (G, K, p, c)
        Coefficients in the units of X, a column for each output.
    intercepts : ndarray (G, K, c)
    objectives, lower_bounds : ndarray (G, K)
        Summed over independent targets. No model within the limit has an objective below the bound.
    feature_names : ndarray (p,) or None
    loss : str
    seconds : float
    samples : int
    settings : dict
        `fit_intercept`, `standardize` and `sparsity`, as they were asked for.
    classes : ndarray or None
        The labels, where the outputs are classes.
    surroundings : dict of str
        Where it was fitted.
    schema : Schema or None
        What files told about their columns.
    ended : Status or None
        Why the iteration or the search ended before it was done, if it did: a limit, or somebody asked for it.
    """

    kappas: np.ndarray
    gammas: np.ndarray
    coefs: np.ndarray
    intercepts: np.ndarray
    objectives: np.ndarray
    lower_bounds: np.ndarray
    feature_names: np.ndarray | None
    loss: str
    seconds: float
    samples: int
    settings: dict[str, Any]
    classes: np.ndarray | None
    surroundings: dict[str, str]
    schema: Schema | None = None
    ended: Status | None = None

    @property
    def gaps(self) -> np.ndarray:
        """``(objective - lower bound) / |objective|`` for every gamma and limit."""
        apart = self.objectives - self.lower_bounds
        size = np.maximum(np.abs(self.objectives), np.finfo(float).tiny)
        return np.where(apart == 0, 0.0, apart / size)

    def support(self, kappa: int, gamma: float | None = None) -> np.ndarray:
        """Sorted indices of the features with a nonzero coefficient at a limit."""
        return np.flatnonzero(np.any(self.coef(kappa, gamma) != 0, axis=1))

    def coef(self, kappa: int, gamma: float | None = None) -> np.ndarray:
        """Coefficients ``(p, c)`` at a limit; `gamma` may be left out if there is only one."""
        return self.coefs[self._at(kappa, gamma)]

    def intercept(self, kappa: int, gamma: float | None = None) -> np.ndarray:
        """Intercepts ``(c,)`` at a limit."""
        return self.intercepts[self._at(kappa, gamma)]

    def _at(self, kappa: int, gamma: float | None) -> tuple[int, int]:
        if gamma is None and len(self.gammas) > 1:
            raise ValueError(
                f"gamma: the path has {len(self.gammas)} of them; say which, one of {self.gammas.tolist()}"
            )
        place = np.flatnonzero(self.kappas == kappa)
        if not len(place):
            raise ValueError(f"kappa={kappa!r} is not on the path; use one of {self.kappas.tolist()}")
        row = np.array([0]) if gamma is None else np.flatnonzero(self.gammas == gamma)
        if not len(row):
            raise ValueError(f"gamma={gamma!r} is not on the path; use one of {self.gammas.tolist()}")
        return int(row[0]), int(place[0])

    def rows(self) -> list[dict[str, Any]]:
        """A line for every gamma and limit."""
        found = []
        for g, gamma in enumerate(self.gammas.tolist()):
            for k, kappa in enumerate(self.kappas.tolist()):
                used = np.flatnonzero(np.any(self.coefs[g, k] != 0, axis=1))
                names = used.tolist() if self.feature_names is None else self.feature_names[used].tolist()
                numbers = self.objectives[g, k], self.lower_bounds[g, k], self.gaps[g, k]
                found.append(
                    {"gamma": gamma, "kappa": kappa}
                    | dict(zip(("objective", "lower_bound", "gap"), map(float, numbers), strict=True))
                    | {"features": names}
                )
        return found

    def to_frame(self) -> Any:
        """The same as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("a table needs pandas: pip install pandas; `rows()` gives plain lists") from None
        return pd.DataFrame(self.rows())

    def __str__(self) -> str:
        lines = [
            f"Sparse {self.loss} path: {len(self.kappas)} limits, {len(self.gammas)} gamma(s), {self.seconds:.2f} s"
        ]
        lines.append(f"{'gamma':>10} {'kappa':>7} {'objective':>14} {'gap':>9}")
        rows = self.rows()
        shown = rows if len(rows) <= 20 else [rows[k] for k in np.linspace(0, len(rows) - 1, 20).round().astype(int)]
        for row in shown:
            lines.append(f"{row['gamma']:>10.4g} {row['kappa']:>7} {row['objective']:>14.6g} {row['gap']:>9.2g}")
        if self.ended is not None:
            lines.append(f"  status     {self.ended.name}: {self.ended.value}")
        return "\n".join(lines)


def sparse_path(
    X: Any,
    y: Any = None,
    kappas: Iterable[int] | None = None,
    *,
    gammas: float | Sequence[float] = 1.0,
    loss: str = "squared",
    sample_weight: Any = None,
    target: str | int | None = None,
    fit_intercept: bool = True,
    standardize: bool = False,
    sparsity: Sparsity = "element",
    solver: BiCADMM | None = None,
    grid: GridSpec | None = None,
    certify: bool = True,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Path:
    """Fit models for many limits on the nonzero coefficients at once.

    A larger limit never has a worse objective.

    Parameters
    ----------
    X, y, sample_weight, target :
        As in `SparseModel.fit`: arrays, tables, tensors, sparse matrices or files.
    kappas : iterable of int, optional
        The limits; by default 1, 2, ... up to the number of features, 50 at most.
    gammas : float or sequence of float, default=1.0
        Inverse weights of the ridge; each has a path of its own.
    loss : {"squared", "huber", "logistic", "softmax", "squared_hinge", "hinge", "poisson"}
        The loss; "logistic" becomes softmax for more than two classes.
    fit_intercept, standardize, sparsity, solver, grid, certify, verbose, callback :
        As in the estimators. The solver's exact mode and checkpoints do not apply to paths. A path that is asked to
        stop refits and returns what it has, and says so.

    Returns
    -------
    Path
        Coefficients, objectives and bounds for every limit.
    """
    began = time.perf_counter()
    model = model_for(loss)
    model.set_params(
        fit_intercept=fit_intercept,
        standardize=standardize,
        sparsity=sparsity,
        solver=solver,
        grid=grid,
        certify=certify,
        verbose=verbose,
        callback=callback,
    )
    ridges = ridges_of(gammas)
    posed = model._posed(X, y, sample_weight, target)
    limits = limits_of(kappas, posed)
    watched = verbose > 0
    speaks = watched and posed.grid.world.rank == 0
    with shown(speaks, callback) as told:
        paths = solve_path(
            posed.problem,
            posed.source,
            limits,
            ridges,
            solver,
            posed.grid,
            certify,
            callback=told,
            keyboard=watched,
        )
    path = Path(
        kappas=np.array(limits),
        gammas=np.array(ridges),
        coefs=np.stack([path.coefs for path in paths]),
        intercepts=np.stack([path.intercepts for path in paths]),
        objectives=np.stack([path.objectives for path in paths]),
        lower_bounds=np.stack([path.lower_bounds for path in paths]),
        feature_names=getattr(model, "feature_names_in_", None),
        loss=posed.problem.loss.name,
        seconds=time.perf_counter() - began,
        samples=int(summed(posed.grid, np.array([len(posed.y)]))[0]),
        settings={"fit_intercept": fit_intercept, "standardize": standardize, "sparsity": sparsity},
        classes=getattr(model, "classes_", None),
        surroundings=model._surroundings,
        schema=model._schema,
        ended=next((points.ended for points in paths if points.ended is not None), None),
    )
    if speaks:
        print(path)
    if not (path.gaps <= CLOSED_GAP).all():
        warn_of(concerns_of_parts([[points] for points in paths], "paths"), posed.grid)
    return path


def model_for(loss: str) -> SparseModel:
    """An estimator that reads targets for this loss."""
    return LOSSES[one_of(*LOSSES)("loss", loss)]()


def limits_of(kappas: Iterable[int] | None, posed: Posed) -> tuple[int, ...]:
    """The limits, rising; by default the first ones."""
    items = posed.problem.items(posed.source.matrix.shape[1], posed.source.outputs)
    return check_kappas(range(1, min(items.size, MOST_KAPPAS) + 1) if kappas is None else kappas, items)


def ridges_of(gammas: float | Sequence[float]) -> list[float]:
    """The gammas as a list."""
    given = GAMMAS("gammas", gammas)
    return given if isinstance(given, list) else [given]
