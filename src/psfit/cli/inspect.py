"""``psfit inspect``: what is in a model file, a data file or a checkpoint."""

import json as formats
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import psfit
from psfit.cli.options import Columns, Csv, Exclude, Json, Target
from psfit.cli.output import MOST_SHOWN, json_values, model_facts, model_lines
from psfit.cli.parsing import parse_csv, parse_names
from psfit.cli.profile import profile_facts, profile_lines

if TYPE_CHECKING:
    import numpy as np


# The kind of a file that cannot be read.
UNREADABLE = "unreadable"


def inspect(
    file: Annotated[Path, typer.Argument(help="A model file, a data file or folder, or a folder of checkpoints.")],
    target: Target = None,
    columns: Columns = None,
    exclude: Exclude = None,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Show what is in a file: the columns of a table and what looks wrong with them, a model, or a checkpoint.

    A table is never refused: what a fit would refuse is listed.
    """
    from psfit.admm.checkpoint import find_run
    from psfit.estimators.persistence.archive import MARK

    if not file.exists():
        raise ValueError(f"there is no file {file}")
    kept = find_run(file) if file.is_dir() else None
    if kept is not None:
        facts, lines = _checkpoint(file, *kept)
    elif file.is_file() and (file.suffix == ".psfit" or MARK in _last_bytes(file)):
        facts, lines = _model(file)
    else:
        shown = None if columns is None else parse_names("--columns", columns)
        hidden = None if exclude is None else parse_names("--exclude", exclude)
        facts, lines = _data(file, target, shown, hidden, parse_csv(csv or []))
    print(formats.dumps(json_values(facts), indent=1) if json else "\n".join(lines))
    if facts["kind"] == UNREADABLE:
        raise typer.Exit(1)


def _last_bytes(file: Path) -> bytes:
    """The end of a file, where a model file has its mark."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 128))
        return stream.read()


def _model(file: Path) -> tuple[dict[str, Any], list[str]]:
    model = psfit.load(file)
    facts = {"kind": "model"} | model_facts(model)
    return facts, [f"{file}: a {type(model).__name__}", *model_lines(model, facts)]


def _checkpoint(folder: Path, iteration: int, run: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    from psfit.admm.checkpoint import find_run

    # The file has the limit once for each column that is iterated.
    run["kappa"] = run["kappa"][0] if len(set(run["kappa"])) == 1 else run["kappa"]
    lines = [f"{folder}: a checkpoint after iteration {iteration}; the same command continues from it"]
    lines += [f"  {name:<14} {value}" for name, value in run.items()]
    trees = [found[0] for path in sorted(folder.glob("tree-*")) if (found := find_run(path)) is not None]
    lines += [f"  {'tree':<14} {explored} nodes explored" for explored in trees]
    return {"kind": "checkpoint", "iteration": iteration, "run": run, "tree_nodes": trees}, lines


def _data(
    file: Path,
    target: str | None,
    columns: tuple[str, ...] | None,
    exclude: tuple[str, ...] | None,
    csv: dict[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """A table, samples in arrays, or what is wrong with a file that cannot be read."""
    from psfit.data.io import FORMATS, DataFileError, ReadRequest, ending_of, find_files, open_file
    from psfit.data.table_rules import TableRules

    try:
        files = find_files([file])
        if FORMATS[ending_of(files[0])][0] not in ("text", "tables"):
            return _samples(file, target, columns)
        wanted = ReadRequest(labelled=False, rules=TableRules(**csv), lenient=True)
        profile = profile_facts([open_file(one, wanted) for one in files], target, columns, exclude)
    except DataFileError as error:
        return {"kind": UNREADABLE, "problem": str(error)}, [f"{file}: cannot be read", f"  {error}"]
    return profile, profile_lines(file, profile)


def _samples(file: Path, target: str | None, columns: tuple[str, ...] | None) -> tuple[dict[str, Any], list[str]]:
    from psfit.data.summary import ColumnSummary

    grid = psfit.GridSpec(backend="serial", device="cpu").build()
    found = psfit.FileSource(file, target, None, columns).read(grid)
    m, p = found.matrix.shape
    statistics = ColumnSummary.of(found.matrix, grid)
    mean, spread = statistics.means, statistics.spreads
    names = [str(j) for j in range(p)] if found.names is None else [str(name) for name in found.names]
    constant = [name for name, same in zip(names, statistics.constant.tolist(), strict=True) if same]
    facts: dict[str, Any] = {
        "kind": "samples",
        "samples": m,
        "features": p,
        "dtype": str(found.matrix.dtype).removeprefix("torch."),
        "storage": type(found.matrix).__name__.lower(),
        "target": _target_facts(found.y),
        "constant": constant,
        "columns": [
            {"name": name, "mean": a, "spread": s}
            for name, a, s in zip(names, mean.tolist(), spread.tolist(), strict=True)
        ],
    }
    lines = [f"{file}: {m:,} samples x {p:,} features, {facts['dtype']}, {facts['storage']}"]
    lines.append(f"  target     {_target_text(facts['target'])}")
    if constant:
        lines.append(f"  constant   {', '.join(constant[:MOST_SHOWN])}{', ...' if len(constant) > MOST_SHOWN else ''}")
    width = max([6, *(len(name) for name in names[:MOST_SHOWN])])
    lines.append(f"  {'column':>{width}} {'mean':>12} {'spread':>12}")
    for row in facts["columns"][:MOST_SHOWN]:
        lines.append(f"  {row['name']:>{width}} {row['mean']:>12.6g} {row['spread']:>12.6g}")
    if p > MOST_SHOWN:
        lines.append(f"  {p - MOST_SHOWN:,} more columns are not shown; --json has them")
    return facts, lines


def _target_facts(y: "np.ndarray | None") -> dict[str, Any] | None:
    """Classes with their counts, or the range of numbers."""
    if y is None:
        return None
    import numpy as np

    values, counts = np.unique(y, return_counts=True)
    if values.dtype.kind not in "fiub" or len(values) <= 10:
        return {"values": {str(value): int(count) for value, count in zip(values, counts, strict=True)}}
    return {"least": float(y.min()), "mean": float(y.mean()), "most": float(y.max())}


def _target_text(target: dict[str, Any] | None) -> str:
    if target is None:
        return "none"
    if "values" in target:
        shown = list(target["values"].items())[:MOST_SHOWN]
        return ", ".join(f"{value} ({count:,})" for value, count in shown)
    return f"from {target['least']:.6g} to {target['most']:.6g}, mean {target['mean']:.6g}"
