"""`near_optimal`: all models that are nearly as good as a fitted one."""

import time
from dataclasses import replace
from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted

from psfit.common.arguments import describe, integer, number
from psfit.common.progress import Callback
from psfit.estimators.display import show_progress
from psfit.estimators.model import SparseModel
from psfit.estimators.offsets import choose_offset
from psfit.estimators.posing import Given, Posed
from psfit.estimators.reading import as_source
from psfit.estimators.results import NearOptimal
from psfit.pipeline.near_optimal import find_close_supports

WITHIN = number("a number of at least 0", lambda value: 0 <= value < float("inf"))
AT_MOST = integer(1)


def near_optimal(
    model: SparseModel,
    X: Any,
    y: Any = None,
    within: float = 0.01,
    at_most: int = 10_000,
    *,
    sample_weight: Any = None,
    target: str | int | None = None,
    offset: Any = None,
    time_limit: float | None = None,
    verbose: int = 0,
    callback: Callback | None = None,
) -> NearOptimal:
    """List every support whose objective is at most ``(1 + within)`` times the best, and prove that none is missing.

    The tree of exact mode is searched with a larger limit on the objective. Supports have exactly kappa items, and obey
    the constraints of the model. If a better support than that of the model turns up, it counts as the best.

    Parameters
    ----------
    model : estimator
        A fitted model of one target, or of several targets with `sparsity="feature"`.
    X, y, sample_weight, target, offset :
        The samples that it was fitted to, as in `SparseModel.fit`.
    within : float, default=0.01
        How much higher an objective may be, as a share of the best.
    at_most : int, default=10000
        The most supports that are listed.
    time_limit : float, optional
        Seconds; by default that of the model's solver.
    verbose : int, default=0
        1 shows the progress.
    callback : callable or None
        Called with a `psfit.Progress`; if it returns True, the search ends with what was found.

    Returns
    -------
    NearOptimal
        The supports; and if the search ended early, a lower bound of those that were not looked at.
    """
    start_time = time.perf_counter()
    within, at_most = WITHIN("within", within), int(AT_MOST("at_most", at_most))
    check_is_fitted(model)
    source = as_source(X, y, sample_weight, target, offset)
    chosen = choose_offset(model.learned_.offset, offset, source)
    # A file source that names its offset needs no other.
    offset = chosen if source is None or source.offset is None else offset
    posed = model._pose(Given(X, y, sample_weight, target, offset))
    _require_same_features(model, posed)
    result, problem = model.result_, posed.problem
    if len(result.kappa) != 1 or len(problem.kappa) != 1:
        raise ValueError(f"the model has {len(result.kappa)} independent targets; fit each of them alone")
    problem = replace(problem, kappa=result.kappa, gamma=result.gamma)
    solver = replace(model._make_solver(), exact=True, checkpoint=None)
    solver = solver if time_limit is None else replace(solver, time_limit=time_limit)
    answer = tuple(torch.from_numpy(part).to(posed.source.matrix.device) for part in (result.coef, result.intercept))
    with show_progress(verbose, posed.grid, callback) as report:
        found = find_close_supports(
            problem, posed.source, solver, posed.grid, (answer[0], answer[1]), result.objective, within, at_most, report
        )
    return NearOptimal(
        supports=found.supports,
        objectives=found.objectives,
        names=_name_items(model, posed, found.supports.shape[1]),
        within=within,
        cutoff=found.cutoff,
        lower_bound=found.lower,
        tree_nodes=found.explored,
        seconds=time.perf_counter() - start_time,
    )


def _require_same_features(model: SparseModel, posed: Posed) -> None:
    """Refuse samples with other features than those of the fit."""
    fitted, own = model.learned_.features.names, posed.learned.features.names
    count, given = len(model.result_.coef), posed.source.matrix.shape[1]
    lacking = [] if fitted is None or own is None else [name for name in fitted if name not in set(own)]
    if lacking:
        raise ValueError(
            f"the data lack {describe(lacking)}, which the model was fitted to; pass the samples of its fit"
        )
    if count != given:
        raise ValueError(f"the data have {given} features, but the model was fitted to {count}; pass those of its fit")
    if fitted is not None and own is not None and list(fitted) != list(own):
        raise ValueError("the features are in another order than in the fit; pass the columns in the order of the fit")


def _name_items(model: SparseModel, posed: Posed, size: int) -> list[str]:
    """The names of what is counted: of features or groups, for each class if classes have items of their own."""
    names = posed.learned.features.names
    p = posed.source.matrix.shape[1]
    columns = [f"feature {j}" for j in range(p)] if names is None else [str(name) for name in names]
    units = list(posed.constraints.group_names) or columns
    if size == len(units):
        return units
    labels = getattr(model, "classes_", range(size // len(units)))
    return [f"{unit} [{label}]" for unit in units for label in labels]
