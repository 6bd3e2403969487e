"""Where a problem is solved: in this process, on a GPU, or by the ranks of torchrun."""

import os
from dataclasses import dataclass
from math import gcd
from pathlib import Path

from psfit import GridSpec


@dataclass(frozen=True)
class Place:
    """A device, what connects the ranks, and a folder for files."""

    folder: Path
    device: str = "cpu"
    backend: str = "serial"

    def grid(self, **asked: object) -> GridSpec:
        """The grid of a problem, here."""
        return GridSpec(device=self.device, backend=self.backend, timeout=120, **asked)

    def rows(self, samples: int, blocks: int) -> slice:
        """The samples of this rank: ranks that share the blocks of a node have the same."""
        if self.backend == "serial":
            return slice(0, samples)
        ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        across = gcd(ranks, blocks)
        down, row = ranks // across, rank // across
        return slice(samples * row // down, samples * (row + 1) // down)
