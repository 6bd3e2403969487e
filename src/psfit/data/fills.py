"""Values in place of missing ones: the median of numbers, the most frequent level, learned from all nodes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from psfit.comm import Grid
from psfit.data.matrix import Dense, DesignMatrix
from psfit.data.schema import Feature, Schema, SchemaError
from psfit.data.streamed import BLOCK_BYTES, ArrayRows, RowReader, Streamed
from psfit.data.table_rules import option


class FilledRows(RowReader):
    """Rows whose NaN in column j are replaced by ``fills[j]``."""

    def __init__(self, rows: RowReader, fills: np.ndarray) -> None:
        self.rows, self.fills = rows, fills
        self.shape, self.dtype, self.readers = rows.shape, rows.dtype, rows.readers

    def read(self, start: int, stop: int) -> np.ndarray:
        values = self.rows.read(start, stop)
        gaps = np.isnan(values)
        return np.where(gaps, self.fills.astype(values.dtype), values) if gaps.any() else values


@dataclass(frozen=True)
class Gaps:
    """Where the features of this rank's samples were missing: entry k is in row ``rows[k]`` and column ``columns[k]``.

    `features` are those of all columns, and `booleans` their names that hold True and False.
    """

    rows: np.ndarray
    columns: np.ndarray
    features: tuple[Feature, ...]
    booleans: frozenset[str]


@dataclass(frozen=True)
class FeatureValues:
    """The values of one feature that are not missing."""

    feature: Feature
    values: np.ndarray


def learn_fills(rows: RowReader, schema: Schema, names: Sequence[str], budget: int, grid: Grid) -> tuple[Schema, Gaps]:
    """The schema with the values that fill missing ones, and where values are missing on this rank.

    All ranks must call this. Values of single samples do not leave a rank; counts of them do. Only as many columns are
    kept at a time as the budget allows, in bytes.
    """
    every = schema.features()
    chosen = [{feature.name: feature for feature in every}[name] for name in names]
    booleans = frozenset(column.name for column in schema.columns if column.kind == "boolean")
    refusing = {column.name for column in schema.columns if column.missing == "refuse"}
    wanted = [j for j, feature in enumerate(chosen) if feature.column not in refusing]
    most = int(grid.nodes.maximum(torch.tensor([float(rows.shape[0])], dtype=torch.float64)))
    width = max(1, budget // max(1, 8 * most))
    places = _find_gaps(rows, grid)
    values: dict[str, float] = {}
    # Levels of one thing must be compared with each other, so a group is not divided.
    for at in _divide(wanted, [chosen[j].group for j in wanted], width):
        values |= find_fills(_known_values(rows, at, chosen, None, grid), booleans, grid)
    # Features that are not used need no fill: nothing of them is read.
    used = dict.fromkeys((feature.name for feature in every), 0.0) | values
    return schema.with_fills(used), Gaps(*places, tuple(chosen), booleans)


def _known_values(
    rows: RowReader, columns: list[int], features: Sequence[Feature], mask: np.ndarray | None, grid: Grid
) -> list[FeatureValues]:
    """The values of some columns that are not missing."""
    table = grid.run_together(lambda: _read_columns(rows, columns, mask))
    return [FeatureValues(features[j], one[~np.isnan(one)]) for j, one in zip(columns, table, strict=True)]


def _divide(places: list[int], groups: list[str], width: int) -> list[list[int]]:
    """Parts of about `width` places; places of one group, which are neighbours, stay together."""
    parts: list[list[int]] = []
    for k, (place, group) in enumerate(zip(places, groups, strict=True)):
        if not parts or (len(parts[-1]) >= width and group != groups[k - 1]):
            parts.append([])
        parts[-1].append(place)
    return parts


def _blocks(rows: RowReader) -> Iterator[tuple[int, np.ndarray]]:
    height = max(1, BLOCK_BYTES // max(1, rows.shape[1] * rows.dtype.itemsize))
    for start in range(0, rows.shape[0], height):
        yield start, rows.read(start, min(start + height, rows.shape[0]))


def _find_gaps(rows: RowReader, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """The rows and the columns of the values that are missing."""

    def find() -> tuple[np.ndarray, np.ndarray]:
        found = [np.argwhere(np.isnan(block)) + np.array([start, 0]) for start, block in _blocks(rows)]
        at = np.concatenate(found) if found else np.empty((0, 2), int)
        return at[:, 0], at[:, 1]

    return grid.run_together(find)


def _read_columns(rows: RowReader, columns: list[int], mask: np.ndarray | None) -> list[np.ndarray]:
    """Some columns of all rows, or of those that a mask marks."""
    parts = []
    for start, block in _blocks(rows):
        part = block[:, columns].astype(np.float64)
        parts.append(part if mask is None else part[mask[start : start + len(block)]])
    return list(np.concatenate(parts).T) if parts else [np.empty(0) for _ in columns]


def find_fills(known: Sequence[FeatureValues], booleans: frozenset[str], grid: Grid) -> dict[str, float]:
    """For each feature the value in place of a missing one; all ranks must call this with the same features."""
    found: dict[str, float] = {}
    levels = [one for one in known if one.feature.level is not None]
    flags = [one for one in known if one.feature.part is None and one.feature.name in booleans]
    numbers = [one for one in known if _is_number(one.feature) and one.feature.name not in booleans]
    sums = _total([one.values.sum() for one in levels + flags], grid)
    counts = _total([float(len(one.values)) for one in levels + flags], grid)
    groups: dict[str, list[int]] = {}
    for k, one in enumerate(levels):
        groups.setdefault(one.feature.group, []).append(k)
        _require_values(one.feature, counts[k])
    for members in groups.values():
        best = max(members, key=lambda k: sums[k])
        # If only some levels are used, those that are not may be more frequent.
        others = counts[members[0]] - sum(sums[k] for k in members)
        found |= {levels[k].feature.name: float(k == best and sums[k] >= others) for k in members}
    for k, one in enumerate(flags, len(levels)):
        _require_values(one.feature, counts[k])
        found[one.feature.name] = float(2 * sums[k] > counts[k])
    for one, value in zip(numbers, medians([one.values for one in numbers], grid), strict=True):
        if np.isnan(value):
            _require_values(one.feature, 0)
        found[one.feature.name] = float(value)
    found |= {one.feature.name: 1.0 for one in known if one.feature.part == "missing"}
    return found


def _is_number(feature: Feature) -> bool:
    return feature.level is None and feature.part != "missing"


def _require_values(feature: Feature, count: float) -> None:
    if not count:
        raise SchemaError(
            f"column {feature.column!r} has no value at all, so nothing can fill it; use "
            f"{option('exclude', feature.column)}"
        )


def _total(values: Iterable[float], grid: Grid) -> np.ndarray:
    return np.asarray(grid.nodes.total(torch.tensor(list(values), dtype=torch.float64)).cpu().numpy())


def medians(columns: Sequence[np.ndarray], grid: Grid) -> np.ndarray:
    """The median of each column over all nodes, exactly; NaN where no node has a value.

    Floating-point numbers are in the order of their bits, read as integers. The middle ones are found by bisection of
    these integers: the nodes exchange only how many of their values lie below.
    """
    keys = [np.sort(_to_keys(column)) for column in columns]
    counts = _total([float(len(column)) for column in columns], grid).astype(np.int64)
    if not len(counts):
        return np.empty(0)
    middle = np.concatenate([(counts - 1) // 2, counts // 2])
    low = np.full(2 * len(keys), np.iinfo(np.int64).min)
    high = np.full(2 * len(keys), np.iinfo(np.int64).max)
    for _ in range(64):
        # The mean of both ends, rounded down, without overflow.
        centre = (low & high) + ((low ^ high) >> 1)
        below = [np.searchsorted(keys[k % len(keys)], one, side="right") for k, one in enumerate(centre)]
        enough = _total(map(float, below), grid) > middle
        low, high = np.where(enough, low, centre + 1), np.where(enough, centre, high)
        low = np.minimum(low, high)
    values = _from_keys(high).reshape(2, len(keys))
    return np.where(counts > 0, values.mean(axis=0), np.nan)


def _to_keys(values: np.ndarray) -> np.ndarray:
    bits = (values.astype(np.float64) + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


def _from_keys(keys: np.ndarray) -> np.ndarray:
    return np.where(keys < 0, keys ^ np.iinfo(np.int64).max, keys).view(np.float64)


def refill(matrix: Any, gaps: Gaps, train: np.ndarray, grid: Grid) -> DesignMatrix:
    """The same matrix with missing values filled as the samples of a mask ``(m,)`` suggest.

    All ranks must call this.
    """
    marks = torch.zeros(len(gaps.features), dtype=torch.float64)
    marks[torch.from_numpy(np.unique(gaps.columns))] = 1.0
    # All ranks must fill the same columns.
    shared = grid.nodes.maximum(marks).nonzero().flatten().tolist()
    rows = _raw_rows(matrix, gaps)
    found = find_fills(_known_values(rows, shared, gaps.features, train, grid), gaps.booleans, grid)
    fills = np.array([found.get(feature.name, np.nan) for feature in gaps.features])
    if isinstance(matrix, Streamed):
        return Streamed(FilledRows(rows, fills), matrix.device, matrix.dtype, matrix.budget, transfers=matrix.transfers)
    values = matrix.values.clone()
    places = torch.from_numpy(gaps.rows).to(values.device), torch.from_numpy(gaps.columns).to(values.device)
    values[places] = torch.from_numpy(fills[gaps.columns]).to(values)
    return Dense(values)


def _raw_rows(matrix: Any, gaps: Gaps) -> RowReader:
    """The rows with NaN where values are missing."""
    if isinstance(matrix, Streamed):
        filled: Any = matrix.source
        return filled.rows
    values = matrix.values.cpu().numpy().copy()
    values[gaps.rows, gaps.columns] = np.nan
    return ArrayRows(values)
