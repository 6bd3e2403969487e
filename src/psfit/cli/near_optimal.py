"""``psfit near-optimal``: all models that are nearly as good as the one in a model file."""

from pathlib import Path
from typing import Annotated, Any

import typer

import psfit
from psfit.cli import options
from psfit.cli.output import require_picture, save_picture, target_lines
from psfit.cli.parsing import file_source, table_rules
from psfit.common.output_files import require_writable, write_lines


def near_optimal(
    model: options.ModelFile,
    data: Annotated[list[Path], typer.Argument(help="The files or folders that the model was fitted to.")],
    within: Annotated[
        float, typer.Option(help="How far an objective may be above the best one, as a share of it.")
    ] = 0.01,
    at_most: Annotated[int, typer.Option(help="The most models that are listed.")] = 10_000,
    time_limit: Annotated[float | None, typer.Option(help="Seconds after which the search ends.")] = None,
    target: options.TargetOfFit = None,
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
    out: Annotated[Path | None, typer.Option(help="Where to write the list (.csv).")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Where to draw how often features occur (.png).", rich_help_panel=options.OUTPUT_PANEL),
    ] = None,
) -> None:
    """List all models that are nearly as good as the best, and prove that none is missing."""
    require_writable("--out", out, (".csv",))
    require_picture("--picture", picture)
    fitted: Any = psfit.load(model)
    asked = table_rules(categories, dates, missing, new_levels, exclude, id, csv, missing_target)
    schema, known = fitted.learned_.features.schema, fitted.learned_.offset
    if schema is not None and columns is None and not one_hot:
        from psfit.data.table_rules import rules_of, text_rules_of

        # The model knows how the table of its fit was read.
        asked = {name: rule for name, rule in asked.items() if rule != "refuse"}
        asked = rules_of(schema) | text_rules_of(schema, asked) | asked
        target = schema.target_name if target is None else target
    offset = known if offset is None and isinstance(known, str) else offset
    source = file_source(data, target, weight, columns, one_hot, offset=offset, **asked)
    found = psfit.near_optimal(fitted, source, within=within, at_most=at_most, time_limit=time_limit)
    print("\n".join([str(found), *target_lines(target)]))
    if out is not None:
        rows = [[row["objective"], row["excess"], " ".join(row["features"])] for row in found.rows()]
        write_lines(out, [["objective", "excess", "features"], *rows])
        print(f"  list       {out}")
    if picture is not None:
        print(save_picture(psfit.plots.plot_near_optimal(found), picture))
