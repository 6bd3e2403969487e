"""What commands print: on the first rank only, for people or for programs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import typer

from psfit.cli.options import plain
from psfit.comm import Grid
from psfit.common.output_files import require_writable, write_whole
from psfit.common.status import Status
from psfit.estimators.model import SparseModel

# Lines of a table that people will read.
MOST_SHOWN = 20
# What a shell reports for a process that Ctrl-C or SIGTERM has ended: a scheduler sees that the work is not done.
EXIT_CODES = {Status.INTERRUPTED: 130, Status.TERMINATED: 143}


class Speaker:
    """The one rank that speaks, in text or in JSON, or not at all."""

    def __init__(self, grid: Grid, as_json: bool, quiet: bool) -> None:
        if as_json and quiet:
            raise ValueError("--json and --quiet exclude each other; JSON is all that --json prints anyway")
        self.first = grid.world.rank == 0
        self.as_json = as_json
        # Whether people are there to read.
        self.talks = not as_json and not quiet

    def say(self, facts: dict[str, Any], lines: list[str]) -> None:
        """The facts as one JSON object, or the lines."""
        if not self.first:
            return
        if self.as_json:
            print(json.dumps(plain(facts), indent=1))
        elif self.talks:
            print("\n".join(lines), end="\n" if lines else "")


def written(**files: Path | None) -> dict[str, str | None]:
    """The files that a command wrote, by their options."""
    return {option: None if file is None else str(file) for option, file in files.items()}


def coefficients(facts: dict[str, Any]) -> list[str]:
    """Classes, intercepts and the largest coefficients of a model, from its `summary`."""
    names, coefs = facts["support"], np.array(facts["coefficients"]).reshape(-1, len(facts["intercept"]))
    order = np.argsort(-np.abs(coefs).max(axis=1), kind="stable")
    width = max([11, *(len(str(names[j])) for j in order[:MOST_SHOWN])])
    rows = [("(intercept)", facts["intercept"]), *((str(names[j]), coefs[j].tolist()) for j in order[:MOST_SHOWN])]
    lines = [f"  classes    {', '.join(facts['classes'])}"] if facts["classes"] else []
    lines += [f"  {name:>{width}} " + " ".join(f"{value:>12.6g}" for value in values) for name, values in rows]
    if len(order) > MOST_SHOWN:
        lines.append(f"  {len(order) - MOST_SHOWN} smaller coefficients are not shown; --json has them")
    return lines


def require_picture(option: str, picture: Path | None) -> None:
    """Refuse a picture that could not be drawn in the end."""
    if picture is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if picture.suffix and picture.suffix.removeprefix(".").lower() not in known:
        raise ValueError(f"{option}: {picture.suffix!r} is no kind of picture; use one of .{', .'.join(sorted(known))}")
    require_writable(option, picture)


def draw(axes: Any, picture: Path) -> str:
    """Write the figure of some axes, in the format that the file's name asks for; a line about it."""
    kind = picture.suffix.removeprefix(".").lower() or "png"
    write_whole(picture, lambda file: axes.figure.savefig(file, format=kind))
    return f"  picture    {picture}"


def end(status: Status | None, grid: Grid) -> None:
    """Leave with a code of its own if the work was cut short by a signal; all that was found is written by then."""
    if status in EXIT_CODES:
        # A launcher ends the others when one has left like this, so all wait for the one that writes.
        grid.together(lambda: None)
        raise typer.Exit(EXIT_CODES[status])


def summary(model: SparseModel) -> dict[str, Any]:
    """A fitted model in plain values."""
    result = model.result_
    names = getattr(model, "feature_names_in_", None)
    support = result.support.tolist()
    labels = [str(label) for label in getattr(model, "classes_", [])]
    return {
        "model": type(model).__name__,
        "loss": result.loss,
        "samples": result.samples,
        "features": result.coef.shape[0],
        "classes": labels or None,
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
        "intercept": result.intercept.tolist(),
    }
