"""Folds: every node splits its own samples, so that no information about them leaves it."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.estimators.posing import Posed
from psfit.estimators.reading import sum_over_nodes


@dataclass(frozen=True)
class Folds:
    """Which samples of this rank each split trains on and tests on, as masks ``(S, m)``."""

    train: Tensor
    test: Tensor

    @classmethod
    def draw(cls, cv: Any, posed: Posed, groups: Any) -> "Folds":
        """The splits of `cv` inside each of the nodes hosted here."""
        grid, bounds = posed.grid, posed.source.split(len(posed.grid.nodes.hosted)).bounds
        classifier = not posed.learned.target.numeric
        train, test = grid.run_together(lambda: _split(cv, posed.y, groups, classifier, list(bounds)))
        if not grid.have_same_values(torch.tensor([float(len(train))])):
            raise ValueError(f"cv={cv!r} draws {len(train)} splits on this rank and another number on others")
        # Ranks of the same node have the same rows, but a splitter without a seed would split them differently.
        masks = grid.blocks.comm.broadcast(torch.from_numpy(np.stack([train, test])).to(torch.uint8)).bool()
        return cls(masks[0], masks[1])

    def require_enough(self, posed: Posed) -> None:
        """Refuse splits without samples of positive weight, and splits that lack targets which a fit needs."""
        weighted = (posed.weights > 0).astype(float)[:, None]
        for kind, masks in (("trains on", self.train), ("tests on", self.test)):
            empty = _sum(masks, weighted, posed.grid)[:, 0] == 0
            if empty.any():
                raise ValueError(f"cv: part {int(empty.argmax())} {kind} no sample whose weight is not zero")
        target = posed.learned.target
        needed = target.needs(posed.y, posed.problem.fit_intercept)
        if not needed.shape[1]:
            return
        lacking = _sum(self.train, needed * weighted, posed.grid) == 0
        if lacking.any():
            part, column = (int(index[0]) for index in np.nonzero(lacking))
            raise ValueError(target.describe_lack(column, part))


def _sum(masks: Tensor, columns: np.ndarray, grid: Grid) -> np.ndarray:
    """Sums ``(S, k)`` of ``columns (m, k)`` over the samples of each mask, on all nodes."""
    return sum_over_nodes(grid, (masks.double() @ torch.from_numpy(columns).double()).numpy())


def _split(cv: Any, y: np.ndarray, groups: Any, classifier: bool, bounds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.model_selection import check_cv

    rows = len(y)
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (rows,):
            raise ValueError(f"groups has shape {groups.shape}, but there are {rows} samples")
    listed = cv is not None and not isinstance(cv, (int, np.integer)) and not hasattr(cv, "split")
    splitter = check_cv(cv, y if y.ndim == 1 else None, classifier=classifier)
    # A given list of splits refers to all rows of the rank.
    ranges = [(0, rows)] if listed else list(pairwise(bounds))
    nodes = []
    for start, stop in ranges:
        own_groups = None if groups is None else groups[start:stop]
        try:
            splits = list(splitter.split(np.zeros((stop - start, 1)), y[start:stop], own_groups))
        except ValueError as error:
            raise ValueError(f"cv={cv!r}, on the {stop - start} samples of a node: {error}") from None
        if not splits:
            raise ValueError(f"cv={cv!r} holds no splits (an iterator can be used for one fit only)")
        nodes.append(np.stack([_masks(pair, stop - start) for pair in splits], axis=1))
    if len({part.shape[1] for part in nodes}) > 1:
        raise ValueError(f"cv={cv!r} draws different numbers of splits on different nodes")
    train, test = np.concatenate(nodes, axis=2)
    return train, test


def _masks(pair: tuple[Any, Any], rows: int) -> np.ndarray:
    """A split as two masks ``(2, m)``."""
    masks = np.zeros((2, rows), dtype=bool)
    for mask, index in zip(masks, pair, strict=True):
        index = np.asarray(index, dtype=None if len(index) else int)
        if index.dtype == bool and index.shape == (rows,):
            index = np.flatnonzero(index)
        if not np.issubdtype(index.dtype, np.integer) or index.ndim != 1 or _outside(index, rows):
            raise ValueError(
                f"cv: a split must name samples by their numbers from 0 to {rows - 1}; with several nodes here, by "
                "those of its own node"
            )
        if len(np.unique(index)) < len(index):
            raise ValueError("cv: a split names a sample twice; use sample_weight instead")
        mask[index] = True
    return masks


def _outside(index: np.ndarray, rows: int) -> bool:
    return len(index) > 0 and bool(index.min() < 0 or index.max() >= rows)
