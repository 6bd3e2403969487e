"""Checkpoints of the search trees of exact mode, in the folder of the fit, by the rules of all its checkpoints.

The ranks explore the same tree, so one file has its nodes. A tree is written after a number of batches, unless the last
writing took a large share of the time since then.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from psfit.admm.checkpoint import CheckpointError, Store
from psfit.admm.checkpoint.arrays import Expected, read_arrays
from psfit.admm.checkpoint.files import find_latest, write_checkpoint
from psfit.admm.checkpoint.folder import SHARED
from psfit.admm.checkpoint.manifest import describe_problem, require_same_run
from psfit.certificate.branch import TreeState
from psfit.certificate.tree_record import TreeRecord
from psfit.problem.instance import Instance

# Between checkpoints at least so many times the seconds of the last one must pass.
LEAST_PAUSE = 20.0
COLUMNS = ["node_inside", "node_outside", "node_item", "node_point"]


@dataclass
class TreeCheckpoint:
    """Keeps the tree of problem `number` of a fit; `store` is the one of the fit."""

    store: Store
    inst: Instance
    number: int
    gap_tol: float
    batches: int = 0
    written: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.store = self.store.inside(f"tree-{self.number}")

    def is_due(self) -> bool:
        """Whether enough batches and, on the first rank, enough seconds have passed."""
        self.batches += 1
        if self.batches % self.store.every:
            return False
        return self.inst.grid.follow_first_rank(time.monotonic() - self.written >= LEAST_PAUSE * self.seconds)

    def save(self, record: TreeRecord) -> None:
        """Write all files, then the manifest, then remove the older checkpoint."""
        began, tree = time.monotonic(), record.tree
        nodes = [record.inside.new_zeros(0, 0), record.inside.new_zeros(0, 0), tree.depth.new_zeros(0, 1).long()]
        inside, outside, item, points = tree.columns[: len(COLUMNS)] or (*nodes, tree.lower.new_zeros(0, 0))
        columns = dict(zip(COLUMNS, (inside, outside, item, points.double().flatten(1)), strict=True))
        sizes = [len(tree.lower), inside.shape[1], columns["node_point"].shape[1], len(record.extracted)]
        numbers = [record.start, record.root, record.rise, tree.upper, tree.floor]
        explored = torch.tensor(tree.explored)
        shared = columns | {
            "explored": explored,
            "sizes": torch.tensor(sizes),
            "numbers": torch.tensor(numbers, dtype=torch.float64),
            "inside": record.inside,
            "outside": record.outside,
            "support": record.support,
            "extracted": record.extracted,
            "lower": tree.lower,
            "depth": tree.depth,
        }
        own = {"explored": explored}
        write_checkpoint(self.store, self.inst.grid, tree.explored, own, shared, self._description())
        self.written = time.monotonic()
        self.seconds = self.written - began

    def load(self) -> TreeRecord | None:
        """The last tree that all ranks can read; None if there is none."""
        found = find_latest(self.store, self.inst.grid)
        return None if found is None else self.inst.grid.run_together(lambda: self._read(found))

    def _read(self, explored: int) -> TreeRecord:
        folder, device = self.store.folder, self.inst.ridge.device
        place = folder.place(explored)
        require_same_run(place, self._description(), self.store.known)
        number = Expected((), torch.int64)
        own = read_arrays(folder.rank_file(explored), {"explored": number})
        head = read_arrays(place / SHARED, {"explored": number, "sizes": Expected((4,), torch.int64)})
        if not int(own["explored"]) == int(head["explored"]) == explored:
            raise CheckpointError(f"{place} holds files of different times; delete it to start again")
        found = read_arrays(place / SHARED, self._expect(*head["sizes"].tolist()))
        found = {name: values.to(device) for name, values in found.items()}
        start, root, rise, upper, floor = found["numbers"].tolist()
        columns = tuple(found[name] for name in COLUMNS)
        tree = TreeState(upper, floor, explored, None, found["lower"], found["depth"], columns)
        masks = found["inside"], found["outside"], found["support"]
        return TreeRecord(start, root, rise, *masks, found["extracted"], tree)

    def _expect(self, nodes: int, items: int, length: int, extracted: int) -> dict[str, Expected]:
        """The shapes and types of the arrays: open nodes, items in them, numbers of a point and of the extraction."""
        mask, number, node_mask = torch.bool, torch.float64, Expected((nodes, items), torch.bool)
        every = Expected((self.inst.items.size,), mask)
        return {
            "numbers": Expected((5,), number, finite=False),
            "inside": every,
            "outside": every,
            "support": every,
            "extracted": Expected((extracted,), number),
            "lower": Expected((nodes,), number),
            "depth": Expected((nodes,), torch.int32),
            "node_inside": node_mask,
            "node_outside": node_mask,
            "node_item": Expected((nodes, 1), torch.int64),
            "node_point": Expected((nodes, length), number),
        }

    def _description(self) -> dict[str, Any]:
        """All settings that must be equal to continue, besides the data."""
        return describe_problem(self.inst) | {"gap_tol": self.gap_tol, "problem": self.number}
