"""``psfit fit``: data files in, a model file out."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import psfit
from psfit.cli import constraints, options
from psfit.cli.output import Printer, exit_if_stopped, file_facts, fit_with_progress, model_facts, model_lines
from psfit.cli.parsing import file_source, note_folders, parse_gamma, parse_kappa, table_rules
from psfit.cli.report import write_report
from psfit.common.output_files import require_writable


def fit(
    data: options.Data,
    loss: options.LossOption = options.Loss.squared,  # type: ignore[attr-defined]
    kappa: Annotated[
        str | None,
        typer.Option(
            help="The largest number of nonzero coefficients; a number below 1 is a share of the features. A tenth of "
            "the features if not given."
        ),
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(
            help="Inverse weight of the ridge, like C in scikit-learn: a number, inf for no ridge, or auto, which "
            "hardly shrinks and does not depend on the units of columns."
        ),
    ] = "auto",
    power: options.Power = None,
    standardize: options.Standardize = False,
    intercept: options.Intercept = True,
    sparsity: options.SparsityOption = options.Sparsity.element,  # type: ignore[attr-defined]
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
    out: Annotated[Path | None, typer.Option(help="Where to write the model (.psfit).")] = None,
    nodes: options.Nodes = None,
    blocks: options.Blocks = 1,
    backend: options.Backend = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    timeout: options.Timeout = 1800.0,
    effort: options.EffortOption = options.Effort.medium,  # type: ignore[attr-defined]
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Continue until the gap is at most --gap-tol.", rich_help_panel=options.SEARCH_PANEL
        ),
    ] = False,
    gap_tol: Annotated[
        float, typer.Option(help="The gap at which --exact stops.", rich_help_panel=options.SEARCH_PANEL)
    ] = 1e-4,
    certify: options.Certify = True,
    max_iter: Annotated[
        int, typer.Option(help="The largest number of iterations.", rich_help_panel=options.SEARCH_PANEL)
    ] = 1000,
    time_limit: options.TimeLimit = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder for checkpoints; the fit continues from a checkpoint in it.",
            rich_help_panel=options.SEARCH_PANEL,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            help="Iterations, or batches of tree nodes, between checkpoints.", rich_help_panel=options.SEARCH_PANEL
        ),
    ] = 50,
    report: options.Report = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    config: options.Config = None,
) -> None:
    """Fit a sparse model; under torchrun or mpirun, one model over all ranks."""
    from psfit.estimators.factory import make_estimator
    from psfit.estimators.model import SparseModel
    from psfit.estimators.persistence.model_file import MODELS
    from psfit.reporting import require_page

    spec = psfit.GridSpec(nodes=nodes, blocks=blocks, device=device, dtype=dtype, backend=backend, timeout=timeout)
    grid = spec.build()

    def prepare() -> tuple[Printer, psfit.FileSource, SparseModel]:
        require_writable("--out", out, MODELS)
        require_page("--report", report)
        printer = Printer(grid, json, quiet)
        note_folders(data, printer.first)
        rules = table_rules(categories, dates, missing, new_levels, exclude, id, csv, missing_target)
        solver = psfit.BiCADMM(
            effort=effort.value,
            exact=exact,
            gap_tol=gap_tol,
            max_iter=max_iter,
            time_limit=time_limit,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            interruptible=True,
        )
        constrained = constraints.read_constraints(
            include, exclude_features, count_included, lower, upper, positive, groups, kappa_counts, at_most, heredity
        )
        estimator = make_estimator(loss.value, power=power).set_params(
            kappa=parse_kappa(kappa),
            gamma=parse_gamma(gamma),
            fit_intercept=intercept,
            standardize=standardize,
            sparsity=sparsity.value,
            solver=solver,
            grid=grid,
            certify=certify,
            **constrained,
        )
        return printer, file_source(data, target, weight, columns, one_hot, memory, offset, **rules), estimator

    printer, source, estimator = grid.run_together(prepare)
    changes = fit_with_progress(estimator, source, printer, grid)
    if out is not None and printer.first:
        psfit.save(estimator, out)
    facts = model_facts(estimator)
    lines = model_lines(estimator, facts, changes) + ([f"  model      {out}"] if out else [])
    lines += write_report(estimator, source, grid, report)
    printer.print(facts | asdict(changes) | file_facts(out=out, report=report), lines)
    exit_if_stopped(estimator.result_.status, grid)
