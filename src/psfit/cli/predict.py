"""``psfit predict``: a model file and data in, predictions out."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from psfit.cli.tables import read_features
from psfit.files import write_whole
from psfit.model_file import load


def predict(
    model: Annotated[Path, typer.Argument(help="A model file that `psfit fit --output` wrote.")],
    data: Annotated[Path, typer.Argument(help="A file: .npz with X, or .csv with the columns of the fit.")],
    output: Annotated[Path | None, typer.Option(help="Where to write the predictions; else they are printed.")] = None,
) -> None:
    """Predict the target of every sample, one a line."""
    estimator = load(model)
    names = tuple(getattr(estimator, "feature_names_in_", ()))
    with warnings.catch_warnings():
        # The columns were picked by name already.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        predicted = np.asarray(estimator.predict(read_features(data, names)))
    text = "\n".join(["prediction", *(str(value) for value in predicted.tolist())]) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, lambda file: file.write(text.encode()))
