"""``psfit export``: a model file in the form that another program needs."""

from pathlib import Path
from typing import Annotated, Any

import typer

import psfit
from psfit.cli import options
from psfit.cli.output import target_lines
from psfit.common.output_files import require_writable, write_whole

ENDINGS = (".joblib", ".onnx", ".csv", ".sql", ".py")


def export(
    model: options.ModelFile,
    out: Annotated[
        Path,
        typer.Option(
            help="Where to write it; the ending decides the form: .joblib (scikit-learn), .onnx, .csv (coefficients), "
            ".sql (an expression), .py (a function)."
        ),
    ],
) -> None:
    """Write a model in the form that another program needs.

    .sql and .py take the columns of the table as they are. .joblib and .onnx take the features that are made of them,
    in the order of the model. For two classes .sql gives the probability of the second class; for an SVM or more
    classes it gives decision values, and the largest wins. In .sql a text that the fit has not seen has none of the
    levels, and dates need PostgreSQL or DuckDB.
    """
    require_writable("--out", out, ENDINGS)
    fitted: Any = psfit.load(model)
    ending = out.suffix.lower()
    if ending == ".onnx":
        fitted.to_onnx(out)
    elif ending == ".csv":
        fitted.to_csv(out)
    elif ending == ".joblib":
        import joblib

        found = fitted.to_sklearn()
        write_whole(out, lambda file: joblib.dump(found, file))
    else:
        from psfit.estimators.formulas import write_python, write_sql

        text = write_sql(fitted) if ending == ".sql" else write_python(fitted)
        write_whole(out, lambda file: file.write(text.encode()))
    written = f"  {ending.removeprefix('.'):<10} {out}"
    print("\n".join([*target_lines(fitted.learned_.target_name), written]))
