"""Exact refit: the minimiser of the objective on a given support."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.instance import Instance
from psfit.linalg import newton
from psfit.polish.envelope import Envelope, with_multiplier
from psfit.polish.restricted import Restricted

TOL = 1e-9
GAP_TOL = 1e-11
ENVELOPE_ROUNDS = 30


@dataclass(frozen=True)
class Fit:
    """The minimiser on a support: coefficients ``Z (n, c)`` with this problem's outputs set, and its objective.

    `slope` is the optimal multiplier of each sample where the loss has kinks and its derivative would not do.
    """

    Z: Tensor
    value: float
    residual: float
    slope: Tensor | None = None
    evaluations: int = 1


def refit(
    inst: Instance, problem: int, chosen: Tensor, Z: Tensor, give_up: float = float("inf"), tol: float = TOL
) -> Fit:
    """Minimise problem number `problem` over the items ``chosen (size,)`` and the intercepts, from `Z`.

    A minimum that would clearly lie above `give_up` is not sought to the end. The objective is off by about the square
    of `tol`, relatively.
    """
    outputs = inst.layout.outputs_of(problem)
    mask = support_mask(inst, chosen)
    target = inst.source.target[:, outputs]
    if inst.problem.loss.smooth:
        view = Restricted(inst, outputs, mask, inst.problem.loss, target)
        if inst.gram_at_hand:
            # Steps with it need not be perfect: values and gradients come from the data.
            view.take_hessian(inst.normal_equations[0])
        result = newton(view.evaluate, view.value, view.gather(Z), tol=tol, max_iter=60, give_up=give_up)
        answer = view.scatter(result.x, Z)
        return Fit(answer, float(result.value), float(result.residual), evaluations=result.evaluations)
    return _refit_kinked(inst, outputs, mask, target, Z)


def support_mask(inst: Instance, chosen: Tensor) -> Tensor:
    """The coefficients ``(p, c')`` of one problem that its chosen items allow."""
    if inst.layout.kind == "columns":
        return chosen.unsqueeze(1)
    return inst.layout.mask(chosen.unsqueeze(0))


def _refit_kinked(inst: Instance, outputs: list[int], mask: Tensor, target: Tensor, Z: Tensor) -> Fit:
    """Method of multipliers with Newton steps inside, until the duality gap is at rounding level."""
    loss = inst.problem.loss
    y, step = torch.zeros_like(target, dtype=torch.float64), 2.0
    gap = value = residual = float("inf")
    evaluations = 0
    exact = Restricted(inst, outputs, mask, loss, target)
    x = exact.gather(Z)
    for _ in range(ENVELOPE_ROUNDS):
        envelope = Envelope(loss, step)
        joined = with_multiplier(target, y)
        view = Restricted(inst, outputs, mask, envelope, joined)
        smooth = newton(view.evaluate, view.value, x, tol=TOL, max_iter=60)
        x, residual = smooth.x, float(smooth.residual)
        evaluations += smooth.evaluations
        eta = view.predictors(x)
        local = (inst.source.weight * envelope.duality_gap(eta, joined)).sum().reshape(1)
        gap = float(inst.grid.nodes.total(local))
        value = float(exact.value(x))
        y = envelope.gradient(eta, joined)
        if gap <= GAP_TOL * abs(value) and residual <= TOL:
            break
        # Narrower envelopes than this gain nothing and only lose digits.
        step = max(step / 3, 1e-6)
    relative_gap = gap / max(abs(value), torch.finfo(torch.float64).tiny)
    return Fit(exact.scatter(x, Z), value, max(relative_gap, residual), y, evaluations)
