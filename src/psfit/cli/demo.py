"""``psfit demo``: the main job, a sparse regression over four nodes, on generated data and on a real data set."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import psfit
from psfit.cli import options
from psfit.cli.parsing import default_grid
from psfit.common.output_files import require_writable, write_lines, write_whole

if TYPE_CHECKING:
    from psfit.comm import Grid

# A very small ridge, so that the coefficients are those of least squares on the support.
GAMMA = 1000.0
TERMS = 8
TARGET = "progression"
FITS = ("generated", "diabetes")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the data, models and pictures.")] = Path("psfit-demo"),
    samples: Annotated[int, typer.Option(help="Samples to generate.")] = 20_000,
    features: Annotated[int, typer.Option(help="Features to generate; a tenth of them matter.")] = 1_000,
    device: options.Device = "auto",
) -> None:
    """Fit generated and real data over four nodes; under torchrun or mpirun, every rank is a node.

    Ranks on several machines need a folder that all of them can read.
    """
    grid = default_grid(None, device)
    first = grid.world.rank == 0
    grid.run_together(lambda: _prepare(out, samples, features, grid.nodes.size) if first else None)
    model, found = _fit_generated(samples, features, grid)
    if first:
        _report("Generated data of the paper's kind", FITS[0], model, [found], out)
    table = out / "diabetes.csv"
    model = psfit.SparseLinearRegression(kappa=TERMS, gamma=GAMMA, grid=grid).fit(table, target=TARGET)
    if first:
        lines = _term_lines(model, table)
        _report("Diabetes data, 442 patients x 65 candidate terms", FITS[1], model, lines, out)
        print("\n".join(["What to try next with these files:", *(f"  {line}" for line in _next_commands(out))]))


def _prepare(out: Path, samples: int, features: int, nodes: int) -> None:
    """Refuse arguments that cannot work, and write the real data; every rank will read its part of them."""
    import numpy as np
    from sklearn.preprocessing import PolynomialFeatures

    if features < 10:
        raise ValueError(f"--features: {features} is too few; a tenth of them matter, so use at least 10")
    if samples < nodes:
        raise ValueError(f"--samples: {samples} is too few for {nodes} nodes; use at least {nodes}")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"--out: there is no folder {out.absolute().parent}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out: {out} is a file; name a folder")
    out.mkdir(exist_ok=True)
    for name in ("diabetes.csv", *(file for fitted in FITS for file in _files(fitted))):
        require_writable("--out", out / name)
    bunch = _diabetes()
    made = PolynomialFeatures(2, include_bias=False).fit(bunch.data)
    names = made.get_feature_names_out(bunch.feature_names)
    values = np.column_stack([made.transform(bunch.data), bunch.target])
    write_lines(out / "diabetes.csv", [[*names, TARGET], *values.tolist()])


def _diabetes() -> Any:
    from sklearn.datasets import load_diabetes

    return load_diabetes()


def _fit_generated(samples: int, features: int, grid: "Grid") -> "tuple[psfit.SparseLinearRegression, str]":
    """Fit data of which the true coefficients are known: 90 % of them are zero."""
    import numpy as np

    from psfit.data.synthetic import paper_recipe

    data = paper_recipe(samples, features, sparsity_level=0.9, nodes=grid.nodes.size, noise=0.001)
    mine = grid.rows(samples)
    model = psfit.SparseLinearRegression(kappa=data.kappa, gamma=GAMMA, fit_intercept=False, grid=grid)
    model.fit(data.A[mine].numpy(), data.b[mine, 0].numpy())
    found = len(np.intersect1d(np.flatnonzero(data.x[:, 0]), model.support_))
    return model, f"  recovered  {found} of the {data.kappa} true features"


def _term_lines(model: "psfit.SparseLinearRegression", table: Path) -> list[str]:
    """How well the model describes the data, and with which terms."""
    predicted = model.predict(table)
    actual = _diabetes().target
    score = 1 - ((actual - predicted) ** 2).sum() / ((actual - actual.mean()) ** 2).sum()
    names = model.feature_names_in_
    return [
        f"  R^2        {score:.3f} with these terms:",
        *(f"    {names[j]:>10} {model.coef_[j]:+12.1f}" for j in model.support_),
    ]


def _files(name: str) -> tuple[str, str]:
    """The model and the picture of a fit."""
    return f"{name}.psfit", f"convergence-{name}.png"


def _report(title: str, name: str, model: "psfit.SparseLinearRegression", lines: list[str], out: Path) -> None:
    """Print a fit, save it and draw its residuals."""
    file, picture = (out / one for one in _files(name))
    psfit.save(model, file)
    _draw(model, title, picture)
    lines = [title, str(model.result_), *lines, f"  model      {file}", f"  picture    {picture}"]
    print("\n".join(lines), end="\n\n", flush=True)


def _draw(model: "psfit.SparseLinearRegression", title: str, picture: Path) -> None:
    # A figure made without pyplot needs no screen, whatever the user's settings of matplotlib are.
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6.4, 4.0), layout="constrained")
    psfit.plots.plot_convergence(model.result_, figure.subplots(), f"{title}, {model.result_.nodes} nodes")
    write_whole(picture, lambda file: figure.savefig(file, format="png", dpi=120))


def _next_commands(out: Path) -> list[str]:
    """Command lines that can be copied and run in this folder and environment."""
    beside = Path(sys.executable).parent
    known = shutil.which("psfit")
    psfit = "psfit" if known and Path(known).parent == beside else f"{_shell_name(Path(sys.executable))} -m psfit"
    data, model, predictions, path = (
        shlex.quote(str(out / name)) for name in ("diabetes.csv", "mine.psfit", "predictions.csv", "path.csv")
    )
    fit = f"fit {data} --target {TARGET} --kappa 4 --gamma {GAMMA:g}"
    lines = [
        f"{psfit} inspect {data} --target {TARGET}",
        f"{psfit} {fit} --out {model}",
        f"{psfit} inspect {model}",
        f"{psfit} predict {model} {data} --out {predictions}",
        f"{psfit} path {data} --target {TARGET} --kappas 1:12 --gammas {GAMMA:g} --out {path}",
    ]
    torchrun = beside / "torchrun"
    if torchrun.exists():
        lines.append(f"{_shell_name(torchrun)} --standalone --nproc-per-node 2 -m psfit {fit}")
    return lines


def _shell_name(program: Path) -> str:
    """A program as a user would type it in the current folder."""
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return shlex.quote(str(program))
