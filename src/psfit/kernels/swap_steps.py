"""Steps of searches that are rows of one batch: swaps, forward selection, backward elimination.

A step is the same work each time and does not wait for the device. So a few steps are recorded as one CUDA graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

import torch
from torch import Tensor

from psfit.kernels import kernel
from psfit.kernels.cuda_graph import Replay, Tensors
from psfit.kernels.swap_rows import (
    Form,
    Pivot,
    Rows,
    best_swaps,
    build,
    exchange,
    full_groups,
    pass_table,
    removal_costs,
    values_of,
)

# Steps that are made before the host asks how far they have come.
AT_ONCE = 10
# A state is made again if the value that was carried along is off by this share.
MOST_DRIFT = 1e-6
# At the end of a search, the objective of a state may be off by this share.
MOST_ERROR = 1e-10
EVERY = slice(None)
# The variables of the tables that a GPU goes through in one piece.
TILE = 4


@dataclass(frozen=True)
class Descent:
    """How far the searches by swaps have come, ``(B,)`` each.

    Parameters
    ----------
    value, swaps, most : Tensor
        The objectives, the numbers of swaps, and the most swaps.
    constant, rel_tol : Tensor
        A swap must gain more than ``rel_tol |constant + value|``.
    gains, numbers : Tensor (B, tiles)
        The best swap from the present support in each tile of variables; its number is ``newcomer * W + place``.
    active : Tensor, bool
        Whether a search goes on.
    drifted : Tensor, bool
        Whether a state must be made again from the form before its search goes on.
    before : Tensor
        The objective before the swap that drifted.
    """

    value: Tensor
    swaps: Tensor
    most: Tensor
    constant: Tensor
    rel_tol: Tensor
    gains: Tensor
    numbers: Tensor
    active: Tensor
    drifted: Tensor
    before: Tensor


@dataclass(frozen=True)
class Addition:
    """Forward selection: the most variables ``most (B,)``."""

    most: Tensor


@dataclass(frozen=True)
class Removal:
    """Backward elimination: the fewest variables ``least (B,)``; of each variable how many were left when it had gone.

    ``remained (B, n)`` is -1 for variables that have not gone.
    """

    least: Tensor
    remained: Tensor


def begin(form: Form, rows: Rows, most_swaps: Tensor, constant: float, rel_tol: float) -> Descent:
    """Searches that begin at the supports of `rows`."""
    value, nothing = values_of(form, rows), torch.zeros_like(most_swaps)
    tiles = ceil(len(form.H) / TILE)
    at = Descent(
        value=value,
        swaps=nothing,
        most=most_swaps,
        constant=torch.full_like(value, constant),
        rel_tol=torch.full_like(value, rel_tol),
        gains=torch.empty(len(value), tiles, dtype=value.dtype, device=value.device),
        numbers=torch.zeros(len(value), tiles, dtype=torch.int64, device=value.device),
        active=nothing == 0,
        drifted=nothing > 0,
        before=value.clone(),
    )
    _score(form, rows, at)
    return at


def _score(form: Form, rows: Rows, at: Descent, index: Tensor | slice = EVERY) -> None:
    """Note the best swaps of the rows, which are those with numbers `index` in the progress, in the first tile."""
    gain, number = best_swaps(form, rows)
    at.gains[index] = -torch.inf
    at.gains[index, 0] = gain
    at.numbers[index, 0] = number


def swap(form: Form, rows: Rows, at: Descent) -> None:
    """The best swap in every row that is active; a row ends where none gains enough."""
    exchange_rows, pivot_table = (kernel(name, rows.T.device) for name in ("exchange_rows", "pivot_table"))
    if exchange_rows is None or pivot_table is None:
        pass_table(form, rows, _exchange_best(form, rows, at))
        _score(form, rows, at)
    else:
        pivot_table(form, rows, exchange_rows(form, rows, at, MOST_DRIFT), at.gains, at.numbers)


def _exchange_best(form: Form, rows: Rows, at: Descent) -> Pivot:
    """Exchange the best pairs, and note how far the searches have come."""
    gain, tile = at.gains.max(dim=1)
    number, W = at.numbers.gather(1, tile.unsqueeze(1)).squeeze(1), rows.places.shape[1]
    enough = gain > at.rel_tol * (at.constant + at.value).abs()
    moves = at.active & enough & (at.swaps < at.most)
    pivot = exchange(form, rows, number % W, number // W, moves)
    steady = (pivot.value - (at.value - gain)).abs() <= MOST_DRIFT * pivot.value.abs()
    drifted = moves & ~steady
    at.before.copy_(torch.where(drifted, at.value, at.before))
    at.value.copy_(torch.where(moves, pivot.value, at.value))
    at.swaps.add_(moves)
    at.active.copy_(moves & steady)
    at.drifted.logical_or_(drifted)
    return pivot


def mend(form: Form, rows: Rows, at: Descent) -> None:
    """Make the states that drifted again from the form; their searches go on if the last swap was good."""
    index = at.drifted.nonzero().squeeze(1)
    fresh = build(form, rows.places[index])
    for field in fields(rows):
        getattr(rows, field.name)[index] = getattr(fresh, field.name)
    at.value[index] = values_of(form, fresh)
    _score(form, fresh, at, index)
    at.active.logical_or_(at.drifted & (at.value < at.before))
    at.drifted.fill_(False)


def find_inaccurate(form: Form, rows: Rows, at: Descent) -> Tensor:
    """The rows ``(B,)`` whose coefficients are no minimisers: many small errors of swaps can add up without a drift."""
    index = rows.places.clamp(min=0)
    pull = torch.bmm(rows.x, form.H[index.unsqueeze(2), index.unsqueeze(1)]) - form.Q[:, index].transpose(0, 1)
    error = 0.5 * (rows.x * pull).sum(dim=(1, 2)).abs()
    return ~(error <= MOST_ERROR * at.value.abs())


def add(form: Form, rows: Rows, at: Addition) -> None:
    """Put the variable that lowers the objective most in the first empty place; nothing where none may join."""
    fused = kernel("exchange_rows", rows.T.device)
    if fused is not None:
        pass_table(form, rows, fused(form, rows, at))
        return
    barred = (rows.spot >= 0) | form.fixed | ~(rows.left > form.floor)
    full = full_groups(form, rows)
    if full is not None:
        barred = barred | full
    gains = torch.where(barred, -1.0, rows.d.square().sum(dim=1) / rows.left).nan_to_num(-1.0)
    gain, newcomer = gains.max(dim=1)
    size, room = (rows.places >= 0).sum(dim=1), rows.places.shape[1]
    moves = (gain >= 0) & (size < at.most)
    pass_table(form, rows, exchange(form, rows, size.clamp(max=room - 1), newcomer, moves))


def remove(form: Form, rows: Rows, at: Removal) -> None:
    """Take out the variable that costs least; nothing where all must stay."""
    fused = kernel("exchange_rows", rows.T.device)
    if fused is not None:
        pass_table(form, rows, fused(form, rows, at))
        return
    cost, place = removal_costs(form, rows).min(dim=1)
    size = (rows.places >= 0).sum(dim=1)
    moves = (cost < torch.inf) & (size > at.least)
    pivot = exchange(form, rows, place, torch.full_like(place, -1), moves)
    kept = at.remained.gather(1, pivot.gone)
    at.remained.scatter_(1, pivot.gone, torch.where(pivot.leaves, size.unsqueeze(1) - 1, kept))
    pass_table(form, rows, pivot)


class Repeated:
    """AT_ONCE steps at a time, on a GPU by a graph that is recorded once for forms and states of the same shapes.

    Parameters
    ----------
    step : callable
        Changes states and progress in place.
    kind : type
        The class of the progress.
    """

    def __init__(self, step: Callable[[Form, Rows, Any], None], kind: type, device: torch.device) -> None:
        def function(tensors: Tensors) -> Tensors:
            form, rows, progress = (_pick(part, tensors) for part in (Form, Rows, kind))
            step(form, rows, progress)
            return tensors

        def repeat(tensors: Tensors) -> Tensors:
            for _ in range(AT_ONCE):
                tensors = function(tensors)
            return tensors

        self.kind = kind
        constants = tuple(_name(Form, field.name) for field in fields(Form))
        self.function: Callable[[Tensors], Tensors] = repeat
        if device.type == "cuda":
            self.function = Replay(function, constants=constants, times=AT_ONCE)

    def __call__(self, form: Form, rows: Rows, progress: Any) -> tuple[Rows, Any]:
        """The states and the progress after the steps."""
        found = self.function(_flatten(form) | _flatten(rows) | _flatten(progress))
        return _pick(Rows, found), _pick(self.kind, found)


def _flatten(part: Any) -> Tensors:
    """The tensors of an object under names that tell its class."""
    return {_name(type(part), name): value for name, value in vars(part).items() if value is not None}


def _pick(kind: type, tensors: Tensors) -> Any:
    """An object of a class from tensors under such names; None for those that are not there."""
    return kind(**{field.name: tensors.get(_name(kind, field.name)) for field in fields(kind)})


def _name(kind: type, field: str) -> str:
    return f"{kind.__name__}.{field}"
