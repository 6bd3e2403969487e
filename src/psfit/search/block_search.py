"""Searches in a quadratic form of items with several variables, such as whole groups of features.

The variables of an item may lie anywhere in the form, and items may have different numbers of them. Here they are put
in order, item by item. Columns of one item that depend on each other, as those of all levels of a category do, are
replaced by fewer that do not: which items a support has does not depend on the basis of their columns.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.linalg import solve_spd
from psfit.problem import Domain
from psfit.search.form_search import End, FormSearch, SearchForm

# Directions of an item with less than this share of its curvature belong to no basis. It is this many times the share
# below which a variable depends on others.
DEPENDENT = 10.0


class BlockSearch(FormSearch):
    """Searches in one form, for the supports of items of several variables that a domain (a batch of one) allows."""

    def __init__(self, form: SearchForm, domain: Domain, rel_tol: float) -> None:
        super().__init__(form, domain, rel_tol)
        self.H, self.Q, self.widths = _order_variables(form, self.items)
        self.intercepts = np.arange(int(self.widths.sum()), len(self.H))
        self.mean_width = len(self.H) / self.items
        weights = domain.items.weights
        self.weights = None if weights is None else weights.cpu().numpy()

    def measure(self, chosen: np.ndarray) -> int:
        return int(chosen.sum()) if self.weights is None else int(self.weights[chosen].sum())

    def _limit(self, chosen: np.ndarray) -> int:
        """What a support may take of its limit: with weights, the next larger one of the limits."""
        used = self.measure(chosen)
        return used if self.weights is None else min((limit for limit in self.limits if limit >= used), default=used)

    def perturb(self, chosen: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
        if self.weights is None:
            return super().perturb(chosen, share, generator)
        removable, newcomers = np.flatnonzero(chosen & ~self.fixed), np.flatnonzero(~chosen & ~self.fixed)
        start, count = chosen.copy(), max(1, round(share * len(removable)))
        start[generator.permutation(removable)[:count]] = False
        spare = self._limit(chosen) - self.measure(start)
        for item in generator.permutation(newcomers):
            if self.weights[item] <= spare:
                start[item] = True
                spare -= self.weights[item]
        return start

    @cached_property
    def _rules(self) -> Any:
        domain = self.domain
        group = np.full(self.items, -1) if domain.group is None else domain.group.cpu().numpy()
        most = np.zeros(1, dtype=np.int64) if domain.most is None else domain.most.cpu().numpy()
        return self._kernels.make_rules(
            self.fixed, group, most, len(self.H), self.widths, self.form.accuracy, self.weights
        )

    @cached_property
    def _kernels(self) -> Any:
        from psfit.kernels.cpu import block_swaps

        return block_swaps

    def grow(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        state, size, supports = self._build(chosen, limits[-1]), self._size(chosen), []
        for limit in limits:
            size = self._kernels.grow(self.H, self.Q, state, size, limit, self._rules)
            supports.append(self._chosen(state.places[:size]))
        self._count(size, limits[-1])
        return supports

    def shrink(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        state, size, supports = self._build(chosen), self._size(chosen), []
        self._count(size, 2 * int(chosen.sum()))
        for limit in limits:
            size = self._kernels.shrink(self.H, self.Q, state, size, limit, self._rules)
            supports.append(self._chosen(state.places[:size]))
        return supports

    def single_swaps(self, base: np.ndarray, count: int) -> list[End]:
        state, size, limit = self._build(base), self._size(base), self._limit(base)
        gains, partners = np.empty(self.items), np.empty(self.items, dtype=np.int64)
        self._kernels.score_newcomers(self.H, state, size, limit, self._rules, gains, partners)
        value, found = self._kernels.value_of(self.Q, state, size) + self.form.constant, []
        for newcomer in np.argsort(-gains, kind="stable")[:count]:
            if gains[newcomer] > self.rel_tol * abs(value):
                chosen = base.copy()
                chosen[self._rules.owner[state.places[partners[newcomer]]]], chosen[newcomer] = False, True
                found.append(End(chosen, value - float(gains[newcomer])))
        return found

    def _descend_from(self, state: Any, base: np.ndarray, start: np.ndarray, most_swaps: int) -> End:
        limit = self._limit(base)
        chosen, value, swaps = self._kernels.descend_from(
            *(self.H, self.Q, state, self._size(base), start, limit, self._rules),
            *(self.form.constant, self.rel_tol, most_swaps),
        )
        return End(chosen, value + self.form.constant, swaps + int((start & ~base).sum()))

    def _build(self, chosen: np.ndarray, most: int | None = None) -> Any:
        """The state of a support, with room for any support within its limit, or within `most`."""
        count = max(self._limit(chosen), 0 if most is None else most)
        variables = np.concatenate([self.intercepts, np.flatnonzero(np.repeat(chosen, self.widths))])
        # With weights a limit allows at most as many items as it is large, and as many features.
        widest = int(np.sort(self.widths)[::-1][:count].sum())
        outputs = 1 if self.weights is None else int(np.ceil(self.widths / self.weights).max())
        room = len(self.intercepts) + (widest if self.weights is None else min(widest, count * outputs))
        places = np.zeros(max(room, len(variables)), dtype=np.int64)
        places[: len(variables)] = variables
        return self._kernels.build(self.H, self.Q, places, len(variables), self._rules)

    def _chosen(self, places: np.ndarray) -> np.ndarray:
        chosen = np.zeros(self.items, dtype=bool)
        owner = self._rules.owner[places]
        chosen[owner[owner >= 0]] = True
        return chosen

    def _size(self, chosen: np.ndarray) -> int:
        return len(self.intercepts) + int(self.widths[chosen].sum())

    def _count(self, size: int, swaps: int) -> None:
        super()._count(size, round(swaps * self.mean_width))


def _order_variables(form: SearchForm, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The form on the host with the variables of each item side by side, and how many each has."""
    H, Q = form.H.cpu(), form.Q.cpu()
    item = torch.arange(items).repeat_interleave(form.width) if form.item is None else form.item.cpu()
    order = item.argsort(stable=True)
    widths = item.bincount(minlength=items)
    rest = torch.arange(len(item), len(H))
    if not torch.equal(order, torch.arange(len(order))):
        whole = torch.cat([order, rest])
        H, Q = H[whole.unsqueeze(1), whole], Q[whole]
    H, Q, widths = _drop_dependent(H, Q, widths, len(rest), DEPENDENT * form.accuracy)
    return np.ascontiguousarray(H.numpy()), np.ascontiguousarray(Q.numpy()), widths.numpy()


