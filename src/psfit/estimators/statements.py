"""What a fitted model says: its coefficients as a table, without units where samples are given; and a summary."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from psfit.comm import GridSpec
from psfit.common.notebook import Bar, HtmlTable, render_card
from psfit.data import DesignMatrix
from psfit.data.summary import ColumnSummary
from psfit.estimators.constraints import resolve
from psfit.estimators.intervals import CAVEAT, split_intervals
from psfit.estimators.predictors import read_matrix
from psfit.estimators.results.stability import Stability
from psfit.estimators.targets import Labels

if TYPE_CHECKING:
    import pandas as pd

    from psfit.estimators.model import SparseModel

# Rows of a summary.
MOST_ROWS = 20
# What the features of dates mean.
DATES = {
    "weekday": "weekday=1 is Monday, weekday=7 is Sunday",
    "trend": "trend is the number of days since 1970-01-01, so its coefficient is for one day",
}


@dataclass(frozen=True)
class Evidence:
    """What users know besides the model: samples, their targets, and a stability selection of the same features.

    With X and y there are intervals; `level` and `seed` are theirs.
    """

    X: Any = None
    y: Any = None
    stability: Stability | None = None
    level: float = 0.95
    seed: int | None = 0

    def __post_init__(self) -> None:
        if self.y is not None and self.X is None:
            raise ValueError("y was passed without X; pass both, or X alone")
        if self.stability is not None and not isinstance(self.stability, Stability):
            kind = type(self.stability).__name__
            raise TypeError(f"stability is a {kind}, but must be what psfit.stability_selection returns")


NOTHING = Evidence()


def coefficient_rows(model: "SparseModel", known: Evidence = NOTHING) -> list[dict[str, Any]]:
    """A row for each nonzero coefficient, the largest effects first.

    With samples X, `spread` is the standard deviation of the feature, `standardised` the coefficient times the spread,
    and `lost` what the predictor loses of its variance without the feature, the other coefficients unchanged. With a
    stability selection, `frequency` is the share of its resamples that chose the feature. With targets y, `lower` and
    `upper` are the ends of an interval; see `intervals.py`.
    """
    check_is_fitted(model)
    result, target = model.result_, model.learned_.target
    names = getattr(model, "feature_names_in_", np.arange(result.coef.shape[0]))
    labels = [str(label) for label in target.classes] if isinstance(target, Labels) else []
    several = result.coef.shape[1] > 1
    facts = None if known.X is None else _measure(model, known.X)
    chosen = None if known.stability is None else _frequencies(known.stability, names)
    intervals = None if known.y is None else split_intervals(model, known.X, known.y, known.level, known.seed)
    rows = []
    for j in result.support.tolist():
        for k in np.flatnonzero(result.coef[j]).tolist():
            value = float(result.coef[j, k])
            row: dict[str, Any] = {"output": labels[k] if labels else k} if several else {}
            row |= {"feature": names[j] if isinstance(names[j], str) else int(names[j]), "coefficient": value}
            if target.ratio is not None and not several:
                with np.errstate(over="ignore"):
                    row[target.ratio.replace(" ", "_")] = float(np.exp(value))
            if facts is not None:
                spreads, lost = facts
                row |= {"spread": float(spreads[j]), "standardised": value * float(spreads[j]), "lost": lost[j][k]}
            if chosen is not None:
                row["frequency"] = chosen[j]
            if intervals is not None:
                row |= dict(zip(("lower", "upper"), intervals.get(j, (math.nan, math.nan)), strict=True))
            rows.append(row)
    size = "coefficient" if facts is None else "standardised"
    return sorted(rows, key=lambda row: -abs(row[size]))


def _frequencies(stability: Stability, names: np.ndarray) -> list[float]:
    """How often each feature of the model was chosen; the features must be the same."""
    scores = stability.scores
    known = np.arange(len(scores)) if stability.feature_names is None else stability.feature_names
    if len(known) != len(names) or not np.array_equal(np.asarray(known, dtype=str), np.asarray(names, dtype=str)):
        raise ValueError(
            f"stability is about {len(known)} features that are not the {len(names)} of the model; run "
            "stability_selection on the samples of the fit"
        )
    return [float(score) for score in scores]


def _measure(model: "SparseModel", X: Any) -> tuple[np.ndarray, dict[int, list[float]]]:
    """The spread of each feature; for each feature used and each output, the share of the variance that is lost."""
    grid = GridSpec(backend="serial", device="cpu").build()
    matrix: DesignMatrix = read_matrix(model, model.learned_.features, X)
    summary = ColumnSummary.of(matrix, grid)
    support, coef = model.result_.support, model.result_.coef
    used = matrix.columns(torch.from_numpy(support.copy()))
    values = torch.cat([strip.mv(torch.eye(len(support)).double()) for _, strip in used.strips(torch.float64)]).numpy()
    lost: dict[int, list[float]] = {}
    total = (values @ coef[support]).var(axis=0)
    for place, j in enumerate(support.tolist()):
        without = (values @ coef[support] - values[:, place : place + 1] * coef[j]).var(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            lost[j] = np.where(total > 0, 1 - without / total, np.nan).tolist()
    return summary.spreads, lost


def coefficient_frame(model: "SparseModel", known: Evidence = NOTHING) -> "pd.DataFrame":
    """The same as a DataFrame; its ``attrs["caveat"]`` says what intervals mean."""
    rows = coefficient_rows(model, known)
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("a table needs pandas: pip install pandas; `coef_` has the numbers") from None
    frame = pd.DataFrame(rows)
    if known.y is not None:
        frame.attrs["caveat"] = CAVEAT
    return frame


def group_names(model: "SparseModel") -> list[str]:
    """The name of each feature's group, where groups are in or out as a whole; else none."""
    result = model.result_
    if result.item != "group":
        return []
    return resolve(model.get_params(deep=False), model.learned_.features, result.coef.shape[1]).groups


