"""All models that are nearly as good as the best one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from psfit.common.names import quote_name
from psfit.common.notebook import Bar, HtmlTable, render_card

# How many models and pairs are printed.
SHOWN = 10


@dataclass(frozen=True)
class NearOptimal:
    """Every support of kappa items whose objective is at most ``(1 + within)`` times the best one.

    Parameters
    ----------
    supports : ndarray (S, items) of bool
        The supports, the best first. An item is a feature; or, where softmax counts entries, a feature and a class.
    objectives : ndarray (S,)
        The least objective on each support.
    names : list of str
        The items.
    within : float
    cutoff : float
        The largest objective that is listed.
    lower_bound : float
        No support that is not listed has an objective below this and below the cutoff: infinite if all were excluded.
    tree_nodes : int
        Nodes of the search tree that were explored.
    seconds : float
    """

    supports: np.ndarray
    objectives: np.ndarray
    names: list[str]
    within: float
    cutoff: float
    lower_bound: float
    tree_nodes: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether it is proved that no support is missing."""
        return self.lower_bound > self.cutoff

    @property
    def frequencies(self) -> np.ndarray:
        """The share of the supports that have each item, ``(items,)``."""
        return self.supports.mean(axis=0) if len(self.supports) else np.zeros(len(self.names))

    def rows(self) -> list[dict[str, Any]]:
        """A line for each support, the best first: its objective, how much that is above the best, and its items."""
        best = self.objectives[0] if len(self.objectives) else 0.0
        scale = max(abs(best), np.finfo(float).tiny)
        return [
            {
                "objective": float(value),
                "excess": float((value - best) / scale),
                "features": [self.names[j] for j in np.flatnonzero(support)],
            }
            for value, support in zip(self.objectives, self.supports, strict=True)
        ]

    def replacements(self) -> list[dict[str, Any]]:
        """Pairs of items that replace each other: supports that differ by them alone are counted, the most first."""
        counts = Counter(pair for group in self._neighbours() for pair in combinations(sorted(group), 2))
        return [
            {"one": self.names[first], "other": self.names[second], "times": times}
            for (first, second), times in counts.most_common()
        ]

    def _neighbours(self) -> Iterator[list[int]]:
        """Items, each of which makes a listed support out of the same other items."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for support in self.supports:
            items = np.flatnonzero(support).tolist()
            for j in items:
                groups.setdefault(tuple(i for i in items if i != j), []).append(j)
        return (group for group in groups.values() if len(group) > 1)

    @property
    def _title(self) -> str:
        proved = "no other support is" if self.complete else f"others may be: bound {self.lower_bound:.8g}"
        return (
            f"{len(self.supports):,} support(s) within {self.within:.3g} of the best objective, {proved}; "
            f"{self.tree_nodes:,} tree nodes, {self.seconds:.2f} s"
        )

    def _repr_html_(self) -> str:
        models = [
            [f"{row['objective']:.8g}", f"+{row['excess']:.2%}", ", ".join(map(quote_name, row["features"]))]
            for row in self.rows()[:SHOWN]
        ]
        often = [j for j in np.argsort(-self.frequencies, kind="stable") if self.frequencies[j] > 0][:SHOWN]
        shares = [[self.names[j], Bar(f"{self.frequencies[j]:.0%}", float(self.frequencies[j]))] for j in often]
        pairs = [[row["one"], row["other"], f"{row['times']:,}"] for row in self.replacements()[:SHOWN]]
        left = len(self.supports) - len(models)
        return render_card(
            self._title,
            [],
            HtmlTable(["objective", "above the best", "features"], models),
            HtmlTable(["feature", "in how many"], shares),
            HtmlTable(["feature", "replaced by", "times"], pairs),
            notes=[f"{left:,} more models are not shown; `rows()` has them."] if left > 0 else [],
        )

    def __str__(self) -> str:
        lines = [self._title]
        for row in self.rows()[:SHOWN]:
            lines.append(
                f"{row['objective']:>16.8g} +{row['excess']:.2%}  {', '.join(map(quote_name, row['features']))}"
            )
        often = [j for j in np.argsort(-self.frequencies, kind="stable") if self.frequencies[j] > 0][:SHOWN]
        lines.append(
            "in how many: " + ", ".join(f"{quote_name(self.names[j])} {self.frequencies[j]:.0%}" for j in often)
        )
        pairs = [
            f"{quote_name(row['one'])} and {quote_name(row['other'])} ({row['times']})"
            for row in self.replacements()[:SHOWN]
        ]
        return "\n".join([*lines, *(["replace each other: " + ", ".join(pairs)] if pairs else [])])
