"""The files of one checkpoint: all ranks write them together, and agree on the last one that all of them have."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from psfit.admm.checkpoint.arrays import write_arrays
from psfit.admm.checkpoint.error import CheckpointError
from psfit.admm.checkpoint.folder import SHARED
from psfit.admm.checkpoint.manifest import write_manifest
from psfit.admm.checkpoint.store import Store
from psfit.comm import Grid


def write_checkpoint(
    store: Store,
    grid: Grid,
    number: int,
    own: dict[str, Tensor],
    shared: dict[str, Tensor],
    description: dict[str, Any],
) -> None:
    """Write the arrays of each rank and the shared ones, then the manifest; then remove older checkpoints."""
    folder, data = store.folder, store.fingerprints(grid)

    def prepare() -> None:
        if folder.leads:
            folder.prepare(number)

    def write() -> None:
        write_arrays(folder.rank_file(number), own)
        if folder.leads:
            write_arrays(folder.place(number) / SHARED, shared)

    def finish() -> None:
        if folder.leads:
            write_manifest(folder.place(number), description, data)

    for action in (prepare, write, finish):
        grid.run_together(action)
    if folder.leads:
        folder.remove_others(number)


def find_latest(store: Store, grid: Grid) -> int | None:
    """The number of the last checkpoint that all ranks can read; None if there is none."""
    folder = store.folder
    store.fingerprints(grid)
    own = grid.run_together(lambda: [folder.finished_iterations(), folder.usable_iterations()])
    ranks = [json.loads(one) for one in grid.world.all_gather(json.dumps(own).encode())]
    return grid.run_together(lambda: _choose_latest(folder.path, ranks))


def _choose_latest(folder: Path, ranks: list[list[list[int]]]) -> int | None:
    """The last iteration that has a manifest on some rank, and whose files every rank has."""
    finished_iterations = {iteration for done, _ in ranks for iteration in done}
    usable_iterations = finished_iterations.intersection(*(set(have) for _, have in ranks))
    if usable_iterations or not finished_iterations:
        return max(usable_iterations, default=None)
    last = max(finished_iterations)
    lost = ", ".join(str(rank) for rank, (_, have) in enumerate(ranks) if last not in have)
    raise CheckpointError(
        f"{folder}: rank {lost} does not find its files of the checkpoint at iteration {last}; restore them, or "
        "delete the folder on every host to start again"
    )
