"""What commands print: on the first rank only, as text or as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from psfit.common.output_files import require_writable, write_whole
from psfit.common.status import Status

if TYPE_CHECKING:
    from psfit import FileSource
    from psfit.comm import Grid
    from psfit.data.changes import Changes
    from psfit.estimators.model import SparseModel

# Rows of a table that are printed.
MOST_SHOWN = 20
# What a shell reports for a process that Ctrl-C or SIGTERM ended: a scheduler sees that the work is not finished.
EXIT_CODES = {Status.INTERRUPTED: 130, Status.TERMINATED: 143}


class Printer:
    """Prints on the first rank only: text, JSON or nothing."""

    def __init__(self, grid: "Grid", as_json: bool, quiet: bool) -> None:
        if as_json and quiet:
            raise ValueError("--json and --quiet exclude each other; use --json alone, it prints nothing but JSON")
        self.first = grid.world.rank == 0
        self.as_json = as_json
        # Whether text for people is printed.
        self.for_people = not as_json and not quiet

    def print(self, facts: dict[str, Any], lines: list[str]) -> None:
        """Print the facts as one JSON object, or the lines."""
        if not self.first:
            return
        if self.as_json:
            print(json.dumps(json_values(facts), indent=1))
        elif self.for_people:
            print("\n".join(lines), end="\n" if lines else "")


def json_values(value: Any) -> Any:
    """The same value as JSON can hold it: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): json_values(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(one) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def file_facts(**files: Path | None) -> dict[str, str | None]:
    """The files that a command wrote, by option."""
    return {option: None if file is None else str(file) for option, file in files.items()}


def target_lines(name: str | None) -> list[str]:
    """The line that names the target, if it has a name."""
    return [] if name is None else [f"  target     {name}"]


def fit_with_progress(model: "SparseModel", source: "FileSource", printer: Printer, grid: "Grid") -> "Changes":
    """Fit a model, with its progress on the screen; return what its rules changed in the samples."""
    from psfit.estimators.display import show_progress
    from psfit.estimators.labelled import count_changes_of

    with show_progress(int(printer.for_people), grid) as progress:
        model.set_params(callback=progress).fit(source)
    return count_changes_of(model, source, grid)


def model_lines(model: "SparseModel", facts: dict[str, Any], changes: "Changes | None" = None) -> list[str]:
    """What a fit has found: the features and their coefficients first, then how good and how it was found.

    The `facts` are the `model_facts`, and the `changes` those of the samples of the fit.
    """
    from psfit.estimators.statements import result_facts

    known = [(name, text) for name, text in result_facts(model)]
    first = [line for line in known if line[0] == "support"]
    lines = [model.result_.title, *target_lines(facts["target"])]
    if facts["classes"]:
        softmax = f" ({len(facts['classes'])} classes: softmax)" if facts["loss"] == "softmax" else ""
        lines.append(f"  classes    {', '.join(map(_show_label, facts['classes']))}{softmax}")
    for name in ("offset", "weight"):
        if facts[name]:
            lines.append(f"  {name:<10} {facts[name] if isinstance(facts[name], str) else 'an array'}")
    lines += change_lines(changes, model)
    lines += [f"  {name:<10} {text}" for name, text in first]
    lines += coefficient_lines(facts) + date_lines(model)
    return lines + [f"  {name:<10} {text}" for name, text in known if (name, text) not in first]


def change_lines(changes: "Changes | None", model: "SparseModel") -> list[str]:
    """What the rules of the fit have changed in samples."""
    schema = model.learned_.features.schema
    if changes is None or schema is None:
        return []
    return [f"  {text}" for text in changes.sentences(schema)]


def date_lines(model: "SparseModel") -> list[str]:
    """What the features of dates mean, where the model uses some."""
    from psfit.estimators.statements import explain_dates

    return [f"  {text}" for text in explain_dates(model)]


def _show_label(label: str) -> str:
    """A label in a list; quotes show spaces at its ends."""
    return label if label and label == label.strip() else repr(label)


def coefficient_lines(facts: dict[str, Any]) -> list[str]:
    """Intercepts and the most important coefficients, from `model_facts`: those with the largest effects, if known."""
    import numpy as np

    names, coefs = facts["support"], np.array(facts["coefficients"]).reshape(-1, len(facts["intercept"]))
    effects = None if facts["effects"] is None else np.array(facts["effects"]).reshape(coefs.shape)
    order = np.argsort(-np.abs(coefs if effects is None else effects).max(axis=1, initial=0.0), kind="stable")
    shown = order[:MOST_SHOWN].tolist()
    width = max([11, *(len(str(names[j])) for j in shown)])
    # With several outputs there is no room for effects.
    single = effects is not None and coefs.shape[1] == 1 and len(shown) > 0
    rows = [("(intercept)", facts["intercept"])]
    table = np.hstack([coefs, effects]) if single and effects is not None else coefs
    rows += [(str(names[j]), table[j].tolist()) for j in shown]
    lines = [f"  {'':>{width}}  coefficient       effect"] if single else []
    lines += [f"  {name:>{width}} " + " ".join(f"{value:>12.6g}" for value in values) for name, values in rows]
    if single:
        lines.append("  an effect is a coefficient times the standard deviation of its feature")
    if len(order) > MOST_SHOWN:
        lines.append(f"  not shown: {len(order) - MOST_SHOWN} smaller; --json has all coefficients")
    return lines


def require_picture(option: str, picture: Path | None) -> None:
    """Refuse a picture that cannot be written, before the work begins."""
    if picture is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if picture.suffix and picture.suffix.removeprefix(".").lower() not in known:
        allowed = ", .".join(sorted(known))
        raise ValueError(f"{option}: {picture.suffix!r} is not a format for pictures; use one of .{allowed}")
    require_writable(option, picture)


def save_picture(axes: Any, picture: Path) -> str:
    """Write the figure of some axes, in the format of the file's ending; return a line to print."""
    kind = picture.suffix.removeprefix(".").lower() or "png"
    write_whole(picture, lambda file: axes.figure.savefig(file, format=kind))
    return f"  picture    {picture}"


def exit_if_stopped(status: Status | None, grid: "Grid") -> None:
    """Exit with a code of its own if a signal stopped the work; call this when all results are written."""
    if status in EXIT_CODES:
        # A launcher ends all ranks when one of them exits with an error, so all wait for the rank that writes.
        grid.run_together(lambda: None)
        raise typer.Exit(EXIT_CODES[status])


def model_facts(model: "SparseModel") -> dict[str, Any]:
    """A fitted model as values that JSON can hold."""
    result = model.result_
    names = getattr(model, "feature_names_in_", None)
    support = result.support.tolist()
    labels = [str(label) for label in getattr(model, "classes_", [])]
    return {
        "model": type(model).__name__,
        "target": model.learned_.target_name,
        "loss": result.loss,
        "samples": result.samples,
        "left_out": 0 if model.learned_.features.schema is None else model.learned_.features.schema.left_out,
        "features": result.coef.shape[0],
        "classes": labels or None,
        "offset": model.learned_.offset,
        "weight": model.learned_.weight,
        "kappa": list(result.kappa),
        "gamma": float(getattr(model, "gamma_", model.gamma)),
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "status": result.status.name,
        "iterations": result.n_iter,
        "seconds": result.seconds,
        "nodes": result.nodes,
        "blocks": result.blocks,
        "support": support if names is None else [str(names[j]) for j in support],
        "coefficients": result.coef[support].tolist(),
        "effects": None if result.spreads is None else (result.coef[support] * result.spreads[:, None]).tolist(),
        "constraints": list(result.constraints),
        "intercept": result.intercept.tolist(),
    }
