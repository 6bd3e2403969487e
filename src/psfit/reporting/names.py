"""Names of features and outputs, as people know them."""

from typing import Any

import numpy as np


def feature_names(names: np.ndarray | None, count: int) -> list[str]:
    """The columns' own names, or their numbers."""
    return [f"feature {j}" for j in range(count)] if names is None else [str(name) for name in names]


def output_names(model: Any, count: int) -> list[str]:
    """A name for each column of coefficients: the classes, or the targets' numbers."""
    classes = getattr(model, "classes_", getattr(model, "classes", None))
    if classes is None:
        return ["coefficient"] if count == 1 else [f"target {k}" for k in range(count)]
    # With two classes and one predictor, positive values speak for the second.
    return [str(label) for label in (classes[1:] if count == 1 else classes)]


def joined(names: list[str], most: int = 12) -> str:
    """Names in a sentence, the first ones if there are many."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, noun: str) -> str:
    """``1 sample``, ``2 samples``, ``3 classes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def number(value: float, digits: int = 6) -> str:
    """A number for people: a proper minus sign, and no exponent that is not needed."""
    return f"{value:.{digits}g}".replace("-", "\u2212")


def share(value: float) -> str:
    """A small share in percent, without false precision."""
    return f"{number(100 * value, 2)} %"
