"""``psfit fit``: data files in, a model file out."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from psfit.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.data import FileSource
from psfit.estimators import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
)
from psfit.estimators._base import SparseModel
from psfit.model_file import save

MODELS: dict[str, type[SparseModel]] = {
    "linear": SparseLinearRegression,
    "logistic": SparseLogisticRegression,
    "softmax": SparseSoftmaxRegression,
    "svc": SparseSVC,
    "poisson": SparsePoissonRegression,
}
Kind = Enum("Kind", {name: name for name in MODELS}, type=str)  # type: ignore[misc]
Effort = Enum("Effort", {name: name for name in ("low", "medium", "high")}, type=str)  # type: ignore[misc]


def fit(
    data: Annotated[
        list[Path],
        typer.Argument(help="Files or folders of them: .csv .tsv .parquet .feather .arrow .npy .npz .svm .h5"),
    ],
    model: Annotated[Kind, typer.Option(help="What to fit.")] = Kind.linear,  # type: ignore[attr-defined]
    kappa: Annotated[str | None, typer.Option(help="Most nonzero coefficients, or their share below 1.")] = None,
    gamma: Annotated[float, typer.Option(help="Inverse weight of the ridge.")] = 1.0,
    target: Annotated[
        str | None, typer.Option(help="The target: a column (by default the last), an array (y), or a .npy file.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Column or array of sample weights.")] = None,
    columns: Annotated[str | None, typer.Option(help="Use only these features, separated by commas.")] = None,
    one_hot: Annotated[bool, typer.Option("--one-hot", help="Turn columns of text into one for each text.")] = False,
    memory: Annotated[str | None, typer.Option(help="Memory for the features, such as 2GB; the rest streams.")] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Let the ridge see columns of unit spread.")
    ] = False,
    intercept: Annotated[bool, typer.Option(help="Fit an intercept.")] = True,
    sparsity: Annotated[str, typer.Option(help="What kappa counts: element or feature.")] = "element",
    loss: Annotated[
        str | None, typer.Option(help="Loss of linear (squared, huber) or svc (squared_hinge, hinge).")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write the model (.psfit).")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes; one for each rank if not given.")] = None,
    blocks: Annotated[int, typer.Option(help="Feature blocks in each node.")] = 1,
    backend: Annotated[str, typer.Option(help="auto, serial, torch or mpi.")] = "auto",
    device: Annotated[str, typer.Option(help="A torch device, or auto.")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="float32 or float64; that of the data if not given.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for another rank.")] = 1800.0,
    effort: Annotated[Effort, typer.Option(help="How hard to look for the support.")] = Effort.medium,  # type: ignore[attr-defined]
    exact: Annotated[bool, typer.Option("--exact", help="Search on until the gap is proved.")] = False,
    gap_tol: Annotated[float, typer.Option(help="The gap at which --exact is done.")] = 1e-4,
    certify: Annotated[bool, typer.Option(help="Prove a lower bound.")] = True,
    max_iter: Annotated[int, typer.Option(help="Most iterations.")] = 1000,
    time_limit: Annotated[float | None, typer.Option(help="Seconds after which to stop.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; goes on from one found there.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Iterations between checkpoints.")] = 50,
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
    options: dict[str, Any] = {
        "gamma": gamma,
        "fit_intercept": intercept,
        "standardize": standardize,
        "sparsity": sparsity,
    }
    if loss is not None:
        if model.value not in ("linear", "svc"):
            raise ValueError(f"--loss: the {model.value} model has only one loss; leave it out")
        options["loss"] = loss
    chosen = None if columns is None else tuple(name.strip() for name in columns.split(","))
    source = FileSource(tuple(data), target, weight, chosen, one_hot, memory)
    grid = spec.build()
    first = grid.world.rank == 0

    def check_output() -> None:
        if first and output is not None and not output.absolute().parent.is_dir():
            raise ValueError(f"--output: there is no folder {output.absolute().parent}")

    grid.together(check_output)
    estimator = MODELS[model.value](_limit(kappa), **options, solver=solver, grid=spec, certify=certify, verbose=1)
    estimator.fit(source)
    if first and output is not None:
        save(estimator, output)
        print(f"  model      {output}")


def _limit(kappa: str | None) -> int | float | None:
    """A count or a share, as written."""
    if kappa is None:
        return None
    try:
        return float(kappa) if "." in kappa else int(kappa)
    except ValueError:
        raise ValueError(f"--kappa: {kappa!r} is neither a count nor a share between 0 and 1") from None
