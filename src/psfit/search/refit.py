"""Exact refit: the minimiser of the objective on a given support."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.kernels.box_minimum import direct_into_box
from psfit.kernels.linalg import is_hopeless, newton
from psfit.problem.instance import Instance
from psfit.search.equal_samples import EqualSamples
from psfit.search.interior_point import Interior
from psfit.search.restriction import Restriction

TOL = 1e-9
# Duality gaps, as shares of the objective, at which an answer counts as exact, and at which supports can be compared.
GAP_TOL = 1e-12
SEARCH_GAP_TOL = 1e-8
# With a residual above POOR, or a pivot below LEAST_PIVOT, the fit is made in an orthogonal basis.
POOR = 1e-7
LEAST_PIVOT = 1e-11
NEWTON_STEPS = 60
# On a loss of lines and parabolas Newton's method ends after a few steps, or never if the data have other units than
# the kinks.
FEW_STEPS = 15


@dataclass(frozen=True)
class Fit:
    """The minimiser on a support: coefficients ``Z (n, c)`` with this problem's outputs set, and its objective.

    `slope` is the optimal multiplier of each sample, where the loss has kinks and thus no derivative.
    """

    Z: Tensor
    value: float
    residual: float
    slope: Tensor | None = None
    evaluations: int = 1


def refit(
    inst: Instance,
    problem: int,
    chosen: Tensor,
    Z: Tensor,
    give_up: float = float("inf"),
    tol: float = TOL,
    equal: EqualSamples | None = None,
) -> Fit:
    """Minimise problem number `problem` over the items ``chosen (size,)`` and the intercepts, from `Z`.

    The fit ends early if its minimum clearly lies above `give_up`. The relative error of the objective is about the
    square of `tol`. Smooth losses are minimised by Newton's method. If it fails because of kinks, an interior point
    method follows. If both fail because columns are nearly dependent, the fit is made in an orthogonal basis. Bounds on
    coefficients are kept by both methods. Samples that are `equal` on the support may be merged.
    """
    outputs = inst.items.outputs_of(problem)
    mask = inst.items.mask_one(chosen)
    if inst.box is not None:
        # A coefficient without room between its bounds is zero.
        own = inst.box.select_outputs(outputs)
        mask = mask & (own.low < own.high)
    view = Restriction(inst, outputs, mask, inst.problem.loss, inst.source.target[:, outputs], equal)
    if not view.size:
        return Fit(view.scatter(view.gather(Z), Z), float(view.value(view.gather(Z))), 0.0)
    fit, completed = _minimise(view, Z, give_up, tol)
    # In another basis the bounds of coefficients would not be those of variables.
    if completed and fit.residual > max(POOR, 2 * tol) and view.bounds is None:
        x = view.gather(Z)
        before = float(view.value(x))
        if before < fit.value:
            fit = replace(fit, Z=view.scatter(x, Z), value=before)
        view.orthogonalise()
        again, _ = _minimise(view, fit.Z, give_up, tol)
        fit = again if again.value < fit.value else fit
    return fit


def _minimise(view: Restriction, Z: Tensor, give_up: float, tol: float) -> tuple[Fit, bool]:
    """The fit, and whether it was completed."""
    loss = view.loss
    box = loss.box(view.target)
    if loss.smooth:
        fit, completed = _by_newton(view, Z, give_up, tol, NEWTON_STEPS if box is None else FEW_STEPS)
        if box is None or fit.residual <= TOL or not completed:
            return fit, completed
    if box is None:
        raise TypeError(f"the {loss.name} loss is not smooth: it needs a `box` to be refitted")
    interior = Interior(view, box, view.inst.source.weight)
    # A start close to the minimum seldom helps this method, and one that is far away harms it.
    start = view.gather(Z)
    start = torch.zeros_like(start) if view.basis is None else _better_start(view, start)
    found = interior.minimise(start, GAP_TOL if tol <= TOL else SEARCH_GAP_TOL, give_up)
    relative = found.gap / max(abs(found.value), torch.finfo(torch.float64).tiny)
    fit = Fit(view.scatter(found.x, Z), found.value, relative, found.slopes, found.steps)
    return fit, not found.lower > give_up


def _by_newton(view: Restriction, Z: Tensor, give_up: float, tol: float, steps: int) -> tuple[Fit, bool]:
    first = view.basis is None
    if view.inst.costs.form_at_hand and first:
        # This Hessian need not be exact: values and gradients come from the data.
        view.take_hessian(view.inst.form)
    result = newton(
        view.evaluate,
        view.value,
        _better_start(view, view.clip(view.gather(Z))),
        tol=tol,
        max_iter=steps,
        give_up=give_up,
        least_pivot=LEAST_PIVOT if first and view.bounds is None else 0.0,
        agree=view.agree,
        direct=None if view.bounds is None else direct_into_box(*view.bounds),
    )
    completed = not bool(is_hopeless(result.value, result.residual, give_up))
    x, value, residual = view.scatter(result.x, Z), float(result.value), float(result.residual)
    return Fit(x, value, residual, evaluations=result.evaluations), completed


def _better_start(view: Restriction, x: Tensor) -> Tensor:
    """The variables ``x``, or zero if that is better: the coefficients of another support can be a poor start."""
    if view.loss.quadratic or not bool(x.any()):
        return x
    # Newton's method begins with this evaluation, which is then known.
    value = view.evaluate(x)[0] if view.loss.smooth else view.value(x)
    return x if bool(value <= view.value_at_zero) else torch.zeros_like(x)


def optimal_slopes(inst: Instance, problem: int, chosen: Tensor, fit: Fit) -> Tensor:
    """The slope of every sample's loss ``(m, c')`` at a fit: its dual point."""
    if fit.slope is not None:
        return fit.slope
    outputs = inst.items.outputs_of(problem)
    target = inst.source.target[:, outputs]
    view = Restriction(inst, outputs, inst.items.mask_one(chosen), inst.problem.loss, target)
    return inst.problem.loss.gradient(view.predictors(view.gather(fit.Z)), target)
