"""Constraints in words, with the names of features."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from psfit.common.names import list_names
from psfit.problem.constraints import Constraints

# The most features, groups or bounds that a text lists.
MOST_LISTED = 12


def describe_constraints(
    constraints: Constraints,
    names: Sequence[str] | None = None,
    group_names: Sequence[str] = (),
    kind_names: Sequence[str] = (),
) -> tuple[str, ...]:
    """One text for each kind of constraint; without names, features, groups and kinds have numbers."""

    def join(features: Iterable[int]) -> str:
        return list_names((str(one) if names is None else names[one] for one in features), MOST_LISTED)

    found = []
    if constraints.include:
        counted = "counted by kappa" if constraints.count_included else "not counted by kappa"
        found.append(f"always in ({counted}): {join(constraints.include)}")
    if constraints.exclude:
        found.append(f"never in: {join(constraints.exclude)}")
    found += _describe_bounds(constraints, names)
    found += _describe_groups(constraints, group_names)
    found += _describe_kinds(constraints, kind_names, join)
    if constraints.parents:
        need = "all of their factors" if constraints.heredity == "strong" else "one of their factors"
        products = join(child for child, _ in constraints.parents)
        found.append(f"only with {need} ({constraints.heredity} heredity): {products}")
    return tuple(found)


def describe_count(constraints: Constraints) -> str:
    """What kappa counts, where that is not the nonzero coefficients; else nothing."""
    counted = "" if constraints.group is None else "features in groups" if constraints.counts_features else "groups"
    besides = bool(constraints.include) and not constraints.count_included
    return f"{counted or 'nonzero coefficients'} besides those always in" if besides else counted


def _describe_bounds(constraints: Constraints, names: Sequence[str] | None) -> list[str]:
    """The bounds, with the coefficients that share them."""
    if constraints.lower is None and constraints.upper is None:
        return []
    low = np.array([[-np.inf]]) if constraints.lower is None else np.asarray(constraints.lower)
    high = np.array([[np.inf]]) if constraints.upper is None else np.asarray(constraints.upper)
    low, high = np.broadcast_arrays(low, high)
    shared: dict[tuple[float, float], list[str]] = {}
    for row in range(low.shape[0]):
        for output in range(low.shape[1]):
            name = str(row) if names is None else names[row]
            name += f" [output {output}]" if low.shape[1] > 1 else ""
            shared.setdefault((float(low[row, output]), float(high[row, output])), []).append(name)
    free = (-np.inf, np.inf)
    if len(shared) == 1:
        return [f"all coefficients {_describe_range(*next(iter(shared)))}"]
    texts = [
        f"{_describe_range(*ends)}: {list_names(some, MOST_LISTED)}" for ends, some in shared.items() if ends != free
    ]
    return [f"coefficients {_join_texts(texts)}"]


def _describe_range(low: float, high: float) -> str:
    if low == high:
        return f"equal to {low:g}"
    if high == np.inf:
        return f"at least {low:g}"
    return f"at most {high:g}" if low == -np.inf else f"from {low:g} to {high:g}"


def _describe_groups(constraints: Constraints, group_names: Sequence[str]) -> list[str]:
    if constraints.group is None:
        return []
    sizes = np.bincount(constraints.group)
    several = np.flatnonzero(sizes > 1).tolist()
    shown = (f"{group_names[one] if group_names else one} ({sizes[one]} features)" for one in several)
    return [f"in or out as a whole: {list_names(shown, MOST_LISTED)}"]


def _describe_kinds(
    constraints: Constraints, kind_names: Sequence[str], join: Callable[[Iterable[int]], str]
) -> list[str]:
    if constraints.kind is None or constraints.at_most is None:
        return []
    most = np.asarray(constraints.at_most)
    limits = []
    for number, limit in enumerate(most.tolist()):
        members = np.flatnonzero(constraints.kind == number).tolist()
        label = f" {kind_names[number]}" if kind_names else ""
        limits.append(f"at most {limit} of{label} ({join(members)})")
    return [_join_texts(limits)]


def _join_texts(texts: Sequence[str]) -> str:
    more = len(texts) - MOST_LISTED
    return "; ".join([*texts[:MOST_LISTED], *([f"{more} more"] if more > 0 else [])])
