"""Which values arguments may have: rules that read a value, and one error that names the argument and what is allowed.

A rule returns the value in Python's own types, so that all code after it sees the same types, also for NumPy numbers.
``|`` joins rules: ``integer(1) | NONE``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

# Longer values are cut where an error shows them.
MOST_SHOWN = 80


class ArgumentError(ValueError, TypeError):
    """An argument has a wrong type or is out of range; both are often the same mistake."""


@dataclass(frozen=True)
class Rule:
    """What is `allowed`, in words, and how to `read` it; `read` raises an error for any other value."""

    allowed: str
    read: Callable[[Any], Any]

    def __call__(self, name: str, value: Any) -> Any:
        """The value in Python's own types; raises an error if it is not allowed."""
        try:
            return self.read(value)
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"{name}={describe(value)} must be {self.allowed}") from None

    def __or__(self, other: "Rule") -> "Rule":
        def either(value: Any) -> Any:
            try:
                return self.read(value)
            except (TypeError, ValueError, OverflowError):
                return other.read(value)

        said = other.allowed in self.allowed.split(", or ")
        return Rule(self.allowed if said else f"{self.allowed}, or {other.allowed}", either)


def check(owner: object, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Read all arguments of an object that have rules."""
    return {name: rule(name, getattr(owner, name)) for name, rule in rules.items()}


def describe(value: Any) -> str:
    """A value as an error message shows it, in at most one line."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        # Python refuses to print integers of thousands of digits.
        text = f"a number of type {type(value).__name__}"
    if len(text) <= MOST_SHOWN:
        return text
    if isinstance(value, (list, tuple)) and ", " in text[:MOST_SHOWN]:
        return f"{text[:MOST_SHOWN].rpartition(', ')[0]}, ...{text[-1]}"
    return f"{text[:MOST_SHOWN]}..."


def number(allowed: str, test: Callable[[float], bool]) -> Rule:
    """A number (not True or False) that passes a test as a float."""

    def read(value: Any) -> float:
        _require(isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool))
        _require(test(float(value)))
        return float(value)

    return Rule(allowed, read)


def integer(least: int, floats: bool = False) -> Rule:
    """A whole number of at least `least`, of an integer type; with `floats` also whole floats."""
    types = (int, np.integer, float, np.floating) if floats else (int, np.integer)

    def read(value: Any) -> int:
        _require(isinstance(value, types) and not isinstance(value, bool))
        _require(int(value) == value and value >= least)
        return int(value)

    return Rule(f"an integer of at least {least}", read)


def one_of(*options: str) -> Rule:
    """One of the given words."""

    def read(value: Any) -> str:
        _require(isinstance(value, str) and value in options)
        return str(value)

    others = ", ".join(map(repr, options[:-1]))
    return Rule(f"{others} or {options[-1]!r}" if others else repr(options[-1]), read)


def instance(allowed: str, *types: type) -> Rule:
    """An object of one of the given types."""
    return satisfying(allowed, lambda value: isinstance(value, types))


def satisfying(allowed: str, test: Callable[[Any], bool]) -> Rule:
    """Any value that passes a test."""

    def read(value: Any) -> Any:
        _require(test(value))
        return value

    return Rule(allowed, read)


def several(allowed: str, each: Rule) -> Rule:
    """A list, or another iterable, of one or more values that follow a rule; read as a list."""

    def read(value: Any) -> list[Any]:
        _require(not isinstance(value, (str, bytes, dict)))
        given = [each.read(one) for one in value]
        _require(len(given) > 0)
        return given

    return Rule(allowed, read)


def _require(fact: bool) -> None:
    if not fact:
        raise ValueError


NONE = satisfying("None", lambda value: value is None)
BOOLEAN = Rule("True or False", lambda value: bool(instance("", bool, np.bool_).read(value)))
CALLABLE = satisfying("a callable", callable)
POSITIVE = number("a positive number", lambda value: 0 < value < inf)
# The inverse must be finite, too, and a subnormal number has few digits.
GAMMA = number(
    "a positive number of at least 2.3e-308 (infinity means no ridge)",
    lambda value: bool(np.finfo(float).tiny <= value),
)
