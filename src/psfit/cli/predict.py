"""``psfit predict``: a model file and data in, predictions out."""

import csv
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from psfit.cli.options import require_folder
from psfit.estimators._scores import answering
from psfit.files import write_whole
from psfit.model_file import load


def predict(
    model: Annotated[Path, typer.Argument(help="A model file that `psfit fit --out` wrote.")],
    data: Annotated[
        Path, typer.Argument(help="A file, in any format, with at least the features that the model uses.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the predictions (.csv); else they are printed.")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
) -> None:
    """Predict the target of every sample, one a line."""
    require_folder("--out", out)
    fitted: Any = load(model)
    if proba and not hasattr(fitted, "predict_proba"):
        raise ValueError(f"--proba: {type(fitted).__name__} has no probabilities; leave it out")
    # The file is read once, whatever is asked about it.
    known: Any = answering(fitted, fitted._predictor(data))
    predicted = np.asarray(known.predict(None))
    columns = predicted.reshape(len(predicted), -1).tolist()
    several = predicted.ndim > 1
    head = [f"prediction_{k}" for k in range(predicted.shape[1])] if several else ["prediction"]
    if proba:
        head += [f"probability_{label}" for label in fitted.classes_]
        columns = [one + more for one, more in zip(columns, known.predict_proba(None).tolist(), strict=True)]
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([head, *columns])
        return
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *columns])
    write_whole(out, lambda file: file.write(text.getvalue().encode()))
