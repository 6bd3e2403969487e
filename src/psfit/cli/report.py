"""``psfit report``: an HTML page about a model file; and the pages that other commands write."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import psfit
from psfit.cli import options
from psfit.cli.parsing import file_source, note_folders, table_rules

if TYPE_CHECKING:
    from psfit.comm import Grid
    from psfit.estimators.model import SparseModel


def report(
    model: options.ModelFile,
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="Files with samples to summarise and to score: those of the fit, or others."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the page (.html).")] = Path("report.html"),
    target: options.TargetOfFit = None,
    weight: options.WeightOfScore = None,
    offset: options.OffsetOfFit = None,
    memory: options.Memory = None,
    missing_target: options.MissingTargetOption = None,
    csv: options.Csv = None,
    backend: options.Backend = "auto",
    device: options.Device = "cpu",
    timeout: options.Timeout = 1800.0,
    quiet: options.Quiet = False,
) -> None:
    """Write one HTML page about a model; it needs no network and no other file."""
    from psfit import reporting

    if not data and not target is weight is offset is None:
        raise ValueError("--target, --weight and --offset belong to data files; name some after the model")
    grid = psfit.GridSpec(backend=backend, device=device, timeout=timeout).build()
    grid.run_together(lambda: reporting.require_page("--out", out))
    fitted = grid.run_together(lambda: psfit.load(model))
    samples = None
    if data:
        note_folders(data, grid.world.rank == 0)
        source = file_source(
            data, target, weight, memory=memory, offset=offset, **table_rules(csv=csv, missing_target=missing_target)
        )
        samples = reporting.describe(fitted, source, grid=grid)
    if grid.world.rank == 0:
        reporting.write_page(out, reporting.render_page(fitted, samples))
        if not quiet:
            print(f"  report     {out}")


def write_report(
    subject: "SparseModel | psfit.SparsePath", source: "psfit.FileSource", grid: "Grid", file: Path | None
) -> list[str]:
    """Write the page about what was just fitted, if a file is named; return the lines to print.

    All ranks must call this: the samples are read again for their summary.
    """
    if file is None:
        return []
    from psfit import reporting

    samples = reporting.describe(subject, source, grid=grid)
    command = shlex.join(["psfit", *sys.argv[1:]])
    if grid.world.rank == 0:
        reporting.write_page(file, reporting.render_page(subject, samples, command, source=source))
    return [f"  report     {file}"]
