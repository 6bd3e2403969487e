"""What is proved about answers: lower bounds for all problems and limits."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit.certificate import Certificate, Certifier, Proof
from psfit.certificate.path_bounds import PathBounds
from psfit.pipeline.answers import Answers
from psfit.problem.instance import Instance
from psfit.search.refit import Fit, optimal_slopes, refit


@dataclass(frozen=True)
class Proofs:
    """Lower bounds ``(K, problems)`` for each limit, and how many items are certain."""

    lower_bounds: np.ndarray
    certain_in: int = 0
    certain_out: int = 0
    tree_nodes: int = 0

    @classmethod
    def none(cls, answers: Answers) -> "Proofs":
        """Nothing is proved."""
        return cls(np.full(answers.objectives.shape, -np.inf))

    @classmethod
    def of(cls, parts: list[Certificate] | list[Proof]) -> "Proofs":
        """For one limit, from one part for each problem."""
        return cls(
            lower_bounds=np.array([[part.lower for part in parts]]),
            certain_in=sum(int(part.inside.sum()) for part in parts),
            certain_out=sum(int(part.outside.sum()) for part in parts),
            tree_nodes=sum(part.explored for part in parts if isinstance(part, Proof)),
        )


def fit_supports(inst: Instance, number: int, Z: Tensor) -> Callable[[Tensor], tuple[float, Tensor]]:
    """A function that fits a problem on a support, starting from `Z`: the least objective, and the samples' slopes."""

    def fit(support: Tensor) -> tuple[float, Tensor]:
        found = refit(inst, number, support, Z)
        return found.value, optimal_slopes(inst, number, support, found)

    return fit


class Prover(ABC):
    """Proves lower bounds up to a relative `gap`, or until its budget is used up; it keeps what it has proved.

    With some `patience` its budget is so many times as large.
    """

    def __init__(self, inst: Instance, gap: float, patience: int = 1) -> None:
        self.inst, self.gap = inst, gap
        n, c = inst.source.matrix.shape[1], inst.source.outputs
        zero = torch.zeros(n, c, dtype=torch.float64, device=inst.ridge.device)
        self.fits_on_supports = [fit_supports(inst, number, zero) for number in range(inst.items.problems)]

    @abstractmethod
    def open_limits(self, number: int, fits: list[Fit]) -> list[int]:
        """Indices of the limits at which the fit of one problem may be worse than the best by more than the gap."""

    @abstractmethod
    def prove(self, answers: Answers) -> Proofs:
        """Bounds for all answers."""


class OneLimitProver(Prover):
    """A certificate for each problem; it also says which items are certain."""

    def __init__(self, inst: Instance, gap: float, patience: int = 1) -> None:
        super().__init__(inst, gap, patience)
        self.certifiers = [Certifier(inst, number, fit, patience) for number, fit in enumerate(self.fits_on_supports)]
        self.known: dict[tuple[int, float], Certificate] = {}

    def open_limits(self, number: int, fits: list[Fit]) -> list[int]:
        objective = fits[0].value
        lower = self._certify(number, fits[0].Z, objective).lower
        # All ranks must make the same decision, even if their processors round differently.
        closed = self.inst.grid.follow_first_rank(objective - lower <= self.gap * abs(objective))
        return [] if closed else [0]

    def prove(self, answers: Answers) -> Proofs:
        values = enumerate(answers.objectives[0].tolist())
        return Proofs.of([self._certify(number, answers.Z[0], value) for number, value in values])

    def _certify(self, number: int, Z: Tensor, objective: float) -> Certificate:
        key = number, objective
        if key not in self.known:
            self.known[key] = self.certifiers[number].certify(Z, objective, self.gap)
            self.inst.watch.reporter.report_bound(number, self.known[key].lower)
        return self.known[key]


class SeveralLimitsProver(Prover):
    """Bounds of all limits of a problem share their passes over the data."""

    def __init__(self, inst: Instance, gap: float, kappas: list[int], patience: int = 1) -> None:
        super().__init__(inst, gap, patience)
        self.kappas = torch.tensor(kappas, device=inst.ridge.device)
        problems = range(inst.items.problems)
        fits = self.fits_on_supports
        self.path_bounds = [PathBounds(inst.single(number), gap, fits[number], patience) for number in problems]
        self.fits: list[list[Fit | None]] = [[None] * len(kappas) for _ in problems]
        self.lower = torch.full((len(kappas), len(problems)), -torch.inf, dtype=torch.float64, device=inst.ridge.device)

    def open_limits(self, number: int, fits: list[Fit]) -> list[int]:
        new = [k for k, (fit, known) in enumerate(zip(fits, self.fits[number], strict=True)) if fit is not known]
        values = torch.tensor([fit.value for fit in fits], dtype=torch.float64, device=self.lower.device)
        if new:
            outputs = self.inst.items.outputs_of(number)
            Z = torch.stack([fits[k].Z[:, outputs] for k in new])
            bounds = self.path_bounds[number](self.kappas[new], Z, values[new])
            self.lower[new, number] = torch.maximum(self.lower[new, number], bounds)
            self.fits[number] = list(fits)
        wide = values - self.lower[:, number] > self.gap * values.abs()
        # All ranks must make the same decision, even if their processors round differently.
        return self.inst.grid.world.broadcast(wide.double()).nonzero().flatten().tolist()

    def prove(self, answers: Answers) -> Proofs:
        for number, fits in enumerate(self.fits):
            if fits[0] is None:
                # Answers that were found on candidate columns are bounded only here, over all columns.
                outputs = self.inst.items.outputs_of(number)
                values = answers.objectives[:, number].to(self.lower.device)
                self.lower[:, number] = self.path_bounds[number](self.kappas, answers.Z[:, :, outputs], values)
        return Proofs(np.minimum(self.lower.cpu().numpy(), answers.objectives.numpy()))
