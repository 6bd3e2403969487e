"""Constraints in model files: arguments as JSON and back, and whether the coefficients of a file obey them."""

from typing import Any

import numpy as np
import torch

from psfit.estimators.constraints import RULES, resolve
from psfit.estimators.model import SparseModel
from psfit.estimators.registry import LOSSES
from psfit.problem import Items, Problem
from psfit.problem.constrained_domain import most_counted
from psfit.problem.constraints import Constraints

# A coefficient may be outside of its bounds by this share, because of rounding.
SLACK = 1e-9


def write_argument(name: str, value: Any) -> Any:
    """An argument as JSON can hold it. A dict becomes a list of pairs, since the keys of JSON are texts."""
    read = RULES[name](name, value)
    if isinstance(read, np.ndarray):
        return read.tolist()
    if name == "groups" and isinstance(read, list):
        read = _label_features(read)
    return {"pairs": [list(pair) for pair in read.items()]} if isinstance(read, dict) else read


def _label_features(pairs: list[tuple[Any, Any]]) -> Any:
    """The labels of all features in their order; where features are given by name, a dict from labels to names."""
    if [feature for feature, _ in pairs] == list(range(len(pairs))):
        return [label for _, label in pairs]
    found: dict[Any, list[Any]] = {}
    for feature, label in pairs:
        if label is not None:
            found.setdefault(label, []).append(feature)
    return found


def read_argument(name: str, stored: Any) -> Any:
    """The argument from what `write_argument` returned; an error if that is not an argument."""
    if isinstance(stored, dict):
        stored = dict(stored["pairs"]) if stored.keys() == {"pairs"} else stored
    RULES[name](name, stored)
    return stored


def check_coefficients(model: SparseModel, loss: str, sparsity: Any, coef: np.ndarray, kappa: Any) -> str:
    """What is wrong with the limit or with coefficients ``(p, c)``, in words; nothing if they obey all constraints."""
    parameters = model.get_params(deep=False)
    constraints = resolve(parameters, model.learned_.features, coef.shape[1]).constraints
    problem = Problem(LOSSES[loss].make(parameters), (1,), sparsity=sparsity, constraints=constraints)
    items = problem.items(*coef.shape)
    most = most_counted(items, constraints)
    fine = isinstance(kappa, list) and len(kappa) == items.problems
    if not fine or not all(type(k) is int and 1 <= k <= most for k in kappa):
        return f"kappa={kappa!r:.60} is not a limit of {items.problems} problem(s) with {most} items"
    counts = _count(items, constraints, coef)
    if not all(count <= k for count, k in zip(counts, kappa, strict=True)):
        return "it has more coefficients than its limit allows"
    for bound, sign in ((constraints.lower, -1.0), (constraints.upper, 1.0)):
        if bound is not None and (sign * (coef - bound) > SLACK * np.maximum(1.0, np.abs(coef))).any():
            return "its coefficients are not within their bounds"
    return "it uses features that are excluded" if coef[list(constraints.exclude)].any() else ""


def _count(items: Items, constraints: Constraints, coef: np.ndarray) -> list[int]:
    """What kappa counts in each problem."""
    free = np.zeros((items.free, coef.shape[1]))
    used = items.pack(torch.from_numpy(np.concatenate([coef, free]))) != 0
    if not constraints.count_included and constraints.include:
        used[:, items.items_of(torch.tensor(constraints.include))] = False
    weights = torch.ones(items.size, dtype=torch.long)
    if constraints.group is not None and constraints.counts_features:
        weights = torch.from_numpy(np.bincount(constraints.group)).repeat_interleave(
            items.size // len(np.unique(constraints.group))
        )
    return (used.long() @ weights).tolist()
