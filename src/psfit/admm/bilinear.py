"""The bilinear step: the only part of Bi-cADMM that knows about sparsity.

The limit ``||z||_0 <= kappa`` is written as ``s'z = t``, ``||z||_1 <= t``, ``||s||_1 <= kappa``, ``||s||_inf <= 1``.
Given the consensus mean ``c`` of ``x_i + u_i`` the paper's global updates are, with ``g(z, s, t) = s'z - t``,

    (z, t) = argmin_{||z||_1 <= t}  N rho_c / 2 ||z - c||^2 + rho_b / 2 (g(z, s, t) + v)^2
    s      = argmin_{s in S_kappa}  (g(z, s, t) + v)^2
    v     += g(z, s, t)

Each has a closed form. Here it is vectorised over independent problems (rows), without synchronisation with the host.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.kernels import kernel
from psfit.problem import Domain, Items, largest

# Up to this many items, in float32, a GPU makes the whole step of a problem in one kernel.
MOST_FUSED = 16384
# Each halving of the interval of tau adds a binary digit.
HALVINGS = 60


@dataclass(frozen=True)
class BilinearState:
    """Coefficients ``z (p + free, c)``; ``s (problems, size)``; ``t``, ``v`` and the residual ``|g| (problems, 1)``."""

    z: Tensor
    s: Tensor
    t: Tensor
    v: Tensor
    residual: Tensor


def bilinear_start(z: Tensor, kappa: Tensor, items: Items) -> BilinearState:
    """The state at the point `z` with multiplier ``v = 0``."""
    packed = items.pack(z)
    size = packed.abs()
    v = torch.zeros_like(kappa, dtype=z.dtype)
    return BilinearState(z, _signs_of_largest(packed, kappa), size.sum(dim=1, keepdim=True), v, v)


def bilinear_step(state: BilinearState, mean: Tensor, kappa: Tensor, ratio: Tensor, items: Items) -> BilinearState:
    """One pass of the (z, t), s and v updates.

    Parameters
    ----------
    state : BilinearState
    mean : Tensor (p + free, c)
        ``c = mean(x_i + u_i)``; its free rows pass through unchanged.
    kappa : Tensor (problems, 1)
    ratio : Tensor (problems, 1)
        ``rho_b / (N rho_c)``.
    items : Items
    """
    before = items.pack(mean)
    packed, s, t, v, residual = _update(before, state, kappa, ratio)
    return BilinearState(items.replace(mean, packed, before), s, t, v, residual)


def _update(center: Tensor, state: BilinearState, kappa: Tensor, ratio: Tensor) -> tuple[Tensor, ...]:
    """The results of `update_by_sorting`, by one kernel where there is one."""
    fused = kernel("sparsify", center.device)
    if fused is None or (center.is_cuda and (center.dtype != torch.float32 or center.shape[1] > MOST_FUSED)):
        fused = update_by_sorting
    updated: tuple[Tensor, ...] = fused(center, state.s, state.v, kappa, ratio)
    return updated


def restricted_step(state: BilinearState, mean: Tensor, kappa: Tensor, ratio: Tensor, domain: Domain) -> BilinearState:
    """The same where items are decided or coefficients have bounds; `kappa` counts the items inside, too.

    Items inside pass through, items outside are zero, and the limit holds for the others. The step of z projects: with
    bounds on single coefficients it is the exact minimiser in the box. Rows of several outputs are moved into the box
    after the step.
    """
    items, box = domain.items, domain.box
    mean = mean if box is None else box.clip_signs(mean)
    if not domain.decided and (box is None or box.limits_only_signs):
        return bilinear_step(state, mean, kappa, ratio, items)
    whole = items.pack(mean)
    center = torch.where(domain.free, whole, 0.0)
    left = (kappa - domain.inside.sum(dim=1, keepdim=True)).clamp(min=0)
    if box is None or box.limits_only_signs or items.width > 1:
        packed, s, t, v, residual = _update(center, state, left, ratio)
    else:
        low, high = items.pack(box.low).to(center), items.pack(box.high).to(center)
        most = torch.where(center < 0, -low, high)
        packed, s, t, v, residual = update_by_sorting(center, state.s, state.v, left, ratio, most)
    z = items.replace(mean, torch.where(domain.inside, whole, packed), whole)
    return BilinearState(z if box is None or box.limits_only_signs else box.clip(z), s, t, v, residual)


def update_by_sorting(
    center: Tensor, s: Tensor, v: Tensor, kappa: Tensor, ratio: Tensor, most: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The new ``z, s (problems, size)`` and ``t, v, |g| (problems, 1)`` from a packed mean ``center``.

    No item gets a magnitude above ``most (problems, size)``.
    """
    # (z, t): eliminating t leaves a weighted soft threshold, h(z) = ||z||_1 - s'z = sum_j w_j |z_j|.
    w = 1 - s * center.sign()
    size = center.abs()
    tau = threshold(size, w, v, ratio) if most is None else threshold_below(size, w, v, ratio, most)
    size = (size - tau * w).clamp(min=0)
    packed = center.sign() * (size if most is None else torch.minimum(size, most))
    l1 = packed.abs().sum(dim=1, keepdim=True)
    t = torch.maximum(l1, (s * packed).sum(dim=1, keepdim=True) + v)
    # s: the signs of the kappa largest entries, scaled down if s'z would exceed t - v.
    s = _signs_of_largest(packed, kappa)
    reach = (s * packed).sum(dim=1, keepdim=True)
    s = s * torch.where(reach > 0, (t - v) / reach, 1.0).clamp(-1, 1)
    # v: the scaled multiplier of g = 0.
    g = (s * packed).sum(dim=1, keepdim=True) - t
    return packed, s, t, v + g, g.abs()


