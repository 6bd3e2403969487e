"""Swap search in a quadratic form for many supports at once, as operations on tensors of one device.

It is the search of `cpu.swaps`, and the names are the same. Every support is a row of a batch. With ``K = H_SS^-1`` the
table `T` of a row has the row ``H[k, S] K`` for a variable k outside the support, and the row of `K` for one inside. So
a swap changes all rows of the table by the same rule, and reads and writes the table once. No function but `build`
waits for the device, so the others can be recorded as a CUDA graph.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.kernels import kernel
from psfit.kernels.linalg import cholesky


@dataclass(frozen=True)
class Form:
    """The objective ``sum_o x_o'H x_o / 2 - q_o'x_o`` over the outputs o, and the rules for supports.

    Parameters
    ----------
    H : Tensor (n, n)
    Q : Tensor (c, n)
    floor : Tensor (n,)
        A variable whose Schur complement is not above this depends on the support, up to rounding.
    fixed : Tensor (n,), bool
        Variables that stay in or out.
    group : Tensor (n,) of integers, optional
        A variable of a group ``>= 0`` may join only while fewer than ``most[group]`` of the group are inside.
    most : Tensor (groups,) of integers
    """

    H: Tensor
    Q: Tensor
    floor: Tensor
    fixed: Tensor
    group: Tensor | None
    most: Tensor


@dataclass(frozen=True)
class Rows:
    """The states of B supports with at most W variables each.

    Parameters
    ----------
    places : Tensor (B, W) of integers
        The variables of the supports; -1 for an empty place.
    spot : Tensor (B, n) of integers
        The place of each variable; -1 for one outside.
    T : Tensor (B, n, W)
        The table; zero in the columns of empty places.
    own : Tensor (B, W)
        The diagonal of `K`; one for an empty place.
    x : Tensor (B, c, W)
    d : Tensor (B, c, n)
        The gradient, for variables outside.
    left : Tensor (B, n)
        The Schur complements of the variables outside.
    taken : Tensor (B, groups) of integers
        How many variables of each group are inside.
    """

    places: Tensor
    spot: Tensor
    T: Tensor
    own: Tensor
    x: Tensor
    d: Tensor
    left: Tensor
    taken: Tensor


@dataclass(frozen=True)
class Pivot:
    """What an exchange does to the table.

    Parameters
    ----------
    moves, joins, leaves : Tensor (B, 1), bool
        Whether anything happens in a row; whether a variable joins; whether one leaves.
    place, newcomer, gone : Tensor (B, 1) of integers
    own, t, s : Tensor (B, 1)
        The entry of `K` of the variable that leaves; the newcomer's entry for it; the newcomer's Schur complement after
        it has left.
    f, u, h : Tensor (B, W)
        The shares of the variable that leaves; the newcomer's row of the table after that; its row of `H`.
    pull, step : Tensor (B, c, 1)
        What moves the gradients.
    costs : Tensor (B, W)
        What it costs after the exchange to take out the variable of each place; see `removal_costs`.
    value : Tensor (B,)
        The objective after the exchange.
    """

    moves: Tensor
    joins: Tensor
    leaves: Tensor
    place: Tensor
    newcomer: Tensor
    gone: Tensor
    own: Tensor
    t: Tensor
    s: Tensor
    f: Tensor
    u: Tensor
    h: Tensor
    pull: Tensor
    step: Tensor
    costs: Tensor
    value: Tensor


def build(form: Form, places: Tensor) -> Rows:
    """The states of supports with the variables ``places (B, W)``; -1 for an empty place."""
    (B, W), n = places.shape, len(form.H)
    filled, index = places >= 0, places.clamp(min=0)
    row, place = filled.nonzero(as_tuple=True)
    variable = places[row, place]
    both = filled.unsqueeze(2) & filled.unsqueeze(1)
    unit = torch.eye(W, dtype=form.H.dtype, device=form.H.device)
    among = torch.where(both, form.H[index.unsqueeze(2), index.unsqueeze(1)], unit)
    across = form.H[index] * filled.unsqueeze(2)
    linear = (form.Q[:, index] * filled).permute(1, 2, 0)
    # Products with the inverse of the whole matrix would lose many more digits than those with the inverse of its
    # factor where variables nearly depend on each other.
    inverse = torch.linalg.solve_triangular(_factor(among), unit.expand_as(among), upper=False)
    K = torch.bmm(inverse.mT, inverse)
    half = torch.bmm(inverse, across)
    T = torch.bmm(half.mT, inverse)
    x = torch.bmm(torch.bmm(inverse, linear).mT, inverse)
    left = form.H.diagonal() - half.square().sum(dim=1)
    d = torch.bmm(x, across) - form.Q
    T[row, variable] = K[row, place]
    spot = torch.full((B, n), -1, device=places.device)
    spot[row, variable] = place
    taken = torch.zeros(B, len(form.most), dtype=torch.int64, device=places.device)
    if form.group is not None:
        group = form.group[index]
        taken.scatter_add_(1, group.clamp(min=0), (filled & (group >= 0)).to(torch.int64))
    return Rows(places.clone(), spot, T, K.diagonal(dim1=1, dim2=2).clone(), x, d, left, taken)


def _factor(among: Tensor) -> Tensor:
    """Lower Cholesky factors ``(B, W, W)``; with shifted diagonals where variables depend on each other."""
    factor, info = torch.linalg.cholesky_ex(among)
    failed = (info > 0).nonzero().squeeze(1)
    if len(failed):
        factor[failed] = cholesky(among[failed])
    return factor


def are_sound(form: Form, rows: Rows) -> Tensor:
    """Whether no variable of a row ``(B,)`` depends on the others inside, up to rounding."""
    shares = rows.own * form.floor[rows.places.clamp(min=0)]
    return ((rows.places < 0) | ((rows.own > 0) & (shares < 1))).all(dim=1) & rows.x.isfinite().all(dim=(1, 2))


def values_of(form: Form, rows: Rows) -> Tensor:
    """The objectives ``(B,)`` at the minimisers on the supports."""
    return -0.5 * (form.Q[:, rows.places.clamp(min=0)].transpose(0, 1) * rows.x).sum(dim=(1, 2))


def exchange(form: Form, rows: Rows, place: Tensor, newcomer: Tensor, moves: Tensor) -> Pivot:
    """Put variables ``newcomer (B,)`` in the ``place (B,)`` of rows that move; -1 for none.

    Everything is changed but the table, `left` and `d`: these follow by `pass_table`.
    """
    fused = kernel("exchange_rows", rows.T.device)
    if fused is not None:
        found: Pivot = fused(form, rows, (place, newcomer, moves))
        return found
    j, enters, moves = place.unsqueeze(1), newcomer.unsqueeze(1), moves.unsqueeze(1)
    held, filled = rows.places.gather(1, j), rows.places >= 0
    joins, leaves = moves & (enters >= 0), moves & (held >= 0)
    i, gone, index = enters.clamp(min=0), held.clamp(min=0), rows.places.clamp(min=0)
    batch = torch.arange(len(place), device=place.device).unsqueeze(1)
    own = torch.where(leaves, rows.own.gather(1, j), 1.0)
    f = torch.where(leaves & filled, rows.T[batch, index, j] / own, 0.0)
    row = rows.T[batch.squeeze(1), i.squeeze(1)]
    t = torch.where(leaves & joins, row.gather(1, j), 0.0)
    u = torch.where(joins, row - f * t, 0.0).scatter(1, j, 0.0)
    s = torch.where(joins, rows.left.gather(1, i) + t * t / own, 1.0)
    h = torch.where(joins & filled, form.H[i, index], 0.0)
    outputs = (-1, rows.x.shape[1], 1)
    at_place, at_newcomer = j.unsqueeze(1).expand(outputs), i.unsqueeze(1).expand(outputs)
    pulled = torch.where(leaves.unsqueeze(2), rows.x.gather(2, at_place), 0.0)
    pull = pulled / own.unsqueeze(2)
    force = rows.d.gather(2, at_newcomer) - t.unsqueeze(2) * pull
    step = torch.where(joins.unsqueeze(2), -force / s.unsqueeze(2), 0.0)
    kept = torch.where(moves.unsqueeze(2), step, rows.x.gather(2, at_place))
    rows.x.sub_(f.unsqueeze(1) * pulled + u.unsqueeze(1) * step).scatter_(2, at_place, kept)
    diagonal = torch.where(moves, 1 / s, rows.own.gather(1, j))
    rows.own.add_(u * u / s - f * f * own).scatter_(1, j, diagonal)
    rows.places.scatter_(1, j, torch.where(joins, i, torch.where(leaves, -1, held)))
    _rename(form, rows, (j, i, gone), joins, leaves)
    costs, value = removal_costs(form, rows), values_of(form, rows)
    return Pivot(moves, joins, leaves, j, i, gone, own, t, s, f, u, h, pull, step, costs, value)


def _rename(form: Form, rows: Rows, names: tuple[Tensor, Tensor, Tensor], joins: Tensor, leaves: Tensor) -> None:
    """Note which variables have left and joined: the place, the newcomer, the one that has gone, ``(B, 1)`` each."""
    j, i, gone = names
    rows.spot.scatter_(1, gone, torch.where(leaves, -1, rows.spot.gather(1, gone)))
    rows.spot.scatter_(1, i, torch.where(joins, j, rows.spot.gather(1, i)))
    if form.group is not None:
        for variable, counted, sign in ((i, joins, 1), (gone, leaves, -1)):
            group = form.group[variable]
            rows.taken.scatter_add_(1, group.clamp(min=0), sign * (counted & (group >= 0)).to(torch.int64))


def pass_table(form: Form, rows: Rows, pivot: Pivot) -> None:
    """Change the table, the gradients and the Schur complements by an exchange."""
    fused = kernel("pivot_table", rows.T.device)
    if fused is not None:
        fused(form, rows, pivot, None, None)
        return
    (B, n, W), j = rows.T.shape, pivot.place
    batch = torch.arange(B, device=j.device)
    # The row of a variable that leaves is a unit vector before the others follow.
    gone, unit = pivot.gone.squeeze(1), torch.zeros(B, W, dtype=rows.T.dtype, device=j.device).scatter_(1, j, 1.0)
    rows.T[batch, gone] = torch.where(pivot.leaves, unit, rows.T[batch, gone])
    rows.left.scatter_(1, pivot.gone, torch.where(pivot.leaves, 0.0, rows.left.gather(1, pivot.gone)))
    at_gone = pivot.gone.unsqueeze(1).expand(-1, rows.d.shape[1], -1)
    rows.d.scatter_(2, at_gone, torch.where(pivot.leaves.unsqueeze(2), 0.0, rows.d.gather(2, at_gone)))
    at_place = j.unsqueeze(1).expand(-1, n, -1)
    column = rows.T.gather(2, at_place)
    v = torch.where(pivot.leaves, column.squeeze(2), 0.0)
    r = form.H[pivot.newcomer.squeeze(1)] - torch.bmm(rows.T, pivot.h.unsqueeze(2)).squeeze(2) + pivot.t / pivot.own * v
    r = torch.where(rows.spot >= 0, -pivot.u.gather(1, rows.spot.clamp(min=0)), r)
    r = torch.where(pivot.joins, r, 0.0)
    g = r / pivot.s
    rows.T.baddbmm_(torch.stack([v, g], dim=2), torch.stack([pivot.f, pivot.u], dim=1), alpha=-1)
    rows.T.scatter_(2, at_place, torch.where(pivot.moves.unsqueeze(2), g.unsqueeze(2), column))
    i = pivot.newcomer.squeeze(1)
    inverse = (-pivot.u / pivot.s).scatter_(1, j, 1 / pivot.s)
    rows.T[batch, i] = torch.where(pivot.joins, inverse, rows.T[batch, i])
    outside = pivot.moves & (rows.spot < 0)
    rows.left.add_(torch.where(outside, v * v / pivot.own - r * g, 0.0))
    change = r.unsqueeze(1) * pivot.step - v.unsqueeze(1) * pivot.pull
    rows.d.add_(torch.where(outside.unsqueeze(1), change, 0.0))


def removal_costs(form: Form, rows: Rows) -> Tensor:
    """What it costs to take out the variable of each place ``(B, W)``; infinite where none may leave."""
    may_leave = (rows.places >= 0) & ~form.fixed[rows.places.clamp(min=0)]
    return torch.where(may_leave, 0.5 * rows.x.square().sum(dim=1) / rows.own, torch.inf)


def full_groups(form: Form, rows: Rows) -> Tensor | None:
    """Whether the group of a variable ``(B, n)`` is full."""
    if form.group is None:
        return None
    index = form.group.clamp(min=0)
    return (form.group >= 0) & (rows.taken >= form.most)[:, index]


def swap_gains(form: Form, rows: Rows) -> Tensor:
    """The gains of all swaps ``(B, n, W)``; minus infinity for those that are not allowed."""
    ratio = rows.T / rows.own.unsqueeze(1)
    curvature = (rows.T * ratio).add_(rows.left.clamp(min=0).unsqueeze(2))
    force = torch.zeros_like(ratio)
    for d, x in zip(rows.d.unbind(1), rows.x.unbind(1), strict=True):
        force += (d.unsqueeze(2) - ratio * x.unsqueeze(1)).square_()
    gains = (0.5 * force / curvature).sub_(removal_costs(form, rows).unsqueeze(1))
    barred = ((rows.spot >= 0) | form.fixed).unsqueeze(2) | ~(curvature > form.floor.unsqueeze(1)) | gains.isnan()
    full = full_groups(form, rows)
    if full is not None and form.group is not None:
        of_place = torch.where(rows.places >= 0, form.group[rows.places.clamp(min=0)], -1)
        barred |= full.unsqueeze(2) & (of_place.unsqueeze(1) != form.group.unsqueeze(1))
    return gains.masked_fill_(barred, -torch.inf)


def best_swaps(form: Form, rows: Rows) -> tuple[Tensor, Tensor]:
    """Gain and number ``newcomer * W + place`` of the best swap of each row ``(B,)``; the first of equal ones."""
    gain, number = swap_gains(form, rows).flatten(1).max(dim=1)
    return gain, number
