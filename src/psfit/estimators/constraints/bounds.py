"""Bounds on coefficients: a number, an array or a dict by feature; zero is always between them."""

from typing import Any

import numpy as np

from psfit.estimators.constraints.arguments import RULES
from psfit.estimators.constraints.names import FeatureNames


def read_bounds(
    lower: Any, upper: Any, positive: bool, features: FeatureNames, outputs: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Lower and upper bounds, ``(p, 1)`` or ``(p, outputs)`` each; None where no coefficient has one."""
    if positive and lower is not None:
        raise ValueError("positive=True means lower=0, and lower is given, too; use one of them")
    low = _read("lower", 0.0 if positive else lower, -np.inf, features, outputs)
    high = _read("upper", upper, np.inf, features, outputs)
    if low is not None and high is not None and (low > high).any():
        a, b = np.broadcast_arrays(low, high)
        row, column = np.argwhere(a > b)[0]
        raise ValueError(
            f"lower > upper for {features.show(int(row))}: {a[row, column]:g} > {b[row, column]:g}; exchange them"
        )
    for name, bound, wrong in (("lower", low, 1.0), ("upper", high, -1.0)):
        if bound is not None and (wrong * bound > 0).any():
            at = np.argwhere(wrong * bound > 0)[0]
            side = "lower <= 0" if wrong > 0 else "upper >= 0"
            raise ValueError(
                f"{name}={bound[tuple(at)]:g} for {features.show(int(at[0]))} does not allow zero, which every "
                f"coefficient outside the support has; use {side}"
            )
    return low, high


def _read(name: str, given: Any, free: float, features: FeatureNames, outputs: int) -> np.ndarray | None:
    """One side of the bounds; `free` is the value that bounds nothing."""
    if given is None:
        return None
    read = RULES[name](name, given)
    if isinstance(read, dict):
        bound = np.full((features.count, 1), free)
        places = features.find(name, read, wholes=False)
        bound[list(places), 0] = list(read.values())
    elif isinstance(read, float):
        bound = np.full((features.count, 1), read)
    else:
        bound = _require_shape(name, read, features.count, outputs)
        if np.isnan(bound).any():
            row = int(np.argwhere(np.isnan(bound))[0][0])
            raise ValueError(f"{name} is NaN for {features.show(row)}; use {free} for a coefficient without a bound")
    return None if (bound == free).all() else bound


def _require_shape(name: str, values: np.ndarray, features: int, outputs: int) -> np.ndarray:
    if values.shape == (features,):
        return values[:, None].copy()
    if values.shape in ((features, 1), (features, outputs)):
        return values.copy()
    several = f" or ({features}, {outputs}), a column for each output" if outputs > 1 else ""
    raise ValueError(
        f"{name} has the shape {values.shape}, but there are {features} features; use a number, a dict by feature, or "
        f"an array ({features},){several}"
    )
