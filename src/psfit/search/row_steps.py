"""Steps of searches that are rows of one batch: swaps, forward selection, backward elimination.

A step is the same work each time and does not wait for the device. So a few steps are recorded as one CUDA graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from psfit.kernels.cuda_graph import Replay, Tensors
from psfit.kernels.swap_rows import (
    Form,
    Rows,
    best_swaps,
    build,
    exchange,
    full_groups,
    pass_and_score,
    pass_table,
    removal_costs,
    values_of,
)

# Steps that are made before the host asks how far they have come.
AT_ONCE = 10
# A state is made again if the value that was carried along is off by this share.
MOST_DRIFT = 1e-7


@dataclass(frozen=True)
class Descent:
    """How far the searches by swaps have come, ``(B,)`` each.

    Parameters
    ----------
    value, swaps, most : Tensor
        The objectives, the numbers of swaps, and the most swaps.
    gain, place, newcomer : Tensor
        The best swap from the present support.
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
    gain: Tensor
    place: Tensor
    newcomer: Tensor
    active: Tensor
    drifted: Tensor
    before: Tensor


@dataclass(frozen=True)
class Removal:
    """Backward elimination: the fewest variables ``least (B,)``; of each variable how many were left when it had gone.

    ``remained (B, n)`` is -1 for variables that have not gone.
    """

    least: Tensor
    remained: Tensor


def begin(form: Form, rows: Rows, most_swaps: Tensor) -> Descent:
    """Searches that begin at the supports of `rows`."""
    value, best = values_of(form, rows), best_swaps(form, rows)
    nothing = torch.zeros_like(value, dtype=torch.bool)
    swaps = torch.zeros_like(most_swaps)
    return Descent(
        value, swaps, most_swaps, best.gain, best.place, best.newcomer, ~nothing, nothing.clone(), value.clone()
    )


def swap(form: Form, rows: Rows, at: Descent, constant: float, rel_tol: float) -> Descent:
    """The best swap in every row that is active; a row ends where none gains enough."""
    enough = at.gain > rel_tol * (constant + at.value).abs()
    moves = at.active & enough & (at.swaps < at.most)
    pivot = exchange(form, rows, at.place, at.newcomer, moves)
    best, value = pass_and_score(form, rows, pivot), torch.where(moves, pivot.value, at.value)
    drifted = moves & ~((value - (at.value - at.gain)).abs() <= MOST_DRIFT * value.abs())
    return Descent(
        value,
        at.swaps + moves,
        at.most,
        best.gain,
        best.place,
        best.newcomer,
        moves & ~drifted,
        at.drifted | drifted,
        torch.where(drifted, at.value, at.before),
    )


def mend(form: Form, rows: Rows, at: Descent) -> Descent:
    """Make the states that drifted again from the form; their searches go on if the last swap was good."""
    index = at.drifted.nonzero().squeeze(1)
    fresh = build(form, rows.places[index])
    for field in fields(rows):
        getattr(rows, field.name)[index] = getattr(fresh, field.name)
    value = at.value.index_copy(0, index, values_of(form, fresh))
    best = best_swaps(form, rows)
    return replace(
        at,
        value=value,
        gain=best.gain,
        place=best.place,
        newcomer=best.newcomer,
        active=at.active | (at.drifted & (value < at.before)),
        drifted=torch.zeros_like(at.drifted),
    )


def add(form: Form, rows: Rows) -> None:
    """Put the variable that lowers the objective most in the first empty place; nothing where none may join."""
    barred = (rows.spot >= 0) | form.fixed | ~(rows.left > form.floor)
    full = full_groups(form, rows)
    if full is not None:
        barred = barred | full
    gains = torch.where(barred, -1.0, rows.d.square().sum(dim=1) / rows.left).nan_to_num(-1.0)
    gain, newcomer = gains.max(dim=1)
    size, room = (rows.places >= 0).sum(dim=1), rows.places.shape[1]
    moves = (gain >= 0) & (size < room)
    pass_table(form, rows, exchange(form, rows, size.clamp(max=room - 1), newcomer, moves))


def remove(form: Form, rows: Rows, at: Removal) -> None:
    """Take out the variable that costs least; nothing where all must stay."""
    cost, place = removal_costs(form, rows).min(dim=1)
    size = (rows.places >= 0).sum(dim=1)
    moves = (cost < torch.inf) & (size > at.least)
    pivot = exchange(form, rows, place, torch.full_like(place, -1), moves)
    kept = at.remained.gather(1, pivot.gone)
    at.remained.scatter_(1, pivot.gone, torch.where(pivot.leaves, size.unsqueeze(1) - 1, kept))
    pass_table(form, rows, pivot)


class Repeated:
    """Some steps at a time, on a GPU as a graph that is recorded once.

    Parameters
    ----------
    step : callable
        From states and progress to the next progress; the states are changed in place.
    kind : type
        The class of the progress.
    """

    def __init__(self, step: Callable[[Rows, Any], Any], kind: type, device: torch.device) -> None:
        def function(tensors: Tensors) -> Tensors:
            rows = Rows(**{name: tensors[name] for name in names})
            progress = kind(**{name: value for name, value in tensors.items() if name not in names})
            for _ in range(AT_ONCE):
                progress = step(rows, progress)
            return vars(rows) | vars(progress)

        names = [field.name for field in fields(Rows)]
        self.kind, self.names = kind, names
        self.function: Callable[[Tensors], Tensors] = Replay(function) if device.type == "cuda" else function

    def __call__(self, rows: Rows, progress: Any) -> tuple[Rows, Any]:
        """The states and the progress after the steps."""
        found = self.function(vars(rows) | vars(progress))
        rest = {name: value for name, value in found.items() if name not in self.names}
        return Rows(**{name: found[name] for name in self.names}), self.kind(**rest)
