"""Which limits kappa are possible: what it counts, how much constraints force in, and how much they leave."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from psfit.common.arguments import describe
from psfit.estimators.constraints import Resolved
from psfit.estimators.settings import RULES
from psfit.pipeline.path import KAPPAS, check_kappas
from psfit.problem import Items, Problem
from psfit.problem.constrained_domain import count_extra, most_counted


@dataclass(frozen=True)
class Limits:
    """The limits of one problem.

    Parameters
    ----------
    items : Items
        What a support is made of.
    resolved : Resolved
        The constraints, with names.
    most : int
        The most that a model can have and kappa counts.
    forced : int
        What `include` forces in and kappa counts.
    usual : int
        The limit if users give none.
    """

    items: Items
    resolved: Resolved
    most: int
    forced: int
    usual: int

    @classmethod
    def of(cls, problem: Problem, resolved: Resolved, features: int, outputs: int) -> "Limits":
        """The limits of a problem on data with so many features and outputs."""
        items, constraints = problem.items(features, outputs), problem.constraints
        most = most_counted(items, constraints)
        inside = count_extra(items, replace(constraints, count_included=False))
        return cls(
            items=items,
            resolved=resolved,
            most=most,
            forced=inside if constraints.count_included else 0,
            usual=min(most, _tenth(problem, items, features)),
        )

    def read_kappa(self, given: int | float | None) -> int:
        """The limit that users ask for: a count, a share, or by default a tenth."""
        kappa = RULES["kappa"]("kappa", given)
        if kappa is None:
            kappa = max(self.usual, self.forced)
        elif kappa < 1:
            kappa = min(max(1, round(kappa * self.items.size)), self.most)
        if not 1 <= kappa <= self.most:
            raise ValueError(
                f"kappa={describe(given)} must be between 1 and {self.most}: it counts {self._unit}, and {self._most}"
            )
        self._require_room(int(kappa))
        return int(kappa)

    def choose_path(self, most: int) -> range:
        """The first limits, by default; as many as models can differ in."""
        first = max(1, self.forced)
        return range(first, max(first, min(self.most, first + most - 1)) + 1)

    def check_path(self, kappas: Iterable[int]) -> tuple[int, ...]:
        """The limits of a path, rising."""
        given = KAPPAS("kappas", kappas)
        # This message has the names of features, so it comes before that of the other check.
        self._require_room(min(given))
        return check_kappas(given, self.items, self.resolved.constraints)

    @property
    def _unit(self) -> str:
        constraints = self.resolved.constraints
        if constraints.group is not None:
            return "features" if constraints.counts_features else "groups"
        return "features" if self.items.size == self.items.features else "coefficients"

    @property
    def _most(self) -> str:
        """How many there are to choose, and why."""
        if self.most < 1:
            return "include and exclude leave nothing to choose; include fewer, or use count_included=True"
        return f"{'there are' if self.most == self.items.capacity else 'the constraints allow'} {self.most}"

    def _require_room(self, kappa: int) -> None:
        """Refuse a limit below what `include` forces in."""
        if kappa >= self.forced:
            return
        named = self.resolved.features.join(self.resolved.constraints.include)
        raise ValueError(
            f"kappa={kappa} is less than the {self.forced} {self._unit} that include forces in and count_included=True "
            f"counts: {named}; raise kappa, include fewer, or use count_included=False"
        )


def _tenth(problem: Problem, items: Items, features: int) -> int:
    """A tenth of the features or groups, at least one, for each output that has items of its own."""
    group = problem.constraints.group
    if group is None:
        return max(1, features // 10) * (items.size // features)
    sizes = np.bincount(group)
    if problem.constraints.counts_features:
        # A smaller limit would leave room for no group.
        return max(int(sizes.min()), features // 10)
    return max(1, len(sizes) // 10) * max(1, items.size // len(sizes))
