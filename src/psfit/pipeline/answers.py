"""Answers of a run: exact coefficients for each limit, and how they were found."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.admm.record import Record
from psfit.admm.setup import Setup
from psfit.common.status import Status
from psfit.problem.instance import Instance
from psfit.search.explore import Contribution
from psfit.search.refit import Fit


@dataclass(frozen=True)
class Iteration:
    """Facts about the iteration that found the starts: why it ended, its history, its local solver and penalties."""

    status: Status
    history: tuple[Record, ...]
    local: str
    penalties: dict[str, float]

    @classmethod
    def none(cls) -> "Iteration":
        """No iteration was made."""
        return cls(Status.CONVERGED, (), "", {})

    @classmethod
    def of(cls, setup: Setup, status: Status, history: tuple[Record, ...]) -> "Iteration":
        """From the setup of an iteration and how it ended."""
        penalties = {"rho_c": setup.rho_c, "rho_b": float(setup.rho_b[0]), "rho_l": setup.sub.rho_l}
        return cls(status, history, setup.solver.name, penalties)


@dataclass(frozen=True)
class Answers:
    """Coefficients ``Z (K, n, c)`` in float64 for each limit, optimal on their supports up to `residual`, and the
    ``objectives (K, problems)``; `candidates` is the number of features that were fitted, and
    `contributions` tell what each kind of start led to.
    """

    Z: Tensor
    objectives: Tensor
    residual: float
    iteration: Iteration
    candidates: int
    contributions: tuple[Contribution, ...] = ()

    @classmethod
    def of(
        cls,
        inst: Instance,
        fits: Sequence[Sequence[Fit]],
        iteration: Iteration,
        contributions: Sequence[Contribution] = (),
    ) -> "Answers":
        """From the fits of each problem, one for each limit."""
        items, limits = inst.items, len(fits[0])
        Z = torch.zeros(limits, len(inst.ridge), items.outputs, dtype=torch.float64, device=inst.ridge.device)
        for number, own in enumerate(fits):
            outputs = items.outputs_of(number)
            Z[:, :, outputs] = torch.stack([fit.Z[:, outputs] for fit in own])
        objectives = torch.tensor([[fit.value for fit in own] for own in fits], dtype=torch.float64).T
        residual = max(fit.residual for own in fits for fit in own)
        return cls(Z, objectives, residual, iteration, items.features, tuple(contributions))

    @property
    def objective(self) -> float:
        """The sum of the objectives of all limits and problems."""
        return float(self.objectives.sum())
