"""Which limits kappa are possible: what it counts, how much constraints force in, and how much they leave."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from psfit.common.arguments import describe
from psfit.estimators.constraints import Resolved
from psfit.estimators.settings import RULES
from psfit.pipeline.path import check_kappas
from psfit.problem import Items, Problem


@dataclass(frozen=True)
class Limits:
    """The limits of one problem.

    Parameters
    ----------
    items : Items
        What a support is made of.
    units : int
        Features or groups; items are these, or one for each of their outputs.
    most : int
        The largest limit.
    forced : int
        What `include` forces in and kappa counts.
    free : int
        The most that a model can have and kappa counts.
    least : int
        The smallest limit under which a model can have a feature.
    """

    items: Items
    resolved: Resolved
    units: int
    most: int
    forced: int
    free: int
    least: int

    @classmethod
    def of(cls, problem: Problem, resolved: Resolved, features: int, outputs: int) -> "Limits":
        """The limits of a problem on data with so many features and outputs."""
        items, constraints = problem.items(features, outputs), problem.constraints
        group = np.arange(features) if constraints.group is None else np.asarray(constraints.group)
        sizes = np.bincount(group)
        # What each group counts, for each output that has items of its own.
        weights = sizes if constraints.counts_features else np.ones_like(sizes)
        weights = weights * max(1, items.size // len(sizes))
        inside, outside = (np.unique(group[list(some)]) for some in (constraints.include, constraints.exclude))
        countable = np.ones(len(sizes), dtype=bool)
        countable[outside] = False
        if not constraints.count_included:
            countable[inside] = False
        return cls(
            items=items,
            resolved=resolved,
            units=features if constraints.counts_features else len(sizes),
            most=int(weights.sum()),
            forced=int(weights[inside].sum()) if constraints.count_included else 0,
            free=_reduce_by_kinds(int(weights[countable].sum()), countable, problem),
            least=int(weights.min()),
        )

    def read_kappa(self, given: int | float | None) -> int:
        """The limit that users ask for: a count, a share, or by default a tenth."""
        kappa = RULES["kappa"]("kappa", given)
        if kappa is None:
            kappa = max(self.least, self.forced, max(1, self.units // 10) * (self.most // self.units))
        elif kappa < 1:
            kappa = max(1, round(kappa * self.most))
        if kappa > self.most:
            raise ValueError(
                f"kappa={describe(given)} must be between 1 and {self.most}, the number of {self._unit} it limits"
            )
        self._require_room(int(kappa))
        return int(kappa)

    def choose_path(self, most: int) -> range:
        """The first limits, by default; as many as models can differ in."""
        first = max(1, self.forced)
        return range(first, max(first, min(self.free, first + most - 1)) + 1)

    def check_path(self, kappas: Iterable[int]) -> tuple[int, ...]:
        """The limits of a path, rising."""
        limits = check_kappas(kappas, self.items)
        self._require_room(limits[0])
        return limits

    @property
    def _unit(self) -> str:
        constraints = self.resolved.constraints
        return "items" if constraints.group is None else "features" if constraints.counts_features else "groups"

    def _require_room(self, kappa: int) -> None:
        """Refuse a limit below what `include` forces in."""
        if kappa >= self.forced:
            return
        named = self.resolved.features.join(self.resolved.constraints.include)
        raise ValueError(
            f"kappa={kappa} is less than the {self.forced} {self._unit} that include forces in and count_included=True "
            f"counts: {named}; raise kappa, include fewer, or use count_included=False"
        )


def _reduce_by_kinds(free: int, countable: np.ndarray, problem: Problem) -> int:
    """What is left of `free` items if `at_most` limits the features of each kind."""
    constraints = problem.constraints
    if constraints.kind is None or constraints.at_most is None or not countable.any():
        return free
    kind, per = np.asarray(constraints.kind), free // int(countable.sum())
    apart = np.zeros(len(kind), dtype=bool)
    if not constraints.count_included:
        apart[list(constraints.include)] = True
    for number, most in enumerate(np.asarray(constraints.at_most).tolist()):
        own = kind == number
        surplus = int((own & countable).sum()) - (most - int((own & apart).sum()))
        free -= per * max(0, surplus)
    return free
