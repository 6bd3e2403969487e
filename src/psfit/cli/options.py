"""Options that several commands share, and what is made of them."""

import tomllib
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from psfit.comm import Grid, GridSpec
from psfit.data import FileSource
from psfit.estimators.registry import LOSSES

Loss = Enum("Loss", {name: name for name in LOSSES}, type=str)  # type: ignore[misc]
Effort = Enum("Effort", {name: name for name in ("low", "medium", "high")}, type=str)  # type: ignore[misc]
Sparsity = Enum("Sparsity", {name: name for name in ("element", "feature")}, type=str)  # type: ignore[misc]
# Limits of a path that a command takes; a model is kept for each.
MOST_LIMITS = 100_000
READING, GRID, SEARCH, SAYING = "Data", "Nodes and devices", "Search", "Output"


def _configured(context: typer.Context, file: Path | None) -> Path | None:
    """Take defaults from a TOML file; what stands on the command line goes before it."""
    if file is None:
        return None
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read ({error})") from None
    known = {parameter.name for parameter in context.command.params}
    given = {name.replace("-", "_"): value for name, value in found.items()}
    unknown = sorted(set(given) - known)
    if unknown:
        raise typer.BadParameter(f"{file} sets {', '.join(unknown)}, which is no option of {context.info_name}")
    context.default_map = {**(context.default_map or {}), **given}
    return file


Data = Annotated[
    list[Path],
    typer.Argument(help="Files or folders of them: .csv .tsv .parquet .feather .arrow .npy .npz .svm .h5"),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="The target: a column (by default the last), an array (y), or a .npy file.", rich_help_panel=READING
    ),
]
Weight = Annotated[str | None, typer.Option(help="Column or array of sample weights.", rich_help_panel=READING)]
Columns = Annotated[
    str | None, typer.Option(help="Use only these features, separated by commas.", rich_help_panel=READING)
]
OneHot = Annotated[
    bool, typer.Option("--one-hot", help="Turn columns of text into one for each text.", rich_help_panel=READING)
]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory for the features, such as 2GB; the rest streams.", rich_help_panel=READING),
]
LossOption = Annotated[
    Loss, typer.Option(help="What to fit: squared is linear regression, squared_hinge and hinge are SVMs.")
]
Standardize = Annotated[
    bool,
    typer.Option(
        "--standardize", help="Let the ridge see columns of unit spread; coefficients stay in the units of the data."
    ),
]
Intercept = Annotated[bool, typer.Option(help="Fit an intercept.")]
SparsityOption = Annotated[Sparsity, typer.Option(help="What kappa counts with several outputs: entries or features.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes; one for each rank if not given.", rich_help_panel=GRID)]
Blocks = Annotated[int, typer.Option(help="Feature blocks in each node.", rich_help_panel=GRID)]
Backend = Annotated[str, typer.Option(help="auto, serial, torch or mpi.", rich_help_panel=GRID)]
Device = Annotated[str, typer.Option(help="A torch device, or auto.", rich_help_panel=GRID)]
Dtype = Annotated[
    str | None, typer.Option(help="float32 or float64; that of the data if not given.", rich_help_panel=GRID)
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for another rank.", rich_help_panel=GRID)]
EffortOption = Annotated[Effort, typer.Option(help="How hard to look for the support.", rich_help_panel=SEARCH)]
Certify = Annotated[bool, typer.Option(help="Prove a lower bound.", rich_help_panel=SEARCH)]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds after which to stop.", rich_help_panel=SEARCH)]
Report = Annotated[
    Path | None,
    typer.Option(help="Where to write a report, a page for people (.html).", rich_help_panel=SAYING),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=SAYING)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=SAYING)]
Config = Annotated[
    Path | None,
    typer.Option(help="A TOML file with defaults for these options.", callback=_configured, is_eager=True),
]


def file_source(
    data: list[Path],
    target: str | None,
    weight: str | None = None,
    columns: str | None = None,
    one_hot: bool = False,
    memory: str | None = None,
) -> FileSource:
    """Where the samples are."""
    chosen = None if columns is None else tuple(name.strip() for name in columns.split(","))
    return FileSource(tuple(data), target, weight, chosen, one_hot, memory)


def build_four_nodes(nodes: int | None, device: str) -> Grid:
    """So many nodes; if no number is given, one for each rank, and four in a process of its own."""
    grid = GridSpec(nodes=nodes, device=device).build()
    alone = nodes is None and grid.world.size == 1
    return GridSpec(nodes=4, device=device).build() if alone else grid


def share_or_count(kappa: str | None) -> int | float | None:
    """A count or a share, as written."""
    if kappa is None:
        return None
    try:
        return float(kappa) if "." in kappa else int(kappa)
    except ValueError:
        raise ValueError(f"--kappa: {kappa!r} is neither a count nor a share between 0 and 1") from None


def limits(kappas: str | None) -> list[int] | None:
    """Numbers and ranges such as ``1:50`` or ``10:200:10`` (last one included), separated by commas."""
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
            raise ValueError(f"--kappas: {part!r} is no number and no range such as 1:50 or 10:200:10") from None
        if len(found) + (last - first) // step >= MOST_LIMITS:
            raise ValueError(
                f"--kappas: {kappas!r} means more than {MOST_LIMITS:,} limits; leave some out, with a step as in "
                "10:200:10"
            )
        found += range(first, last + 1, step)
    return found


def numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option}: {text!r} must be numbers separated by commas") from None


def plain(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
