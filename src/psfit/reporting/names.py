"""Names of features, outputs and classes."""

from typing import Any

import numpy as np


def feature_names(names: np.ndarray | None, count: int) -> list[str]:
    """The names of the columns, or their numbers if they have no names."""
    return [f"feature {j}" for j in range(count)] if names is None else [str(name) for name in names]


def output_names(model: Any, count: int) -> list[str]:
    """A name for each column of coefficients: the class, or the number of the target."""
    classes = getattr(model, "classes_", getattr(model, "classes", None))
    if classes is None:
        return ["coefficient"] if count == 1 else [f"target {k}" for k in range(count)]
    # With two classes there is one predictor; a positive value means the second class.
    return class_names(classes[1:] if count == 1 else classes)


def class_names(labels: Any) -> list[str]:
    """Labels as people write them; in files, whole numbers are often floats."""
    return [str(int(label)) if isinstance(label, float) and label.is_integer() else str(label) for label in labels]
