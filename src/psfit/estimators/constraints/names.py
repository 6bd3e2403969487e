"""Features by name or number, and the errors for those that do not exist or are given twice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from psfit.common.names import list_names, suggest_name


@dataclass(frozen=True)
class FeatureNames:
    """The features of the data.

    Parameters
    ----------
    count : int
    names : tuple of str or None
        None if the data have no names: features are then given by number.
    wholes : dict
        Names that stand for several features: columns of a file, labels of groups.
    """

    count: int
    names: tuple[str, ...] | None = None
    wholes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def show(self, feature: int) -> str:
        """A feature as messages show it."""
        return f"feature {feature}" if self.names is None else repr(self.names[feature])

    def join(self, features: Iterable[int]) -> str:
        """Features as messages list them."""
        return list_names(self.show(one) for one in sorted(features))

    def find(self, argument: str, given: Iterable[str | int], wholes: bool = True) -> tuple[int, ...]:
        """The numbers of some features, each of which may be given once; names may stand for several."""
        found: dict[int, str | int] = {}
        for one in given:
            for feature in self._find_several(argument, one) if wholes else [self.find_one(argument, one)]:
                if feature in found:
                    twice = f"{one!r} twice" if found[feature] == one else f"{self.show(feature)} twice, with {one!r}"
                    raise ValueError(f"{argument} names {twice}; name every feature once")
                found[feature] = one
        return tuple(found)

    def find_one(self, argument: str, given: str | int) -> int:
        """The number of one feature."""
        if isinstance(given, int):
            if given >= self.count:
                raise ValueError(
                    f"{argument}: there is no feature {given}; the {self.count} features have the numbers 0 to "
                    f"{self.count - 1}"
                )
            return given
        if self.names is None:
            # Commands have nothing but texts.
            if given.isdecimal():
                return self.find_one(argument, int(given))
            raise ValueError(
                f"{argument}={given!r}: the features have no names, since X is not a table; use their numbers, from 0 "
                f"to {self.count - 1}"
            )
        if given not in self._places:
            known = [*self.names, *self.wholes]
            meant = suggest_name(given, known)
            raise ValueError(
                f"{argument}={given!r}: there is no feature with this name{meant}; the features are "
                f"{list_names(self.names)}"
            )
        if self._places[given] < 0:
            raise ValueError(
                f"{argument}={given!r}: several features have this name; rename them, or use their numbers"
            )
        return self._places[given]

    def _find_several(self, argument: str, given: str | int) -> tuple[int, ...]:
        if isinstance(given, str) and given in self.wholes and given not in self._places:
            return self.wholes[given]
        return (self.find_one(argument, given),)

    @cached_property
    def _places(self) -> dict[str, int]:
        """The number of each name; -1 for a name that several features have."""
        found: dict[str, int] = {}
        for place, name in enumerate(self.names or ()):
            found[name] = -1 if name in found else place
        return found

    def with_wholes(self, more: Mapping[Any, tuple[int, ...]]) -> "FeatureNames":
        """The same features, with further names that stand for several of them."""
        texts = {label: features for label, features in more.items() if isinstance(label, str)}
        return FeatureNames(self.count, self.names, {**self.wholes, **texts})
