"""Where a fit keeps its checkpoints, and the fingerprints by which it recognises its data."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from psfit.admm.checkpoint.folder import Folder, open_folder
from psfit.comm import Grid
from psfit.data import Source
from psfit.data.fingerprint import fingerprint

Start = tuple[Tensor, Tensor] | None
# The parts of the data with fingerprints, and how a message names a difference.
NAMES = {
    "X": "other features X",
    "y": "other targets y or offsets",
    "weights": "other sample weights",
    "start": "another starting point",
}


@dataclass(frozen=True)
class Store:
    """A folder, and the data of the fit.

    Parameters
    ----------
    every : int
        Iterations, or batches of tree nodes, between checkpoints.
    matrix_fingerprint : callable
        Returns the fingerprint of the features; called after the first passes over them.
    known : list
        The fingerprints of all ranks, when they are known; stores inside this one share them.
    """

    folder: Folder
    every: int
    matrix_fingerprint: Callable[[], str]
    source: Source
    start: Start
    known: list[dict[str, str]] = field(default_factory=list)

    def inside(self, name: str) -> "Store":
        """The store of a part of the fit."""
        return replace(self, folder=self.folder.inside(name))

    def fingerprints(self, grid: Grid) -> list[dict[str, str]]:
        """The fingerprints of the data of each rank, in order of rank; all ranks must call this."""
        if not self.known:
            mine = json.dumps(grid.run_together(self._own_fingerprints)).encode()
            self.known.extend(json.loads(one) for one in grid.world.all_gather(mine))
        return self.known

    def _own_fingerprints(self) -> dict[str, str]:
        start = "none" if self.start is None else " ".join(fingerprint(part) for part in self.start)
        return {
            "X": self.matrix_fingerprint(),
            "y": fingerprint(self.source.target),
            "weights": fingerprint(self.source.weight),
            "start": start,
        }


@contextmanager
def open_store(path: str | Path | None, every: int, source: Source, start: Start, grid: Grid) -> Iterator[Store | None]:
    """Open the store in a folder for the time of a fit; None if there is no folder."""
    if path is None:
        yield None
        return
    with open_folder(Path(path), grid) as folder:
        yield Store(folder, every, source.matrix.await_fingerprint(), source, start)


def differences(stated: list[dict[str, str]], mine: list[dict[str, str]]) -> list[str]:
    """What differs between two lists of fingerprints, rank by rank."""
    found = []
    for key, name in NAMES.items():
        ranks = [rank for rank, (one, other) in enumerate(zip(stated, mine, strict=True)) if one[key] != other[key]]
        if ranks:
            where = "" if len(mine) == 1 else f" (on rank {', '.join(map(str, ranks))})"
            found.append(f"{name}{where}")
    return found
