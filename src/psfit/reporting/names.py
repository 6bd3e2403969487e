"""Names of features and outputs, as people know them."""

from typing import Any

import numpy as np

# Longer names would hide the sentence around them; tables have all of them.
LONGEST = 60


def feature_names(names: np.ndarray | None, count: int) -> list[str]:
    """The columns' own names, or their numbers."""
    return [f"feature {j}" for j in range(count)] if names is None else [str(name) for name in names]


def output_names(model: Any, count: int) -> list[str]:
    """A name for each column of coefficients: the classes, or the targets' numbers."""
    classes = getattr(model, "classes_", getattr(model, "classes", None))
    if classes is None:
        return ["coefficient"] if count == 1 else [f"target {k}" for k in range(count)]
    # With two classes and one predictor, positive values speak for the second.
    return class_names(classes[1:] if count == 1 else classes)


def class_names(labels: Any) -> list[str]:
    """Labels as people write them; files often make whole numbers floats."""
    return [str(int(label)) if isinstance(label, float) and label.is_integer() else str(label) for label in labels]


def joined(names: list[str], most: int = 12, last: str = " and ") -> str:
    """Names in a sentence, the first ones if there are many; of a long name its beginning."""
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}\u2026" for name in names]
    if len(names) > most:
        return f"{', '.join(names[:most])}{last}{len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])}{last}{names[-1]}"


def plural(count: int, noun: str) -> str:
    """``1 sample``, ``2 samples``, ``3 classes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def number(value: float, digits: int = 6) -> str:
    """A number for people: a proper minus sign, thousands apart, and no exponent that is not needed."""
    size = abs(value)
    if min(1e4, 10.0**digits) <= size < 1e9:
        # All digits before the point, and as many behind it as are left.
        whole = f"{value:,.{max(0, digits - len(str(int(size))))}f}"
        text = whole.rstrip("0").rstrip(".") if "." in whole else whole
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "\u2212")


def share(value: float) -> str:
    """A share in percent, without false precision; what is as good as nothing is said to be so."""
    text = "under 0.0001" if 0 < value < 1e-6 else number(100 * value, 2)
    return f"{text}\u00a0%"
