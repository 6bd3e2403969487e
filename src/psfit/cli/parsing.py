"""What the values of options mean: text from the command line in, settings out."""

from pathlib import Path
from typing import TYPE_CHECKING

import psfit

if TYPE_CHECKING:
    from psfit.comm import Grid

# Limits of a path that a command takes; a model is kept for each.
MOST_LIMITS = 100_000


def file_source(
    data: list[Path],
    target: str | None,
    weight: str | None = None,
    columns: str | None = None,
    one_hot: bool = False,
    memory: str | None = None,
    offset: str | None = None,
) -> "psfit.FileSource":
    """The samples to read: files, target, weights, columns and offsets."""
    chosen = None if columns is None else tuple(name.strip() for name in columns.split(","))
    return psfit.FileSource(tuple(data), target, weight, chosen, one_hot, memory, offset)


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


def parse_numbers(option: str, text: str) -> list[float]:
    """Read numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option}: {text!r} must be numbers separated by commas") from None
