"""``psfit score``: how good a model is on samples whose target is known."""

from pathlib import Path
from typing import Annotated, Any

import typer

import psfit
from psfit.cli import options
from psfit.cli.output import Printer
from psfit.cli.parsing import file_source, parse_csv


def score(
    model: Annotated[Path, typer.Argument(help="A model file that `psfit fit --out` wrote.")],
    data: options.Data,
    target: options.Target = None,
    weight: options.Weight = None,
    offset: options.Offset = None,
    csv: options.Csv = None,
    json: options.Json = False,
) -> None:
    """Compare predictions with the target of labelled samples, such as those that the fit has not seen."""
    from psfit.estimators.metrics import score_predictions
    from psfit.estimators.posing import Given
    from psfit.estimators.predictors import add_offset, multiply
    from psfit.reporting.samples import read_labelled

    fitted: Any = psfit.load(model)
    grid = psfit.GridSpec(backend="serial", device="cpu").build()
    source = file_source(data, target, weight, offset=offset, **parse_csv(csv or []))
    matrix, y, weights, offsets = read_labelled(fitted, fitted.learned_, Given(source), grid)
    bare = multiply(matrix, fitted.result_.coef, fitted.result_.intercept)
    predictors = add_offset(bare, fitted.learned_, offsets)
    scores = score_predictions(fitted.learned_.target, y, predictors, weights)
    schema = fitted.learned_.features.schema
    name = target or (None if schema is None else schema.target_name)
    facts = {"model": type(fitted).__name__, "target": name, "samples": len(y), "scores": scores}
    lines = [f"{len(y):,} samples" + (f", target {name!r}" if name else "")]
    shown = {key.replace("_", " "): "not defined here" if one is None else f"{one:.6g}" for key, one in scores.items()}
    Printer(grid, json, False).print(facts, lines + [f"  {key:<24} {one}" for key, one in shown.items()])
