"""What the rules of a fit change in a table: missing cells that are filled, and levels that the fit did not see."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from psfit.comm import Grid
from psfit.common.names import list_names
from psfit.data.io import ReadRequest
from psfit.data.sample_source import SampleSource
from psfit.data.schema import Column, Schema

# The most columns, and the most levels of one, that a text lists.
MOST_COLUMNS, MOST_LEVELS = 8, 3


@dataclass(frozen=True)
class Changes:
    """How many cells of all nodes are changed.

    Parameters
    ----------
    filled : dict of int
        Missing cells, by column.
    new : dict of dict of int
        Cells with levels that the fit did not see, by column and level.
    """

    filled: dict[str, int] = field(default_factory=dict)
    new: dict[str, dict[str, int]] = field(default_factory=dict)

    def sentences(self, schema: Schema) -> list[str]:
        """What was changed, and into what, in words."""
        known = {column.name: column for column in schema.columns}
        found = []
        if self.filled:
            parts = [f"{name} ({count:,}, with {describe_fill(known[name])})" for name, count in self.filled.items()]
            cells, columns = sum(self.filled.values()), len(self.filled)
            found.append(
                f"filled {cells:,} missing cell{'s' * (cells != 1)} in {columns:,} column{'s' * (columns != 1)}: "
                f"{list_names(parts, MOST_COLUMNS)}"
            )
        if self.new:
            parts = [
                f"{name} ({sum(levels.values()):,}: {list_names(map(repr, levels), MOST_LEVELS)})"
                for name, levels in self.new.items()
            ]
            cells = sum(sum(levels.values()) for levels in self.new.values())
            verb = "has a level" if cells == 1 else "have levels"
            found.append(
                f"{cells:,} cell{'s' * (cells != 1)} {verb} that the fit did not see, and count as none of the levels: "
                f"{list_names(parts, MOST_COLUMNS)}"
            )
        return found


def describe_fill(column: Column) -> str:
    """What takes the place of a missing cell, in words."""
    made = [
        (one, value) for one, value in zip(column.features, column.fill or (), strict=False) if one.part != "missing"
    ]
    if column.kind == "boolean":
        return str(bool(made[0][1]))
    if column.kind == "number":
        return f"{made[0][1]:.6g}"
    levels = [(one.part, one.level) for one, value in made if one.level is not None and value == 1]
    if column.kind == "category":
        return repr(levels[0][1]) if levels else "none of the levels that are used"
    parts = [f"{one.part} {value:.6g}" for one, value in made if one.level is None]
    return " and ".join(parts + [f"{part} {level}" for part, level in levels])


def count_changes(source: SampleSource, schema: Schema | None, features: Sequence[str], grid: Grid) -> Changes:
    """Count the cells that a fit with this schema changes in the columns of some features; this reads them once.

    All ranks must call this. They exchange counts, and the levels that are new.
    """
    columns = {} if schema is None else {column.name: column for column in schema.columns}
    needed = () if schema is None or not columns else {one.column for one in schema.features(features, exact=True)}
    ruled = sorted(name for name in needed if _has_rules(columns[name]))
    if schema is None or not ruled:
        return Changes()
    names = tuple(one.name for one in schema.features() if one.column in ruled)
    rules = source.choose_rules(schema, fitted=True)
    wanted = ReadRequest(columns=names, rules=rules, labelled=False, schema=schema, fitted=True)
    filled: Counter[str] = Counter()
    new: Counter[tuple[str, str]] = Counter()

    def count() -> None:
        for file, start, stop in source.pieces(wanted, grid):
            for name, (missing, levels) in file.count_changes(start, stop, schema).items():
                filled[name] += missing
                new.update({(name, level): cells for level, cells in levels.items()})

    grid.run_together(count)
    gathered = (json.loads(other) for other in grid.world.all_gather(json.dumps(sorted(new)).encode()))
    pairs = sorted({(name, level) for other in gathered for name, level in other})
    counts = [*(filled[name] for name in ruled), *(new[pair] for pair in pairs)]
    total = grid.nodes.total(torch.tensor(counts, dtype=torch.float64)).cpu().numpy().astype(np.int64).tolist()
    levels: dict[str, dict[str, int]] = {}
    for (name, level), cells in zip(pairs, total[len(ruled) :], strict=True):
        levels.setdefault(name, {})[level] = cells
    return Changes({name: cells for name, cells in zip(ruled, total, strict=False) if cells}, levels)


def _has_rules(column: Column) -> bool:
    """Whether something may be changed in a column."""
    return column.missing != "refuse" or (column.kind == "category" and column.new_levels == "zero")
