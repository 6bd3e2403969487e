"""Quadratic forms in proofs: bound the rounding error of a minimum, and take out variables that are decided.

Variables outside are dropped. The form is minimised over the variables inside, and a smaller form remains. Bounds on
rounding are kept for each output separately, since the outputs of a form are independent.
"""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.data.curvature import EPS, Curvature
from psfit.data.quadratic_form import Minimum, QuadraticForm


def rounding_of(form: QuadraticForm, minimum: Minimum) -> float:
    """By how much rounding may have raised a minimum of the form."""
    constant, total = float(form.constant.sum()), minimum.x.abs().sum(dim=0)
    gained = constant - minimum.value
    off = form.constant_error + form.linear_error * total + 0.5 * form.curvature.entry_error * total.square()
    return float(off.sum()) + 8 * (len(minimum.rows) + 4) * EPS * (abs(constant) + abs(gained))


def single_optima(form: QuadraticForm) -> Tensor:
    """Lower bounds ``(n,)`` of the objective with each row as the only nonzero one, less all rounding errors.

    If one place is left, the least of them bounds the problem.
    """
    H = form.diagonal
    H = H - 2 * EPS * H.abs() - form.curvature.entry_error - form.curvature.spectral_error
    gained = 0.5 * (form.Q.abs() + form.linear_error).square().sum(dim=1) / H
    constant = float(form.constant.sum())
    rounding = 8 * (form.Q.shape[1] + 4) * EPS * (abs(constant) + gained)
    return torch.where(H > 0, constant - float(form.constant_error.sum()) - gained - rounding, -torch.inf)


def complete(form: QuadraticForm, inside: Tensor, free: Tensor, x: Tensor) -> Tensor:
    """All rows ``(n, c)`` from the `free` ones: those inside minimise the form, the others are zero."""
    X = torch.zeros_like(form.Q)
    X[free] = x
    gone = inside.nonzero().flatten()
    X[gone] = torch.cholesky_solve(form.Q[gone] - form.G[gone] @ X, form.factor(gone))
    return X


def eliminate(form: QuadraticForm, inside: Tensor, outside: Tensor) -> QuadraticForm:
    """The form in the variables that are in neither of the masks ``(n,)``."""
    keep, gone = (~(inside | outside)).nonzero().flatten(), inside.nonzero().flatten()
    rest = form.restrict(keep)
    if not len(gone):
        return rest
    factor = form.factor(gone)
    cross = form.G[gone.unsqueeze(1), keep]
    moved = torch.cholesky_solve(cross, factor)
    fitted = torch.cholesky_solve(form.Q[gone], factor)
    # The variables taken out are fitted - moved X, a function of the others, so the errors of their entries enter the
    # result. A triangular solve is exact for a matrix that differs by a few roundings of its largest entries.
    reach = 1 + float(moved.abs().sum(dim=0).max()) if len(keep) else 1.0
    shift = fitted.abs().sum(dim=0)
    e = form.curvature.entry_error + 8 * len(gone) * EPS * float(form.curvature.diagonal.max())
    return replace(
        rest,
        curvature=Curvature(
            torch.addmm(rest.G, cross.T, moved, alpha=-1),
            rest.curvature.rounded,
            entry_error=e * reach * reach,
            spectral_error=_spectral_error_after(form, gone, moved),
            rank=form.curvature.rank,
        ),
        Q=rest.Q - cross.T @ fitted,
        constant=form.constant - 0.5 * (form.Q[gone] * fitted).sum(dim=0),
        linear_error=(form.linear_error + e * shift) * reach,
        constant_error=form.constant_error + form.linear_error * shift + 0.5 * e * shift.square(),
    )


def _spectral_error_after(form: QuadraticForm, gone: Tensor, moved: Tensor) -> float:
    """The spectral error after minimising over the variables `gone`, which are ``-moved X`` plus a constant.

    The true minimum is at least that of the form with the error subtracted from the diagonal. If the block of `gone` is
    at least twice the error, its inverse grows by at most a factor of two.
    """
    e = form.curvature.spectral_error
    H = form.G[gone.unsqueeze(1), gone] + torch.diag(form.ridge[gone] - 2 * e)
    if e and int(torch.linalg.cholesky_ex(H).info):
        return float("inf")
    return e * (1 + 2 * float(moved.square().sum()))
