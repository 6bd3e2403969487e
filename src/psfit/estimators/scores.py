"""Scores of many models on samples that were not used to fit them."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.common.names import suggest_name
from psfit.estimators.folds import Folds
from psfit.estimators.posing import Posed
from psfit.estimators.predictors import Predictions
from psfit.estimators.reading import sum_over_nodes
from psfit.pipeline.subsamples import loss_sums, predictors


def find_scorer(scoring: Any) -> Any:
    """scikit-learn's scorer of that name, or None."""
    if scoring is None:
        return None
    from sklearn.metrics import check_scoring, get_scorer_names

    if isinstance(scoring, str) and scoring not in get_scorer_names():
        meant = suggest_name(scoring, get_scorer_names())
        known = ", ".join(get_scorer_names())
        raise ValueError(f"scoring={scoring!r} is not a scorer of scikit-learn{meant}; it has {known}")
    return check_scoring(None, scoring=scoring)


def score_held_out(scorer: Any, posed: Posed, folds: Folds, coefs: Tensor, intercepts: Tensor) -> np.ndarray:
    """Scores ``(S, J)`` of the models ``coefs (S, J, p, c)`` and ``intercepts (S, J, c)`` of each split.

    Without a scorer the score is minus the mean loss; only its sums leave a node. A scorer gets the samples of one node
    at a time; only its score times the weight of these samples leaves the node.
    """
    if scorer is None:
        sums, weights = loss_sums(posed.problem, posed.source, posed.grid, folds.test, coefs, intercepts)
        return np.asarray((-sums.mean(dim=2) / weights.unsqueeze(1)).numpy())
    held_out, weighted = _predictors(posed, folds, coefs, intercepts), posed.weighted
    local = posed.grid.run_together(lambda: _score(scorer, posed, weighted, folds, held_out))
    total = sum_over_nodes(posed.grid, local)
    return np.asarray(total[:, :-1] / total[:, -1:])


def _predictors(posed: Posed, folds: Folds, coefs: Tensor, intercepts: Tensor) -> list[np.ndarray]:
    """For each split the predictors ``(h, J, c)`` of its test samples, in their order, with their offsets."""
    found: list[list[np.ndarray]] = [[] for _ in folds.test]
    for split, rows, eta in predictors(posed.source, folds.test, coefs, intercepts):
        offset = 0.0 if posed.offset is None else posed.offset[rows.cpu().numpy()][:, None]
        found[split].append(eta.cpu().numpy() + offset)
    empty = np.zeros((0, coefs.shape[1], coefs.shape[3]))
    return [np.concatenate(parts) if parts else empty for parts in found]


def _score(scorer: Any, posed: Posed, weighted: bool, folds: Folds, held_out: list[np.ndarray]) -> np.ndarray:
    """For each split the models' scores times the weights of their samples, summed over the nodes hosted here; and the
    sum of these weights.
    """
    target = posed.learned.target
    bounds = posed.source.split(len(posed.grid.nodes.hosted)).bounds
    total = np.zeros((len(held_out), held_out[0].shape[1] + 1))
    for split, values in enumerate(held_out):
        rows = np.flatnonzero(folds.test[split].cpu().numpy())
        for start, stop in pairwise(np.searchsorted(rows, bounds)):
            at = rows[start:stop]
            weight = posed.weights[at].sum()
            if not weight > 0:
                continue
            extra = {"sample_weight": posed.weights[at]} if weighted else {}
            try:
                scores = [
                    float(scorer(Predictions(target, values[start:stop, j]), None, posed.y[at], **extra))
                    for j in range(values.shape[1])
                ]
            except (TypeError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"scoring failed on {len(at)} held-out samples of a node ({error}); scorers see predictions, "
                    "targets and sample weights only. scoring=None, minus the mean loss, always works"
                ) from error
            total[split] += weight * np.array([*scores, 1.0])
    return total


def stack_models(paths: list[list[Any]]) -> tuple[Tensor, Tensor]:
    """Coefficients ``(S, J, p, c)`` and intercepts ``(S, J, c)`` from paths: each split has one path for each gamma."""
    coefs = np.stack([np.concatenate([points.coefs for points in path]) for path in paths])
    intercepts = np.stack([np.concatenate([points.intercepts for points in path]) for path in paths])
    return torch.from_numpy(coefs), torch.from_numpy(intercepts)
