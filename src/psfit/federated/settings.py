"""How the server treats clients, and how a run ended."""

from dataclasses import asdict, dataclass, field
from typing import Any

from psfit.federated.contacts import Exchanged
from psfit.federated.masks import FEWEST_CLIENTS


@dataclass(frozen=True)
class ServerSettings:
    """How the server treats clients.

    Parameters
    ----------
    secure : bool, default=True
        Whether updates are masked.
    min_clients : int, default=3
        The fewest clients of a sum.
    timeout : float, default=60
        Seconds to wait for late clients in sums of iterates, which go on without them.
    patience : float, default=3600
        Seconds to wait for clients where a sum needs all of them, and at the start. After that they have left.
    """

    secure: bool = True
    min_clients: int = FEWEST_CLIENTS
    timeout: float = 60.0
    patience: float = 3600.0

    def __post_init__(self) -> None:
        if self.secure and self.min_clients < FEWEST_CLIENTS:
            raise ValueError(
                f"min_clients={self.min_clients}: secure sums need at least {FEWEST_CLIENTS}; "
                "from a sum over two, each of them can compute the other's numbers"
            )
        if self.min_clients < 1 or not 0 < self.timeout <= self.patience:
            raise ValueError("min_clients must be at least 1, and 0 < timeout <= patience")


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the file of the model, what clients exchanged, the number of sums, and what happened to whom.

    `clients` are those whose samples the answer belongs to; `left` are those that left, whose samples do not count.
    `privacy` holds epsilon, delta and clip of differential privacy, if the job asked for it. `answers` are those to
    the questions of the job, as JSON can hold them.
    """

    model: bytes
    clients: tuple[str, ...]
    left: tuple[str, ...]
    exchanged: dict[str, Exchanged]
    sums: int
    absences: list[str] = field(default_factory=list)
    privacy: dict[str, float] | None = None
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_facts(self) -> dict[str, Any]:
        """All but the model and the answers, as JSON can hold it."""
        return {
            "clients": list(self.clients),
            "left": list(self.left),
            "sums": self.sums,
            "exchanged": {name: asdict(one) for name, one in self.exchanged.items()},
            "absences": self.absences,
            "privacy": self.privacy,
        }
