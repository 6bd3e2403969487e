"""Searches in a quadratic form on its own device: all searches of a call are rows of one batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.swap_rows import Form, Rows, are_sound, build, exchange, pass_table, swap_gains, values_of
from psfit.kernels.swap_steps import (
    AT_ONCE,
    Addition,
    Descent,
    Removal,
    Repeated,
    add,
    begin,
    find_inaccurate,
    mend,
    remove,
    swap,
)
from psfit.problem import Domain
from psfit.search.block_search import BlockSearch
from psfit.search.bounded_search import BoundedSearch
from psfit.search.form_search import MOST_SWAPS, End, FormSearch, SearchForm
from psfit.search.reduced_search import ReducedSearch
from psfit.search.structured_search import StructuredSearch

# Tables of all variables and the largest support with fewer entries than this are searched faster on the host.
LEAST_TABLE = 1e5
# The tables of a batch have at most so many bytes; a few copies of them exist while they are made and scored.
MOST_BYTES = 2**30


# Steps that were recorded, by what they do and the shapes of what they work on.
Recordings = dict[tuple[object, ...], Repeated]


def make_search(form: SearchForm, domain: Domain, rel_tol: float, recordings: Recordings | None = None) -> FormSearch:
    """Searches on the form's own device where that is faster; else by compiled loops on the host."""
    if domain.heredity is not None or (domain.box is not None and (form.in_blocks or form.Q.shape[1] > 1)):
        return StructuredSearch(form, domain, rel_tol)
    if domain.box is not None:
        return BoundedSearch(form, domain, rel_tol)
    if form.in_blocks:
        return BlockSearch(form, domain, rel_tol)
    if bool(domain.inside.any()) and domain.weights is None and int(domain.left) > 0:
        return ReducedSearch(form, domain, rel_tol, lambda left, rest: make_search(left, rest, rel_tol, recordings))
    table = len(form.H) * int(domain.limit)
    if form.H.device.type == "cuda" and table >= LEAST_TABLE:
        return BatchSearch(form, domain, rel_tol, recordings)
    return FormSearch(form, domain, rel_tol)