def threshold(a: Tensor, w: Tensor, v: Tensor, ratio: Tensor) -> Tensor:
    """The root ``tau >= 0`` of ``tau = ratio [h(tau) - v]_+``, ``h(tau) = sum_j w_j max(a_j - tau w_j, 0)``.

    The right side falls piecewise linearly with kinks at ``a_j / w_j``. With the kinks in falling order and two
    cumulative sums, the equation is tested at every kink at once. Entries with kinks above the root are active, and
    on them the equation is linear. All arguments are ``(problems, size)`` or ``(problems, 1)``, ``a, w >= 0``.
    """
    kinks = torch.where(w > 0, a / w, 0.0)
    kinks, order = kinks.sort(dim=1, descending=True)
    w, a = w.gather(1, order), a.gather(1, order)
    first = (w * a).cumsum(dim=1, dtype=torch.float64)
    second = w.square().cumsum(dim=1, dtype=torch.float64)
    active = (ratio * (first - kinks * second - v) < kinks).sum(dim=1, keepdim=True)
    last = (active - 1).clamp(min=0)
    some = active > 0
    first = torch.where(some, first.gather(1, last), 0.0)
    second = torch.where(some, second.gather(1, last), 0.0)
    return (ratio * (first - v) / (1 + ratio * second)).clamp(min=0).to(a.dtype)


def threshold_below(a: Tensor, w: Tensor, v: Tensor, ratio: Tensor, most: Tensor) -> Tensor:
    """The same root with ``h(tau) = sum_j w_j min(max(a_j - tau w_j, 0), most_j)``, by halving an interval.

    The right side falls in tau, so the root lies between zero and the right side at zero.
    """

    def right(tau: Tensor) -> Tensor:
        size = torch.minimum((a - tau * w).clamp(min=0), most)
        return (ratio * ((w * size).sum(dim=1, keepdim=True) - v)).clamp(min=0)

    low = torch.zeros_like(ratio * v)
    high = right(low)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = right(middle) > middle
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return high


def _signs_of_largest(packed: Tensor, kappa: Tensor) -> Tensor:
    return torch.where(largest(packed, kappa), packed.sign(), 0.0)
