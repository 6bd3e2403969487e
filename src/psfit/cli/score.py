"""``psfit score``: how good a model is on samples whose target is known."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import psfit
from psfit.cli import options
from psfit.cli.output import Printer, change_lines
from psfit.cli.parsing import file_source, note_folders, table_rules

if TYPE_CHECKING:
    from psfit.estimators.posing import Learned


def score(
    model: options.ModelFile,
    data: options.Data,
    target: options.TargetOfFit = None,
    weight: options.WeightOfScore = None,
    offset: options.OffsetOfFit = None,
    missing_target: options.MissingTargetOption = None,
    csv: options.Csv = None,
    json: options.Json = False,
) -> None:
    """Compare predictions with the target of labelled samples, such as those that the fit has not seen."""
    from psfit.estimators.labelled import count_changes_of, predict_labelled
    from psfit.estimators.metrics import score_predictions
    from psfit.estimators.posing import Given

    fitted: Any = psfit.load(model)
    learned = fitted.learned_
    grid = psfit.GridSpec(backend="serial", device="cpu").build()
    printer = Printer(grid, json, False)
    note_folders(data, printer.for_people)
    source = file_source(data, target, weight, offset=offset, **table_rules(csv=csv, missing_target=missing_target))
    y, predictors, weights, offsets = predict_labelled(fitted, Given(source), grid, strict=True)
    scores = score_predictions(learned.target, y, predictors, weights, offsets)
    name, changes = target or learned.target_name, count_changes_of(fitted, source, grid, only_used=True)
    used = {"weight": weight, "offset": offset or learned.offset or None}
    facts = {"model": type(fitted).__name__, "target": name, "samples": len(y), "scores": scores} | used
    lines = [f"{len(y):,} sample{'s' * (len(y) != 1)}" + (f", target {name!r}" if name else "")]
    lines += _describe_use(learned, weight, offset) + change_lines(changes, fitted)
    shown = {key.replace("_", " "): "not defined here" if one is None else f"{one:.6g}" for key, one in scores.items()}
    lines += [f"  {key:<24} {one}" for key, one in shown.items()]
    if learned.offset and "D2" in scores:
        lines.append("  D2 is 0 for a model of an intercept and this offset, and 1 for perfect predictions")
    printer.print(facts | asdict(changes), lines)


def _describe_use(learned: "Learned", weight: str | None, offset: str | None) -> list[str]:
    """Which weights and offset the scores have, where the fit had some or the user names them."""
    lines = []
    if weight is not None:
        lines.append(f"  weight                   {weight}{_as_in_fit(weight, learned.weight)}")
    elif learned.weight:
        name = learned.weight if isinstance(learned.weight, str) else "NAME"
        lines.append(
            f"  weight                   none, every sample counts the same; the fit had weights (--weight {name})"
        )
    if learned.offset:
        used = offset or str(learned.offset)
        lines.append(f"  offset                   {used}{_as_in_fit(used, learned.offset)}")
    return lines


def _as_in_fit(used: str, fitted: bool | str) -> str:
    return ", as in the fit" if used == fitted else ""
