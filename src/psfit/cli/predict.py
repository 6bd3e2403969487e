"""``psfit predict``: a model file and data in, predictions out."""

from pathlib import Path
from typing import Annotated, Any

import typer

import psfit
from psfit.cli import options
from psfit.cli.parsing import file_source, table_rules
from psfit.cli.tables import ENDINGS, print_table, write_table
from psfit.common.output_files import require_writable


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
    id: options.Id = None,
    csv: options.Csv = None,
    offset: Annotated[
        str | None,
        typer.Option(help="The offset of the samples, for a model that has one; by default the column of the fit."),
    ] = None,
) -> None:
    """Predict the target of every sample, one line for each, beside the id columns of the fit."""
    from psfit.estimators.predictors import Predictions, read_and_multiply

    require_writable("--out", out, ENDINGS)
    for given in (model, data):
        if out is not None and out.exists() and given.exists() and out.samefile(given):
            raise ValueError(f"--out: {out} is one of the files to read; name another file")
    fitted: Any = psfit.load(model)
    if proba and not hasattr(fitted, "predict_proba"):
        raise ValueError(f"--proba: {type(fitted).__name__} has no probabilities; leave it out")
    # The file is read only once, for labels and probabilities together.
    learned = fitted.learned_
    source = file_source([data], None, offset=offset, **table_rules(ids=id, csv=csv))
    predictors, ids = read_and_multiply(type(fitted).__name__, learned, fitted.result_, source)
    known = Predictions(learned.target, predictors)
    predicted = known.predict()
    several = predicted.ndim > 1
    columns = {f"prediction_{k}": one for k, one in enumerate(predicted.T)} if several else {"prediction": predicted}
    if proba:
        shares = known.predict_proba().T
        columns |= {f"probability_{label}": one for label, one in zip(fitted.classes_, shares, strict=True)}
    columns = ids | columns
    if out is None:
        print_table(columns)
        return
    write_table(out, columns)
    of = "" if learned.target_name is None else f" of {learned.target_name}"
    print(f"  {len(predicted):,} prediction{'s' * (len(predicted) != 1)}{of} in {out}")