def result_facts(model: "SparseModel") -> list[tuple[str, str]]:
    """What is known about the answer, with the names of features and groups."""
    check_is_fitted(model)
    return model.result_.facts(model.learned_.features.names, group_names(model))


def explain_dates(model: "SparseModel") -> list[str]:
    """What the features of dates mean, for those that the model uses."""
    names, schema = model.learned_.features.names, model.learned_.features.schema
    if names is None or schema is None:
        return []
    used = {str(names[j]) for j in model.result_.support}
    parts = {one.part for one in schema.features() if one.name in used}
    return [text for part, text in DATES.items() if part in parts]


def summarise(model: "SparseModel", known: Evidence = NOTHING) -> str:
    """What was fitted, how good it is within its limit, and its coefficients, as text."""
    check_is_fitted(model)
    rows = coefficient_rows(model, known)
    lines = [model.result_.title, *(f"  {name:<10} {text}" for name, text in result_facts(model))]
    if model.learned_.target_name is not None:
        lines.append(f"  target     {model.learned_.target_name}")
    lines.append("")
    heads = list(rows[0]) if rows else []
    table = [heads, *([_text(row[head]) for head in heads] for row in rows[:MOST_ROWS])]
    widths = [max(len(row[k]) for row in table) for k in range(len(heads))]
    lines += ["  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
    if len(rows) > MOST_ROWS:
        lines.append(f"  and {len(rows) - MOST_ROWS} smaller coefficients")
    lines.append(f"  intercept  {', '.join(map(_text, model.result_.intercept.tolist()))}")
    return "\n".join(lines + ([CAVEAT] if known.y is not None else []))


def model_html(model: "SparseModel", parameters: str) -> str:
    """A fitted model for notebooks: what it says, then scikit-learn's HTML of its parameters, folded."""
    rows = coefficient_rows(model)
    heads = list(rows[0]) if rows else []
    largest = max((abs(row["coefficient"]) for row in rows), default=0.0) or 1.0
    cells = [
        [Bar(_text(row[head]), row[head] / largest) if head == "coefficient" else _text(row[head]) for head in heads]
        for row in rows[:MOST_ROWS]
    ]
    name = model.learned_.target_name
    facts = [("target", name)] if name is not None else []
    facts += [*result_facts(model), ("intercept", ", ".join(map(_text, model.result_.intercept.tolist())))]
    left = len(rows) - len(cells)
    notes = [f"Not shown: {left} smaller; `coefficients()` has all of them."] if left > 0 else []
    card = render_card(type(model).__name__, facts, HtmlTable(heads, cells), notes=notes)
    return f"{card}<details><summary>Parameters</summary>{parameters}</details>"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
