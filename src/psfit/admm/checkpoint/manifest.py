"""Manifests: what a checkpoint says of the run that it belongs to."""

import json
from pathlib import Path
from typing import Any

from psfit.admm.checkpoint.error import CheckpointError
from psfit.admm.checkpoint.folder import MANIFEST, Folder
from psfit.admm.checkpoint.store import NAMES
from psfit.common.output_files import write_whole

FORMAT = 4


def write_manifest(place: Path, run: dict[str, Any], data: list[dict[str, str]]) -> None:
    """Say what the run is, and what its data on every rank are told apart by."""
    text = json.dumps({"format": FORMAT, "run": run, "data": data}, indent=1)
    write_whole(place / MANIFEST, lambda file: file.write(text.encode()))


def read_manifest(place: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """What was written there, or an error that says what is wrong with it."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        run, form, data = manifest["run"], manifest["format"], manifest["data"]
        if form == FORMAT and not (isinstance(run, dict) and all(set(one) == set(NAMES) for one in data)):
            raise ValueError("it does not say what it should")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{place}: the manifest cannot be read ({error}); delete the folder") from None
    if form != FORMAT:
        raise CheckpointError(f"{place} has format {form}, this version reads {FORMAT}; delete it to start afresh")
    return run, data


def find_run(path: Path) -> tuple[int, dict[str, Any]] | None:
    """The last iteration in a folder of checkpoints and what its run is, if it is such a folder."""
    folder = Folder(path, 0, False)
    last = max(folder.finished(), default=None)
    return None if last is None else (last, read_manifest(folder.place(last))[0])
