"""Pictures of a model's predictions on labelled samples: predicted against actual, ROC curve, calibration."""

from typing import Any

import numpy as np

from psfit.comm import GridSpec
from psfit.estimators.labelled import predict_labelled
from psfit.estimators.model import SparseModel
from psfit.estimators.posing import Given
from psfit.estimators.targets import Labels
from psfit.reporting.drawing import label_of, pyplot

COLOR, REFERENCE = "#3b7dd8", "#888888"
BINS = 10


def plot_predictions(
    model: SparseModel, X: Any, y: Any = None, *, target: str | None = None, offset: Any = None, ax: Any = None
) -> Any:
    """Predicted against actual numbers; points on the line are right.

    Parameters
    ----------
    model : a fitted estimator of numbers
    X, y, target, offset :
        Labelled samples, as for `fit`.
    ax : matplotlib axes, optional
    """
    actual, predictors, learned = _read(model, Given(X, y, None, target, offset))
    if isinstance(learned, Labels):
        raise ValueError("plot_predictions is for numbers; for classes use plot_roc or plot_calibration")
    predicted = np.asarray(learned.predict(predictors)).reshape(len(actual), -1)
    axes = _axes(ax)
    axes.scatter(np.reshape(actual, predicted.shape), predicted, s=12, alpha=0.6, color=COLOR, lw=0)
    ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
    axes.plot(ends, ends, color=REFERENCE, lw=1, ls="--")
    axes.set_xlabel(f"actual{_name(model)}")
    axes.set_ylabel(f"predicted{_name(model)}")
    return axes


def plot_roc(
    model: SparseModel, X: Any, y: Any = None, *, target: str | None = None, offset: Any = None, ax: Any = None
) -> Any:
    """The ROC curve of a model of two classes, with the area below it; the parameters are those of the others."""
    from sklearn.metrics import roc_auc_score, roc_curve

    actual, predictors, learned = _read_two_classes(model, Given(X, y, None, target, offset), "plot_roc")
    decided = learned.decide(predictors)
    false, true, _ = roc_curve(actual, decided)
    axes = _axes(ax)
    axes.plot(false, true, color=COLOR, label=f"area {roc_auc_score(actual, decided):.3f}")
    axes.plot([0, 1], [0, 1], color=REFERENCE, lw=1, ls="--")
    axes.set_xlabel("share of false alarms")
    axes.set_ylabel(f"share of class {label_of(learned.classes[1])} that is found")
    axes.legend(loc="lower right")
    return axes


def plot_calibration(
    model: SparseModel, X: Any, y: Any = None, *, target: str | None = None, offset: Any = None, ax: Any = None
) -> Any:
    """How often the second class occurs, against its predicted probability; points on the line are right."""
    actual, predictors, learned = _read_two_classes(model, Given(X, y, None, target, offset), "plot_calibration")
    if not hasattr(learned, "probabilities"):
        raise ValueError(f"plot_calibration: {type(model).__name__} has no probabilities")
    share = learned.probabilities(predictors)[:, 1]
    edges = np.unique(np.quantile(share, np.linspace(0, 1, BINS + 1)))
    place = np.clip(np.searchsorted(edges, share, side="right") - 1, 0, max(len(edges) - 2, 0))
    groups = [place == k for k in np.unique(place)]
    axes = _axes(ax)
    axes.plot([share[at].mean() for at in groups], [actual[at].mean() for at in groups], "o-", color=COLOR)
    axes.plot([0, 1], [0, 1], color=REFERENCE, lw=1, ls="--")
    axes.set_xlabel(f"predicted probability of class {label_of(learned.classes[1])}")
    axes.set_ylabel("share in the samples")
    return axes


def _read(model: SparseModel, given: Given) -> tuple[np.ndarray, np.ndarray, Any]:
    """The targets of labelled samples, their predictors, and the target of the fit."""
    grid = GridSpec(backend="serial", device="cpu").build()
    actual, predictors, _, _ = predict_labelled(model, given, grid)
    return actual, predictors, model.learned_.target


def _read_two_classes(model: SparseModel, given: Given, owner: str) -> tuple[np.ndarray, np.ndarray, Any]:
    actual, predictors, learned = _read(model, given)
    if not isinstance(learned, Labels) or len(learned.classes) != 2:
        raise ValueError(f"{owner} is for models of two classes")
    second = np.asarray(actual == learned.classes[1])
    if second.all() or not second.any():
        raise ValueError(f"{owner} needs samples of both classes; all of these are {actual[0]!r}")
    return second, predictors, learned


def _axes(ax: Any) -> Any:
    return ax if ax is not None else pyplot().subplots(figsize=(4.8, 4.4), layout="constrained")[1]


def _name(model: SparseModel) -> str:
    name = model.learned_.target_name
    return "" if name is None else f" {label_of(name)}"
