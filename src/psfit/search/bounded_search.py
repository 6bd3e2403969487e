"""Searches in a quadratic form whose single variables have bounds, by compiled loops on the host."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from psfit.search.form_search import MOST_SWAPS, End
from psfit.search.structured_search import StructuredSearch


class BoundedSearch(StructuredSearch):
    """Searches for items of one variable each, where no item needs others."""

    @cached_property
    def _bounds(self) -> Any:
        """The bounds and the limits of groups, as the kernel needs them."""
        from psfit.kernels.cpu.bounded_swaps import Bounds

        domain, n = self.domain, len(self.linear)
        group, most = np.full(n, -1), np.zeros(1, np.int64)
        if domain.group is not None and domain.most is not None:
            group[: self.items], most = domain.group.cpu().numpy(), domain.most.cpu().numpy().astype(np.int64)
        return Bounds(*self.bounds, group, most)

    def grow(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        supports = []
        for limit in limits:
            chosen = self._walk(chosen, max(limit, int(chosen.sum())), 0)[0]
            supports.append(chosen)
        self._count(self._size(chosen), limits[-1])
        return supports

    def shrink(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        supports = []
        self._count(self._size(chosen), 2 * int(chosen.sum()))
        for limit in limits:
            chosen = self._walk(chosen, min(limit, int(chosen.sum())), 0)[0]
            supports.append(chosen)
        return supports

    def descend(self, starts: Iterable[np.ndarray]) -> list[End]:
        starts = list(starts)
        return self._descend_all(starts, [MOST_SWAPS * int(start.sum()) for start in starts])

    def descend_around(self, base: np.ndarray, starts: np.ndarray, most_swaps: Sequence[int]) -> list[End]:
        return self._descend_all(list(starts), most_swaps)

    def _descend_all(self, starts: Sequence[np.ndarray], most_swaps: Sequence[int]) -> list[End]:
        parts = [
            lambda start=start, most=most: self._walk(start, int(start.sum()), most)
            for start, most in zip(starts, most_swaps, strict=True)
        ]
        work = sum(self._estimate(self._size(start)) for start in starts)
        found = self._run(parts, work)
        for chosen, swaps in found:
            self._count(self._size(chosen), swaps + 2 * int(chosen.sum()))
        # The objective is that of a minimum in the box: the values of a walk have rounding errors of many steps.
        return [End(chosen, self._evaluate(chosen).value, swaps) for chosen, swaps in found]

    def _walk(self, chosen: np.ndarray, limit: int, most_swaps: int) -> tuple[np.ndarray, int]:
        """The support after items have joined or left up to the limit, and after swaps; and how many swaps."""
        from psfit.kernels.cpu.bounded_swaps import walk

        others = len(self.linear) - self.items
        member, swaps = walk(
            self.matrix,
            self.linear,
            self._bounds,
            np.concatenate([self.fixed, np.ones(others, bool)]),
            self.form.accuracy,
            np.concatenate([chosen, np.ones(others, bool)]),
            limit + others,
            most_swaps,
            (self.rel_tol, self.form.constant),
        )
        # Without a minimum after the last change, the support stays as it was.
        return (chosen.copy(), 0) if swaps < 0 else (member[: self.items], swaps)
