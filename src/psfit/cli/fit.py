"""``psfit fit``: data files in, a model file out."""

from pathlib import Path
from typing import Annotated

import typer

from psfit.bicadmm import BiCADMM
from psfit.cli.options import (
    SEARCH,
    Backend,
    Blocks,
    Certify,
    Columns,
    Config,
    Data,
    Device,
    Dtype,
    Effort,
    EffortOption,
    Intercept,
    Json,
    Loss,
    LossOption,
    Memory,
    Nodes,
    OneHot,
    Quiet,
    Sparsity,
    SparsityOption,
    Standardize,
    Target,
    TimeLimit,
    Timeout,
    Weight,
    file_source,
    require_folder,
    share_or_count,
)
from psfit.cli.say import Speaker, summary
from psfit.comm import GridSpec
from psfit.estimators.path import model_for
from psfit.model_file import save


def fit(
    data: Data,
    loss: LossOption = Loss.squared,  # type: ignore[attr-defined]
    kappa: Annotated[str | None, typer.Option(help="Most nonzero coefficients, or their share below 1.")] = None,
    gamma: Annotated[float, typer.Option(help="Inverse weight of the ridge.")] = 1.0,
    standardize: Standardize = False,
    intercept: Intercept = True,
    sparsity: SparsityOption = Sparsity.element,  # type: ignore[attr-defined]
    target: Target = None,
    weight: Weight = None,
    columns: Columns = None,
    one_hot: OneHot = False,
    memory: Memory = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the model (.psfit).")] = None,
    nodes: Nodes = None,
    blocks: Blocks = 1,
    backend: Backend = "auto",
    device: Device = "auto",
    dtype: Dtype = None,
    timeout: Timeout = 1800.0,
    effort: EffortOption = Effort.medium,  # type: ignore[attr-defined]
    exact: Annotated[
        bool, typer.Option("--exact", help="Search on until the gap is proved.", rich_help_panel=SEARCH)
    ] = False,
    gap_tol: Annotated[float, typer.Option(help="The gap at which --exact is done.", rich_help_panel=SEARCH)] = 1e-4,
    certify: Certify = True,
    max_iter: Annotated[int, typer.Option(help="Most iterations.", rich_help_panel=SEARCH)] = 1000,
    time_limit: TimeLimit = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints; goes on from one found there.", rich_help_panel=SEARCH),
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Iterations between checkpoints.", rich_help_panel=SEARCH)] = 50,
    json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Fit a sparse model; under torchrun or mpirun, one over all ranks."""
    spec = GridSpec(nodes=nodes, blocks=blocks, device=device, dtype=dtype, backend=backend, timeout=timeout)
    solver = BiCADMM(
        effort=effort.value,
        exact=exact,
        gap_tol=gap_tol,
        max_iter=max_iter,
        time_limit=time_limit,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    source = file_source(data, target, weight, columns, one_hot, memory)
    grid = spec.build()
    grid.together(lambda: require_folder("--out", out))
    speaker = Speaker(grid, json, quiet)
    estimator = model_for(loss.value).set_params(
        kappa=share_or_count(kappa),
        gamma=gamma,
        fit_intercept=intercept,
        standardize=standardize,
        sparsity=sparsity.value,
        solver=solver,
        grid=spec,
        certify=certify,
        verbose=int(speaker.talks),
    )
    estimator.fit(source)
    if out is not None and speaker.first:
        save(estimator, out)
    speaker.say(summary(estimator) | {"out": None if out is None else str(out)}, [f"  model      {out}"] if out else [])
