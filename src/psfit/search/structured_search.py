"""Searches in a quadratic form for domains with bounds on coefficients, or with items that need others.

The minimum on a support has some variables at their bounds, so it does not follow from the last one by an update of low
rank. Exchanges are scored as if no further variable met a bound, and the best of them are tried: each is a small
quadratic problem in a box. The form is on the host.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.box_minimum import minimise_in_box
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain
from psfit.search.form_search import MOST_SWAPS, End, FormSearch, SearchForm

# Exchanges that are tried before a search ends, and newcomers that are considered where items need others.
TRIED = 8
NEWCOMERS = 24
# Items join or leave in about so many stages.
STAGES = 32
# Minima on so many supports are remembered.
MOST_REMEMBERED = 4096


@dataclass(frozen=True, eq=False)
class Point:
    """The minimum on the items ``chosen (size,)``: the values of all variables ``x (n,)``, and its objective."""

    chosen: np.ndarray
    x: np.ndarray
    value: float


@dataclass(frozen=True, eq=False)
class Scores:
    """What items gain if they join and cost if they leave ``(size,)``, and gains of swaps ``(leaving, joining)``."""

    joining: np.ndarray
    leaving: np.ndarray
    swaps: np.ndarray
    places: tuple[np.ndarray, np.ndarray]


class StructuredSearch(FormSearch):
    """Searches in one form, for the supports and coefficients that a domain (a batch of one) allows."""

    def __init__(self, form: SearchForm, domain: Domain, rel_tol: float) -> None:
        super().__init__(form, domain, rel_tol)
        self.rules = domain.to(torch.device("cpu"))
        self._known: dict[bytes, Point] = {}

    @cached_property
    def matrix(self) -> np.ndarray:
        """The form's matrix in the variables of all outputs."""
        outputs = self.form.Q.shape[1]
        return self.H if outputs == 1 else np.kron(self.H, np.eye(outputs))

    @cached_property
    def owner(self) -> np.ndarray:
        """The item of each variable, intercepts left out."""
        item = torch.arange(self.items).repeat_interleave(self.form.width) if self.form.item is None else self.form.item
        return item.cpu().numpy().repeat(self.form.Q.shape[1])

    @cached_property
    def linear(self) -> np.ndarray:
        """The form's linear part ``(n,)``."""
        return np.ascontiguousarray(self.Q.reshape(-1))

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest value of each variable ``(n,)``."""
        low, high = np.full(len(self.linear), -np.inf), np.full(len(self.linear), np.inf)
        box = self.domain.box
        if box is not None:
            low[: box.low.numel()], high[: box.high.numel()] = box.low.flatten().cpu(), box.high.flatten().cpu()
        return low, high

    def grow(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        supports, stage = [], max(1, (limits[-1] - int(chosen.sum())) // STAGES)
        if self.domain.heredity is not None:
            # What is in already may need more items than a stage has.
            keys = self._score(self._evaluate(chosen)).joining
            whole = self.rules.completion.mend(chosen, keys, max(limits[0], int(chosen.sum())))
            chosen = chosen if whole is None else whole
        for limit in limits:
            while (room := limit - int(chosen.sum())) > 0:
                keys = self._score(self._evaluate(chosen)).joining
                more = self._fill(chosen, keys, min(stage, room))
                if more.sum() == chosen.sum():
                    break
                chosen = more
            supports.append(chosen.copy())
        return supports

    def shrink(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        supports, stage = [], max(1, (int(chosen.sum()) - limits[-1]) // STAGES)
        for limit in limits:
            while (many := int(chosen.sum()) - limit) > 0:
                costs = self._score(self._evaluate(chosen)).leaving
                fewer = chosen
                for _ in range(min(stage, many)):
                    fewer = self._drop_cheapest(fewer, costs, np.zeros_like(chosen))
                if fewer.sum() == chosen.sum():
                    break
                chosen = fewer
            supports.append(chosen.copy())
        return supports

    def descend(self, starts: Iterable[np.ndarray]) -> list[End]:
        return [self._descend(start, MOST_SWAPS * int(start.sum())) for start in starts]

    def descend_around(self, base: np.ndarray, starts: np.ndarray, most_swaps: Sequence[int]) -> list[End]:
        return [self._descend(start, most) for start, most in zip(starts, most_swaps, strict=True)]

    def single_swaps(self, base: np.ndarray, count: int) -> list[End]:
        point = self._evaluate(base)
        return [End(chosen, point.value - gain) for chosen, gain in self._propose(point, count)]

    def perturb(self, chosen: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
        if self.domain.heredity is None:
            return super().perturb(chosen, share, generator)
        order = generator.permutation(np.flatnonzero(chosen & ~self.fixed))
        start, keys = chosen, generator.random(self.items)
        for item in order[: max(1, round(share * len(order)))]:
            start = self._drop(start, int(item))
        # Items that must stay may have lost their parents.
        start = start | self.rules.inside[0].numpy()
        gone = chosen & ~start
        found = self._fill(start, np.where(gone, -np.inf, keys), int(chosen.sum() - start.sum()))
        filled = self._fill(found, keys, int(chosen.sum() - found.sum()))
        allowed = filled.sum() <= chosen.sum() and self.rules.allows(torch.from_numpy(filled))
        return filled if allowed else chosen.copy()

    def _descend(self, start: np.ndarray, most: int) -> End:
        point, swaps = self._evaluate(start), 0
        while swaps < most:
            better = None
            for chosen, _ in self._propose(point, TRIED):
                trial = self._evaluate(chosen)
                if trial.value < point.value - self.rel_tol * abs(point.value):
                    better = trial
                    break
            if better is None:
                break
            point, swaps = better, swaps + 1
        self._count(self._size(point.chosen), swaps + 2)
        return End(point.chosen, point.value, swaps)

    def _evaluate(self, chosen: np.ndarray) -> Point:
        """The minimum on a support."""
        key = chosen.tobytes()
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            index = np.flatnonzero(self._variables_of(chosen))
            low, high = self.bounds
            parts = self.matrix[np.ix_(index, index)], self.linear[index], low[index], high[index]
            found = minimise_in_box(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)).numpy()
            x = np.zeros(len(self.linear))
            x[index] = found
            value = float(found @ (0.5 * (parts[0] @ found) - parts[1])) + self.form.constant
            self._known[key] = Point(chosen, x, value)
        return self._known[key]

    def _variables_of(self, chosen: np.ndarray) -> np.ndarray:
        """A mask ``(n,)`` of the variables of a support; intercepts belong to every support."""
        mask = np.ones(len(self.linear), dtype=bool)
        mask[: len(self.owner)] = chosen[self.owner]
        return mask

    def _score(self, point: Point) -> Scores:
        """Scores at a minimum, as if no further variable met a bound."""
        H, (low, high), inside = self.matrix, self.bounds, self._variables_of(point.chosen)
        free = np.flatnonzero(inside & (point.x > low) & (point.x < high))
        d = H @ point.x - self.linear
        K = torch.cholesky_inverse(cholesky(torch.from_numpy(H[np.ix_(free, free)]))).numpy()
        T = H[:, free] @ K
        own = np.diagonal(H)
        left = np.maximum(own - (T * H[:, free]).sum(axis=1), self.form.accuracy * own + np.finfo(float).tiny)
        gains = _gain(d, left, low, high)
        costs = -d * point.x + 0.5 * left * point.x**2
        costs[free] = point.x[free] ** 2 / (2 * np.diagonal(K))
        count = len(self.owner)
        joining = np.bincount(self.owner, gains[:count], self.items)
        leaving = np.bincount(self.owner, np.maximum(costs[:count], 0.0), self.items)
        out, into = np.flatnonzero(point.chosen & ~self.fixed), np.flatnonzero(~point.chosen & ~self.fixed)
        swaps = joining[into] - leaving[out][:, None]
        if count == self.items:
            place = np.full(len(own), -1)
            place[free] = np.arange(len(free))
            at = place[out] >= 0
            rows = place[out][at]
            f = T[into][:, rows].T / np.diagonal(K)[rows][:, None]
            moved = d[into] - f * point.x[out[at]][:, None]
            room = left[into] + f * T[into][:, rows].T
            swaps[at] = _gain(moved, room, low[into], high[into]) - leaving[out[at]][:, None]
        return Scores(joining, leaving, swaps, (out, into))

    def _propose(self, point: Point, count: int) -> list[tuple[np.ndarray, float]]:
        """The supports after the most promising exchanges, and what they seem to gain."""
        scores, least = self._score(point), self.rel_tol * abs(point.value)
        if self.domain.heredity is not None:
            return self._propose_with_parents(point, scores, count, least)
        out, into = scores.places
        gains = scores.swaps
        if self.domain.group is not None:
            closed = self.rules.find_closed(torch.from_numpy(point.chosen)).numpy()
            group = self.domain.group.cpu().numpy()
            gains = np.where(closed[into] & (group[out][:, None] != group[into]), -np.inf, gains)
        found = []
        order = np.argsort(-gains, axis=None, kind="stable")[:count]
        for j, i in zip(*np.unravel_index(order, gains.shape), strict=True):
            if gains[j, i] > least:
                chosen = point.chosen.copy()
                chosen[out[j]], chosen[into[i]] = False, True
                found.append((chosen, float(gains[j, i])))
        return found

    def _propose_with_parents(
        self, point: Point, scores: Scores, count: int, least: float
    ) -> list[tuple[np.ndarray, float]]:
        """Newcomers with the parents that they need, in place of the items that cost least."""
        # On a path the domain has the largest limit. A support keeps to its own size.
        into, limit = scores.places[1], int(point.chosen.sum())
        found: dict[bytes, tuple[np.ndarray, float]] = {}
        for item in into[np.argsort(-scores.joining[into], kind="stable")][: max(count, NEWCOMERS)]:
            trial = self.rules.completion.complete(point.chosen, int(item), scores.joining)
            if trial is None:
                continue
            chosen = self._shorten(trial, scores.leaving, trial & ~point.chosen, limit)
            if chosen.sum() > limit:
                continue
            chosen = self._fill(chosen, scores.joining, limit - int(chosen.sum()))
            lost = point.chosen & ~chosen
            gain = float(scores.joining[chosen & ~point.chosen].sum() - scores.leaving[lost].sum())
            if gain > least and not np.array_equal(chosen, point.chosen):
                found.setdefault(chosen.tobytes(), (chosen, gain))
        return sorted(found.values(), key=lambda one: -one[1])[:count]

    def _shorten(self, chosen: np.ndarray, costs: np.ndarray, kept: np.ndarray, limit: int) -> np.ndarray:
        """The support without its cheapest items, down to the limit if the items that are `kept` allow it."""
        while chosen.sum() > limit:
            fewer = self._drop_cheapest(chosen, costs, kept)
            if fewer.sum() == chosen.sum():
                break
            chosen = fewer
        return chosen

    def _drop_cheapest(self, chosen: np.ndarray, costs: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The support without the item whose loss, with those that need it, costs least; `kept` items stay."""
        best, least = chosen, np.inf
        for item in np.flatnonzero(chosen & ~self.fixed & ~kept):
            rest = self._drop(chosen, int(item))
            gone = chosen & ~rest
            if not (gone & (self.fixed | kept)).any() and costs[gone].sum() < least:
                best, least = rest, float(costs[gone].sum())
        return best

    def _drop(self, chosen: np.ndarray, item: int) -> np.ndarray:
        return self.rules.completion.drop(chosen, item)

    def _fill(self, chosen: np.ndarray, keys: np.ndarray, count: int) -> np.ndarray:
        table: Tensor = self.rules.fill(torch.from_numpy(chosen), torch.from_numpy(keys), count)
        filled: np.ndarray = table.numpy()
        return filled


def _gain(d: np.ndarray, left: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """By how much a variable with the derivative `d` and curvature `left` lowers the form between its bounds."""
    step = np.clip(-d / left, low, high)
    gain: np.ndarray = -(d * step + 0.5 * left * step**2)
    return gain
