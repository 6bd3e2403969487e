"""Exact refits of many supports of one problem, with shared passes over the data."""

from collections.abc import Callable

import torch
from torch import Tensor

from psfit.problem.instance import Instance
from psfit.search.refit import Fit, refit
from psfit.search.support_fit import SupportFit

# The most steps of the joint refit. With exact Hessians one step is enough; a second one removes rounding errors.
REFIT_STEPS = 4
REFIT_TOL = 1e-9


def refit_together(inst: Instance, problem: int, supports: list[SupportFit]) -> list[Fit]:
    """Exact minimisers on all supports; for the squared loss all of them share every pass over the data."""
    if not (inst.costs.searches_by_form and inst.items.separate) or inst.box is not None:
        return [refit(inst, problem, support.chosen, support.fit.Z) for support in supports]
    source, steps = inst.source, _newton_steps(inst, supports)
    target, weight = source.target[:, [problem]], source.weight
    Z = torch.stack([support.fit.Z[:, problem] for support in supports], dim=1)
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
        moves, values, residuals = inst.grid.agree(moves, values, residuals)
        if step == REFIT_STEPS or float(residuals.max()) <= REFIT_TOL:
            break
        Z -= moves
    found = []
    for k, support in enumerate(supports):
        answer = support.fit.Z.clone()
        answer[:, problem] = Z[:, k]
        found.append(Fit(answer, float(values[k]), float(residuals[k])))
    return found


def _newton_steps(inst: Instance, supports: list[SupportFit]) -> Callable[[Tensor], Tensor]:
    """``H_SS^-1 g_S`` for every support S."""
    free = torch.ones(inst.items.free, dtype=torch.bool, device=inst.ridge.device)
    rows = [torch.cat([inst.items.mask_one(support.chosen)[:, 0], free]).nonzero().flatten() for support in supports]
    factors = [inst.form.factor(r) for r in rows]

    def step(gradient: Tensor) -> Tensor:
        moves = torch.zeros_like(gradient)
        for k, (r, factor) in enumerate(zip(rows, factors, strict=True)):
            moves[r, k] = torch.cholesky_solve(gradient[r, k : k + 1], factor)[:, 0]
        return moves

    return step
