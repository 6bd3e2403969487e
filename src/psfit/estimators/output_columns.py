"""The columns in which predictions are written, beside the columns that are passed through."""

from collections.abc import Iterable
from typing import Any

from psfit.estimators.targets import Labels


def prediction_columns(target: Any, outputs: int) -> tuple[list[str], list[str]]:
    """The names for predictions, and for probabilities if there are some; `outputs` are the columns of predictors."""
    single = isinstance(target, Labels) or target.single
    names = ["prediction"] if single else [f"prediction_{k}" for k in range(outputs)]
    classes = target.classes.tolist() if hasattr(target, "probabilities") else []
    return names, [f"probability_{label}" for label in classes]


def require_free_names(ids: Iterable[str], target: Any, outputs: int) -> None:
    """Refuse columns to pass through that have the name of a column of predictions."""
    names, shares = prediction_columns(target, outputs)
    for name in ids:
        if name in names + shares:
            raise ValueError(
                f"ids={name!r}: predictions are written in a column of this name, so one of the two would be lost; "
                "rename the column in the table, or leave it out"
            )
