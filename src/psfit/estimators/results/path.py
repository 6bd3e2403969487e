"""Models along a path of limits, with an objective and a bound for each."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.common.names import quote_name
from psfit.common.notebook import Bar, HtmlTable, render_card, thin_rows
from psfit.common.status import Status
from psfit.estimators.posing import Learned

# Rows and names of a row that are printed.
MOST_ROWS, MOST_NAMES = 20, 8


@dataclass(frozen=True)
class SparsePath:
    """Models for every gamma and every rising limit.

    Parameters
    ----------
    kappas : ndarray (K,)
    gammas : ndarray (G,)
    coefs : ndarray (G, K, p, c)
        Coefficients in the units of X, a column for each output.
    intercepts : ndarray (G, K, c)
    objectives, lower_bounds : ndarray (G, K)
        Summed over independent targets. No model within the limit has an objective below the bound.
    loss : str
    seconds : float
    samples : int
    settings : dict
        `fit_intercept`, `standardize`, `sparsity` and the arguments for constraints, as they were given.
    learned : Learned
        Facts about the data: the columns of X, the targets, and where the path was fitted.
    constraints : tuple of str
        The constraints in words.
    counted : str
        What kappa counts, where constraints change that.
    ended : Status or None
        Why the iteration or the search ended early, if it did: a limit, a callback or a signal.
    """

    kappas: np.ndarray
    gammas: np.ndarray
    coefs: np.ndarray
    intercepts: np.ndarray
    objectives: np.ndarray
    lower_bounds: np.ndarray
    loss: str
    seconds: float
    samples: int
    settings: dict[str, Any]
    learned: Learned
    constraints: tuple[str, ...] = ()
    counted: str = ""
    ended: Status | None = None

    @property
    def feature_names(self) -> np.ndarray | None:
        """Names of the features ``(p,)``, if X had names."""
        return self.learned.features.names

    @property
    def classes(self) -> np.ndarray | None:
        """The labels, where the outputs are classes."""
        return getattr(self.learned.target, "classes", None)

    @property
    def n_features_in_(self) -> int:
        """Features of X, under the name that scikit-learn's checks of new samples use."""
        return self.learned.features.count

    @property
    def feature_names_in_(self) -> np.ndarray | None:
        """The names of the features, under the name that scikit-learn's checks of new samples use."""
        return self.feature_names

    @property
    def gaps(self) -> np.ndarray:
        """``(objective - lower bound) / |objective|`` for every gamma and limit."""
        difference = self.objectives - self.lower_bounds
        size = np.maximum(np.abs(self.objectives), np.finfo(float).tiny)
        return np.where(difference == 0, 0.0, difference / size)

    def support(self, kappa: int, gamma: float | None = None) -> np.ndarray:
        """Sorted indices of the features with a nonzero coefficient at a limit."""
        return np.flatnonzero(np.any(self.coef(kappa, gamma) != 0, axis=1))

    def coef(self, kappa: int, gamma: float | None = None) -> np.ndarray:
        """Coefficients ``(p, c)`` at a limit; `gamma` may be left out if there is only one."""
        return self.coefs[self._at(kappa, gamma)]

    def intercept(self, kappa: int, gamma: float | None = None) -> np.ndarray:
        """Intercepts ``(c,)`` at a limit."""
        return self.intercepts[self._at(kappa, gamma)]

    def _at(self, kappa: int, gamma: float | None) -> tuple[int, int]:
        if gamma is None and len(self.gammas) > 1:
            raise ValueError(f"gamma: the path has {len(self.gammas)} values; pass one of {self.gammas.tolist()}")
        place = np.flatnonzero(self.kappas == kappa)
        if not len(place):
            raise ValueError(f"kappa={kappa!r} is not on the path; use one of {self.kappas.tolist()}")
        row = np.array([0]) if gamma is None else np.flatnonzero(self.gammas == gamma)
        if not len(row):
            raise ValueError(f"gamma={gamma!r} is not on the path; use one of {self.gammas.tolist()}")
        return int(row[0]), int(place[0])

    def rows(self) -> list[dict[str, Any]]:
        """A line for every gamma and limit."""
        found = []
        for g, gamma in enumerate(self.gammas.tolist()):
            for k, kappa in enumerate(self.kappas.tolist()):
                used = np.flatnonzero(np.any(self.coefs[g, k] != 0, axis=1))
                names = used.tolist() if self.feature_names is None else self.feature_names[used].tolist()
                numbers = self.objectives[g, k], self.lower_bounds[g, k], self.gaps[g, k]
                found.append(
                    {"gamma": gamma, "kappa": kappa}
                    | dict(zip(("objective", "lower_bound", "gap"), map(float, numbers), strict=True))
                    | {"features": names}
                )
        return found

    def to_frame(self) -> Any:
        """The same as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("a table needs pandas: pip install pandas; `rows()` gives plain lists") from None
        return pd.DataFrame(self.rows())

    @property
    def _title(self) -> str:
        return f"Sparse {self.loss} path: {len(self.kappas)} limits, {len(self.gammas)} gamma(s), {self.seconds:.2f} s"

    def __str__(self) -> str:
        lines = [self._title, f"{'gamma':>10} {'kappa':>7} {'objective':>14} {'gap':>9}"]
        rows = self.rows()
        for row in (rows[k] for k in thin_rows(len(rows), MOST_ROWS)):
            lines.append(f"{row['gamma']:>10.4g} {row['kappa']:>7} {row['objective']:>14.6g} {row['gap']:>9.2g}")
        lines += [f"  subject to {text}" for text in self.constraints]
        if self.ended is not None:
            lines.append(f"  status     {self.ended.name}: {self.ended.value}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = self.rows()
        largest = float(np.abs(self.objectives).max(initial=0.0)) or 1.0
        cells: list[list[str | Bar]] = [
            [
                f"{row['kappa']}",
                f"{row['gamma']:.4g}",
                Bar(f"{row['objective']:.6g}", abs(row["objective"]) / largest),
                f"{row['gap']:.2g}",
                _list_names(row["features"]),
            ]
            for row in (rows[k] for k in thin_rows(len(rows), MOST_ROWS))
        ]
        facts = [("subject to", text) for text in self.constraints]
        facts += [] if self.ended is None else [("status", f"{self.ended.name}: {self.ended.value}")]
        left = len(rows) - len(cells)
        notes = [f"{left} more limits are not shown; `rows()` has them."] if left else []
        table = HtmlTable(["kappa", "gamma", "objective", "gap", "features"], cells)
        return render_card(self._title, facts, table, notes=notes)


def _list_names(names: list[Any]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(quote_name, names[:MOST_NAMES])) + more
