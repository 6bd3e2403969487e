"""``psfit predict``: a model file and data in, predictions out."""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from psfit.files import write_whole
from psfit.model_file import load


def predict(
    model: Annotated[Path, typer.Argument(help="A model file that `psfit fit --output` wrote.")],
    data: Annotated[Path, typer.Argument(help="A file with the columns of the fit, in any format.")],
    output: Annotated[Path | None, typer.Option(help="Where to write the predictions; else they are printed.")] = None,
) -> None:
    """Predict the target of every sample, one a line."""
    predicted = np.asarray(load(model).predict(data))
    text = "\n".join(["prediction", *(str(value) for value in predicted.tolist())]) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, lambda file: file.write(text.encode()))
