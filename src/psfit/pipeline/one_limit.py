"""How the support of a single limit is found: Bi-cADMM with a portfolio of penalties, swaps, and restarts."""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.admm.checkpoint import Store
from psfit.admm.loop import iterate
from psfit.pipeline.answers import Iteration
from psfit.pipeline.task import Task
from psfit.problem.instance import Instance
from psfit.search.explore import EFFORTS, Contribution, explore
from psfit.search.objective import objective_of
from psfit.search.refit import Fit, refit
from psfit.search.support_fit import SupportFit


class OneLimit:
    """Starts of all problems for the limit of an instance, and a search for each problem.

    Parameters
    ----------
    start : Tensor (n, c), optional
        Coefficients to iterate from.
    known : Tensor (n, c), optional
        Coefficients whose supports are the starts of the searches, instead of those of an iteration.
    store : Store, optional
        Where checkpoints of the iteration are kept.
    complete : bool
        Whether the searches go through all of their stages; if not, other searches follow.
    """

    def __init__(
        self,
        inst: Instance,
        task: Task,
        start: Tensor | None,
        known: Tensor | None,
        store: Store | None,
        complete: bool = True,
    ) -> None:
        self.inst, self.task, self.start, self.known, self.store = inst, task, start, known, store
        self.complete = complete

    def iterate(self) -> Iteration:
        """Iterate from the starting point; the kappa largest items of every copy of a problem are a start.

        With known supports there is no iteration.
        """
        if self.known is not None:
            self.many, self.Z = self.inst, self.known.double()
            supports = self.inst.items.pack(self.known) != 0
            self.starts = [[("known support", support)] for support in supports]
            return Iteration.none()
        solver, watch = self.task.solver, self.inst.watch
        watch.begin("the first factorisation")
        setup, state = solver.init(self.inst, self.start)
        watch.begin("the iteration")
        state, status, history = iterate(solver, setup, state, self.store)
        self.set_starts(setup.instance, state.bilinear.z, setup.copies)
        return Iteration.of(setup, status, history)

    def set_starts(self, many: Instance, z: Tensor, copies: int) -> None:
        """Set the starts of the searches: the largest items of ``z (n, c)``, where an iteration on `copies` ended."""
        items, Z = many.items, z.double()
        Z, supports = many.grid.agree(Z, many.domain.largest(items.pack(Z)))
        self.many = many
        self.Z = torch.cat([torch.where(items.mask(supports), Z[: items.features], 0.0), Z[items.features :]])
        problems = items.problems // copies
        self.starts = [[("Bi-cADMM", one) for one in supports[number::problems]] for number in range(problems)]

    def search(self, number: int) -> "OneLimitSearch":
        """The search of one problem."""
        return OneLimitSearch(self.many, number, self.starts[number], self.Z, self.task.effort, self.complete)


class OneLimitSearch:
    """Supports of one problem from more and more searches, as lists of one entry, since there is one limit."""

    def __init__(
        self,
        inst: Instance,
        number: int,
        starts: list[tuple[str, Tensor]],
        Z: Tensor,
        effort: str,
        complete: bool = True,
    ) -> None:
        self.inst, self.number = inst, number
        self.contributions: list[Contribution] = []
        exploration = EFFORTS[effort]
        if exploration is not None:
            exploration = replace(exploration, complete=complete)
        objective = objective_of(inst, number, search=exploration is not None)
        self.stages = explore(objective, starts, Z, exploration, self.contributions)
        self.refitted: tuple[Tensor, Fit] | None = None

    def first(self) -> list[SupportFit]:
        """The support of the first search."""
        return self._report(next(self.stages))

    def further(self, open_limits: list[int]) -> list[SupportFit] | None:
        """The best support of the next stage; None after the last one."""
        found = next(self.stages, None)
        return None if found is None else self._report(found)

    def refit(self, found: list[SupportFit]) -> list[Fit]:
        """The exact fit; the fit of the last support is kept."""
        chosen, fit = found[0].chosen, found[0].fit
        if self.refitted is None or not torch.equal(self.refitted[0], chosen):
            self.refitted = chosen, refit(self.inst, self.number, chosen, fit.Z)
        self.inst.watch.reporter.report_objective(self.number, self.refitted[1].value)
        return [self.refitted[1]]

    def _report(self, found: SupportFit) -> list[SupportFit]:
        self.inst.watch.reporter.report_objective(self.number, found.value)
        return [found]
