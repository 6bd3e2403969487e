"""Make a problem on data from the arguments of users: arrays or files, targets and weights, checked on all ranks."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from psfit.comm import Grid
from psfit.common.arguments import describe
from psfit.common.environment import environment
from psfit.data import BlockColumns, DesignMatrix, Samples, Source
from psfit.data.fills import Gaps, refill
from psfit.estimators.reading import (
    Features,
    as_array,
    as_source,
    place,
    read_new,
    read_weights,
    require_finite,
    sum_over_nodes,
    to_tensor,
)
from psfit.estimators.registry import LOSSES, entry_for
from psfit.estimators.settings import RULES, Settings
from psfit.estimators.targets import Target
from psfit.losses import Loss
from psfit.pipeline.path import check_kappas
from psfit.problem import Problem

# The most limits of a path if none are given.
MOST_KAPPAS = 50


@dataclass(frozen=True)
class Given:
    """Samples as users pass them: arrays, or files and the names of their columns."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    target: str | int | None = None


@dataclass(frozen=True)
class Learned:
    """What a fit knows about its data besides its result: the columns of X, the targets, and where it ran."""

    features: Features
    target: Target
    surroundings: dict[str, str] | None = None


@dataclass(frozen=True)
class Posed:
    """The problem, this rank's data and the grid; the targets and the sample weights as they were given."""

    problem: Problem
    source: Source
    grid: Grid
    y: np.ndarray
    weights: np.ndarray
    learned: Learned
    gaps: Gaps | None = None

    def fill_again(self, train: np.ndarray) -> "Posed":
        """The same samples with missing values filled as the samples of a mask ``(m,)`` suggest."""
        if self.gaps is None:
            return self
        whole = self.source.matrix
        if isinstance(whole, BlockColumns):
            raise ValueError(
                "missing: cross-validation that fills missing values needs all columns on each rank; use blocks=1 in "
                "the grid, or fill the values before"
            )
        return replace(self, source=replace(self.source, matrix=refill(whole, self.gaps, train, self.grid)))

    @property
    def weighted(self) -> bool:
        """Whether any sample on any rank has a weight other than one."""
        return bool(self.grid.nodes.maximum(torch.tensor([float((self.weights != 1).any())])))

    def read_limits(self, kappas: Iterable[int] | None) -> tuple[int, ...]:
        """The limits of a path, rising; by default the first ones."""
        items = self.problem.items(self.source.matrix.shape[1], self.source.outputs)
        return check_kappas(range(1, min(items.size, MOST_KAPPAS) + 1) if kappas is None else kappas, items)

    @property
    def samples(self) -> int:
        """Samples of all nodes."""
        return int(sum_over_nodes(self.grid, np.array([len(self.y)]))[0])


def pose_samples(settings: Settings, owner: str, given: Given, grid: Grid) -> Posed:
    """Read and check the samples, and pose the problem on them. All ranks must call this with their own rows.

    Messages name the `owner`: the estimator or procedure that calls this.
    """
    kind = LOSSES[settings.loss].target
    matrix, y, weights, features, gaps = _read(kind, owner, given, grid)
    grid.require_same(features=matrix.shape[1], dtype=str(matrix.dtype))
    if not sum_over_nodes(grid, weights.sum(keepdims=True)) > 0:
        raise ValueError("sample_weight is zero everywhere; at least one sample must have a positive weight")
    found, effective = kind.learn(y, weights, settings.fit_intercept, settings.parameters, grid)
    loss = entry_for(settings.loss, found).make(settings.parameters)
    codes = found.encode(y, loss)
    matrix = _own_columns(matrix, settings.fit_intercept, grid)
    source = Source(
        matrix,
        to_tensor(codes, grid, torch.float64),
        to_tensor(effective.reshape(-1, 1), grid, torch.float64),
    )
    problem = grid.run_together(lambda: _make_problem(settings, loss, matrix.shape[1], source.outputs))
    surroundings = environment() | {"device": str(grid.device), "ranks": str(grid.world.size)}
    return Posed(problem, source, grid, y, weights, Learned(features, found, surroundings), gaps)


# This rank's matrix, targets and weights, what is known about the columns, and where values were missing.
Read = tuple[DesignMatrix, np.ndarray, np.ndarray, Features, Gaps | None]


def _read(kind: type[Target], owner: str, given: Given, grid: Grid) -> Read:
    """Read the data of this rank, and check what can be checked without the other ranks."""
    source = grid.run_together(lambda: as_source(given.X, given.y, given.sample_weight, given.target))
    if source is None:
        return grid.run_together(lambda: _read_arrays(kind, owner, given, grid))
    samples = source.read(grid, labelled=given.y is None, numeric=kind.numeric)
    return grid.run_together(lambda: _read_samples(kind, samples, given))


def _read_arrays(kind: type[Target], owner: str, given: Given, grid: Grid) -> Read:
    values, features = read_new(given.X, owner)
    weights = read_weights(given.sample_weight, values.shape[0])
    if given.y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    y = kind.read(as_array(given.y), values.shape[0])
    matrix = place(values, grid)
    require_finite(matrix, features.names)
    return matrix, y, weights, features, None


def _read_samples(kind: type[Target], samples: Samples, given: Given) -> Read:
    rows, count = samples.matrix.shape
    names = None if samples.names is None else np.array(samples.names, dtype=object)
    weight = given.sample_weight
    weights = read_weights(samples.weight if weight is None or isinstance(weight, str) else weight, rows)
    y = samples.y if given.y is None else given.y
    if y is None:
        raise ValueError("y: the file holds no target; pass y, or say where it is with target")
    features = Features(count, names, samples.schema)
    return samples.matrix, kind.read(as_array(y), rows), weights, features, samples.gaps


def _own_columns(matrix: DesignMatrix, fit_intercept: bool, grid: Grid) -> DesignMatrix:
    """The columns of the blocks hosted here; all columns if every node has one rank."""
    p = matrix.shape[1]
    if grid.blocks.size > p:
        raise ValueError(f"grid: blocks={grid.blocks.size} is more than the {p} features; use at most {p}")
    if grid.blocks.comm.size == 1:
        return matrix
    columns = grid.columns(p + fit_intercept)
    at = slice(min(columns.start, p), min(columns.stop, p))
    return BlockColumns(matrix.columns(at), at, p, grid.blocks)


def _make_problem(settings: Settings, loss: Loss, p: int, c: int) -> Problem:
    """The problem, with a limit for each of its independent problems."""
    shared = {name: getattr(settings, name) for name in ("gamma", "sparsity", "fit_intercept", "standardize")}
    items = Problem(loss, (1,), **shared).items(p, c)
    kappa = RULES["kappa"]("kappa", settings.kappa)
    if kappa is None:
        kappa = max(1, p // 10) * (items.size // p)
    elif kappa < 1:
        kappa = max(1, round(kappa * items.size))
    if kappa > items.size:
        given = describe(settings.kappa)
        raise ValueError(f"kappa={given} must be between 1 and {items.size}, the number of items it limits")
    return Problem(loss, (kappa,) * items.problems, **shared)
