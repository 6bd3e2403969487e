"""How the supports of many limits are found: starts for some limits by Bi-cADMM, for the others from their neighbours.

The limits with starts of their own are spread over the path. For scalar losses they are columns of one batch of the
iteration. For a joint loss they are solved one after the other by warm starts.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from psfit.admm.loop import iterate
from psfit.common.status import CUT_SHORT, Status
from psfit.pipeline.answers import Iteration
from psfit.pipeline.task import Task
from psfit.problem.instance import Instance
from psfit.search.explore import Contribution
from psfit.search.joint_refit import refit_together
from psfit.search.neighbours import pass_on, restart_limits, search_limits
from psfit.search.objective import objective_of
from psfit.search.refit import Fit
from psfit.search.support_fit import SupportFit

# How many limits of a path the iteration solves; the others are found from their neighbours. For a joint loss they
# share no factors and are solved one after the other, so there are fewer.
OWN_STARTS = 10
JOINT_STARTS = 4


class SeveralLimits:
    """Starts of all problems for some of the rising `kappas`, and a search for each problem.

    If there are `known` coefficients ``(K, n, c)``, one for each limit, their supports are the starts.
    """

    def __init__(self, inst: Instance, kappas: list[int], task: Task, known: Tensor | None = None) -> None:
        self.inst, self.kappas, self.task, self.known = inst, kappas, task, known

    def iterate(self) -> Iteration:
        """Iterate for some limits that are spread over the path; with known supports there is no iteration."""
        if self.known is not None:
            self.starts: list[dict[int, Tensor]] = [{} for _ in range(self.inst.items.problems)]
            return Iteration.none()
        self.inst.watch.begin("the iteration")
        return self._iterate_batch() if self.inst.items.separate else self._iterate_in_turn()

    def search(self, number: int) -> "SeveralLimitsSearch":
        """The search of one problem."""
        starts = {kappa: [start] for kappa, start in self.starts[number].items()}
        for kappa, Z in zip(self.kappas, [] if self.known is None else self.known, strict=False):
            starts.setdefault(kappa, []).append(self.inst.items.pack(Z)[number] != 0)
        return SeveralLimitsSearch(self.inst, number, self.kappas, starts, self.task)

    def _iterate_batch(self) -> Iteration:
        """All limits as columns of one iteration."""
        own, problems = spread(self.kappas, OWN_STARTS), self.inst.items.problems
        many = self.inst.with_limits(tuple(kappa for kappa in own for _ in range(problems)))
        # The limits are already many columns.
        solver = replace(self.task.solver, portfolio=False)
        setup, state = solver.init(many)
        state, status, history = iterate(solver, setup, state)
        (chosen,) = many.grid.agree(many.domain.largest(many.items.pack(state.bilinear.z)))
        self.starts = [dict(zip(own, chosen[number::problems], strict=True)) for number in range(problems)]
        return Iteration.of(setup, status, history)

    def _iterate_in_turn(self) -> Iteration:
        """One limit after the other, each from the result of the one before. The status is that of the first limit that
        was cut short.
        """
        start, found = None, {}
        ended = Status.CONVERGED
        for kappa in spread(self.kappas, JOINT_STARTS):
            one = replace(self.inst, problem=replace(self.inst.problem, kappa=(kappa,)))
            setup, state = self.task.solver.init(one, start)
            state, status, history = iterate(self.task.solver, setup, state)
            start = state.bilinear.z
            found[kappa] = one.grid.agree(one.domain.largest(one.items.pack(start))[0])[0]
            ended = status if ended not in CUT_SHORT else ended
        self.starts = [found]
        return Iteration.of(setup, ended, history)


class SeveralLimitsSearch:
    """Supports of one problem for all limits: from their neighbours, then from restarts of some of them."""

    def __init__(
        self, inst: Instance, number: int, kappas: list[int], starts: dict[int, list[Tensor]], task: Task
    ) -> None:
        self.inst, self.number, self.kappas, self.starts, self.task = inst, number, kappas, starts, task
        self.objective = objective_of(inst, number)
        self.objective.limits, self.objective.brief = kappas, task.brief
        # What kinds of starts contribute is recorded for single limits only.
        self.contributions: list[Contribution] = []
        self.found: dict[int, SupportFit] = {}
        self.restarted = False
        self.fits: list[Fit] = []
        self.refitted: list[Tensor] = []

    def first(self) -> list[SupportFit]:
        """Supports of all limits, improved by swaps and by their neighbours."""
        zero = torch.zeros_like(self.inst.ridge.expand(-1, self.inst.items.outputs))
        self.found = search_limits(self.objective, self.kappas, self.starts, zero)
        return list(self.found.values())

    def further(self, open_limits: list[int]) -> list[SupportFit] | None:
        """Restart at the open limits, given by index, and try the results at their neighbours; None the second time."""
        if self.task.brief or self.restarted:
            return None
        self.restarted = True
        # First limits that are spread over the path, then the others.
        order = sorted(self.kappas, key=lambda kappa: kappa not in spread(self.kappas, OWN_STARTS))
        limits = [kappa for kappa in order if self.kappas.index(kappa) in open_limits]
        better = restart_limits(self.objective, self.found, limits, self.task.solver.effort)
        changed = {kappa for kappa in self.kappas if better[kappa] is not self.found[kappa]}
        self.found = pass_on(self.objective, better, changed)
        return list(self.found.values())

    def refit(self, found: list[SupportFit]) -> list[Fit]:
        """Exact fits; those of unchanged supports are kept."""
        if self.task.brief and _known_exactly(self.inst):
            # Coefficients from products in float64 are accurate. Only the objectives are not, and they are not used.
            return [one.fit for one in found]
        if not self.fits:
            self.fits = refit_together(self.inst, self.number, found)
        else:
            changed = [k for k, one in enumerate(found) if one.chosen is not self.refitted[k]]
            moved = refit_together(self.inst, self.number, [found[k] for k in changed]) if changed else []
            for k, fit in zip(changed, moved, strict=True):
                self.fits[k] = fit
        self.refitted = [one.chosen for one in found]
        return list(self.fits)


def spread(kappas: list[int], count: int) -> list[int]:
    """At most `count` of the limits, evenly from the first to the last."""
    places = np.linspace(0, len(kappas) - 1, min(len(kappas), count)).round().astype(int)
    return [kappas[k] for k in np.unique(places)]


def _known_exactly(inst: Instance) -> bool:
    """Whether the form comes from products in float64, of columns that no rank has rounded."""
    return inst.source.forms.known is not None and not bool(inst.form.curvature.rounded.any())
