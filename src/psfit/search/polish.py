"""Polish: from the iteration's last point to an exact answer on the best support in reach."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.problem import largest
from psfit.problem.instance import Instance
from psfit.search.objective import objective_of
from psfit.search.refit import Fit, refit
from psfit.search.restarts import EFFORTS, explore

__all__ = ["EFFORTS", "Polished", "Settled", "polish"]

# Whether an answer ``Z (n, c)`` of a problem, by number, with this objective is known to be as good as any other.
Settled = Callable[[int, Tensor, float], bool]


@dataclass(frozen=True)
class Polished:
    """Coefficients ``Z (n, c)`` in float64, optimal on their support up to `residual`; the problems' objectives."""

    Z: Tensor
    objectives: Tensor
    residual: float

    @property
    def objective(self) -> float:
        """All problems together."""
        return float(self.objectives.sum())


def polish(
    inst: Instance,
    z: Tensor,
    copies: int = 1,
    effort: str = "medium",
    passes: int = 0,
    known: Tensor | None = None,
    settled: Settled | None = None,
) -> Polished:
    """Take the kappa largest items of each copy of `z`, improve them by swaps, and refit the best in float64.

    Parameters
    ----------
    inst : Instance
    z : Tensor (n, c)
        Where the iteration ended.
    copies : int
        How often each problem occurs among the columns of `z` (see `Instance.copy_problems`).
    effort : {"low", "medium", "high"}
        Only a refit; swaps from all copies and a few restarts; many restarts.
    passes : int
        Passes over the data that have led to `z`: the search may cost as much.
    known : Tensor (n, c / copies), optional
        Coefficients whose supports are further starts.
    settled : callable, optional
        Ends the search of a problem when it says so of an answer.
    """
    Z = z.double()
    supports = largest(inst.items.pack(Z), inst.kappa)
    Z = torch.cat([torch.where(inst.items.mask(supports), Z[: inst.items.features], 0.0), Z[inst.items.features :]])
    problems = inst.items.problems // copies
    starts = [list(supports[problem::problems]) for problem in range(problems)]
    if known is not None:
        for start, support in zip(starts, largest(inst.items.pack(known.repeat(1, copies)), inst.kappa), strict=False):
            start.append(support)
    values, residual = [], 0.0
    outputs = inst.items.outputs // copies
    plan = EFFORTS[effort]
    for problem in range(problems):
        scene, exact = objective_of(inst, problem, search=plan is not None), _Exact(inst, problem)

        def done(chosen: Tensor, fit: Fit, exact: _Exact = exact, problem: int = problem) -> bool:
            inst.watch.reporter.report_objective(problem, fit.value)
            if settled is None:
                return False
            best = exact(chosen, fit)
            return settled(problem, best.Z[:, :outputs], best.value)

        best = exact(*explore(scene, starts[problem], Z, inst.resolution, plan, passes, done))
        inst.watch.reporter.report_objective(problem, best.value)
        Z = best.Z
        values.append(best.value)
        residual = max(residual, best.residual)
    return Polished(Z[:, :outputs], torch.tensor(values, dtype=torch.float64), residual)


class _Exact:
    """The exact refit of a search's fit; the last one is remembered."""

    def __init__(self, inst: Instance, problem: int) -> None:
        self.inst, self.problem = inst, problem
        self.last: tuple[Tensor, Fit] | None = None

    def __call__(self, chosen: Tensor, fit: Fit) -> Fit:
        if self.last is None or not torch.equal(self.last[0], chosen):
            self.last = chosen, refit(self.inst, self.problem, chosen, fit.Z)
        return self.last[1]
