"""What a federation computes: an estimator with its arguments, and the facts about the data that are agreed before."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from psfit import estimators
from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Axis, Communicator, Grid, Serial
from psfit.estimators.model import SparseModel

# Arguments that belong to one machine.
LOCAL_ARGUMENTS = {"grid", "callback", "verbose", "warm_start"}
LOCAL_SETTINGS = {"checkpoint", "time_limit", "interruptible", "local"}


class JobError(ValueError):
    """A job cannot be done."""


@dataclass(frozen=True)
class Job:
    """An estimator, its arguments, the columns of X in order, the target, and the classes of a classifier.

    Parameters
    ----------
    estimator : str
        The name of an estimator of PsFiT, such as ``"SparseLogisticRegression"`` or ``"SparseLinearRegressionCV"``.
    arguments : dict
        Its arguments; ``solver`` is a dict of the arguments of BiCADMM.
    columns : list of str, optional
        Names of the columns of X. Each client must have all of them, and uses them in this order.
    target : str, optional
        Name of the target, for clients that read files.
    classes : list, optional
        All labels of a classifier. Needed, because clients do not show which labels they have.
    """

    estimator: str
    arguments: dict[str, Any] = field(default_factory=dict)
    columns: list[str] | None = None
    target: str | None = None
    classes: list[Any] | None = None

    def __post_init__(self) -> None:
        kind = getattr(estimators, self.estimator, None) if isinstance(self.estimator, str) else None
        if not (isinstance(kind, type) and issubclass(kind, SparseModel)):
            raise JobError(f"estimator={self.estimator!r} is no estimator of PsFiT; try 'SparseLinearRegression'")
        solver = self.arguments.get("solver") or {}
        local = (LOCAL_ARGUMENTS & set(self.arguments)) | (LOCAL_SETTINGS & set(solver))
        if local:
            raise JobError(f"{', '.join(sorted(local))}: these arguments belong to one machine, not to a federation")
        if self.is_classifier and not self.classes:
            raise JobError("classes: a classifier needs the list of all labels, because clients do not show theirs")

    @property
    def is_classifier(self) -> bool:
        """Whether the targets are labels."""
        return "Regression" not in self.estimator or "Logistic" in self.estimator or "Softmax" in self.estimator

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "Job":
        """The job in facts that JSON can hold."""
        try:
            return cls(**facts)
        except TypeError:
            raise JobError(f"a job has the fields {', '.join(cls.__dataclass_fields__)}") from None

    @classmethod
    def load(cls, path: Path) -> "Job":
        """Read a job from a JSON file."""
        try:
            facts = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise JobError(f"{path} cannot be read as JSON: {error}") from None
        return cls.from_facts(facts)

    def as_facts(self) -> dict[str, Any]:
        """The job as JSON can hold it."""
        return asdict(self)

    def fit(self, data: "LocalData", world: Communicator) -> SparseModel:
        """Fit the estimator to this client's samples together with the other clients."""
        arguments = dict(self.arguments)
        if arguments.get("solver") is not None:
            arguments["solver"] = BiCADMM(**arguments["solver"])
        model: SparseModel = getattr(estimators, self.estimator)(**arguments, grid=make_grid(world))
        return model.fit(data.X, data.y, sample_weight=data.weight)


@dataclass(frozen=True)
class LocalData:
    """The samples of one client, which never leave it."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None = None


def make_grid(world: Communicator) -> Grid:
    """The grid whose nodes are the clients."""
    inside = Serial()
    inside.traffic = world.traffic
    return Grid(Axis(world.size, world), Axis(1, inside), world, torch.device("cpu"), None)
