"""From the arguments of users to `Constraints`, whose features are numbers; all contradictions are found here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.estimators.constraints.arguments import DEFAULTS, RULES
from psfit.estimators.constraints.bounds import read_bounds
from psfit.estimators.constraints.grouping import Grouping, find_categories, read_groups, read_limits
from psfit.estimators.constraints.names import FeatureNames
from psfit.estimators.constraints.parents import Parents, extend_exclude, read_parents, require_parents
from psfit.estimators.reading import Features
from psfit.problem.constraint_words import describe_constraints
from psfit.problem.constraints import Constraints


@dataclass(frozen=True)
class Resolved:
    """Constraints on the columns of the data, and the names of features, of groups and of kinds."""

    constraints: Constraints
    features: FeatureNames
    group_names: tuple[str, ...] = ()
    kind_names: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The constraints in words, one text for each kind of them."""
        return describe_constraints(self.constraints, self.features.names, self.group_names, self.kind_names)

    @property
    def groups(self) -> list[str]:
        """The name of each feature's group; none if there are no groups that are in or out as a whole."""
        group = self.constraints.group
        return [] if group is None else [self.group_names[place] for place in group]


def resolve(arguments: Mapping[str, Any], columns: Features, outputs: int) -> Resolved:
    """Find the features by name, and refuse what is unknown or contradicts itself.

    `arguments` may hold others, too, and those for constraints that are left out have their defaults.
    """
    given = {name: arguments.get(name, default) for name, default in DEFAULTS.items()}
    names = None if columns.names is None else tuple(map(str, columns.names))
    categories = find_categories(columns.schema, names)
    features = FeatureNames(columns.count, names, categories)
    single = set() if columns.schema is None else columns.schema.single
    grouped = {label: members for label, members in categories.items() if label not in single}
    grouping = read_groups(given["groups"], features, grouped)
    if grouping is not None:
        features = features.with_wholes(grouping.members)
    limits = None if given["at_most"] is None else read_limits(given["at_most"], grouping)
    include, exclude = (_read_features(name, given[name], features) for name in ("include", "exclude"))
    both = sorted(set(include) & set(exclude))
    if both:
        raise ValueError(f"include and exclude both name {features.join(both)}; leave them out of one of the two")
    lower, upper = read_bounds(given["lower"], given["upper"], given["positive"], features, outputs)
    parents = read_parents(given["heredity"], given["parents"], features)
    if parents:
        heredity = given["heredity"]
        _require_possible_children(include, exclude, parents, heredity, features)
        exclude = tuple(sorted(extend_exclude(set(exclude), parents, heredity)))
    constraints = Constraints(
        include=tuple(sorted(include)),
        exclude=tuple(sorted(exclude)),
        count_included=bool(given["count_included"]),
        lower=lower,
        upper=upper,
        parents=tuple(sorted(parents.items())),
        heredity=given["heredity"] or "strong",
        **_group_fields(grouping, limits, given["kappa_counts"], columns.count),
    )
    if constraints.parents and constraints.group is not None:
        raise ValueError(
            f"heredity={given['heredity']!r} is about single features, and groups lets whole groups in; pass "
            "groups=None, or groups with at_most"
        )
    return _name(constraints, features, grouping, limits)


def _read_features(name: str, given: Any, features: FeatureNames) -> tuple[int, ...]:
    return () if given is None else features.find(name, RULES[name](name, given))


def _require_possible_children(
    include: tuple[int, ...], exclude: tuple[int, ...], parents: Parents, heredity: str, features: FeatureNames
) -> None:
    """Refuse products that are always in the model although their factors are not."""
    impossible = extend_exclude(set(exclude), parents, heredity) & set(include)
    for child in sorted(impossible):
        lost = [one for one in parents[child] if one in exclude]
        raise ValueError(
            f"include: {features.show(child)} cannot be in a model, since heredity={heredity!r} asks for its factors, "
            f"and exclude names {features.join(lost or parents[child])}; leave one of them out"
        )
    require_parents(include, parents, heredity, features)


def _group_fields(
    grouping: Grouping | None, limits: Mapping[Any, int] | None, kappa_counts: str, features: int
) -> dict[str, Any]:
    """The fields of `Constraints` for groups: items, or kinds if the features of each are limited."""
    if grouping is None:
        return {}
    if limits is not None:
        kind, most = grouping.number_kinds(features, limits)
        return {"kind": kind, "at_most": most} if len(most) else {}
    group = grouping.number_items(features)
    # Groups of one feature each are no groups.
    return {} if group.max() + 1 == features else {"group": group, "counts_features": kappa_counts == "features"}


def _name(
    constraints: Constraints, features: FeatureNames, grouping: Grouping | None, limits: Mapping[Any, int] | None
) -> Resolved:
    """The constraints with the names of groups and kinds; include and exclude must agree with them."""
    if constraints.kind is not None and constraints.at_most is not None:
        kinds = tuple(str(label) for label in limits or {})
        _require_few(constraints, features, kinds)
        return Resolved(constraints, features, kind_names=kinds)
    if constraints.group is None or grouping is None:
        return Resolved(constraints, features)
    groups = [features.names[j] if features.names else f"feature {j}" for j in _first_features(constraints.group)]
    for label, members in grouping.members.items():
        groups[constraints.group[members[0]]] = str(label)
    for name in ("include", "exclude"):
        _require_whole_groups(name, getattr(constraints, name), constraints.group, groups, features)
    return Resolved(constraints, features, group_names=tuple(groups))


def _first_features(group: np.ndarray) -> list[int]:
    return np.unique(group, return_index=True)[1].tolist()


def _require_few(constraints: Constraints, features: FeatureNames, kinds: tuple[str, ...]) -> None:
    """Refuse more features in `include` than `at_most` allows."""
    kind, most = np.asarray(constraints.kind), np.asarray(constraints.at_most)
    for number, label in enumerate(kinds):
        inside = [one for one in constraints.include if kind[one] == number]
        if len(inside) > most[number]:
            raise ValueError(
                f"include names {len(inside)} features of the group {label!r}, of which at_most allows {most[number]}: "
                f"{features.join(inside)}; include fewer, or raise at_most"
            )


def _require_whole_groups(
    name: str, named: tuple[int, ...], group: np.ndarray, groups: list[str], features: FeatureNames
) -> None:
    """Refuse parts of groups, since groups are in the model as a whole or not at all."""
    for number in sorted({int(group[one]) for one in named}):
        rest = [one for one in np.flatnonzero(group == number).tolist() if one not in named]
        if rest:
            raise ValueError(
                f"{name} names a part of the group {groups[number]!r}, without {features.join(rest)}; groups are in a "
                f"model as a whole: name all of it ({name}={groups[number]!r}), or pass other groups (None for none)"
            )
