"""``psfit predict``: a model file and data in, predictions out."""

import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import psfit
from psfit.cli import options
from psfit.cli.output import change_lines
from psfit.cli.parsing import file_source, note_folders, table_rules
from psfit.cli.tables import ENDINGS, print_table, write_table
from psfit.common.output_files import require_writable

if TYPE_CHECKING:
    import numpy as np

    from psfit.estimators.posing import Learned


def predict(
    model: options.ModelFile,
    data: Annotated[
        Path, typer.Argument(help="A file, in any format, with at least the features that the model uses.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help=f"Where to write the predictions ({' '.join(ENDINGS)}); else they are printed."),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    id: Annotated[
        str | None,
        typer.Option(
            help="Columns to write beside the predictions; by default the id columns of the fit.",
            rich_help_panel=options.DATA_PANEL,
        ),
    ] = None,
    no_id: Annotated[
        bool,
        typer.Option(
            "--no-id", help="Write predictions alone, without id columns.", rich_help_panel=options.DATA_PANEL
        ),
    ] = False,
    csv: options.Csv = None,
    offset: options.OffsetOfFit = None,
) -> None:
    """Predict the target of every sample, one line for each, beside the id columns of the fit."""
    from psfit.estimators.labelled import count_changes_of
    from psfit.estimators.predictors import Predictions, read_and_multiply

    require_writable("--out", out, ENDINGS)
    if no_id and id is not None:
        raise ValueError("--id and --no-id exclude each other; use one of them")
    for given in (model, data):
        if out is not None and out.exists() and given.exists() and out.samefile(given):
            raise ValueError(f"--out: {out} is one of the files to read; name another file")
    fitted: Any = psfit.load(model)
    if proba and not hasattr(fitted, "predict_proba"):
        raise ValueError(f"--proba: {type(fitted).__name__} has no probabilities; leave it out")
    note_folders([data], True)
    # The file is read only once, for labels and probabilities together.
    learned = fitted.learned_
    rules = table_rules(ids=id, csv=csv)
    _refuse_used_columns(learned, fitted.result_.support, rules.get("ids") or ())
    source = file_source([data], None, offset=offset, **rules)
    predictors, ids = read_and_multiply(type(fitted).__name__, learned, fitted.result_, source)
    ids = {} if no_id else ids
    if id is None and not no_id:
        _require_ids(learned, ids, data)
    columns = ids | _name_columns(learned.target, Predictions(learned.target, predictors), ids, proba)
    grid = psfit.GridSpec(backend="serial", device="cpu").build()
    changed = change_lines(count_changes_of(fitted, source, grid, only_used=True), fitted)
    if out is None:
        print_table(columns)
        print("".join(f"{line}\n" for line in changed), end="", file=sys.stderr)
        return
    write_table(out, columns)
    of = "" if learned.target_name is None else f" of {learned.target_name}"
    print(f"  {len(predictors):,} prediction{'s' * (len(predictors) != 1)}{of} in {out}", *changed, sep="\n")


def _refuse_used_columns(learned: "Learned", support: "np.ndarray", ids: Iterable[str]) -> None:
    """Refuse ids that the model reads as something else; they may be patterns."""
    schema, names = learned.features.schema, learned.features.names
    if schema is None or not schema.columns or names is None:
        return
    used = dict.fromkeys(one.column for one in schema.features(names[support].tolist(), exact=True))
    both = [column for column in used for name in ids if column == name or fnmatchcase(column, name)]
    if both:
        raise ValueError(f"--id: the model uses the column {both[0]!r}, so it cannot be an id, too; name other columns")


def _require_ids(learned: "Learned", ids: "dict[str, np.ndarray]", data: Path) -> None:
    """Refuse data without an id column of the fit: nobody could tell to which sample a prediction belongs."""
    schema = learned.features.schema
    absent = [] if schema is None else [name for name in schema.ids if name not in ids]
    if absent:
        raise ValueError(
            f"{data}: the id column {absent[0]!r} of the fit is not there; add it, name other columns with --id, or "
            "use --no-id to write predictions alone"
        )


def _name_columns(target: Any, known: Any, ids: "dict[str, np.ndarray]", proba: bool) -> "dict[str, np.ndarray]":
    """The columns of predictions and probabilities by name; none of them may be that of an id."""
    from psfit.estimators.output_columns import prediction_columns, require_free_names

    outputs = known.predictors.shape[1]
    require_free_names(ids, target, outputs)
    names, shares = prediction_columns(target, outputs)
    predicted = known.predict()
    columns = dict(zip(names, predicted.reshape(len(predicted), -1).T, strict=True))
    return columns | (dict(zip(shares, known.predict_proba().T, strict=True)) if proba else {})
