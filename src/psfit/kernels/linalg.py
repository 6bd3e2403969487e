"""Small dense linear algebra: factors that do not fail, and Newton's method on batches of problems."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.kernels import kernel

# A product with more columns uses torch's own operation.
MOST_COLUMNS = 16
# With so few columns, a CPU multiplies by one after the other if those of the matrix are contiguous.
FEWEST_COLUMNS = 3
# From this many entries on, the layout of the other factor matters.
LARGE = 4096

# The residual of Newton's method is the root of its decrement as a share of the objective. Below this power of the
# machine epsilon (2e-5 in float64, 8e-3 in float32), a step that gains nothing is the last.
NEAR = 0.3
# Below this residual, the decrement estimates how much there is left to gain.
CLOSE = 0.3

Evaluation = tuple[Tensor, Tensor, Tensor]
Agreement = Callable[..., tuple[Tensor, ...]]
Direction = Callable[[Tensor, Tensor, Tensor], Tensor]


def cholesky(H: Tensor) -> Tensor:
    """Lower Cholesky factor of positive semidefinite matrices ``(..., d, d)``.

    With duplicate columns and a very small ridge, `H` is singular up to rounding. Then the smallest shift for which
    all factors exist is added to the diagonal, relative to each matrix's own diagonal.
    """
    factor, info = torch.linalg.cholesky_ex(H)
    shift = torch.finfo(H.dtype).eps
    while bool((info > 0).any()) and shift < 1:
        factor, info = torch.linalg.cholesky_ex(H + torch.diag_embed(shift * _diagonal_unit(H)))
        shift *= 10
    return factor


def few_columns(A: Tensor, X: Tensor) -> Tensor:
    """``A X`` of a batch ``A (B, m, n)``, ``X (B, n, c)`` with few columns, at the speed of reading `A` if possible."""
    forward = kernel("forward", A.device)
    if forward is None or A.dtype != torch.float32 or not 1 < X.shape[2] <= MOST_COLUMNS:
        if _has_whole_columns(A) and 1 < X.shape[2] <= MOST_COLUMNS:
            return (X.mT @ A.mT).mT.contiguous()
        # The libraries of CPUs are faster if each of a few columns is contiguous.
        few = A.device.type == "cpu" and 1 < X.shape[2] <= MOST_COLUMNS and A.shape[1] * A.shape[2] >= LARGE
        return A @ (X.mT.contiguous().mT if few else X)
    product: Tensor = forward(A, X)[0]
    return product


def few_sums(A: Tensor, R: Tensor) -> Tensor:
    """``A' R`` of ``A (m, n)`` and ``R (m, c)`` with few columns, at the speed of reading `A` if possible."""
    backward = kernel("backward", A.device)
    if backward is None or A.dtype != torch.float32 or not 1 < R.shape[1] <= MOST_COLUMNS:
        if _has_whole_columns(A) and 1 < R.shape[1] <= FEWEST_COLUMNS:
            return torch.stack([A.T.mv(column) for column in R.T.contiguous()], dim=1)
        # For a few columns the libraries are faster in this order.
        return (R.T @ A).T
    sums: Tensor = backward(A, R)
    return sums


def _has_whole_columns(A: Tensor) -> bool:
    """Whether the columns of a matrix on a CPU lie one after the other in memory, as in most tables.

    Its libraries are then several times slower in the usual order of a product with a few columns.
    """
    return A.device.type == "cpu" and A.stride(-2) == 1 and A.stride(-1) >= A.shape[-2] > 1


def solve_spd(H: Tensor, rhs: Tensor) -> Tensor:
    """``H^-1 rhs`` for positive semidefinite ``(..., d, d)`` and ``(..., d, k)``."""
    return torch.cholesky_solve(rhs, cholesky(H))


@dataclass(frozen=True)
class NewtonResult:
    """The point, its value, the relative size of the remaining gradient, and the number of Hessians."""

    x: Tensor
    value: Tensor
    residual: Tensor
    evaluations: int


def is_hopeless(value: Tensor, residual: Tensor, give_up: float) -> Tensor:
    """Whether an objective is so far above `give_up` that four times the predicted decrease would not reach it.

    Far from the minimum the predicted decrease is too small, and the answer is always no.
    """
    decrement = residual.square() * value.abs()
    return (residual < CLOSE) & (value - 2 * decrement > give_up)


def keep_own(*numbers: Tensor) -> tuple[Tensor, ...]:
    """The agreement of a rank that works for itself."""
    return numbers


