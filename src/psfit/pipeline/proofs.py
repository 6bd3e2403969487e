"""What is proved about a polished answer: certificates of all its problems, or the search of exact mode."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from psfit.certificate import Certificate, Certifier, Proof, Standing, prove
from psfit.common.status import Status
from psfit.problem.instance import Instance
from psfit.search.polish import Polished
from psfit.search.refit import optimal_slopes, refit

# Numbers that the open nodes of a search tree may hold together.
MOST_STORED = 250_000_000


@dataclass(frozen=True)
class Proofs:
    """Lower bounds of all problems, and how many items are beyond doubt."""

    lower_bounds: np.ndarray
    certain_in: int = 0
    certain_out: int = 0
    tree_nodes: int = 0

    @classmethod
    def none(cls, problems: int) -> "Proofs":
        """Nothing proved."""
        return cls(np.full(problems, -np.inf))

    @classmethod
    def of(cls, parts: list[Certificate] | list[Proof]) -> "Proofs":
        """Gathered from one part for each problem."""
        return cls(
            lower_bounds=np.array([part.lower for part in parts]),
            certain_in=sum(int(part.inside.sum()) for part in parts),
            certain_out=sum(int(part.outside.sum()) for part in parts),
            tree_nodes=sum(part.explored for part in parts if isinstance(part, Proof)),
        )


class Certificates:
    """A certificate for each problem, of the quality asked for: a relative `gap`, or what the budget allows.

    A search may ask on its way whether an answer is settled; what was proved then need not be proved again.
    """

    def __init__(self, inst: Instance, gap: float) -> None:
        self.grid, self.gap, self.watch = inst.grid, gap, inst.watch
        self.certifiers = [Certifier(inst, problem) for problem in range(inst.items.problems)]
        self.known: dict[tuple[int, float], Certificate] = {}

    def settled(self, problem: int, Z: Tensor, objective: float) -> bool:
        """Whether no support can be better than an answer ``Z (n, c)`` of one problem by more than the gap."""
        lower = self._certificate(problem, Z, objective).lower
        # Every rank must come to the same decision, also where their processors round differently.
        return self.grid.agree(objective - lower <= self.gap * abs(objective))

    def of(self, answer: Polished) -> Proofs:
        """What is proved about all problems."""
        values = enumerate(answer.objectives.tolist())
        return Proofs.of([self._certificate(problem, answer.Z, value) for problem, value in values])

    def _certificate(self, problem: int, Z: Tensor, objective: float) -> Certificate:
        key = problem, objective
        if key not in self.known:
            self.known[key] = self.certifiers[problem].certify(Z, objective, self.gap)
            self.watch.reporter.report_bound(problem, self.known[key].lower)
        return self.known[key]


def search(inst: Instance, answer: Polished, gap_tol: float) -> tuple[Polished, Proofs, Status]:
    """Branch and bound for each problem in turn; the answer, improved where a better support was found."""
    proofs: list[Proof] = []
    limits: list[Status] = []
    node_size = inst.source.matrix.shape[1] * len(inst.items.outputs_of(0)) * 3 + inst.sizes.most_rows
    for problem, value in enumerate(answer.objectives.tolist()):

        def stop(state: Standing, problem: int = problem) -> bool:
            inst.watch.reporter.report_objective(problem, state.upper)
            inst.watch.reporter.report_bound(problem, state.lower)
            inst.watch.reporter.report(explored=state.explored, open=state.open)
            if inst.watch.must_stop():
                assert inst.watch.ended is not None
                limits.append(inst.watch.ended)
            elif state.open * node_size > MOST_STORED:
                limits.append(Status.TREE_LIMIT)
            else:
                return False
            return True

        def fit(support: Tensor, problem: int = problem, Z: Tensor = answer.Z) -> tuple[float, Tensor]:
            found = refit(inst, problem, support, Z)
            return found.value, optimal_slopes(inst, problem, support, found)

        proof = prove(inst, problem, answer.Z, value, fit, gap_tol, stop)
        if proof.support is not None:
            answer = _improved(inst, problem, answer, proof)
        proofs.append(proof)
    closed = all(proof.upper - proof.lower <= gap_tol * abs(proof.upper) for proof in proofs)
    if closed:
        return answer, Proofs.of(proofs), Status.PROVED
    return answer, Proofs.of(proofs), limits[0] if limits else Status.ROUNDING


def _improved(inst: Instance, problem: int, answer: Polished, proof: Proof) -> Polished:
    assert proof.support is not None
    exact = refit(inst, problem, proof.support, answer.Z)
    if exact.value >= float(answer.objectives[problem]):
        return answer
    objectives = answer.objectives.clone()
    objectives[problem] = exact.value
    return replace(answer, Z=exact.Z, objectives=objectives, residual=max(answer.residual, exact.residual))
