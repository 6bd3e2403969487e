"""Intervals of coefficients that stay valid although the same data chose the features: data splitting.

One random half of the samples chooses the features by the whole procedure of the model. The other half, which had no
part in the choice, is fitted without a ridge on these features, and gives intervals for them as usual.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone

from psfit.estimators.constraints.arguments import CATEGORIES
from psfit.estimators.predictors import read_matrix
from psfit.estimators.reading import as_array
from psfit.estimators.registry import LOSSES

if TYPE_CHECKING:
    from psfit.estimators.model import SparseModel
    from psfit.losses import Loss

CAVEAT = (
    "Intervals come from data splitting: a random half of the samples chose features, the other half was fitted on "
    "them without a ridge. They are for the features that this half chose, and for the best linear model of these "
    "features alone; a feature that it did not choose has none. Another seed gives other halves and other intervals."
)
# Newton's method ends at this relative step. Without it after so many steps there is no finite optimum.
TOLERANCE, MOST_STEPS = 1e-10, 60
# Directions of the features with less than this share of the largest curvature cannot be estimated.
RANK = 1e-11

Interval = tuple[float, float]


def split_intervals(model: "SparseModel", X: Any, y: Any, level: float, seed: int | None) -> dict[int, Interval]:
    """The interval of each feature that the first half chose."""
    _require_served(model, level)
    features = model.learned_.features
    values = _dense(model, X)
    target = model.learned_.target.read(as_array(y), len(values))
    order = np.random.default_rng(seed).permutation(len(values))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    chooser = clone(model).set_params(verbose=0, callback=None, certify=False, grid=None)
    groups = _group_features(model)
    if groups:
        chooser.set_params(groups=groups)
    chooser.fit(_name_columns(values[first], features.names), target[first])
    support = chooser.support_
    loss = LOSSES[model.loss].make(model.get_params(deep=False))
    coded = chooser.learned_.target.encode(target[second], loss).astype(float)
    lower, upper = fit_intervals(values[second][:, support], coded, loss, model.fit_intercept, level)
    return {int(j): (float(a), float(b)) for j, a, b in zip(support, lower, upper, strict=True)}


def fit_intervals(
    values: np.ndarray, b: np.ndarray, loss: "Loss", fit_intercept: bool, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals ``(k,)`` of the coefficients of ``values (m, k)`` that minimise the losses, by the robust ("sandwich")
    estimate of their variances; infinite for what cannot be estimated.
    """
    from scipy.stats import t

    m, k = values.shape
    scales = np.where(values.std(axis=0) > 0, values.std(axis=0), 1.0)
    design = np.column_stack([values / scales, np.ones(m)][: 2 if fit_intercept else 1])
    free = m - design.shape[1]
    x = _minimise(design, b, loss) if free > 0 and k else None
    if x is None:
        return np.full(k, -np.inf), np.full(k, np.inf)
    gradient, curvature = _derivatives(design, x, b, loss)
    sizes, directions = np.linalg.eigh(design.T @ (curvature[:, None] * design))
    known = sizes > RANK * sizes[-1]
    inverse = (directions[:, known] / sizes[known]) @ directions[:, known].T
    spread = inverse @ (design * gradient[:, None]).T
    errors = np.sqrt(np.square(spread).sum(axis=1) * m / free)
    # A coefficient that can change along a direction without curvature is not determined.
    open_ = np.abs(directions[:, ~known]).max(axis=1, initial=0.0) > np.sqrt(RANK)
    width = np.where(open_, np.inf, t.ppf((1 + level) / 2, free) * errors)[:k]
    return (x[:k] - width) / scales, (x[:k] + width) / scales


def _minimise(design: np.ndarray, b: np.ndarray, loss: "Loss") -> np.ndarray | None:
    """Newton's method with halved steps; None if the losses have no finite minimum, as for classes that can be
    separated.
    """
    x = np.zeros(design.shape[1])
    value = _value(design, x, b, loss)
    for _ in range(MOST_STEPS):
        gradient, curvature = _derivatives(design, x, b, loss)
        step = -np.linalg.lstsq(design.T @ (curvature[:, None] * design), design.T @ gradient, rcond=RANK)[0]
        size = 1.0
        while not (trial := _value(design, x + size * step, b, loss)) <= value + TOLERANCE * abs(value):
            size /= 2
            if size < TOLERANCE:
                return None
        x, value = x + size * step, trial
        if np.abs(size * step).max() <= TOLERANCE**0.5 * (1e-3 + np.abs(x).max()):
            return x
    return None


def _value(design: np.ndarray, x: np.ndarray, b: np.ndarray, loss: "Loss") -> float:
    return float(loss.value(torch.from_numpy((design @ x)[:, None]), torch.from_numpy(b)).sum())


def _derivatives(design: np.ndarray, x: np.ndarray, b: np.ndarray, loss: "Loss") -> tuple[np.ndarray, np.ndarray]:
    eta, coded = torch.from_numpy((design @ x)[:, None]), torch.from_numpy(b)
    return loss.gradient(eta, coded).numpy()[:, 0], loss.curvature(eta, coded).numpy()[:, 0]


def _require_served(model: "SparseModel", level: float) -> None:
    loss, outputs = LOSSES[model.loss].loss, model.result_.coef.shape[1]
    if not loss.smooth or loss.name in ("huber", "squared_hinge") or outputs > 1:
        raise ValueError(
            f"y: there are no intervals for the {loss.name} loss with {outputs} output(s), only for squared, logistic, "
            "poisson, gamma and tweedie losses with one output; call it without y"
        )
    if model.learned_.offset:
        raise ValueError("y: there are no intervals for models with an offset; call it without y")
    if not 0 < level < 1:
        raise ValueError(f"level={level!r} must be between 0 and 1, such as 0.95")


def _dense(model: "SparseModel", X: Any) -> np.ndarray:
    """The features of the samples as the model makes them, in memory."""
    matrix = read_matrix(model, model.learned_.features, X)
    one = torch.eye(matrix.shape[1], dtype=torch.float64)
    return np.asarray(torch.cat([strip.mv(one) for _, strip in matrix.strips(torch.float64)]).numpy())


def _name_columns(values: np.ndarray, names: np.ndarray | None) -> Any:
    if names is None:
        return values
    import pandas as pd

    return pd.DataFrame(values, columns=names)


def _group_features(model: "SparseModel") -> Mapping[str, list[str]]:
    """The groups that the levels of categories make, as names: the halves are numbers, and have no categories."""
    features = model.learned_.features
    if features.schema is None or features.names is None or model.get_params(deep=False)["groups"] != CATEGORIES:
        return {}
    found: dict[str, list[str]] = {}
    names = [str(name) for name in features.names]
    for name, label in zip(names, features.schema.group_labels(names), strict=True):
        if label is not None and label not in features.schema.single:
            found.setdefault(label, []).append(name)
    return found
