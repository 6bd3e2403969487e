"""Manifests: the settings and the data of the run to which a checkpoint belongs."""

import hashlib
import json
from pathlib import Path
from typing import Any

from psfit.admm.checkpoint.error import CheckpointError
from psfit.admm.checkpoint.folder import MANIFEST, Folder
from psfit.admm.checkpoint.store import NAMES, differences
from psfit.common.output_files import write_whole
from psfit.problem.instance import Instance

FORMAT = 4


def write_manifest(place: Path, run: dict[str, Any], data: list[dict[str, str]]) -> None:
    """Write the settings of the run, and the fingerprints of its data on every rank."""
    text = json.dumps({"format": FORMAT, "run": run, "data": data}, indent=1)
    write_whole(place / MANIFEST, lambda file: file.write(text.encode()))


def read_manifest(place: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Read the settings and the fingerprints; raises an error if the manifest is damaged."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        run, form, data = manifest["run"], manifest["format"], manifest["data"]
        if form == FORMAT and not (isinstance(run, dict) and all(set(one) == set(NAMES) for one in data)):
            raise ValueError("parts of it are missing")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{place}: the manifest cannot be read ({error}); delete the folder") from None
    if form != FORMAT:
        raise CheckpointError(f"{place} has format {form}, this version reads {FORMAT}; delete it to start again")
    return run, data


def find_run(path: Path) -> tuple[int, dict[str, Any]] | None:
    """The last iteration in a folder of checkpoints, and the settings of its run; None if there is no checkpoint."""
    folder = Folder(path, 0, False)
    last = max(folder.finished_iterations(), default=None)
    return None if last is None else (last, read_manifest(folder.place(last))[0])


def describe_problem(inst: Instance) -> dict[str, Any]:
    """What must be equal for every part of a fit to continue, besides the data."""
    problem, grid = inst.problem, inst.grid
    return {
        "loss": f"{problem.loss.name} {vars(problem.loss)}",
        "kappa": list(problem.kappa),
        "gamma": problem.gamma,
        "sparsity": problem.sparsity,
        "fit_intercept": problem.fit_intercept,
        "standardize": problem.standardize,
        "constraints": hashlib.sha256(problem.constraints.signature.encode()).hexdigest()[:16],
        "samples": inst.samples,
        "features": inst.items.features,
        "outputs": inst.items.outputs,
        "nodes": grid.nodes.size,
        "blocks": grid.blocks.size,
        "ranks": grid.world.size,
        "dtype": str(inst.source.matrix.dtype),
    }


def require_same_run(place: Path, description: dict[str, Any], data: list[dict[str, str]]) -> None:
    """Refuse a checkpoint of another run, with what differs; where another folder has the manifest, do nothing."""
    if not (place / MANIFEST).exists():
        return
    stated, known = read_manifest(place)
    mine = json.loads(json.dumps(description))
    for name in mine:
        if stated.get(name) != mine[name]:
            raise CheckpointError(
                f"{place} belongs to another run: its {name} is {stated.get(name)!r}, this one's {mine[name]!r}; "
                "choose another folder, or delete it"
            )
    if len(known) != len(data):
        raise CheckpointError(f"{place}: the manifest is not complete; delete the folder to start again")
    others = differences(known, data)
    if others:
        raise CheckpointError(
            f"{place} belongs to another run: this one has {' and '.join(others)}; choose another folder, or delete it"
        )
