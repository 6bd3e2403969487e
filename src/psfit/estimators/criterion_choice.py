"""The choice of a limit by an information criterion, from one path over all samples."""

import numpy as np
import torch

from psfit.common.progress import Callback
from psfit.estimators.choice import Candidates, Choice
from psfit.estimators.criteria import criterion_values
from psfit.estimators.posing import Posed
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.results.selection import Selection
from psfit.estimators.scores import stack_models
from psfit.estimators.stopping import stop_choice, was_stopped, watch_choice
from psfit.estimators.warning import count_unfinished
from psfit.pipeline.path import solve_path
from psfit.pipeline.subsamples import Subsamples, loss_sums

# If this many samples or more have a smaller total weight, the weights are not counts but shares that sum to one.
LEAST_WEIGHT = 3.0


def choose_by_criterion(posed: Posed, candidates: Candidates, criterion: str, callback: Callback | None) -> Choice:
    """Choose by a criterion for every model of one path."""
    problem, source, grid = posed.problem, posed.source, posed.grid
    kappas, gammas = candidates.kappas, candidates.gammas
    if not problem.loss.likelihood:
        raise ValueError(
            f"criterion={criterion!r} needs a likelihood, and the {problem.loss.name} loss is not one; use 'cv'"
        )
    all_samples = torch.ones(1, source.matrix.shape[0], dtype=torch.bool)
    # The path and the fit after it share one form of the samples.
    raw = Subsamples.of(problem, source, grid, all_samples, candidates.solver).whole
    watch = watch_choice(grid, candidates.solver)
    paths = solve_path(
        problem,
        source,
        kappas,
        gammas,
        candidates.solver,
        grid,
        certify=False,
        raw=raw,
        callback=callback,
        received=watch.signals,
    )
    coefs, intercepts = stack_models([paths])
    sums, weights = loss_sums(problem, source, grid, all_samples, coefs, intercepts)
    _require_counts(posed, float(weights[0]), criterion)
    items = problem.items(source.matrix.shape[1], source.outputs)
    packed = torch.stack([items.pack(Z) != 0 for Z in coefs[0]]).sum(dim=2).numpy()
    free = (coefs[0] != 0).sum(dim=(1, 2)).numpy() + items.outputs * items.free
    values = criterion_values(criterion, problem.loss, sums[0].numpy(), float(weights[0]), packed, free, items.size)
    scores = -values.reshape(len(gammas), len(kappas))
    selection = Selection.of(kappas, gammas, scores, None, criterion.upper(), False)
    if was_stopped(paths):
        raise stop_choice(watch, grid, "during the path", "from searches that are not complete", selection)
    return Choice(selection, count_unfinished([[points] for points in paths], "paths"), raw=raw)


def _require_counts(posed: Posed, weight: float, criterion: str) -> None:
    """Refuse weights that cannot be counts of samples."""
    nonzero = sum_over_nodes(posed.grid, np.array([np.count_nonzero(posed.weights)]))[0]
    if weight < LEAST_WEIGHT <= nonzero:
        raise ValueError(
            f"sample_weight sums to {weight:.3g}: criterion={criterion!r} reads weights as counts of samples; scale "
            "them so that they sum to their number"
        )
