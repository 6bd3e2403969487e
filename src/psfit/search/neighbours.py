"""Supports along a path of limits: what one limit has found is where its neighbours start.

Upwards a support grows by the items that help most, downwards it loses those that cost least. At every limit the best
start known (the iteration's own support among them) is improved by swaps. Since a support of a smaller limit plus
anything is allowed for a larger one, objectives can be made to fall along the path.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from psfit.problem.instance import Instance
from psfit.search.objective import Objective
from psfit.search.refit import Fit, refit
from psfit.search.restarts import EFFORTS, FREE_WORK, PASSES, restart
from psfit.search.swaps import swap_search

# Steps of the joint refit: with exact Hessians one is enough, a second one takes away rounding.
REFIT_STEPS = 4
REFIT_TOL = 1e-9


@dataclass(frozen=True)
class Stop:
    """The best support ``chosen (size,)`` known for a limit, and its fit."""

    chosen: Tensor
    fit: Fit


def supports_along(
    scene: Objective, kappas: list[int], starts: dict[int, Tensor], Z: Tensor, rel_tol: float
) -> dict[int, Stop]:
    """A good support for each of the rising `kappas`; some of them, and the first, have starts of their own."""
    found: dict[int, Stop] = {}
    for below, kappa in zip([None, *kappas], kappas, strict=False):
        tries = [starts[kappa]] if kappa in starts else []
        if below is not None:
            tries.append(_grown(scene, found[below], kappa))
        best = min((Stop(one, scene.fit(one, Z)) for one in tries), key=lambda stop: stop.fit.value)
        found[kappa] = _searched(scene, best, rel_tol)
        scene.inst.watch.reporter.report(done=len(found), total=len(kappas))
    return passed_on(scene, found, rel_tol)


def passed_on(scene: Objective, found: dict[int, Stop], rel_tol: float) -> dict[int, Stop]:
    """The same path after every limit has learnt from the next larger one, and then from the next smaller one."""
    found, kappas = dict(found), list(found)
    for above, kappa in pairwise(reversed(kappas)):
        less = _shrunk(scene, found[above], kappa)
        fit = scene.fit(less, found[above].fit.Z)
        if fit.value < found[kappa].fit.value - rel_tol * abs(fit.value):
            found[kappa] = _searched(scene, Stop(less, fit), rel_tol)
    for below, kappa in pairwise(kappas):
        if found[below].fit.value < found[kappa].fit.value:
            more = _grown(scene, found[below], kappa)
            found[kappa] = Stop(more, scene.fit(more, found[below].fit.Z))
    return found


def restarted(
    scene: Objective, found: dict[int, Stop], limits: list[int], rel_tol: float, effort: str
) -> dict[int, Stop]:
    """The path after searches from perturbations of the supports of `limits`, in this order.

    All of them together may cost half of what the restarts of a single fit may, since neighbours have searched for each
    other already; one is always searched.
    """
    found, plan, spent = dict(found), EFFORTS[effort], 0.0
    if plan is None:
        return found
    for kappa in limits:
        scene.work = 0.0
        found[kappa] = Stop(*restart(scene, found[kappa].chosen, found[kappa].fit, rel_tol, plan, 0))
        spent += scene.work
        if spent > 0.5 * plan.work * (FREE_WORK + PASSES * scene.pass_work) or scene.inst.watch.must_stop():
            break
    return found


def _searched(scene: Objective, start: Stop, rel_tol: float) -> Stop:
    chosen, fit, _ = swap_search(scene, start.chosen, start.fit.Z, rel_tol)
    return Stop(chosen, fit)


def _grown(scene: Objective, stop: Stop, kappa: int) -> Tensor:
    """The support with the items that help most, one at a time being too dear, all at once."""
    count = kappa - int(stop.chosen.sum())
    gains = scene.domain.addition_scores(scene.model(stop.fit, stop.chosen), stop.chosen)
    best = torch.where(stop.chosen, -1.0, gains).topk(count).indices
    return stop.chosen.index_fill(0, best, True)


def _shrunk(scene: Objective, stop: Stop, kappa: int) -> Tensor:
    """The support without the items that cost least."""
    costs = scene.domain.removal_costs(scene.model(stop.fit, stop.chosen), stop.chosen)
    cheapest = costs.topk(int(stop.chosen.sum()) - kappa, largest=False).indices
    return stop.chosen.index_fill(0, cheapest, False)


def refit_along(
    inst: Instance, problem: int, stops: list[Stop], steps: Callable[[Tensor], Tensor] | None = None
) -> list[Fit]:
    """Exact minimisers on all supports; for the squared loss all of them share every pass over the data.

    Newton's `steps` ``(n, K)`` for gradients ``(n, K)`` on these supports are made here if they are not known.
    """
    if not (inst.costs.searches_by_form and inst.items.separate):
        return [refit(inst, problem, stop.chosen, stop.fit.Z) for stop in stops]
    source, known = inst.source, steps is not None
    steps = steps or _newton_steps(inst, stops)
    target, weight = source.target[:, [problem]], source.weight
    Z = torch.stack([stop.fit.Z[:, problem] for stop in stops], dim=1)
    for step in range(REFIT_STEPS + 1):
        local = Z.new_zeros(len(Z) + 1, Z.shape[1])
        for at, strip in source.matrix.strips(torch.float64):
            residual = strip.mv(Z) - target[at]
            local[:-1] += strip.rmv(2 * weight[at] * residual)
            local[-1] += (weight[at] * residual.square()).sum(dim=0)
        summed = inst.grid.nodes.total(local)
        gradient = summed[:-1] + inst.ridge * Z
        values = summed[-1] + 0.5 * (inst.ridge * Z.square()).sum(dim=0)
        moves = steps(gradient)
        left = (gradient * moves).sum(dim=0).clamp(min=0)
        residuals = (left / values.abs().clamp(min=torch.finfo(values.dtype).tiny)).sqrt()
        if step == REFIT_STEPS or float(residuals.max()) <= REFIT_TOL:
            break
        Z -= moves
    if known and not float(residuals.max()) <= REFIT_TOL:
        # Inverses that were carried along may have lost too many digits.
        return refit_along(inst, problem, stops)
    found = []
    for k, stop in enumerate(stops):
        answer = stop.fit.Z.clone()
        answer[:, problem] = Z[:, k]
        found.append(Fit(answer, float(values[k]), float(residuals[k])))
    return found


def _newton_steps(inst: Instance, stops: list[Stop]) -> Callable[[Tensor], Tensor]:
    """``H_SS^-1 g_S`` for every support S."""
    free = torch.ones(inst.items.free, dtype=torch.bool, device=inst.ridge.device)
    rows = [torch.cat([inst.items.mask_one(stop.chosen)[:, 0], free]).nonzero().flatten() for stop in stops]
    factors = [inst.form.factor(r) for r in rows]

    def step(gradient: Tensor) -> Tensor:
        moves = torch.zeros_like(gradient)
        for k, (r, factor) in enumerate(zip(rows, factors, strict=True)):
            moves[r, k] = torch.cholesky_solve(gradient[r, k : k + 1], factor)[:, 0]
        return moves

    return step