def newton(
    evaluate: Callable[[Tensor], Evaluation],
    value: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    tol: float,
    max_iter: int,
    give_up: float = float("inf"),
    least_pivot: float = 0.0,
    agree: Agreement = keep_own,
    direct: Direction | None = None,
) -> NewtonResult:
    """Damped Newton's method for a batch of convex problems.

    Parameters
    ----------
    evaluate : callable
        ``x (B, d) -> value (B,), gradient (B, d), Hessian (B, d, d)``.
    value : callable
        ``x (B, d) -> value (B,)`` alone, for the line search.
    x : Tensor (B, d)
        The start.
    tol : float
        Stop when the Newton decrement ``g'H^-1 g`` is below ``tol^2`` times the objective in all problems, or when it
        cannot get smaller because of rounding.
    give_up : float
        Stop if the problem cannot get below this value.
    least_pivot : float
        Stop if a pivot of the Hessian's factor is less than this share of its diagonal entry: then the variables are
        almost dependent, and steps are not reliable.
    agree : callable
        Gives all ranks the same numbers, if several ranks make the same steps: see `Grid.agree`. Values must be the
        same on all ranks, too.
    direct : callable, optional
        ``x, gradient, Hessian -> direction``, where the direction of Newton's method does not serve: with constraints
        it leads to the minimum of the model within them.
    """
    damping = x.new_zeros(len(x))
    ended = torch.zeros_like(damping, dtype=torch.bool)
    previous = torch.full_like(damping, torch.inf)
    evaluation, evaluations = evaluate(x), 1
    for k in range(max_iter + 1):
        current, gradient, hessian = evaluation
        scale = current.abs()
        factor = cholesky(hessian)
        direction = (
            -torch.cholesky_solve(gradient.unsqueeze(-1), factor).squeeze(-1)
            if direct is None
            else direct(x, gradient, hessian)
        )
        direction, decrement = agree(direction, -(gradient * direction).sum(dim=-1))
        residual = (decrement.clamp(min=0) / scale.clamp(min=torch.finfo(x.dtype).tiny)).sqrt()
        at_rounding = (residual < torch.finfo(x.dtype).eps ** 0.5) & (residual > previous / 4)
        done = (residual <= tol) | at_rounding | ended | is_hopeless(current, residual, give_up)
        if k == max_iter or bool(done.all()):
            break
        if least_pivot and float(agree(smallest_pivot(factor, hessian))[0]) < least_pivot:
            break
        previous = residual
        if bool((damping > 0).any()):
            shifted = hessian + torch.diag_embed(damping.unsqueeze(-1) * _diagonal_unit(hessian))
            direction = (
                -solve_spd(shifted, gradient.unsqueeze(-1)).squeeze(-1)
                if direct is None
                else direct(x, gradient, shifted)
            )
            direction, decrement = agree(direction, -(gradient * direction).sum(dim=-1))
        # The full step is almost always accepted, so the next point is evaluated with its Hessian at once.
        ahead = evaluate(x + direction)
        step = _backtrack(value, x, ahead[0], current, direction, decrement, scale)
        whole = bool((step == 1).all())
        x = x + step.unsqueeze(-1) * direction
        evaluation = ahead if whole else evaluate(x)
        evaluations += 1 if whole else 2
        # If no step helps, the curvature ahead is larger than the Hessian's: raise the damping, and lower it later.
        # Close to the minimum, rounding hides the decrease, and there is nothing left to gain.
        eps = torch.finfo(x.dtype).eps
        unmoved = (step == 0) | (current - evaluation[0] <= 8 * eps * scale)
        ended = ended | (unmoved & (residual < eps**NEAR))
        damping = torch.where(step > 0, (damping / 10) * (damping > 1e-6), (10 * damping).clamp(min=1e-3))
        if bool((damping > 1e9).any()):
            break
    return NewtonResult(x, current, residual, evaluations)


def smallest_pivot(factor: Tensor, H: Tensor) -> Tensor:
    """The smallest pivot of the factor, as a share of its diagonal entry in `H`."""
    pivots = factor.diagonal(dim1=-2, dim2=-1).square()
    return (pivots / H.diagonal(dim1=-2, dim2=-1).clamp(min=torch.finfo(H.dtype).tiny)).min()


def _diagonal_unit(H: Tensor) -> Tensor:
    """A positive size for each diagonal entry: its own, or the mean if that is larger.

    The size times eps is a normal number, since many processors and libraries treat subnormal numbers as zero.
    """
    diagonal = H.diagonal(dim1=-2, dim2=-1).abs()
    limits = torch.finfo(H.dtype)
    return torch.maximum(diagonal, diagonal.mean(dim=-1, keepdim=True)).clamp(min=limits.tiny / limits.eps)


def _backtrack(
    value: Callable[[Tensor], Tensor],
    x: Tensor,
    ahead: Tensor,
    current: Tensor,
    direction: Tensor,
    decrement: Tensor,
    scale: Tensor,
) -> Tensor:
    """The longest step of 1, 1/2, 1/4, ... that decreases each problem enough; zero if none of twelve does.

    `ahead` is the value after the full step.
    """
    step, trial = torch.ones_like(current), ahead
    slack = 8 * torch.finfo(x.dtype).eps * scale
    for _ in range(11):
        enough = trial <= current - 1e-4 * step * decrement + slack
        if bool(enough.all()):
            return step
        step = torch.where(enough, step, step / 2)
        trial = value(x + step.unsqueeze(-1) * direction)
    enough = trial <= current - 1e-4 * step * decrement + slack
    return torch.where(enough, step, 0.0)
