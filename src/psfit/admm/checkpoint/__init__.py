"""Checkpoints: what every rank needs to continue the iteration, bit for bit, from where it was, or a search tree.

A checkpoint is a folder ``iteration-N`` with one file for each rank, one file that all ranks share, and a manifest; the
N of a tree is its number of explored nodes. The manifest is written last, after all ranks have their files on disk:
without it there is no checkpoint. If ranks do not share a folder, one rank of each folder writes the shared file. All
files are plain arrays and JSON; nothing in them is ever executed.
"""

from psfit.admm.checkpoint.checkpoint import Checkpoint, Row
from psfit.admm.checkpoint.error import CheckpointError
from psfit.admm.checkpoint.manifest import find_run
from psfit.admm.checkpoint.store import Store, open_store

__all__ = ["Checkpoint", "CheckpointError", "Row", "Store", "find_run", "open_store"]