def _drop_dependent(
    H: Tensor, Q: Tensor, widths: Tensor, intercepts: int, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The form without directions of an item that have at most a `share` of its curvature, given the intercepts."""
    free = H[len(H) - intercepts :, len(H) - intercepts :]
    # Where all samples are sure of their class, the intercepts have no curvature.
    moved = solve_spd(free, H[len(H) - intercepts :]) if intercepts else H[:0]
    ends = widths.cumsum(0)
    bases: list[tuple[slice, Tensor]] = []
    for width in widths[widths > 1].unique().tolist():
        numbers = (widths == width).nonzero().flatten()
        rows = (ends[numbers] - width).unsqueeze(1) + torch.arange(width)
        blocks = H[rows.unsqueeze(2), rows.unsqueeze(1)]
        own = blocks.diagonal(dim1=1, dim2=2)
        if intercepts:
            blocks = blocks - H[rows][:, :, len(H) - intercepts :] @ moved[:, rows].transpose(0, 1)
        scale = own.sqrt()
        values, vectors = torch.linalg.eigh(blocks / (scale.unsqueeze(2) * scale.unsqueeze(1)))
        for k in (values[:, 0] <= share).nonzero().flatten().tolist():
            least = min(share, 0.5 * float(values[k, -1]))
            kept = vectors[k][:, values[k] > least] / scale[k].unsqueeze(1)
            bases.append((slice(int(rows[k, 0]), int(rows[k, -1]) + 1), kept))
            widths = widths.index_fill(0, numbers[k : k + 1], kept.shape[1])
    if not bases:
        return H, Q, widths
    change = torch.eye(len(H), dtype=H.dtype)
    gone = torch.zeros(len(H), dtype=torch.bool)
    for at, kept in bases:
        change[at, at] = torch.nn.functional.pad(kept, (0, at.stop - at.start - kept.shape[1]))
        gone[at.start + kept.shape[1] : at.stop] = True
    change = change[:, ~gone]
    return change.T @ H @ change, change.T @ Q, widths
