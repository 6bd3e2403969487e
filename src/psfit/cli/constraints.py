"""Constraints on the command line: names, pairs of names and values, groups; ``@FILE`` reads them from a file."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from psfit.cli.parsing import split_list

PANEL = "Constraints on coefficients"
Heredity = Enum("Heredity", {name: name for name in ("strong", "weak")}, type=str)  # type: ignore[misc]
Counted = Enum("Counted", {name: name for name in ("groups", "features")}, type=str)  # type: ignore[misc]

Include = Annotated[
    str | None,
    typer.Option(help="Features that are always in: names separated by commas, or @FILE.", rich_help_panel=PANEL),
]
ExcludeFeatures = Annotated[
    str | None,
    typer.Option(
        help="Features that are never in. To leave out columns before reading, use --exclude.", rich_help_panel=PANEL
    ),
]
CountIncluded = Annotated[
    bool, typer.Option("--count-included", help="Let kappa count the features of --include.", rich_help_panel=PANEL)
]
Lower = Annotated[
    str | None,
    typer.Option(
        help="Lower bounds of coefficients: a number for all, or name=number separated by commas, or @FILE.",
        rich_help_panel=PANEL,
    ),
]
Upper = Annotated[
    str | None, typer.Option(help="Upper bounds of coefficients, in the same way.", rich_help_panel=PANEL)
]
Positive = Annotated[
    bool, typer.Option("--positive", help="No coefficient is negative, as with --lower 0.", rich_help_panel=PANEL)
]
Groups = Annotated[
    str,
    typer.Option(
        help="Features that are in the model together or not at all: 'label=name,name; label=name,name' or @FILE with "
        "a group in each line; categories (the columns that --categories group makes of one column) or none.",
        rich_help_panel=PANEL,
    ),
]
KappaCounts = Annotated[Counted, typer.Option(help="What kappa counts if there are groups.", rich_help_panel=PANEL)]
AtMost = Annotated[
    str | None,
    typer.Option(
        help="The largest number of features of a group that a model may use: a number for all, or label=number "
        "separated by commas; such groups need not be in the model as a whole.",
        rich_help_panel=PANEL,
    ),
]
HeredityOption = Annotated[
    Heredity | None,
    typer.Option(
        help="A product a:b may be in the model only with both factors (strong) or at least one (weak).",
        rich_help_panel=PANEL,
    ),
]
GROUPS = "categories"
COUNTED = Counted.groups  # type: ignore[attr-defined]


def read_constraints(
    include: str | None,
    exclude_features: str | None,
    count_included: bool,
    lower: str | None,
    upper: str | None,
    positive: bool,
    groups: str,
    kappa_counts: Counted,
    at_most: str | None,
    heredity: Heredity | None,
) -> dict[str, Any]:
    """The arguments of estimators and paths for constraints, from the options of a command."""
    return {
        "include": None if include is None else _split("--include", include),
        "exclude": None if exclude_features is None else _split("--exclude-features", exclude_features),
        "count_included": count_included,
        "lower": None if lower is None else _read_numbers("--lower", lower, float),
        "upper": None if upper is None else _read_numbers("--upper", upper, float),
        "positive": positive,
        "groups": _read_groups(groups),
        "kappa_counts": kappa_counts.value,
        "at_most": None if at_most is None else _read_numbers("--at-most", at_most, int),
        "heredity": None if heredity is None else heredity.value,
    }


def _split(option: str, text: str, separator: str = ",") -> list[str]:
    """The parts of a text, or the lines of a file; empty ones are left out."""
    parts = _read_lines(option, text[1:]) if text.startswith("@") else split_list(text, separator)
    found = [part.strip() for part in parts]
    return [part for part in found if part]


def _read_lines(option: str, file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{option}: the file {file!r} cannot be read ({error})") from None


def _read_numbers(option: str, text: str, kind: type[int] | type[float]) -> Any:
    """One number for all, or a dict from names to numbers; a name may have equal signs, too."""
    word = "an integer" if kind is int else "a number"
    try:
        return kind(text)
    except ValueError:
        pass
    found: dict[str, Any] = {}
    for part in _split(option, text):
        name, equals, value = part.rpartition("=")
        try:
            number = kind(value)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise ValueError(f"{option}: {part!r} is neither {word} nor a name with {word}, such as age=0")
        if name.strip() in found:
            raise ValueError(f"{option}: {name.strip()!r} is given twice; give every name once")
        found[name.strip()] = number
    return found


def _read_groups(text: str) -> Any:
    """The word for categories, None, or a dict from labels to names."""
    if text in (GROUPS, "none"):
        return GROUPS if text == GROUPS else None
    found: dict[str, list[str]] = {}
    for part in _split("--groups", text, ";"):
        label, equals, names = (piece.strip() for piece in part.partition("="))
        if not equals or not label or not names:
            raise ValueError(f"--groups: {part!r} is not a group, such as size=width,height; or use categories or none")
        if label in found:
            raise ValueError(f"--groups: {label!r} is given twice; give every group once")
        found[label] = [name for name in split_list(names) if name]
    return found
