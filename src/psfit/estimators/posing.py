"""Make a problem on data from the arguments of users: arrays or files, targets, weights and offsets, checked on all
ranks.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from psfit.comm import Grid
from psfit.common.environment import environment
from psfit.data import BlockColumns, DesignMatrix, Samples, SampleSource, Source
from psfit.data.fills import Gaps, refill
from psfit.estimators.concerns import find_constant
from psfit.estimators.constraints import Resolved, resolve
from psfit.estimators.limits import Limits
from psfit.estimators.offsets import KeptColumn, keep_column, read_offset, require_logarithms, spread_offset
from psfit.estimators.output_columns import require_free_names
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
from psfit.estimators.settings import AUTO, Settings
from psfit.estimators.targets import Counts, Target
from psfit.estimators.targets.base import TargetError
from psfit.losses import Loss, add_offset
from psfit.problem import Problem
from psfit.problem.automatic_gamma import automatic_gamma

# The most limits of a path if none are given.
MOST_KAPPAS = 50


@dataclass(frozen=True)
class Given:
    """Samples as users pass them: arrays, or files and the names of their columns."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    target: str | int | None = None
    offset: Any = None


@dataclass(frozen=True)
class Learned:
    """What a fit knows about its data besides its result: the columns of X, the targets, and where it ran.

    `offset` says whether the predictors had an offset, or is the column of the files that held it; `weight` says the
    same of sample weights.
    """

    features: Features
    target: Target
    surroundings: dict[str, str] | None = None
    offset: KeptColumn = False
    weight: KeptColumn = False

    @property
    def target_name(self) -> str | None:
        """The column of the target, if the fit had a file or a table that holds it."""
        schema = self.features.schema
        return None if schema is None else schema.target_name


@dataclass(frozen=True)
class Posed:
    """The problem, this rank's data and the grid; targets and sample weights as they were given, and the offsets
    ``(m, c)`` if there are some.

    The `constraints` are those of the problem, with names. `constant` says which targets an intercept alone describes
    exactly, and `name` is what messages call them.
    """

    problem: Problem
    source: Source
    grid: Grid
    y: np.ndarray
    weights: np.ndarray
    learned: Learned
    constraints: Resolved
    offset: np.ndarray | None = None
    gaps: Gaps | None = None
    constant: tuple[bool, ...] = ()
    name: str = "y"

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
        limits = Limits.of(self.problem, self.constraints, self.source.matrix.shape[1], self.source.outputs)
        return limits.check_path(limits.choose_path(MOST_KAPPAS) if kappas is None else kappas)

    @property
    def samples(self) -> int:
        """Samples of all nodes."""
        return int(sum_over_nodes(self.grid, np.array([len(self.y)]))[0])


def pose_samples(settings: Settings, owner: str, given: Given, grid: Grid) -> Posed:
    """Read and check the samples, and pose the problem on them. All ranks must call this with their own rows.

    Messages name the `owner`: the estimator or procedure that calls this.
    """
    kind = LOSSES[settings.loss].target
    read = _read(kind, owner, given, grid)
    matrix, y, weights, features, offset = read.matrix, read.y, read.weights, read.features, read.offset
    outputs = 1 if y.ndim == 1 else y.shape[1]
    grid.require_same(features=matrix.shape[1], targets=outputs, dtype=str(matrix.dtype), offset=read.kept)
    _require_same_names({"X": features.names, "y": _names_of(given.y), "offset": _names_of(given.offset)}, grid)
    if not sum_over_nodes(grid, weights.sum(keepdims=True)) > 0:
        raise ValueError("sample_weight is zero everywhere; at least one sample must have a positive weight")
    try:
        found, effective = kind.learn(y, weights, settings.fit_intercept, settings.parameters, grid)
    except TargetError as error:
        raise error.rename(read.name) from error.__cause__
    loss = entry_for(settings.loss, found).make(settings.parameters)
    codes = found.encode(y, loss)
    require_free_names(() if features.schema is None else features.schema.ids, found, codes.shape[1])
    matrix = _own_columns(matrix, settings.fit_intercept, grid)
    target = to_tensor(codes, grid, torch.float64)
    if offset is not None:
        given_offset = offset
        offset = grid.run_together(lambda: spread_offset(given_offset, codes.shape[1], not found.numeric))
        if isinstance(found, Counts):
            require_logarithms(offset, settings.fit_intercept, grid)
        loss, target = add_offset(loss, target, to_tensor(offset, grid, torch.float64))
    source = Source(matrix, target, to_tensor(effective.reshape(-1, 1), grid, torch.float64))
    if settings.gamma == AUTO:
        gamma = automatic_gamma(loss, source, settings.fit_intercept, grid)
        settings = replace(settings, gamma=gamma, standardize=True)
    problem, constraints = grid.run_together(lambda: _make_problem(settings, loss, features, source.outputs))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    surroundings = environment() | {"device": str(grid.device), "ranks": str(grid.world.size), "date": now}
    learned = Learned(features, found, surroundings, read.kept, read.weighted)
    # With an offset features can matter even so.
    alone = found.numeric and settings.fit_intercept and offset is None
    constant = tuple(find_constant(y, weights, grid).tolist()) if alone else ()
    return Posed(problem, source, grid, y, weights, learned, constraints, offset, read.gaps, constant, read.name)


