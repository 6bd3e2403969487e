"""How the parts of several files and ranks fit together."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import scipy.sparse
import torch

from psfit.comm import Grid
from psfit.data.io import FILES_DIFFER, DataFileError, JoinedRows, Part
from psfit.data.io.base import SomeRows


def join_parts(parts: list[Part]) -> Part:
    """Join the parts of several files."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(_outline(part) != _outline(first) for part in parts):
        raise DataFileError(FILES_DIFFER)
    if scipy.sparse.issparse(first.features):
        width = max(part.features.shape[1] for part in parts)
        features = scipy.sparse.vstack([widen(part.features, width) for part in parts], format="csr")
    else:
        features = JoinedRows([part.features for part in parts])
    y = None if first.y is None else _join_targets([part.y for part in parts if part.y is not None])
    weight, offset = (_join([getattr(part, name) for part in parts]) for name in ("weight", "offset"))
    ids = {name: np.concatenate([part.ids[name] for part in parts]) for name in first.ids}
    return Part(features, y, weight, first.names, first.open_ended, ids, offset)


def drop_rows_without_target(part: Part) -> Part:
    """The same samples without those that have no target, if these are to be left out."""
    if part.present is None or part.present.all():
        return part
    rows = np.flatnonzero(part.present)
    y, weight, offset = (None if one is None else one[rows] for one in (part.y, part.weight, part.offset))
    ids = {name: values[rows] for name, values in part.ids.items()}
    features = SomeRows(part.features, rows)
    return replace(part, features=features, y=y, weight=weight, offset=offset, ids=ids)


def count_left_out(parts: list[Part], grid: Grid) -> int:
    """How many rows of all ranks have no target. All ranks must call this."""
    here = sum(int((~part.present).sum()) for part in parts if part.present is not None)
    return int(grid.nodes.total(torch.tensor([float(here)], dtype=torch.float64)))


def _join(several: list[np.ndarray | None]) -> np.ndarray | None:
    """Join the weights or the offsets of several files; None if they have none."""
    known = [values for values in several if values is not None]
    return np.concatenate(known) if known else None


def _join_targets(several: list[np.ndarray]) -> np.ndarray:
    """Join the targets of several files. Text and numbers cannot be joined: 1 and 1.0 would be different texts."""
    if len({target.dtype.kind in "biuf" for target in several}) > 1:
        raise DataFileError(
            "path: the targets are text in some files and numbers in others; write all as text or all as numbers"
        )
    return np.concatenate(several)


def _outline(part: Part) -> list[object]:
    """What must be the same in all files."""
    width = None if part.open_ended else part.features.shape[1]
    kind = scipy.sparse.issparse(part.features)
    absent = [getattr(part, name) is None for name in ("y", "weight", "offset")]
    return [width, part.names, kind, *absent, list(part.ids)]


def require_same(part: Part, grid: Grid) -> None:
    """Refuse files that differ from those of another rank."""
    mine = hashlib.sha256(json.dumps(_outline(part)).encode()).digest()
    if len(set(grid.world.all_gather(mine))) > 1:
        raise DataFileError(FILES_DIFFER)


def require_rows(part: Part, grid: Grid) -> None:
    """Refuse data without rows, or with fewer than a rank has nodes."""
    if part.features.shape[0] == 0 and grid.world.size == grid.nodes.size == 1:
        raise DataFileError("the data have no rows; at least one is needed")
    if part.features.shape[0] < len(grid.nodes.hosted):
        raise DataFileError(
            f"{part.features.shape[0]} row(s) are left for rank {grid.world.rank}, which hosts "
            f"{len(grid.nodes.hosted)} node(s); use fewer ranks or nodes, or more data"
        )


def widen(csr: scipy.sparse.csr_matrix, width: int) -> scipy.sparse.csr_matrix:
    """The same matrix with more columns."""
    return scipy.sparse.csr_matrix((csr.data, csr.indices, csr.indptr), shape=(csr.shape[0], width))