class BatchSearch(FormSearch):
    """Searches in one form of items with one variable each, as batches on its device; see `FormSearch`.

    A recording takes time, so forms of the same shapes share their `recordings`.
    """

    def __init__(self, form: SearchForm, domain: Domain, rel_tol: float, recordings: Recordings | None = None) -> None:
        super().__init__(form, domain, rel_tol)
        self.device = form.H.device
        self.recordings = {} if recordings is None else recordings

    @cached_property
    def rows_form(self) -> Form:
        """The form and the rules, as the steps need them."""
        H, domain = self.form.H, self.domain
        others = len(H) - self.items
        fixed = torch.nn.functional.pad((domain.inside | domain.outside)[0], (0, others), value=True)
        group = domain.group
        if group is not None:
            group = torch.nn.functional.pad(group.to(torch.int64), (0, others), value=-1)
        most = torch.zeros(1, dtype=torch.int64, device=self.device) if domain.most is None else domain.most
        floor = self.form.accuracy * H.diagonal()
        return Form(H.contiguous(), self.form.Q.T.contiguous(), floor, fixed, group, most.to(torch.int64))

    def grow(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        size, form = self._size(chosen), self.rows_form
        last = self._variables(limits[-1])
        # Stages of one selection have tables of the same shape.
        rows = build(form, self._rows_of([chosen], max(size, last, self._variables(int(self.domain.limit)))))
        at = Addition(torch.full((1,), last, device=self.device))
        repeated = self._repeat(rows, add, Addition)
        for _ in range(ceil((last - size) / AT_ONCE)):
            rows, at = repeated(form, rows, at)
        places = rows.places[0].cpu().numpy()
        self._count(int((places >= 0).sum()), limits[-1])
        return [self._chosen(_drop_empty(places[: max(size, self._variables(limit))])) for limit in limits]

    def shrink(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        size, form = self._size(chosen), self.rows_form
        rows = build(form, self._rows_of([chosen], size))
        self._count(size, 2 * int(chosen.sum()))
        least = self._variables(limits[-1])
        remained = torch.full_like(rows.spot, -1)
        at = Removal(torch.full((1,), least, device=self.device), remained)
        repeated = self._repeat(rows, remove, Removal)
        for _ in range(ceil((size - least) / AT_ONCE)):
            rows, at = repeated(form, rows, at)
        gone = at.remained[0, : self.items].cpu().numpy()
        return [chosen & (gone < self._variables(limit)) for limit in limits]

    def change_each(self, supports: Sequence[np.ndarray], limits: Sequence[int]) -> list[np.ndarray]:
        changed = list(supports)
        larger = [k for k, limit in enumerate(limits) if limit >= supports[k].sum()]
        smaller = [k for k, limit in enumerate(limits) if limit < supports[k].sum()]
        for some in (larger, smaller):
            width = self._variables(max((max(limits[k], int(supports[k].sum())) for k in some), default=0))
            for part in self._bunches(range(len(some)), width):
                numbers = [some[k] for k in part]
                found = self._change([supports[k] for k in numbers], [limits[k] for k in numbers], width)
                for k, chosen in zip(numbers, found, strict=True):
                    changed[k] = chosen
        return changed

    def _change(self, supports: list[np.ndarray], limits: list[int], width: int) -> list[np.ndarray]:
        """Supports after all of them have grown, or all of them have shrunk, to a limit each."""
        form, ends = self.rows_form, [self._variables(limit) for limit in limits]
        rows = build(form, self._rows_of(supports, width))
        steps = [end - self._size(chosen) for end, chosen in zip(ends, supports, strict=True)]
        goal = torch.tensor(ends, device=self.device)
        at: Addition | Removal = Addition(goal)
        repeated = self._repeat(rows, add, Addition)
        if min(steps) < 0:
            at = Removal(goal, torch.full_like(rows.spot, -1))
            repeated = self._repeat(rows, remove, Removal)
        for _ in range(ceil(max(map(abs, steps)) / AT_ONCE)):
            rows, at = repeated(form, rows, at)
        found = [self._chosen(_drop_empty(places)) for places in rows.places.cpu().numpy()]
        for chosen, before, limit in zip(found, supports, limits, strict=True):
            grown = limit >= before.sum()
            self._count(self._size(chosen if grown else before), limit if grown else 2 * int(before.sum()))
        return found

    def descend(self, starts: Iterable[np.ndarray]) -> list[End]:
        starts = list(starts)
        width = max(map(self._size, starts), default=0)
        ends: list[End] = []
        for part in self._bunches(range(len(starts)), width):
            some = [starts[k] for k in part]
            most = [MOST_SWAPS * int(start.sum()) for start in some]
            ends += self._search(build(self.rows_form, self._rows_of(some, width)), most)
        for end in ends:
            self._count(self._size(end.chosen), end.swaps + 2 * int(end.chosen.sum()))
        return ends

    def descend_around(self, base: np.ndarray, starts: np.ndarray, most_swaps: Sequence[int]) -> list[End]:
        width = self._size(base)
        known = np.flatnonzero(base)
        ends: list[End] = []
        for part in self._bunches(range(len(starts)), width):
            aligned = np.stack([self._align(known, starts[k]) for k in part])
            rows = self._build_around(base, torch.from_numpy(aligned).to(self.device))
            away = [int((starts[k] & ~base).sum()) for k in part]
            found = self._search(rows, [most_swaps[k] for k in part])
            ends += [End(end.chosen, end.value, end.swaps + more) for end, more in zip(found, away, strict=True)]
        self._count(width, sum(end.swaps for end in ends))
        return ends

    def single_swaps(self, base: np.ndarray, count: int) -> list[End]:
        rows = build(self.rows_form, self._rows_of([base], self._size(base)))
        gains, partners = swap_gains(self.rows_form, rows)[0].max(dim=1)
        value = float(values_of(self.rows_form, rows)) + self.form.constant
        order = gains.argsort(descending=True, stable=True)[:count]
        leaving = rows.places[0, partners[order]]
        found = []
        for newcomer, gone, gain in zip(order.tolist(), leaving.tolist(), gains[order].tolist(), strict=True):
            if gain > self.rel_tol * abs(value):
                chosen = base.copy()
                chosen[gone], chosen[newcomer] = False, True
                found.append(End(chosen, value - gain))
        return found

    def _build_around(self, base: np.ndarray, places: Tensor) -> Rows:
        """The states of rows of places ``(B, W)`` that differ from those of `base` in some.

        Where the variables of a row depend on each other, they are exchanged one after the other from the base, and
        those that depend on the others are left out.
        """
        form = self.rows_form
        rows = build(form, places)
        index = (~are_sound(form, rows)).nonzero().squeeze(1)
        if not len(index):
            return rows
        wanted = places[index]
        mended = build(form, self._rows_of([base], places.shape[1]).expand(len(index), -1))
        for place in (wanted != mended.places).any(dim=0).nonzero().squeeze(1).tolist():
            self._replace(mended, torch.full_like(index, place), wanted[:, place])
        for field in fields(rows):
            getattr(rows, field.name)[index] = getattr(mended, field.name)
        return rows

    def _replace(self, rows: Rows, place: Tensor, newcomer: Tensor) -> None:
        """Put variables ``newcomer (B,)`` in a place where they are not inside and do not depend on the others."""
        form, batch = self.rows_form, torch.arange(len(place), device=self.device)
        share = rows.T[batch, newcomer, place].square() / rows.own[batch, place]
        moves = (rows.spot[batch, newcomer] < 0) & (rows.left[batch, newcomer] + share > form.floor[newcomer])
        pass_table(form, rows, exchange(form, rows, place, newcomer, moves))

    def _search(self, rows: Rows, most_swaps: Sequence[int]) -> list[End]:
        """Swap in all rows until no swap helps."""
        form = self.rows_form
        at = begin(form, rows, torch.tensor(most_swaps, device=self.device), self.form.constant, self.rel_tol)
        repeated, fresh = self._repeat(rows, swap, Descent), torch.zeros_like(at.swaps)
        while True:
            rows, at = repeated(form, rows, at)
            drifted, active = torch.stack([at.drifted.any(), at.active.any()]).tolist()
            if not drifted and not active:
                at.drifted.copy_(find_inaccurate(form, rows, at) & (at.swaps > fresh))
                drifted = bool(at.drifted.any())
                at.before.masked_fill_(at.drifted, torch.inf)
            if drifted:
                fresh = torch.where(at.drifted, at.swaps, fresh)
                mend(form, rows, at)
            elif not active:
                break
        values = (at.value + at.constant).nan_to_num(torch.inf).tolist()
        supports = [self._chosen(_drop_empty(places)) for places in rows.places.cpu().numpy()]
        return [End(*found) for found in zip(supports, values, at.swaps.tolist(), strict=True)]

    def _repeat(self, rows: Rows, step: Callable[[Form, Rows, Any], None], kind: type) -> Repeated:
        """The steps for states of these shapes."""
        form = self.rows_form
        key = (kind, *rows.T.shape, len(form.Q), len(form.most), form.group is None)
        if key not in self.recordings:
            self.recordings[key] = Repeated(step, kind, self.device)
        return self.recordings[key]

    def _rows_of(self, supports: Sequence[np.ndarray], width: int) -> Tensor:
        """The places ``(B, width)`` of supports; -1 for those that are empty."""
        places = np.full((len(supports), width), -1)
        for row, chosen in zip(places, supports, strict=True):
            row[: self._size(chosen)] = self._places(chosen)
        return torch.from_numpy(places).to(self.device)

    def _bunches(self, numbers: range, width: int) -> list[range]:
        """Rows that are searched together, as many as the memory allows."""
        rows = max(1, MOST_BYTES // max(1, 8 * len(self.form.H) * width))
        return [numbers[first : first + rows] for first in range(0, len(numbers), rows)]


def _drop_empty(places: np.ndarray) -> np.ndarray:
    return places[places >= 0]
