"""Products of features and their factors, for heredity."""

from collections.abc import Mapping
from typing import Any

from psfit.estimators.constraints.arguments import RULES
from psfit.estimators.constraints.names import FeatureNames

# Between the names of the factors in the name of a product.
SEPARATOR = ":"
# The parents of each feature that has some.
Parents = dict[int, tuple[int, ...]]


def read_parents(heredity: str | None, given: Any, features: FeatureNames) -> Parents:
    """The parents of each product; empty without heredity."""
    if heredity is None:
        if given is not None:
            raise ValueError("parents has no effect without heredity; pass heredity='strong' or heredity='weak', too")
        return {}
    parents = _by_name(features) if given is None else _as_given(RULES["parents"]("parents", given), features)
    if not parents:
        raise ValueError(
            f"heredity={heredity!r} needs to know the factors of products: pass parents, a dict from each product to "
            "its factors, or name products as in 'a:b'; psfit.interactions makes both"
        )
    _require_no_cycle(parents, features)
    return parents


def _as_given(given: Mapping[Any, list[Any]], features: FeatureNames) -> Parents:
    children = features.find("parents", given, wholes=False)
    found = {}
    for child, (key, parents) in zip(children, given.items(), strict=True):
        found[child] = features.find(f"parents[{key!r}]", parents, wholes=False)
    return found


def _by_name(features: FeatureNames) -> Parents:
    """The features whose names are those of other features, joined by the separator."""
    known = set(features.names or ())
    found = {}
    for child, name in enumerate(features.names or ()):
        parts = list(dict.fromkeys(name.split(SEPARATOR)))
        if SEPARATOR in name and known.issuperset(parts):
            found[child] = features.find(f"parents of {name!r}", parts, wholes=False)
    return found


def _require_no_cycle(parents: Parents, features: FeatureNames) -> None:
    """Refuse features that are among their own ancestors."""
    done: set[int] = set()
    for start in parents:
        trail: list[int] = []
        stack: list[tuple[int, bool]] = [(start, True)]
        while stack:
            one, enters = stack.pop()
            if not enters:
                trail.remove(one)
                done.add(one)
            elif one in trail:
                raise ValueError(
                    f"parents go in a circle: {features.join(trail[trail.index(one) :])}; a product is no factor of "
                    "its own factors"
                )
            elif one not in done:
                trail.append(one)
                stack.append((one, False))
                stack += [(parent, True) for parent in parents.get(one, ())]


def extend_exclude(exclude: set[int], parents: Parents, heredity: str) -> set[int]:
    """The features that can never be in a model: those excluded, and products whose factors are."""
    test = any if heredity == "strong" else all
    found = set(exclude)
    while True:
        more = {child for child, own in parents.items() if child not in found and test(one in found for one in own)}
        if not more:
            return found
        found |= more


def require_parents(include: tuple[int, ...], parents: Parents, heredity: str, features: FeatureNames) -> None:
    """Refuse a product that is always in the model without its factors."""
    for child in include:
        own = parents.get(child, ())
        lacking = [one for one in own if one not in include]
        if lacking and (heredity == "strong" or len(lacking) == len(own)):
            need, some = ("all", "") if heredity == "strong" else ("one", "one of ")
            raise ValueError(
                f"include: {features.show(child)} needs {need} of its factors (heredity={heredity!r}); include "
                f"{some}{features.join(lacking)}, too"
            )
