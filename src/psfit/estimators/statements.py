"""What a fitted model says: its coefficients as a table, without units where samples are given; and a summary."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from psfit.comm import GridSpec
from psfit.data import DesignMatrix
from psfit.data.summary import ColumnSummary
from psfit.estimators.predictors import read_matrix
from psfit.estimators.targets import Labels

if TYPE_CHECKING:
    import pandas as pd

    from psfit.estimators.model import SparseModel

# Rows of a summary.
MOST_ROWS = 20


def coefficient_rows(model: "SparseModel", X: Any = None) -> list[dict[str, Any]]:
    """A row for each nonzero coefficient, the largest effects first.

    With samples X, `spread` is the standard deviation of the feature, `standardised` the coefficient times the spread,
    and `lost` what the predictor loses of its variance without the feature, the other coefficients unchanged.
    """
    check_is_fitted(model)
    result, target = model.result_, model.learned_.target
    names = getattr(model, "feature_names_in_", np.arange(result.coef.shape[0]))
    labels = [str(label) for label in target.classes] if isinstance(target, Labels) else []
    several = result.coef.shape[1] > 1
    facts = None if X is None else _measure(model, X)
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
            rows.append(row)
    size = "coefficient" if facts is None else "standardised"
    return sorted(rows, key=lambda row: -abs(row[size]))


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


def coefficient_frame(model: "SparseModel", X: Any = None) -> "pd.DataFrame":
    """The same as a DataFrame."""
    rows = coefficient_rows(model, X)
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("a table needs pandas: pip install pandas; `coef_` has the numbers") from None
    return pd.DataFrame(rows)


def summarise(model: "SparseModel") -> str:
    """What was fitted, how good it is within its limit, and its coefficients, as text."""
    check_is_fitted(model)
    schema = model.learned_.features.schema
    rows = coefficient_rows(model)
    lines = [str(model.result_)]
    if schema is not None and schema.target_name is not None:
        lines.append(f"  target     {schema.target_name}")
    lines.append("")
    heads = list(rows[0]) if rows else []
    table = [heads, *([_text(row[head]) for head in heads] for row in rows[:MOST_ROWS])]
    widths = [max(len(row[k]) for row in table) for k in range(len(heads))]
    lines += ["  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
    if len(rows) > MOST_ROWS:
        lines.append(f"  and {len(rows) - MOST_ROWS} smaller coefficients")
    lines.append(f"  intercept  {', '.join(map(_text, model.result_.intercept.tolist()))}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
