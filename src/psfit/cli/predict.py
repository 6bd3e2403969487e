"""``psfit predict``: a model file and data in, predictions out."""

from pathlib import Path
from typing import Annotated, Any

import typer

import psfit
from psfit.cli.tables import ENDINGS, print_table, write_table
from psfit.common.output_files import require_writable


def predict(
    model: Annotated[Path, typer.Argument(help="A model file that `psfit fit --out` wrote.")],
    data: Annotated[
        Path, typer.Argument(help="A file, in any format, with at least the features that the model uses.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help=f"Where to write the predictions ({' '.join(ENDINGS)}); else they are printed."),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(help="The offset of the samples, for a model that has one; by default the column of the fit."),
    ] = None,
) -> None:
    """Predict the target of every sample, one a line."""
    from psfit.estimators.predictors import Predictions, compute_predictors

    require_writable("--out", out, ENDINGS)
    for given in (model, data):
        if out is not None and out.exists() and given.exists() and out.samefile(given):
            raise ValueError(f"--out: {out} is one of the files to read; name another file")
    fitted: Any = psfit.load(model)
    if proba and not hasattr(fitted, "predict_proba"):
        raise ValueError(f"--proba: {type(fitted).__name__} has no probabilities; leave it out")
    # The file is read only once, for labels and probabilities together.
    learned = fitted.learned_
    known = Predictions(learned.target, compute_predictors(fitted, learned, fitted.result_, data, offset))
    predicted = known.predict()
    several = predicted.ndim > 1
    columns = {f"prediction_{k}": one for k, one in enumerate(predicted.T)} if several else {"prediction": predicted}
    if proba:
        shares = known.predict_proba().T
        columns |= {f"probability_{label}": one for label, one in zip(fitted.classes_, shares, strict=True)}
    if out is None:
        print_table(columns)
    else:
        write_table(out, columns)