@dataclass(frozen=True)
class Read:
    """The samples of this rank; `kept` and `weighted` are what the fit keeps of offsets and of weights, `gaps` is where
    values were missing, and `name` is what messages call the target.
    """

    matrix: DesignMatrix
    y: np.ndarray
    weights: np.ndarray
    features: Features
    offset: np.ndarray | None
    kept: KeptColumn
    weighted: KeptColumn
    gaps: Gaps | None = None
    name: str = "y"


def _read(kind: type[Target], owner: str, given: Given, grid: Grid) -> Read:
    """Read the data of this rank, and check what can be checked without the other ranks."""
    source = grid.run_together(lambda: as_source(given.X, given.y, given.sample_weight, given.target, given.offset))
    if source is None:
        return grid.run_together(lambda: _read_arrays(kind, owner, given, grid))
    samples = source.read(grid, labelled=given.y is None, numeric=kind.numeric)
    return grid.run_together(lambda: _read_samples(kind, samples, given, source))


def _read_arrays(kind: type[Target], owner: str, given: Given, grid: Grid) -> Read:
    values, features = read_new(given.X, owner)
    weights = read_weights(given.sample_weight, values.shape[0])
    offset = read_offset(given.offset, values.shape[0])
    if given.y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    y = kind.read(as_array(given.y), values.shape[0])
    matrix = place(values, grid)
    require_finite(matrix, features.names)
    kept, weighted = (keep_column(one, None) for one in (given.offset, given.sample_weight))
    return Read(matrix, y, weights, features, offset, kept, weighted)


def _read_samples(kind: type[Target], samples: Samples, given: Given, source: SampleSource) -> Read:
    rows, count = samples.matrix.shape
    names = None if samples.names is None else np.array(samples.names, dtype=object)
    weight = given.sample_weight
    named = weight is None or isinstance(weight, str)
    weights = read_weights(
        samples.weight if named else weight,
        rows,
        source.name_column(source.sample_weight if named else None, "sample_weight"),
    )
    y = samples.y if given.y is None else given.y
    if y is None:
        raise ValueError("y: the file holds no target; pass y, or say where it is with target")
    offset = read_offset(given.offset if samples.offset is None else samples.offset, rows)
    features = Features(count, names, samples.schema)
    kept, weighted = keep_column(given.offset, source.offset), keep_column(weight, source.sample_weight)
    name = source.name_column(None if given.y is not None else samples.schema.target_name, "y")
    y = read_target(kind, y, rows, name)
    return Read(samples.matrix, y, weights, features, offset, kept, weighted, samples.gaps, name)


def read_target(kind: type[Target] | Target, y: Any, rows: int, name: str) -> np.ndarray:
    """The targets of this rank's samples, checked; messages call them by their `name`."""
    try:
        return kind.read(as_array(y), rows)
    except TargetError as error:
        raise error.rename(name) from None


def _names_of(values: Any) -> Any:
    """The names of the columns of a table with several; None for anything else."""
    names = getattr(values, "columns", ())
    return names if len(names) > 1 else None


def _require_same_names(names: Mapping[str, Any], grid: Grid) -> None:
    """Refuse tables whose columns have other names, or another order, on other ranks."""
    own = {argument: [] if found is None else [str(name) for name in found] for argument, found in names.items()}
    if grid.have_same_settings(own):
        return
    ranks = [json.loads(one) for one in grid.world.all_gather(json.dumps(own).encode())]
    argument, other = next((a, k) for a in own for k, theirs in enumerate(ranks) if theirs[a] != ranks[0][a])
    pairs = enumerate(zip_longest(ranks[0][argument], ranks[other][argument], fillvalue="without a name"))
    place, (first, theirs) = next((k, pair) for k, pair in pairs if pair[0] != pair[1])
    raise ValueError(
        f"{argument}: column {place} is {first!r} on rank 0 but {theirs!r} on rank {other}; give all ranks the same "
        "columns in the same order"
    )


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


def _make_problem(settings: Settings, loss: Loss, features: Features, c: int) -> tuple[Problem, Resolved]:
    """The problem, with a limit for each of its independent problems, and its constraints with names."""
    shared = {name: getattr(settings, name) for name in ("gamma", "sparsity", "fit_intercept", "standardize")}
    constraints = resolve(settings.parameters, features, c)
    problem = Problem(loss, (1,), constraints=constraints.constraints, **shared)
    limits = Limits.of(problem, constraints, features.count, c)
    return replace(problem, kappa=(limits.read_kappa(settings.kappa),) * limits.items.problems), constraints
