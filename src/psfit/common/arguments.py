"""What arguments may be: small rules that read a value, and one error that names the argument and what is allowed.

A rule gives back the value in Python's own types, so that a number of any kind (NumPy's, say) is the same from there
on. Rules are joined by ``|``: ``integer(1) | NONE``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

# Longer values are cut where an error shows them.
MOST_SHOWN = 80


class ArgumentError(ValueError, TypeError):
    """An argument is not what it may be: of a wrong type or out of range, which often is the same mistake."""


@dataclass(frozen=True)
class Rule:
    """What is `allowed`, in words, and how to `read` it; whatever cannot be read makes that raise."""

    allowed: str
    read: Callable[[Any], Any]

    def __call__(self, name: str, value: Any) -> Any:
        """The value as it was meant, or an error."""
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

        return Rule(f"{self.allowed}, or {other.allowed}", either)


def check(owner: object, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """All of an object's arguments that have rules, as they were meant."""
    return {name: rule(name, getattr(owner, name)) for name, rule in rules.items()}


def describe(value: Any) -> str:
    """A value in an error message, not longer than a line."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        # Python refuses to print integers of thousands of digits.
        text = f"a number of type {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def number(allowed: str, test: Callable[[float], bool]) -> Rule:
    """A number, but no truth value, that passes a test as a float."""

    def read(value: Any) -> float:
        _require(isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool))
        _require(test(float(value)))
        return float(value)

    return Rule(allowed, read)


def integer(least: int, floats: bool = False) -> Rule:
    """A whole number from `least` on; of type int, or also `floats` that are whole."""
    types = (int, np.integer, float, np.floating) if floats else (int, np.integer)

    def read(value: Any) -> int:
        _require(isinstance(value, types) and not isinstance(value, bool))
        _require(int(value) == value and value >= least)
        return int(value)

    return Rule(f"an integer of at least {least}", read)


def one_of(*options: str) -> Rule:
    """One of some words."""

    def read(value: Any) -> str:
        _require(isinstance(value, str) and value in options)
        return str(value)

    said = ", ".join(map(repr, options[:-1]))
    return Rule(f"{said} or {options[-1]!r}" if said else repr(options[-1]), read)


def instance(allowed: str, *types: type) -> Rule:
    """An object of one of some types."""
    return satisfying(allowed, lambda value: isinstance(value, types))


def satisfying(allowed: str, test: Callable[[Any], bool]) -> Rule:
    """Whatever passes a test."""

    def read(value: Any) -> Any:
        _require(test(value))
        return value

    return Rule(allowed, read)


def several(allowed: str, each: Rule) -> Rule:
    """A list, or anything else to go through, of one or more values that follow a rule. Read as a list."""

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
# Its inverse must be a number, too, and a subnormal number has hardly any digits.
GAMMA = number(
    "a positive number from 2.3e-308 to 1.7e308 (a large one means hardly any ridge)",
    lambda value: bool(np.finfo(float).tiny <= value) and isfinite(value),
)
GAMMAS = GAMMA | several("a sequence of such numbers", GAMMA)
