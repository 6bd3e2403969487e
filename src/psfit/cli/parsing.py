"""What the values of options mean: text from the command line in, settings out."""

import csv as csv_module
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psfit
from psfit.common.names import list_names

if TYPE_CHECKING:
    from psfit.comm import Grid

# Limits of a path that a command takes; a model is kept for each.
MOST_LIMITS = 100_000


# What `--dates all` means.
DATE_PARTS = ("year", "month", "weekday", "trend")
# What the keys of --csv mean.
CSV_KEYS = {
    "separator": "separator",
    "decimal": "decimal",
    "thousands": "thousands",
    "encoding": "encoding",
    "missing": "missing_marks",
    "dates": "date_format",
}
# Characters that are hard to write in a shell.
CHARACTERS = {"tab": "\t", "space": " ", "comma": ",", "point": ".", "semicolon": ";"}


def file_source(
    data: list[Path],
    target: str | None,
    weight: str | None = None,
    columns: str | None = None,
    one_hot: bool = False,
    memory: str | None = None,
    offset: str | None = None,
    **rules: Any,
) -> "psfit.FileSource":
    """The samples to read: files, target, weights, columns and offsets, and the rules for tables."""
    chosen = None if columns is None else parse_names("--columns", columns)
    return psfit.FileSource(tuple(data), target, weight, chosen, one_hot, memory, offset, **rules)


def note_folders(data: list[Path], first: bool) -> None:
    """Say, on the first rank, which files a folder of data has: it may be one that was not meant."""
    from psfit.data.io import files_of_path

    for path in data:
        if first and path.is_dir():
            names = [file.name for file in files_of_path(path)]
            files = f"{len(names):,} file{'s' * (len(names) != 1)}"
            warnings.warn(
                f"{path} is a folder; what is read are its {files}: {list_names(names, 5)}",
                psfit.ReadingWarning,
                stacklevel=2,
            )


def table_rules(
    categories: Any = None,
    dates: str | None = None,
    missing: Any = None,
    new_levels: Any = None,
    exclude: str | None = None,
    ids: str | None = None,
    csv: list[str] | None = None,
    missing_target: Any = None,
) -> dict[str, Any]:
    """The rules for tables, from the values of their options."""
    words = {"categories": categories, "missing": missing, "new_levels": new_levels, "missing_target": missing_target}
    found: dict[str, Any] = {name: word.value for name, word in words.items() if word is not None}
    if dates is not None:
        found["dates"] = DATE_PARTS if dates == "all" else parse_names("--dates", dates)
    if exclude is not None:
        found["exclude"] = parse_names("--exclude", exclude)
    if ids is not None:
        found["ids"] = parse_names("--id", ids)
    return found | parse_csv(csv or [])


def split_list(text: str, separator: str = ",") -> list[str]:
    """The parts of a text; one that begins with a quote may have separators in it."""
    return [part.strip() for part in next(csv_module.reader([text], delimiter=separator, skipinitialspace=True))]


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Names separated by commas, with quotes where a name has a comma; or ``@file`` with a name in every line."""
    if not text.startswith("@"):
        return tuple(split_list(text))
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{option}: the file of names {text[1:]} cannot be read ({error})") from None
    return tuple(line.strip() for line in lines if line.strip())


def parse_csv(given: list[str]) -> dict[str, Any]:
    """Read pairs such as ``separator=;``; `missing` may occur more than once."""
    found: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or key not in CSV_KEYS:
            raise ValueError(f"--csv: {pair!r} must be one of {', '.join(CSV_KEYS)}, then = and a value")
        value = CHARACTERS.get(value, value)
        if key == "missing":
            found.setdefault("missing_marks", []).append(value)
        else:
            found[CSV_KEYS[key]] = value
    return found


def default_grid(nodes: int | None, device: str) -> "Grid":
    """A grid of `nodes`; if that is None, one node for each rank, or four in a single process."""
    grid = psfit.GridSpec(nodes=nodes, device=device).build()
    alone = nodes is None and grid.world.size == 1
    return psfit.GridSpec(nodes=4, device=device).build() if alone else grid


def parse_kappa(kappa: str | None) -> int | float | None:
    """A count, or a share if the text has a decimal point."""
    if kappa is None:
        return None
    try:
        return float(kappa) if "." in kappa else int(kappa)
    except ValueError:
        raise ValueError(f"--kappa: {kappa!r} is neither a count nor a share between 0 and 1") from None


def parse_gamma(gamma: str) -> float | str:
    """A number, also "inf", or "auto"."""
    if gamma == "auto":
        return gamma
    try:
        return float(gamma)
    except ValueError:
        raise ValueError(f"--gamma: {gamma!r} is neither a number, nor inf (no ridge), nor auto") from None


def parse_limits(kappas: str | None) -> list[int] | None:
    """Read numbers and ranges such as ``1:50`` or ``10:200:10`` (last one included), separated by commas."""
    if kappas is None:
        return None
    found: list[int] = []
    for part in kappas.split(","):
        try:
            ends = [int(number) for number in part.split(":")]
            first, last, step = {1: (*ends, *ends, 1), 2: (*ends, 1), 3: tuple(ends)}[len(ends)]
            if step < 1 or last < first:
                raise ValueError
        except (ValueError, KeyError):
            raise ValueError(f"--kappas: {part!r} is neither a number nor a range such as 1:50 or 10:200:10") from None
        if len(found) + (last - first) // step >= MOST_LIMITS:
            raise ValueError(
                f"--kappas: {kappas!r} means more than {MOST_LIMITS:,} limits; leave some out, with a step as in "
                "10:200:10"
            )
        found += range(first, last + 1, step)
    return found


def parse_gammas(text: str) -> list[float] | str:
    """Read numbers separated by commas, or "auto"."""
    if text == "auto":
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--gammas: {text!r} must be numbers separated by commas, or auto") from None
