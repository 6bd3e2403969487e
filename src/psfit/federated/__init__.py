"""Federated fits: the data stay with their clients, and nobody sees more than sums over them. Runs on Flower.

Names are imported when they are first used: Flower starts a process for each message, which must not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psfit.federated.contacts import FederationError
    from psfit.federated.identities import Identity, Public, Roster
    from psfit.federated.job import Job, LocalData
    from psfit.federated.link import FederationEndedError
    from psfit.federated.settings import Outcome, ServerSettings
    from psfit.federated.simulation import Simulated, simulate
    from psfit.federated.worker import Policy, Worker

PLACES = {
    "FederationEndedError": "link",
    "FederationError": "contacts",
    "Identity": "identities",
    "Job": "job",
    "LocalData": "job",
    "Outcome": "settings",
    "Policy": "worker",
    "Public": "identities",
    "Roster": "identities",
    "ServerSettings": "settings",
    "Simulated": "simulation",
    "Worker": "worker",
    "simulate": "simulation",
}

__all__ = [
    "FederationEndedError",
    "FederationError",
    "Identity",
    "Job",
    "LocalData",
    "Outcome",
    "Policy",
    "Public",
    "Roster",
    "ServerSettings",
    "Simulated",
    "Worker",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in PLACES:
        return getattr(import_module(f"psfit.federated.{PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
