"""``psfit path``: all limits at once; with ``--cv`` or ``--criterion`` the best of them as a model file."""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from psfit.admm.bicadmm import BiCADMM
from psfit.cli import options
from psfit.cli.report import write_report
from psfit.cli.say import EXIT_CODES, Speaker, coefficients, draw, end, require_picture, summary, written
from psfit.comm import Grid, GridSpec
from psfit.comm.watch import Progress
from psfit.common.output_files import require_writable, write_lines
from psfit.common.result import Status
from psfit.data import FileSource
from psfit.estimators import SparsePath, sparse_path
from psfit.estimators.factory import make_estimator
from psfit.estimators.persistence.model_file import save
from psfit.estimators.selecting import SelectingModel
from psfit.reporting import require_page

Criterion = Enum("Criterion", {name: name for name in ("aic", "bic", "ebic", "gic")}, type=str)  # type: ignore[misc]
CHOICE = "Choice of kappa"


def path(
    data: options.Data,
    loss: options.LossOption = options.Loss.squared,  # type: ignore[attr-defined]
    kappas: Annotated[
        str | None,
        typer.Option(help="Limits: numbers and ranges such as 1:50 or 10:200:10; 1 to 50 if not given."),
    ] = None,
    gammas: Annotated[str, typer.Option(help="Inverse weights of the ridge, separated by commas.")] = "1",
    standardize: options.Standardize = False,
    intercept: options.Intercept = True,
    sparsity: options.SparsityOption = options.Sparsity.element,  # type: ignore[attr-defined]
    cv: Annotated[
        int | None, typer.Option(help="Choose by cross-validation in so many folds.", rich_help_panel=CHOICE)
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(help="A scorer of scikit-learn's; minus the mean loss if not given.", rich_help_panel=CHOICE),
    ] = None,
    one_standard_error: Annotated[
        bool,
        typer.Option(
            "--one-standard-error", help="Take the simplest model within one standard error.", rich_help_panel=CHOICE
        ),
    ] = False,
    criterion: Annotated[
        Criterion | None, typer.Option(help="Choose by an information criterion.", rich_help_panel=CHOICE)
    ] = None,
    target: options.Target = None,
    weight: options.Weight = None,
    columns: options.Columns = None,
    one_hot: options.OneHot = False,
    memory: options.Memory = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the path (.csv), or the model that was chosen (.psfit).")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Where to draw coefficients, or the choice, against kappa (.png).", rich_help_panel=options.SAYING
        ),
    ] = None,
    report: options.Report = None,
    nodes: options.Nodes = None,
    blocks: options.Blocks = 1,
    backend: options.Backend = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    timeout: options.Timeout = 1800.0,
    effort: options.EffortOption = options.Effort.medium,  # type: ignore[attr-defined]
    certify: options.Certify = True,
    time_limit: options.TimeLimit = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    config: options.Config = None,
) -> None:
    """Fit every limit kappa at once, and choose one if asked to."""
    spec = GridSpec(nodes=nodes, blocks=blocks, device=device, dtype=dtype, backend=backend, timeout=timeout)
    grid = spec.build()
    chooses = cv is not None or criterion is not None

    def prepared() -> tuple[Speaker, FileSource, dict[str, Any], dict[str, Any]]:
        if cv is not None and criterion is not None:
            raise ValueError("--cv and --criterion exclude each other; use one of them")
        if not chooses and (scoring is not None or one_standard_error):
            raise ValueError("--scoring and --one-standard-error need --cv")
        _require_ending(out, chooses)
        require_writable("--out", out)
        require_picture("--picture", picture)
        require_page("--report", report)
        speaker = Speaker(grid, json, quiet)
        tried = {"kappas": options.limits(kappas), "gammas": options.numbers("--gammas", gammas)}
        shared = {
            "fit_intercept": intercept,
            "standardize": standardize,
            "sparsity": sparsity.value,
            "solver": BiCADMM(effort=effort.value, time_limit=time_limit, interruptible=True),
            "grid": grid,
            "certify": certify,
            "verbose": int(speaker.talks),
        }
        return speaker, options.file_source(data, target, weight, columns, one_hot, memory), tried, shared

    speaker, source, tried, shared = grid.together(prepared)
    if chooses:
        how: dict[str, Any] = {
            "criterion": "cv" if criterion is None else criterion.value,
            "cv": cv,
            "scoring": scoring,
        }
        how["one_standard_error"] = one_standard_error
        model: Any = make_estimator(loss.value, selecting=True).set_params(**tried, **how, **shared)
        _fit_choice(model, source, grid)
        facts, lines = _choose(model, speaker, out, picture)
        lines += write_report(model, source, grid, report)
        ended: Status | None = model.result_.status
    else:
        found = sparse_path(source, **tried, loss=loss.value, **shared)
        facts, lines = _show(found, speaker, out, picture)
        lines += write_report(found, source, grid, report)
        ended = found.ended
    speaker.say(facts | written(out=out, report=report), lines)
    end(ended, grid)


def _require_ending(out: Path | None, chooses: bool) -> None:
    ending = ".psfit" if chooses else ".csv"
    if out is not None and out.suffix != ending:
        kind = "the model that is chosen" if chooses else "the table of the path (a model needs --cv or --criterion)"
        raise ValueError(f"--out: {kind} needs a file that ends with {ending}")


def _fit_choice(model: SelectingModel, source: FileSource, grid: Grid) -> None:
    """Choose and fit; a choice that Ctrl-C cuts short is none, and that is all there is to say."""
    phase = "the set-up"

    def note(progress: Progress) -> None:
        nonlocal phase
        phase = progress.phase

    try:
        model.set_params(callback=note).fit(source)
    except KeyboardInterrupt:
        if grid.world.rank == 0:
            said = f"stopped by Ctrl-C during {phase}; a choice needs all models, so nothing is kept"
            print(f"psfit: {said}", file=sys.stderr)
        raise typer.Exit(EXIT_CODES[Status.INTERRUPTED]) from None
    finally:
        model.set_params(callback=None)


def _choose(
    model: SelectingModel, speaker: Speaker, out: Path | None, picture: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """Write the model and the picture; what to say of the choice."""
    choice, facts = model.selection_, summary(model)
    lines = coefficients(facts)
    if speaker.first and out is not None:
        save(model, out)
        lines.append(f"  model      {out}")
    if speaker.first and picture is not None:
        from psfit.reporting.plots import plot_selection

        lines.append(draw(plot_selection(choice), picture))
    return {"label": choice.label, "table": choice.rows(), "chosen": facts}, lines


def _show(
    found: SparsePath, speaker: Speaker, out: Path | None, picture: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """Write the table and the picture; what to say of the path."""
    rows = found.rows()
    lines = []
    if speaker.first and out is not None:
        flat = [row | {"features": "; ".join(map(str, row["features"]))} for row in rows]
        write_lines(out, [flat[0].keys(), *(row.values() for row in flat)])
        lines.append(f"  table      {out}")
    if speaker.first and picture is not None:
        from psfit.reporting.plots import plot_path

        lines.append(draw(plot_path(found, float(found.gammas[-1])), picture))
    ended = found.ended and found.ended.name
    return {"loss": found.loss, "seconds": found.seconds, "ended": ended, "table": rows}, lines
