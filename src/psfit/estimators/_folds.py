"""Folds: every node draws its own among its own samples, so that nothing about them has to leave it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import check_cv
from torch import Tensor

from psfit.comm import Grid
from psfit.estimators._inputs import summed


@dataclass(frozen=True)
class Folds:
    """Which samples of this rank each split trains on and tests on, as masks ``(S, m)``."""

    train: Tensor
    test: Tensor

    @classmethod
    def drawn(cls, cv: Any, y: np.ndarray, groups: Any, classifier: bool, bounds: Iterable[int], grid: Grid) -> "Folds":
        """The splits of `cv` inside each of the nodes hosted here, whose rows end at the `bounds`."""
        train, test = grid.together(lambda: _drawn(cv, y, groups, classifier, list(bounds)))
        if not grid.same(torch.tensor([float(len(train))])):
            raise ValueError(f"cv={cv!r} draws {len(train)} splits on this rank and another number on others")
        # The ranks that share a node share its rows; a splitter without a seed would deal them differently.
        masks = grid.blocks.comm.broadcast(torch.from_numpy(np.stack([train, test])).to(torch.uint8)).bool()
        return cls(masks[0], masks[1])

    def require_weight(self, weights: np.ndarray, grid: Grid) -> None:
        """Refuse splits without samples that count."""
        counts = torch.stack([self.train, self.test]).double() @ torch.from_numpy(weights > 0).double()
        empty = summed(grid, counts.numpy()) == 0
        for kind, row in zip(("trains on", "tests on"), empty, strict=True):
            if row.any():
                raise ValueError(f"cv: split {int(row.argmax())} {kind} no sample whose weight is not zero")

    def require_classes(self, y: np.ndarray, classes: np.ndarray, weights: np.ndarray, grid: Grid) -> None:
        """Refuse splits that train without one of the classes."""
        members = torch.from_numpy((y[:, None] == classes) & (weights > 0)[:, None]).double()
        counts = summed(grid, (self.train.double() @ members).numpy())
        if (counts == 0).any():
            split, place = (int(index[0]) for index in np.nonzero(counts == 0))
            raise ValueError(
                f"y: part {split} of the samples to train on holds none of class {classes[place]}, which is too rare; "
                "use fewer or stratified folds, or leave it out"
            )


def _drawn(cv: Any, y: np.ndarray, groups: Any, classifier: bool, bounds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rows = len(y)
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (rows,):
            raise ValueError(f"groups has shape {groups.shape}, but there are {rows} samples")
    listed = cv is not None and not isinstance(cv, (int, np.integer)) and not hasattr(cv, "split")
    splitter = check_cv(cv, y if y.ndim == 1 else None, classifier=classifier)
    # Splits that are given, not drawn, speak of all rows of the rank.
    ranges = [(0, rows)] if listed else list(pairwise(bounds))
    drawn = []
    for start, stop in ranges:
        mine = None if groups is None else groups[start:stop]
        try:
            splits = list(splitter.split(np.zeros((stop - start, 1)), y[start:stop], mine))
        except ValueError as error:
            raise ValueError(f"cv={cv!r}, on the {stop - start} samples of a node: {error}") from None
        drawn.append(np.stack([_masks(pair, stop - start) for pair in splits], axis=1))
    if len({part.shape[1] for part in drawn}) > 1:
        raise ValueError(f"cv={cv!r} draws different numbers of splits on different nodes")
    train, test = np.concatenate(drawn, axis=2)
    return train, test


def _masks(pair: tuple[Any, Any], rows: int) -> np.ndarray:
    """A split as two masks ``(2, m)``."""
    masks = np.zeros((2, rows), dtype=bool)
    for mask, index in zip(masks, pair, strict=True):
        index = np.asarray(index, dtype=None if len(index) else int)
        if index.dtype == bool and index.shape == (rows,):
            index = np.flatnonzero(index)
        if not np.issubdtype(index.dtype, np.integer) or index.ndim != 1 or (len(index) and index.max() >= rows):
            raise ValueError(f"cv: a split must name samples by their numbers from 0 to {rows - 1}")
        if len(np.unique(index)) < len(index):
            raise ValueError("cv: a split names a sample twice; say so with sample_weight instead")
        mask[index] = True
    return masks
