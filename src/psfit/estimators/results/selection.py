"""The scores of limits and gammas, and which of them were chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.common.notebook import Bar, HtmlTable, render_card
from psfit.estimators.criteria import CRITERIA

MEAN_LOSS = "mean loss on held-out samples"
# Scores that differ by less than this share of a standard error are equally good.
SAME_SCORE = 0.1


@dataclass(frozen=True)
class Selection:
    """The `scores` ``(G, K)`` of limits and gammas, larger is better, and the chosen ones.

    Parameters
    ----------
    kappas : ndarray (K,)
    gammas : ndarray (G,)
    scores : ndarray (G, K)
        Mean scores over the splits, or minus the information criterion.
    errors : ndarray (G, K) or None
        Standard errors of the means; None for a criterion.
    label : str
        What the scores are; see `smaller_is_better`.
    kappa, gamma : int, float
        The chosen values.
    best_kappa, best_gamma : int, float
        The values with the best score. The choice may be a simpler model whose score is within one standard error,
        or one with a stronger ridge and nearly the same score.
    losses : tuple of (str, float, float) or None
        How a mean loss is read as a share that is explained: the name of the share, "R2" or "D2", and the mean losses
        of the best constant and of perfect predictions.
    """

    kappas: np.ndarray
    gammas: np.ndarray
    scores: np.ndarray
    errors: np.ndarray | None
    label: str
    kappa: int
    gamma: float
    best_kappa: int
    best_gamma: float
    losses: tuple[str, float, float] | None = None

    @property
    def smaller_is_better(self) -> bool:
        """Whether the quantity in `label` is minus the score, as for a loss or a criterion."""
        return self.label in (MEAN_LOSS, *(criterion.upper() for criterion in CRITERIA))

    def rows(self) -> list[dict[str, Any]]:
        """A line for every gamma and limit, with the quantity in `label`."""
        sign = -1.0 if self.smaller_is_better else 1.0
        return [
            {
                "gamma": float(gamma),
                "kappa": int(kappa),
                "value": sign * float(self.scores[g, k]),
                "standard_error": None if self.errors is None else float(self.errors[g, k]),
                "explained": self._explain(sign * float(self.scores[g, k])),
                "chosen": bool(gamma == self.gamma and kappa == self.kappa),
            }
            for g, gamma in enumerate(self.gammas)
            for k, kappa in enumerate(self.kappas)
        ]

    def _explain(self, loss: float) -> float | None:
        """The share that a mean loss explains, if that is known."""
        if self.losses is None or self.label != MEAN_LOSS:
            return None
        _, constant, perfect = self.losses
        return (constant - loss) / (constant - perfect)

    @property
    def summary(self) -> str:
        """The choice and its value in a few words."""
        value = next(row["value"] for row in self.rows() if row["chosen"])
        return f"kappa = {self.kappa}, gamma = {self.gamma:.6g} ({self.label} {value:.6g})"

    @property
    def reason(self) -> str:
        """Why the choice is not the best score, in words; empty if it is."""
        if (self.best_kappa, self.best_gamma) == (self.kappa, self.gamma) or self.errors is None:
            return ""
        best = np.flatnonzero(self.gammas == self.best_gamma)[0], np.flatnonzero(self.kappas == self.best_kappa)[0]
        own = np.flatnonzero(self.gammas == self.gamma)[0], np.flatnonzero(self.kappas == self.kappa)[0]
        same = self.gamma < self.best_gamma and self.scores[own] >= self.scores[best] - SAME_SCORE * self.errors[best]
        why = "is the simplest model within one standard error of it"
        if same:
            why = "has a stronger ridge, and its score is less than a tenth of a standard error worse"
        return f"The best score has kappa = {self.best_kappa} and gamma = {self.best_gamma:.4g}; the choice {why}."

    @property
    def _title(self) -> str:
        better = "lower" if self.smaller_is_better else "higher"
        return f"Choice of kappa = {self.kappa}, gamma = {self.gamma:g} by {self.label} ({better} is better)"

    def _repr_html_(self) -> str:
        rows = self.rows()
        least = min((row["value"] for row in rows if np.isfinite(row["value"])), default=0.0)
        most = max((row["value"] for row in rows if np.isfinite(row["value"])), default=0.0)
        # Bars begin at zero where values are positive; else they show the place between the least and the largest.
        start = 0.0 if least >= 0 else least
        heads = ["kappa", "gamma", self.label] + ([] if self.errors is None else ["standard error"])
        cells: list[list[str | Bar]] = []
        for row in rows:
            share = (row["value"] - start) / ((most - start) or 1.0) if np.isfinite(row["value"]) else 0.0
            error = [] if row["standard_error"] is None else [f"{row['standard_error']:.2g}"]
            cells.append([f"{row['kappa']}", f"{row['gamma']:.4g}", Bar(f"{row['value']:.6g}", share), *error])
        marked = frozenset(place for place, row in enumerate(rows) if row["chosen"])
        return render_card(self._title, [], HtmlTable(heads, cells, marked))

    def __str__(self) -> str:
        lines = [self._title]
        rows = self.rows()
        share = f" {self.losses[0]:>8}" if self.losses is not None and rows[0]["explained"] is not None else ""
        error = "" if self.errors is None else f" {'+-':>9}"
        lines.append(f"{'gamma':>10} {'kappa':>7} {'value':>14}{error}{share}")
        for row in rows:
            error = "" if row["standard_error"] is None else f" {row['standard_error']:>9.2g}"
            error += "" if row["explained"] is None else f" {row['explained']:>8.3f}"
            mark = "  <- chosen" if row["chosen"] else ""
            lines.append(f"{row['gamma']:>10.4g} {row['kappa']:>7} {row['value']:>14.6g}{error}{mark}")
        lines += [self.reason] if self.reason else []
        return "\n".join(lines)

    @classmethod
    def of(
        cls,
        kappas: Sequence[int],
        gammas: Sequence[float],
        scores: np.ndarray,
        errors: np.ndarray | None,
        label: str,
        tolerant: bool,
        careful: bool = False,
    ) -> "Selection":
        """Choose the best score or, if `tolerant`, the simplest model within one standard error of it.

        If it is `careful`, gammas whose best scores differ by less than a tenth of a standard error are equally good,
        and the strongest ridge of them is chosen: it is the most reliable of these models.
        """
        if not np.isfinite(scores).any():
            raise ValueError(f"scoring: the {label} is not a number for any of the models; use another one")
        best = _simplest(kappas, gammas, scores >= np.nanmax(scores))
        chosen = best
        if tolerant and errors is not None:
            enough = scores[best] - errors[best]
            chosen = _simplest(kappas, gammas, scores >= enough)
        elif careful and errors is not None:
            tops = np.nanmax(scores, axis=1, initial=-np.inf)
            equal = np.flatnonzero(tops >= scores[best] - SAME_SCORE * errors[best])
            row = min(equal.tolist(), key=lambda g: gammas[g])
            chosen = _simplest(kappas, gammas, (scores >= tops[row]) & (np.arange(len(gammas)) == row)[:, None])
        return cls(
            np.array(kappas),
            np.array(gammas),
            scores,
            errors,
            label,
            int(kappas[chosen[1]]),
            float(gammas[chosen[0]]),
            int(kappas[best[1]]),
            float(gammas[best[0]]),
        )


def _simplest(kappas: Sequence[int], gammas: Sequence[float], allowed: np.ndarray) -> tuple[int, int]:
    """The indices of the allowed model ``(G, K)`` with the fewest coefficients, then with the strongest ridge."""
    places = [(int(g), int(k)) for g, k in np.argwhere(allowed)]
    return min(places, key=lambda place: (kappas[place[1]], gammas[place[0]]))
