"""How often features are chosen in fits to random halves of the samples."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.common.notebook import Bar, HtmlTable, render_card

# Features that are printed.
MOST_ROWS = 20


@dataclass(frozen=True)
class Stability:
    """How often each feature was chosen.

    Parameters
    ----------
    kappas : ndarray (K,)
    frequencies : ndarray (K, p)
        The share of all resamples whose model with the limit kappa uses the feature.
    average_size : float
        The mean number of features that a resample chose at any of the limits.
    resamples : int
    threshold : float
    feature_names : ndarray (p,) or None
    seconds : float
    """

    kappas: np.ndarray
    frequencies: np.ndarray
    average_size: float
    resamples: int
    threshold: float
    feature_names: np.ndarray | None
    seconds: float

    @property
    def scores(self) -> np.ndarray:
        """The largest frequency of each feature over all limits, ``(p,)``."""
        return np.asarray(self.frequencies.max(axis=0))

    @property
    def support(self) -> np.ndarray:
        """Features whose score reaches the threshold, sorted."""
        return np.flatnonzero(self.scores >= self.threshold)

    @property
    def expected_false(self) -> float:
        """A bound on the expected number of features in `support` that have no influence.

        ``q^2 / ((2 threshold - 1) p)`` with q the `average_size`, by Meinshausen and Buehlmann. It holds if
        features without influence are exchangeable and a choice is no worse than a random guess.
        """
        return float(self.average_size**2 / ((2 * self.threshold - 1) * self.frequencies.shape[1]))

    def rows(self) -> list[dict[str, Any]]:
        """A line for each feature that was ever chosen, the most stable ones first."""
        order = np.argsort(-self.scores, kind="stable")
        names = np.arange(len(order)) if self.feature_names is None else self.feature_names
        return [
            {"feature": names[j], "frequency": float(self.scores[j]), "stable": bool(self.scores[j] >= self.threshold)}
            for j in order[self.scores[order] > 0]
        ]

    @property
    def _title(self) -> str:
        count = f"{len(self.support)} feature{'s' * (len(self.support) != 1)}"
        return (
            f"Stability selection: {self.resamples} resamples, {self.seconds:.2f} s; {count} "
            f"chosen by {self.threshold:.0%} or more, of which at most {self.expected_false:.2g} expected false"
        )

    def __str__(self) -> str:
        lines = [f"{row['feature']!s:>24} {row['frequency']:>7.0%}" for row in self.rows()[:MOST_ROWS]]
        return "\n".join([self._title, *lines])

    def _repr_html_(self) -> str:
        rows = self.rows()
        cells: list[list[str | Bar]] = [
            [str(row["feature"]), Bar(f"{row['frequency']:.0%}", row["frequency"])] for row in rows[:MOST_ROWS]
        ]
        marked = frozenset(place for place, row in enumerate(rows[:MOST_ROWS]) if row["stable"])
        left = len(rows) - len(cells)
        notes = [f"{left} features that were chosen more rarely are not shown; `rows()` has them."] if left > 0 else []
        return render_card(self._title, [], HtmlTable(["feature", "chosen in"], cells, marked), notes=notes)
