"""``psfit path``: one fit for all limits; with ``--cv`` or ``--criterion`` the best of them as a model file."""

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import psfit
from psfit.cli import constraints, options
from psfit.cli.output import (
    Printer,
    exit_if_stopped,
    file_facts,
    fit_with_progress,
    model_facts,
    model_lines,
    require_picture,
    save_picture,
    target_lines,
)
from psfit.cli.parsing import file_source, note_folders, parse_gammas, parse_limits, table_rules
from psfit.cli.report import write_report
from psfit.common.output_files import require_writable, write_lines
from psfit.common.status import Status

if TYPE_CHECKING:
    from psfit.data.changes import Changes
    from psfit.estimators.selecting import SelectingModel

Criterion = Enum("Criterion", {name: name for name in ("aic", "bic", "ebic", "gic")}, type=str)  # type: ignore[misc]
CHOICE_PANEL = "Choice of kappa"


def path(
    data: options.Data,
    loss: options.LossOption = options.Loss.squared,  # type: ignore[attr-defined]
    kappas: Annotated[
        str | None,
        typer.Option(help="Limits: numbers and ranges such as 1:50 or 10:200:10; 1 to 50 if not given."),
    ] = None,
    gammas: Annotated[
        str,
        typer.Option(
            help="Inverse weights of the ridge, separated by commas; or auto: a ridge that hardly shrinks. With --cv "
            "and auto, three such ridges are tried, for columns divided by their standard deviations."
        ),
    ] = "auto",
    power: options.Power = None,
    standardize: options.Standardize = False,
    intercept: options.Intercept = True,
    sparsity: options.SparsityOption = options.Sparsity.element,  # type: ignore[attr-defined]
    cv: Annotated[
        int | None, typer.Option(help="Choose by cross-validation with this many folds.", rich_help_panel=CHOICE_PANEL)
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(help="A scorer of scikit-learn; minus the mean loss if not given.", rich_help_panel=CHOICE_PANEL),
    ] = None,
    one_standard_error: Annotated[
        bool,
        typer.Option(
            "--one-standard-error",
            help="Take the simplest model within one standard error.",
            rich_help_panel=CHOICE_PANEL,
        ),
    ] = False,
    criterion: Annotated[
        Criterion | None, typer.Option(help="Choose by an information criterion.", rich_help_panel=CHOICE_PANEL)
    ] = None,
    target: options.Target = None,
    weight: options.Weight = None,
    offset: options.Offset = None,
    columns: options.Columns = None,
    one_hot: options.OneHot = False,
    exclude: options.Exclude = None,
    id: options.Id = None,
    categories: options.CategoriesOption = None,
    dates: options.Dates = None,
    missing: options.MissingOption = options.Missing.refuse,  # type: ignore[attr-defined]
    missing_target: options.MissingTargetOption = None,
    new_levels: options.NewLevelsOption = options.NewLevels.refuse,  # type: ignore[attr-defined]
    csv: options.Csv = None,
    memory: options.Memory = None,
    include: constraints.Include = None,
    exclude_features: constraints.ExcludeFeatures = None,
    count_included: constraints.CountIncluded = False,
    lower: constraints.Lower = None,
    upper: constraints.Upper = None,
    positive: constraints.Positive = False,
    groups: constraints.Groups = constraints.GROUPS,
    kappa_counts: constraints.KappaCounts = constraints.COUNTED,
    at_most: constraints.AtMost = None,
    heredity: constraints.HeredityOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the path (.csv) or, with --cv or --criterion, the model that was chosen (.psfit)."
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Where to draw coefficients against kappa or, with a choice, its scores (.png).",
            rich_help_panel=options.OUTPUT_PANEL,
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
    """Fit all limits kappa in one run; with --cv or --criterion, choose one of them."""
    from psfit.estimators.factory import make_estimator
    from psfit.reporting import require_page

    spec = psfit.GridSpec(nodes=nodes, blocks=blocks, device=device, dtype=dtype, backend=backend, timeout=timeout)
    grid = spec.build()
    chooses = cv is not None or criterion is not None

    def prepare() -> tuple[Printer, psfit.FileSource, dict[str, Any], dict[str, Any]]:
        if cv is not None and criterion is not None:
            raise ValueError("--cv and --criterion exclude each other; use one of them")
        if not chooses:
            _refuse_choices(scoring is not None or one_standard_error, power is not None)
        _require_ending(out, chooses)
        require_writable("--out", out)
        require_picture("--picture", picture)
        require_page("--report", report)
        printer = Printer(grid, json, quiet)
        note_folders(data, printer.first)
        rules = table_rules(categories, dates, missing, new_levels, exclude, id, csv, missing_target)
        constrained = constraints.read_constraints(
            include, exclude_features, count_included, lower, upper, positive, groups, kappa_counts, at_most, heredity
        )
        tried = {"kappas": parse_limits(kappas), "gammas": parse_gammas(gammas)}
        shared = {
            "fit_intercept": intercept,
            "standardize": standardize,
            "sparsity": sparsity.value,
            "solver": psfit.BiCADMM(effort=effort.value, time_limit=time_limit, interruptible=True),
            "grid": grid,
            "certify": certify,
        } | constrained
        return printer, file_source(data, target, weight, columns, one_hot, memory, offset, **rules), tried, shared

    printer, source, tried, shared = grid.run_together(prepare)
    if chooses:
        how: dict[str, Any] = {"criterion": "cv" if criterion is None else criterion.value, "cv": cv}
        how |= {"scoring": scoring, "one_standard_error": one_standard_error}
        model: Any = make_estimator(loss.value, selecting=True, power=power).set_params(**tried, **how, **shared)
        changes = fit_with_progress(model, source, printer, grid)
        facts, lines = _write_choice(model, printer, out, picture, changes)
        lines += write_report(model, source, grid, report)
        ended: Status | None = model.result_.status
    else:
        found = psfit.sparse_path(source, **tried, loss=loss.value, verbose=int(printer.for_people), **shared)
        facts, lines = _write_path(found, printer, out, picture)
        lines += write_report(found, source, grid, report)
        ended = found.ended
    printer.print(facts | file_facts(out=out, report=report), lines)
    exit_if_stopped(ended, grid)


def _refuse_choices(scores: bool, has_power: bool) -> None:
    """Options that a path without a choice does not have."""
    if scores:
        raise ValueError("--scoring and --one-standard-error need --cv")
    if has_power:
        raise ValueError("--power needs --cv or --criterion; a path of all limits has the default power")


def _require_ending(out: Path | None, chooses: bool) -> None:
    ending = ".psfit" if chooses else ".csv"
    if out is not None and out.suffix != ending:
        kind = "the model that is chosen" if chooses else "the table of the path (a model needs --cv or --criterion)"
        raise ValueError(f"--out: {kind} needs a file that ends with {ending}, and {str(out)!r} does not")


def _write_choice(
    model: "SelectingModel", printer: Printer, out: Path | None, picture: Path | None, changes: "Changes"
) -> tuple[dict[str, Any], list[str]]:
    """Write the model and the picture; return the facts and the lines to print."""
    choice, facts = model.selection_, model_facts(model)
    lines = [*str(choice).splitlines(), *model_lines(model, facts, changes)]
    if printer.first and out is not None:
        psfit.save(model, out)
        lines.append(f"  model      {out}")
    if printer.first and picture is not None:
        from psfit.reporting.plots import plot_selection

        lines.append(save_picture(plot_selection(choice, counted=model.result_.counted), picture))
    return {"label": choice.label, "table": choice.rows(), "chosen": facts | asdict(changes)}, lines


def _write_path(
    found: "psfit.SparsePath", printer: Printer, out: Path | None, picture: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """Write the table and the picture; return the facts and the lines to print."""
    rows, target = found.rows(), found.learned.target_name
    lines = target_lines(target)
    if printer.first and out is not None:
        flat = [row | {"features": "; ".join(map(str, row["features"]))} for row in rows]
        write_lines(out, [flat[0].keys(), *(row.values() for row in flat)])
        lines.append(f"  table      {out}")
    if printer.first and picture is not None:
        from psfit.reporting.plots import plot_path

        lines.append(save_picture(plot_path(found, float(found.gammas[-1])), picture))
    ended = found.ended and found.ended.name
    return {"loss": found.loss, "target": target, "seconds": found.seconds, "ended": ended, "table": rows}, lines
