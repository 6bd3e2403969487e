"""The classes of all nodes: a node may have samples of only some of them."""

import io

import numpy as np

from psfit.comm import Grid


def gather_classes(local: np.ndarray, grid: Grid) -> np.ndarray:
    """The sorted labels that occur on any rank; only the labels themselves are exchanged."""
    agreed = grid.world.agreed_classes
    if agreed is not None:
        return grid.run_together(lambda: _take_agreed(local, np.array(agreed)))
    if grid.world.size == 1:
        return local
    gathered = [_unpack(part) for part in grid.world.all_gather(_pack(local))]
    kinds = {"text" if part.dtype.kind == "U" else "numbers" for part in gathered}
    if len(kinds) > 1:
        raise ValueError("y: the labels are text on some ranks and numbers on others; encode them the same way")
    return np.unique(np.concatenate(gathered))


def _take_agreed(local: np.ndarray, agreed: np.ndarray) -> np.ndarray:
    """The agreed classes in the type of the local labels."""
    classes = np.unique(agreed.astype(str) if local.dtype.kind not in "biuf" else agreed)
    if not np.isin(local, classes).all():
        raise ValueError(
            f"y: a label is none of the {len(classes)} agreed classes; correct it, or agree on other classes"
        )
    return classes


def _pack(labels: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, labels.astype(str) if labels.dtype.kind not in "biuf" else labels, allow_pickle=False)
    return file.getvalue()


def _unpack(payload: bytes) -> np.ndarray:
    return np.asarray(np.load(io.BytesIO(payload), allow_pickle=False))
