"""``psfit bench``: how fast and how good PsFiT is on this machine, beside scikit-learn, in one run."""

from enum import Enum
from typing import Annotated

import typer

from psfit.cli import options
from psfit.cli.output import Printer
from psfit.cli.parsing import default_grid

# The losses for which scikit-learn has a sparse model.
LOSSES = ("squared", "logistic", "squared_hinge")
BaselineLoss = Enum("BaselineLoss", {name: name for name in LOSSES}, type=str)  # type: ignore[misc]
NOTES = (
    "seconds: median of the runs, the methods in turn, after one run of each that does not count; PsFiT's with proof",
    "F1: agreement of the support with the true one; 1 means that both are the same",
    "objective: of PsFiT's problem; scikit-learn's support is refitted for it, which its seconds do not include",
    "gap: no answer within the limit is better by more than this share; scikit-learn proves nothing",
)


def bench(
    samples: Annotated[int, typer.Option(help="Samples to generate.")] = 5_000,
    features: Annotated[int, typer.Option(help="Features to generate.")] = 200,
    kappa: Annotated[
        int | None, typer.Option(help="Number of features with an effect, and the limit; a tenth of all if not given.")
    ] = None,
    loss: Annotated[BaselineLoss, typer.Option(help="What to fit.")] = BaselineLoss.squared,  # type: ignore[attr-defined]
    nodes: Annotated[
        int | None,
        typer.Option(
            help="Nodes; if not given, one for each rank, or four in a single process.",
            rich_help_panel=options.GRID_PANEL,
        ),
    ] = None,
    device: options.Device = "auto",
    repeats: Annotated[int, typer.Option(help="Runs of each method; the median is reported.")] = 3,
    json: options.Json = False,
) -> None:
    """Measure PsFiT beside scikit-learn on generated data; under torchrun or mpirun, PsFiT runs over all ranks."""
    from psfit.cli.measurement import make_case, measure
    from psfit.common.environment import environment

    grid = default_grid(nodes, device)
    printer = Printer(grid, json, quiet=False)
    kappa = max(1, features // 10) if kappa is None else kappa
    grid.run_together(lambda: _check(samples, features, kappa, repeats, grid.nodes.size) if printer.first else None)
    case = make_case(loss.value, samples, features, kappa, grid)
    found = measure(case, repeats, printer.first)
    where = environment() | {"device": str(grid.device), "ranks": str(grid.world.size)}
    settings = {"samples": samples, "features": features, "kappa": kappa, "loss": case.loss, "nodes": grid.nodes.size}
    printer.print(
        {**settings, "repeats": repeats, "methods": [one.facts() for one in found], "environment": where},
        [
            f"{samples:,} samples x {features:,} features in float32, {kappa} of them matter, {case.loss} loss, "
            f"{grid.nodes.size} node{'s' * (grid.nodes.size > 1)}, {repeats} run{'s' * (repeats > 1)}",
            f"  {'method':<24} {'seconds':>9} {'F1':>7} {'objective':>14} {'gap':>9}",
            *(one.line() for one in found),
            *NOTES,
            "run on: " + ", ".join(f"{name} {value}" for name, value in where.items()),
        ],
    )


def _check(samples: int, features: int, kappa: int, repeats: int, nodes: int) -> None:
    if features < 1:
        raise ValueError(f"--features: {features} must be at least 1")
    if samples < nodes:
        raise ValueError(f"--samples: {samples} is too few for {nodes} nodes; use at least {nodes}")
    if not 1 <= kappa <= features:
        raise ValueError(f"--kappa: {kappa} must be between 1 and {features}, the number of features")
    if repeats < 1:
        raise ValueError(f"--repeats: {repeats} must be at least 1")
