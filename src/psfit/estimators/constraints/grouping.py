"""Groups of features: from labels, or from the columns of a table whose texts became several columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.common.names import list_names
from psfit.data.schema import Schema
from psfit.estimators.constraints.arguments import CATEGORIES, RULES
from psfit.estimators.constraints.names import FeatureNames


@dataclass(frozen=True)
class Grouping:
    """Groups of some features: `members` by label. A feature is in one group at most."""

    members: Mapping[Any, tuple[int, ...]]

    @property
    def labels(self) -> list[Any]:
        """The labels, in their order."""
        return list(self.members)

    def number_items(self, features: int) -> np.ndarray:
        """The number ``(p,)`` of the group of each feature, in the order of first features; others are alone."""
        first = np.arange(features)
        for members in self.members.values():
            first[list(members)] = min(members)
        return np.unique(first, return_inverse=True)[1].astype(np.int64)

    def number_kinds(self, features: int, limits: Mapping[Any, int]) -> tuple[np.ndarray, np.ndarray]:
        """The kind ``(p,)`` of each feature, -1 for none, and how many features of each kind are allowed."""
        kind = np.full(features, -1, dtype=np.int64)
        for number, label in enumerate(limits):
            kind[list(self.members[label])] = number
        return kind, np.array(list(limits.values()), dtype=np.int64)


def find_categories(schema: Schema | None, names: tuple[str, ...] | None) -> dict[str, tuple[int, ...]]:
    """The columns of a table, and parts of its dates, whose levels became features; with the numbers of these."""
    if schema is None or names is None or not schema.columns:
        return {}
    found: dict[str, list[int]] = {}
    for place, label in enumerate(schema.group_labels(names)):
        if label is not None:
            found.setdefault(label, []).append(place)
    return {column: tuple(places) for column, places in found.items()}


def read_groups(given: Any, features: FeatureNames, categories: Mapping[str, tuple[int, ...]]) -> Grouping | None:
    """The groups that users describe; None if there are none."""
    if given is None:
        return None
    read = RULES["groups"]("groups", given)
    if read == CATEGORIES:
        several = {column: members for column, members in categories.items() if len(members) > 1}
        return Grouping(several) if several else None
    if isinstance(read, dict):
        members = {label: features.find(f"groups[{label!r}]", one) for label, one in read.items()}
        _require_apart(members, features)
        return Grouping(members)
    places = features.find("groups", [feature for feature, _ in read], wholes=False)
    if len(places) != features.count:
        raise ValueError(
            f"groups has {len(places)} labels, but there are {features.count} features; give one label for each (None "
            "for a feature without a group), or a dict from labels to features"
        )
    by_label: dict[Any, list[int]] = {}
    for place, (_, label) in zip(places, read, strict=True):
        if label is not None:
            by_label.setdefault(label, []).append(place)
    return Grouping({label: tuple(sorted(members)) for label, members in by_label.items()})


def _require_apart(members: Mapping[Any, tuple[int, ...]], features: FeatureNames) -> None:
    owner: dict[int, Any] = {}
    for label, group in members.items():
        for one in group:
            if one in owner:
                raise ValueError(
                    f"groups: {features.show(one)} is in the groups {owner[one]!r} and {label!r}; a feature can be in "
                    "one group only"
                )
            owner[one] = label


def read_limits(given: Any, grouping: Grouping | None) -> dict[Any, int]:
    """How many features of each group are allowed, by label; groups without a limit are left out."""
    if grouping is None:
        raise ValueError("at_most limits the features of each group, but there are no groups; pass groups, too")
    read = RULES["at_most"]("at_most", given)
    if not isinstance(read, dict):
        return dict.fromkeys(grouping.members, read)
    for label in read:
        if label not in grouping.members:
            known = list_names(map(repr, grouping.labels))
            raise ValueError(f"at_most[{label!r}]: there is no group with this label; the groups are {known}")
    return read
