"""The registry of losses for estimators, paths, commands, model files and reports: one entry for each loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psfit.common.arguments import one_of
from psfit.estimators.targets import Amounts, Counts, Labels, LogitLabels, Numbers, Target, Totals
from psfit.losses import Gamma, Hinge, Huber, Logistic, Loss, Poisson, Softmax, Squared, SquaredHinge, Tweedie


@dataclass(frozen=True)
class Entry:
    """A loss in the estimators.

    Parameters
    ----------
    loss : type of Loss
        The class; reports and criteria use its attributes.
    target : type of Target
        How y is read, and how predictors become predictions.
    estimator : str
        The estimator that fits it. If the estimator has a parameter `loss`, the name of the loss is one of its values.
    parameters : dict of str, optional
        Fields of the loss, each with the parameter of the estimator that sets it.
    several : str or None
        The loss that is used instead for more than two classes.
    """

    loss: type[Loss]
    target: type[Target]
    estimator: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    several: str | None = None

    def make(self, parameters: Mapping[str, Any]) -> Loss:
        """The loss, with its fields set from the parameters of an estimator."""
        given = {name: parameters[source] for name, source in self.parameters.items() if source in parameters}
        return self.loss(**{name: float(value) for name, value in given.items()})


LOSSES: dict[str, Entry] = {
    entry.loss.name: entry
    for entry in (
        Entry(Squared, Numbers, "SparseLinearRegression"),
        Entry(Huber, Numbers, "SparseLinearRegression", {"delta": "huber_delta"}),
        Entry(Logistic, LogitLabels, "SparseLogisticRegression", several="softmax"),
        Entry(Softmax, LogitLabels, "SparseSoftmaxRegression"),
        Entry(SquaredHinge, Labels, "SparseSVC"),
        Entry(Hinge, Labels, "SparseSVC"),
        Entry(Poisson, Counts, "SparsePoissonRegression"),
        Entry(Gamma, Amounts, "SparseGammaRegression"),
        Entry(Tweedie, Totals, "SparseTweedieRegression", {"power": "power"}),
    )
}
BUILT_IN = tuple(LOSSES)


def register(entry: Entry) -> None:
    """Add a loss by its name, or replace an earlier one of that name; a built-in loss cannot be replaced."""
    name = entry.loss.name
    if name in BUILT_IN:
        raise ValueError(f"{name!r} is the name of a built-in loss; give yours another name")
    LOSSES[name] = entry


def check_loss(name: Any) -> str:
    """The name of a registered loss, or an error that lists them."""
    return str(one_of(*LOSSES)("loss", name))


def losses_of(estimator: str) -> list[str]:
    """The names of the losses that an estimator fits; a ``...CV`` estimator fits those of the plain one."""
    plain = estimator.removesuffix("CV")
    return [name for name, entry in LOSSES.items() if entry.estimator == plain]


def entry_for(name: str, target: Target) -> Entry:
    """The entry of a loss for these targets: for more than two classes another loss may take its place."""
    entry = LOSSES[name]
    if entry.several is not None and isinstance(target, Labels) and len(target.classes) > 2:
        return LOSSES[entry.several]
    return entry
