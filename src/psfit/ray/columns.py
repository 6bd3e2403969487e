"""The columns of a Ray dataset: which are features, which is the target, which is the weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.estimators.ranks import Partition


@dataclass(frozen=True)
class Columns:
    """Names of columns; features are all others if they have no names, and one name is a column of arrays.

    `known` are those of the whole dataset, in case that features have no names.
    """

    label: str
    features: str | Sequence[str] | None = None
    weight: str | None = None
    offset: str | None = None
    known: Sequence[str] = ()

    def check(self, dataset: Any) -> list[str]:
        """The names of all columns; refuses a dataset without one that is named."""
        schema = dataset.schema()
        names = [] if schema is None else list(schema.names)
        for argument, name in self._list_named():
            if name not in names:
                raise ValueError(f"{argument}={name!r}: there is no such column; there are {', '.join(names[:20])}")
        return names

    def _list_named(self) -> list[tuple[str, str]]:
        """Arguments, and the columns that they name."""
        features = [self.features] if isinstance(self.features, str) else self.features or []
        others = [(argument, getattr(self, argument)) for argument in ("label", "weight", "offset")]
        return [(argument, name) for argument, name in others if name is not None] + [("features", f) for f in features]

    def _require_all(self, names: list[str]) -> None:
        """Refuse a block with other columns: Ray only knows those of the first."""
        missing = [name for _, name in self._list_named() if name not in names]
        if self.features is None and self.known:
            missing += [name for name in self.known if name not in names and name not in missing]
            more = [name for name in names if name not in self.known]
            if more and not missing:
                raise ValueError(f"dataset: a block has the column {more[0]!r}, which others do not have")
        if missing:
            raise ValueError(
                f"dataset: a block does not have the column {missing[0]!r}; it has {', '.join(names[:20])}"
            )

    def read(self, batch: Any) -> Partition:
        """A batch, which is a pandas table, as samples."""
        self._require_all(list(batch.columns))
        features = read_features(batch, self.features, (self.label, self.weight, self.offset))
        weight, offset = (read_numbers(batch, name) for name in (self.weight, self.offset))
        return Partition(features, batch[self.label].to_numpy(), weight, offset)


def read_numbers(batch: Any, name: str | None) -> Any:
    """A column of numbers; of arrays, one for each output."""
    if name is None:
        return None
    values = batch[name].to_numpy()
    return np.stack(values) if values.dtype == object and len(values) else values


def read_features(batch: Any, features: str | Sequence[str] | None, others: Sequence[str | None] = ()) -> Any:
    """The features of a batch: a table with the names of the columns, or an array from a column of arrays."""
    if isinstance(features, str):
        rows = [np.asarray(row, dtype=np.float64) for row in batch[features]]
        lengths = sorted({row.size for row in rows})
        if len(lengths) > 1:
            raise ValueError(f"{features!r} has {' and '.join(map(str, lengths))} entries in different rows")
        return np.stack(rows) if rows else np.zeros((0, 0))
    return batch[[name for name in batch.columns if name not in others] if features is None else list(features)]
