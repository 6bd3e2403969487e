"""``psfit score``: how good a model is on samples whose target is known."""

from typing import Any

import psfit
from psfit.cli import options
from psfit.cli.output import Printer
from psfit.cli.parsing import file_source, table_rules


def score(
    model: options.ModelFile,
    data: options.Data,
    target: options.TargetOfFit = None,
    weight: options.Weight = None,
    offset: options.Offset = None,
    missing_target: options.MissingTargetOption = None,
    csv: options.Csv = None,
    json: options.Json = False,
) -> None:
    """Compare predictions with the target of labelled samples, such as those that the fit has not seen."""
    from psfit.estimators.labelled import predict_labelled
    from psfit.estimators.metrics import score_predictions
    from psfit.estimators.posing import Given

    fitted: Any = psfit.load(model)
    grid = psfit.GridSpec(backend="serial", device="cpu").build()
    source = file_source(data, target, weight, offset=offset, **table_rules(csv=csv, missing_target=missing_target))
    y, predictors, weights = predict_labelled(fitted, Given(source), grid)
    scores = score_predictions(fitted.learned_.target, y, predictors, weights)
    name = target or fitted.learned_.target_name
    facts = {"model": type(fitted).__name__, "target": name, "samples": len(y), "scores": scores}
    lines = [f"{len(y):,} samples" + (f", target {name!r}" if name else "")]
    shown = {key.replace("_", " "): "not defined here" if one is None else f"{one:.6g}" for key, one in scores.items()}
    Printer(grid, json, False).print(facts, lines + [f"  {key:<24} {one}" for key, one in shown.items()])
