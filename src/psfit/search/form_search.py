"""Searches for supports in a quadratic form: forward and backward selection, swaps, restarts.

The work is done by compiled loops on the host. For the squared loss the form is the problem itself; for other losses it
is a model of the objective around a fit. A search ends where no single swap helps. A new one, after random items of the
best support are exchanged, often ends at a better support. Rounds of restarts have a fixed size, and all their random
numbers come from one seeded generator. So the same form has the same answer for any number of threads.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.problem import Domain

# A search makes at most this many swaps for each item of the support.
MOST_SWAPS = 20
# Restarts in a round, and the shares of a support that they exchange, in this order, again and again.
ROUND = 8
EXCHANGED = (0.5, 0.25, 0.75, 0.1, 0.5, 1.0, 0.75, 0.25)
# The share of searches whose final objective no other search has estimates the chance that the next one finds a new
# objective (Good and Turing). If it is larger than NEW_SHARE, or only one search found the best objective, restarts may
# take LONGER times as long. Where all have found the same, restarts end SOONER.
NEW_SHARE = 0.2
LONGER, SOONER = 4.0, 0.5
# Fewer operations than this are not worth a second thread.
THREAD_WORK = 2e6
# Operations of a swap for each entry of the table of all variables and the support.
SWAP_WORK = 10.0


@dataclass(frozen=True)
class End:
    """The end of a search: its support ``chosen (size,)`` on the host, its objective in the form, and its swaps."""

    chosen: np.ndarray
    value: float
    swaps: int = 0


@dataclass(frozen=True)
class SearchForm:
    """The objective ``sum_o x_o'H x_o / 2 - q_o'x_o + constant`` over the outputs o.

    Parameters
    ----------
    H : Tensor (n, n), float64
        First the variables of all items, then those that belong to every support (intercepts).
    Q : Tensor (n, c), float64
    constant : float
    width : int
        The number of variables of an item; those of one item follow each other.
    item : Tensor of integers, optional
        The item of every variable that belongs to one, where items differ in the number of their variables.
    accuracy : float
        A variable with a Schur complement below this share of its own curvature depends on the support, up to rounding.
    """

    H: Tensor
    Q: Tensor
    constant: float
    width: int = 1
    accuracy: float = 1e-11
    item: Tensor | None = None

    @property
    def in_blocks(self) -> bool:
        """Whether items have several variables."""
        return self.width > 1 or self.item is not None


class FormSearch:
    """Searches in one form of single variables, for the supports that a domain (a batch of one) allows."""

    def __init__(self, form: SearchForm, domain: Domain, rel_tol: float) -> None:
        self.form, self.domain, self.rel_tol = form, domain, rel_tol
        self.items = domain.items.size
        self.intercepts = np.arange(self.items, len(form.H))
        # The limits of the supports that are searched.
        self.limits: Sequence[int] = (int(domain.limit),)
        # Operations so far, by an estimate that is the same on every machine.
        self.work = 0.0

    @cached_property
    def H(self) -> np.ndarray:
        """The form's matrix on the host."""
        return np.ascontiguousarray(self.form.H.cpu().numpy())

    @cached_property
    def Q(self) -> np.ndarray:
        """The form's linear part on the host."""
        return np.ascontiguousarray(self.form.Q.cpu().numpy())

    @cached_property
    def _kernels(self) -> Any:
        """The compiled functions."""
        return import_module("psfit.kernels.cpu.swaps")

    @cached_property
    def _rules(self) -> Any:
        """What the domain says about single variables, in the form that the kernels need."""
        domain = self.domain
        group = np.full(self.items, -1) if domain.group is None else domain.group.cpu().numpy()
        most = np.zeros(1, dtype=np.int64) if domain.most is None else domain.most.cpu().numpy()
        return self._kernels.make_rules(self.fixed, group, most, len(self.H), 1, self.form.accuracy)

    def grow(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        """Add the best item again and again; the supports ``(size,)`` at each of the rising `limits`."""
        places = self._places(chosen, limits[-1])
        size, supports = self._size(chosen), []
        state = self._kernels.build(self.H, self.Q, places, size, self._rules)
        for limit in limits:
            size = self._kernels.grow(self.H, self.Q, state, size, self._variables(limit), self._rules)
            supports.append(self._chosen(state.places[:size]))
        self._count(size, limits[-1])
        return supports

    def shrink(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        """Take out the cheapest item again and again; the supports ``(size,)`` at each of the falling `limits`."""
        places, size, supports = self._places(chosen), self._size(chosen), []
        state = self._kernels.build(self.H, self.Q, places, size, self._rules)
        self._count(size, 2 * int(chosen.sum()))
        for limit in limits:
            size = self._kernels.shrink(self.H, self.Q, state, size, self._variables(limit), self._rules)
            supports.append(self._chosen(state.places[:size]))
        return supports

    def measure(self, chosen: np.ndarray) -> int:
        """What a support takes of its limit: the number of its items."""
        return int(chosen.sum())

    def change_each(self, supports: Sequence[np.ndarray], limits: Sequence[int]) -> list[np.ndarray]:
        """Supports that have grown or shrunk to a limit each."""
        return [
            (self.grow if limit >= self.measure(chosen) else self.shrink)(chosen, [limit])[0]
            for chosen, limit in zip(supports, limits, strict=True)
        ]

    def descend(self, starts: Iterable[np.ndarray]) -> list[End]:
        """Swap from each start ``(size,)``, on its own, until no swap helps."""
        starts = list(starts)
        if not starts:
            return []
        each = [
            lambda start=start: self._descend_from(self._build(start), start, start, MOST_SWAPS * int(start.sum()))
            for start in starts
        ]
        ends: list[End] = self._run(each, self._estimate(max(map(self._size, starts))) * len(starts))
        for end in ends:
            self._count(self._size(end.chosen), end.swaps + 2 * int(end.chosen.sum()))
        return ends

    def descend_around(self, base: np.ndarray, starts: np.ndarray, most_swaps: Sequence[int]) -> list[End]:
        """Swap from supports ``starts (B, size)`` of the same number of items as `base`, at most so often each."""
        state = self._build(base)
        parts = [
            lambda start=start, most=most: self._descend_from(state, base, start, most)
            for start, most in zip(starts, most_swaps, strict=True)
        ]
        ends: list[End] = self._run(parts, self._estimate(self._size(base)) * len(starts))
        self._count(self._size(base), sum(end.swaps for end in ends))
        return ends

    def single_swaps(self, base: np.ndarray, count: int) -> list[End]:
        """The supports after the best swap of each of the `count` best newcomers, with a gain."""
        state = self._build(base)
        size, n = self._size(base), len(self.H)
        gains, partners = np.empty(n), np.empty(n, dtype=np.int64)
        self._kernels.score_newcomers(self.H, state, size, self._rules, gains, partners)
        value, found = self._kernels.value_of(self.Q, state, size) + self.form.constant, []
        for newcomer in np.argsort(-gains, kind="stable")[:count]:
            if gains[newcomer] > self.rel_tol * abs(value):
                chosen = base.copy()
                chosen[state.places[partners[newcomer]]], chosen[newcomer] = False, True
                found.append(End(chosen, value - float(gains[newcomer])))
        return found

    def restart(self, best: End, patience: int, allowed: float, must_stop: Callable[[], bool], seed: int = 0) -> End:
        """The best of an end and of the ends of searches from perturbations of the best.

        Rounds go on until `patience` restarts in a row fail, at most while the work is below `allowed`.
        """
        generator = np.random.default_rng([0, seed])
        failures, restarts, finals = 0, 0, Counter([_label(best)])
        limit = self.work + allowed
        while True:
            many_new = sum(count == 1 for count in finals.values()) > NEW_SHARE * finals.total()
            surely = restarts > 0 and len(finals) == 1
            longer = SOONER if surely else LONGER if many_new or finals[_label(best)] == 1 else 1.0
            if failures >= patience * longer or self.work >= limit or must_stop():
                return best
            shares = [EXCHANGED[(restarts + k) % len(EXCHANGED)] for k in range(ROUND)]
            starts = np.stack([self.perturb(best.chosen, share, generator) for share in shares])
            ends = self.descend_around(best.chosen, starts, [MOST_SWAPS * int(best.chosen.sum())] * ROUND)
            finals.update(_label(end) for end in ends)
            restarts, failures = restarts + ROUND, failures + ROUND
            found = min(ends, key=lambda end: end.value)
            if found.value < best.value - self.rel_tol * abs(best.value):
                best, failures = found, 0

    def count_affordable(self, base: np.ndarray, work: float) -> int:
        """How many searches from random starts cost at most so many operations; at least one."""
        return int(max(1.0, min(work / self._estimate(self._size(base)), 1e3)))

    def perturb(self, chosen: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
        """Exchange a share of the chosen items for others at random, as far as the domain allows."""
        fixed = self.fixed
        removable, newcomers = np.flatnonzero(chosen & ~fixed), np.flatnonzero(~chosen & ~fixed)
        count = min(max(1, round(share * len(removable))), len(removable), len(newcomers))
        start = chosen.copy()
        start[generator.permutation(removable)[:count]] = False
        order = generator.permutation(newcomers)
        if self.domain.group is None:
            start[order[:count]] = True
            return start
        keys = torch.full((self.items,), -torch.inf, dtype=torch.float64)
        keys[order] = torch.arange(len(order), 0, -1, dtype=torch.float64)
        device = self.domain.inside.device
        filled = self.domain.fill(torch.from_numpy(start).to(device), keys.to(device), count).cpu().numpy()
        return filled if filled.sum() == chosen.sum() else chosen.copy()

    @cached_property
    def fixed(self) -> np.ndarray:
        """The items that stay in or out."""
        return np.asarray((self.domain.inside | self.domain.outside)[0].cpu())

    def _descend_from(self, state: Any, base: np.ndarray, start: np.ndarray, most_swaps: int) -> End:
        """Search from a start, by exchanges from the `state` of `base`, which stays as it is."""
        size = self._size(base)
        work = self._kernels.build(self.H, self.Q, state.places[:size], 0, self._rules)
        rows = self._align(state.places[len(self.intercepts) : size], start)[None]
        values, swaps = np.empty(1), np.zeros(1, dtype=np.int64)
        self._kernels.search_rows(
            *(self.H, self.Q, state, work, size, rows, np.array([most_swaps]), self._rules),
            *(self.form.constant, self.rel_tol, values, swaps),
        )
        away = int((start & ~base).sum())
        return End(self._chosen(rows[0]), float(values[0]) + self.form.constant, int(swaps[0]) + away)

    def _build(self, chosen: np.ndarray) -> Any:
        return self._kernels.build(self.H, self.Q, self._places(chosen), self._size(chosen), self._rules)

    def _places(self, chosen: np.ndarray, most: int | None = None) -> np.ndarray:
        """The variables of a support, intercepts first; with room for `most` items."""
        places = np.zeros(self._variables(int(chosen.sum()) if most is None else most), dtype=np.int64)
        taken = np.concatenate([self.intercepts, np.flatnonzero(chosen)])
        places[: len(taken)] = taken
        return places

    def _align(self, known: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The items of a start in the order of those of a known support, as far as they are the same; as variables."""
        order = known.copy()
        inside = np.zeros(len(start), dtype=bool)
        inside[known] = True
        order[~start[known]] = np.flatnonzero(start & ~inside)
        return np.concatenate([self.intercepts, order])

    def _chosen(self, places: np.ndarray) -> np.ndarray:
        chosen = np.zeros(self.items, dtype=bool)
        chosen[places[places < self.items]] = True
        return chosen

    def _size(self, chosen: np.ndarray) -> int:
        return self._variables(int(chosen.sum()))

    def _variables(self, items: int) -> int:
        """The number of variables of a support with so many items."""
        return len(self.intercepts) + items

    def _estimate(self, size: int) -> float:
        """Operations of a search from a random start."""
        return SWAP_WORK * max(1, len(self.form.H) * size * size)

    def _count(self, size: int, swaps: int) -> None:
        self.work += SWAP_WORK * len(self.form.H) * size * swaps

    def _run(self, parts: Sequence[Callable[[], Any]], work: float) -> list[Any]:
        """Call all functions; by several threads if there is enough work."""
        if work < THREAD_WORK:
            return [part() for part in parts]
        from psfit.kernels.cpu.threads import run_parts

        return run_parts(parts)


def _label(end: End) -> str:
    """The final objective of a search, with only the digits that matter."""
    return f"{end.value:.4e}"
