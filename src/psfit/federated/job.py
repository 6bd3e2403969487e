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
from psfit.federated.moments import pool_moments
from psfit.federated.privacy import Privacy
from psfit.federated.questions import Found, Samples, answer, object_to

# Arguments that belong to one machine.
LOCAL_ARGUMENTS = {"grid", "callback", "verbose", "warm_start"}
LOCAL_SETTINGS = {"checkpoint", "time_limit", "interruptible", "local"}


class JobError(ValueError):
    """A job cannot be done."""


@dataclass(frozen=True)
class Job:
    """An estimator, its arguments, the columns of X in order, the target, the classes of a classifier, and questions.

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
    pooled : bool, default=False
        Squared loss only: sum the products of all columns once, and nothing else.
    privacy : dict, optional
        ``epsilon``, ``delta`` and ``clip`` of the differential privacy of a pooled fit; see `Privacy`.
    weight, offset : str, optional
        Names of the columns with sample weights and offsets, for clients that read files.
    questions : dict, optional
        Asked after the fit, in the same run: ``"path"``, ``"stability"`` or ``"near_optimal"``, each with a dict of
        arguments of `psfit.sparse_path`, `psfit.stability_selection` or `psfit.near_optimal`. Arguments that these
        share with the estimator are taken from it.
    """

    estimator: str
    arguments: dict[str, Any] = field(default_factory=dict)
    columns: list[str] | None = None
    target: str | None = None
    classes: list[Any] | None = None
    pooled: bool = False
    privacy: dict[str, float] | None = None
    weight: str | None = None
    offset: str | None = None
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind = getattr(estimators, self.estimator, None) if isinstance(self.estimator, str) else None
        if not (isinstance(kind, type) and issubclass(kind, SparseModel)):
            raise JobError(f"estimator={self.estimator!r} is no estimator of PsFiT; try 'SparseLinearRegression'")
        self._require_json()
        solver = self.arguments.get("solver") or {}
        local = (LOCAL_ARGUMENTS & set(self.arguments)) | (LOCAL_SETTINGS & set(solver))
        if local:
            raise JobError(f"{', '.join(sorted(local))}: these arguments belong to one machine, not to a federation")
        if self.is_classifier and not self.classes:
            raise JobError("classes: a classifier needs the list of all labels, because clients do not show theirs")
        if self.pooled and (
            self.estimator != "SparseLinearRegression" or self.arguments.get("loss", "squared") != "squared"
        ):
            raise JobError("pooled: products of columns contain the problem of SparseLinearRegression alone")
        self._make_model(None)
        objection = object_to(self.questions, self.pooled)
        if objection is not None:
            raise JobError(f"questions: {objection}")
        if self.privacy is not None and not self.pooled:
            raise JobError(
                "privacy: noise is added to the pooled products of SparseLinearRegression with the squared loss, so it "
                "needs pooled=true; other fits would need noise in every message, and there is no such option"
            )
        if self.privacy is not None and set(self.privacy) != {"epsilon", "delta", "clip"}:
            raise JobError("privacy: give epsilon, delta and clip, and nothing else")

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

    def make_privacy(self, fewest: int) -> Privacy | None:
        """The promise of the job, kept by the noise of any `fewest` clients."""
        return None if self.privacy is None else Privacy.calibrate(**self.privacy, fewest=fewest)

    def work(self, data: "LocalData", world: Communicator, fewest: int) -> "Answer":
        """Fit the estimator to this client's samples together with the other clients, and answer the questions."""
        own = self._pool(data, world, fewest) if self.pooled else self._place(data, world)
        model = self._make_model(own.grid)
        model.fit(own.X, own.y, sample_weight=own.weight, offset=own.offset)
        shared = self.arguments | {"solver": model.solver}
        found = {kind: answer(kind, asked, model, shared, own) for kind, asked in self.questions.items()}
        return Answer(model, found)

    def _make_model(self, grid: Grid | None) -> SparseModel:
        """The estimator; refuses arguments that break its rules."""
        arguments = dict(self.arguments)
        try:
            if arguments.get("solver") is not None:
                arguments["solver"] = BiCADMM(**arguments["solver"])
            model: SparseModel = getattr(estimators, self.estimator)(**arguments, grid=grid)
            rules = model._rules()
            for name, value in model.get_params(deep=False).items():
                rules[name](name, value)
        except (TypeError, ValueError) as error:
            raise JobError(f"arguments: {error}") from None
        return model

    def _require_json(self) -> None:
        """Refuse what would be something else after its travel as JSON."""
        try:
            travelled = json.loads(json.dumps(self.as_facts()))
        except (TypeError, ValueError) as error:
            raise JobError(f"a job travels as JSON, so it holds lists, numbers and texts only: {error}") from None
        if travelled != self.as_facts():
            raise JobError("a job travels as JSON: use lists in place of tuples, and names of columns as keys")

    def _place(self, data: "LocalData", world: Communicator) -> Samples:
        return Samples(self._name_columns(data.X), data.y, data.weight, data.offset, make_grid(world))

    def _pool(self, data: "LocalData", world: Communicator, fewest: int) -> Samples:
        """The samples that have the products of all clients' samples."""
        if data.offset is not None:
            raise JobError("offset: pooled products have no offset; subtract it from y, which is the same")
        X, y, weight = pool_moments(data.X, data.y, data.weight, world, self.make_privacy(fewest)).make_samples()
        return Samples(self._name_columns(X), y, weight, None, None)

    def _name_columns(self, X: Any) -> Any:
        """The columns with their names, so that the model knows them; tables and sparse matrices stay as they are."""
        if self.columns is None or not isinstance(X, np.ndarray):
            return X
        import pyarrow as pa

        return pa.table(dict(zip(self.columns, X.T, strict=True)))


@dataclass(frozen=True)
class Answer:
    """What a client has found: the model, and the answers to the questions of the job."""

    model: SparseModel
    found: dict[str, Found]


@dataclass(frozen=True)
class LocalData:
    """The samples of one client, which never leave it."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None = None
    offset: np.ndarray | None = None


def make_grid(world: Communicator) -> Grid:
    """The grid whose nodes are the clients."""
    inside = Serial()
    inside.traffic = world.traffic
    return Grid(Axis(world.size, world), Axis(1, inside), world, torch.device("cpu"), None)
