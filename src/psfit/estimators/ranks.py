"""A fit on the ranks of an engine such as Spark, Dask or Ray: every rank holds some partitions of the samples, or none.

The engine's package starts the ranks, connects them (`psfit.comm.meeting`) and calls `fit_rank` on each; what comes
back goes to `read_outcomes`, where the user is: the model, or the error of the rank that failed.
"""

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning

from psfit.comm import Grid, GridSpec, PeerLostError, RemoteError
from psfit.comm.row_holders import keep_row_holders
from psfit.data import TableSource
from psfit.estimators.model import SparseModel

# Where a larger share of the entries is stored than this, a dense matrix is not larger than a sparse one.
MOST_STORED = 0.5
# The parts of a partition, and how messages name them.
NAMES = {"X": "X", "y": "y", "weight": "sample_weight", "offset": "offset"}


@dataclass(frozen=True)
class Partition:
    """Samples that lie together: X is an array, a table or a sparse matrix."""

    X: Any
    y: Any
    weight: Any = None
    offset: Any = None


@dataclass(frozen=True)
class Outcome:
    """What a rank gives back: the first rank with samples the pickled model, a rank that failed its error."""

    rank: int
    model: bytes | None = None
    failure: Exception | None = None


def spec_for_ranks(estimator: SparseModel) -> GridSpec:
    """The grid to build on each rank of an engine: that of the estimator, connected by torch.distributed."""
    asked = estimator.grid
    if isinstance(asked, Grid):
        raise TypeError("grid: a grid that was built belongs to the ranks that built it; pass a GridSpec")
    spec = asked or GridSpec()
    if spec.backend not in ("auto", "torch"):
        raise ValueError(f"grid: backend={spec.backend!r}, but the engine connects the ranks; leave it 'auto'")
    if spec.blocks != 1:
        raise ValueError(f"grid: blocks={spec.blocks}, but each row is on one rank only; use blocks=1")
    return spec


def fit_rank(
    estimator: SparseModel,
    spec: GridSpec,
    gather: Callable[[], Sequence[Partition]],
    rank: int = 0,
    rules: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
) -> Outcome:
    """Fit the estimator to the partitions of all ranks; all of them must call this, with their own partitions.

    With `rules`, the arguments of a `TableSource`, the partitions are tables that are read by these rules. `names` are
    those of the columns of arrays.
    """
    grid = spec.build()
    partitions = grid.run_together(gather)
    samples = grid.run_together(lambda: join_partitions(partitions))
    holders = keep_row_holders(grid, 0 if samples is None else samples.X.shape[0])
    if samples is None or holders is None:
        return Outcome(rank)
    X = name_columns(_store_alike(samples.X, holders), names) if rules is None else TableSource(samples.X, **rules)
    with warnings.catch_warnings():
        # The user gets it where the model is read.
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.set_params(grid=holders).fit(X, samples.y, samples.weight, offset=samples.offset)
    estimator.set_params(grid=spec, callback=None)
    return Outcome(rank, pickle.dumps(estimator) if holders.world.rank == 0 else None)


def keep_failure(rank: int, work: Callable[[], Outcome]) -> Outcome:
    """The outcome of a rank's work. An error becomes a part of it, so that engines do not try in vain again."""
    try:
        return work()
    except Exception as error:
        return Outcome(rank, failure=_portable(error))


def read_outcomes(outcomes: Sequence[Outcome], places: Sequence[str]) -> SparseModel:
    """The model of all ranks; raises the error of the rank that failed, with a note that names its place."""
    failures = {outcome.rank: outcome.failure for outcome in outcomes if outcome.failure is not None}
    if failures:
        rank = find_cause(failures)
        failures[rank].add_note(f"on rank {rank} of {len(places)}: {places[rank]}")
        raise failures[rank]
    model: SparseModel = pickle.loads(next(outcome.model for outcome in outcomes if outcome.model is not None))
    concerns = list(dict.fromkeys(model.result_.concerns))
    if concerns:
        warnings.warn("; ".join(concerns), ConvergenceWarning, stacklevel=4)
    return model


def find_cause(failures: Mapping[int, Exception]) -> int:
    """The rank that has failed by itself; the others only tell that another rank has."""
    return min(failures, key=lambda rank: isinstance(failures[rank], (RemoteError, PeerLostError)))


def join_partitions(partitions: Sequence[Partition]) -> Partition | None:
    """All samples of a rank in one partition; None if it has none."""
    held = [part for part in partitions if _count_rows(part) > 0]
    if not held:
        return None
    return Partition(**{field: _stack([getattr(part, field) for part in held], name) for field, name in NAMES.items()})


def _count_rows(part: Partition) -> int:
    rows = part.X.shape[0]
    for field, name in NAMES.items():
        values = getattr(part, field)
        if field != "X" and values is not None and len(values) != rows:
            raise ValueError(
                f"{name} has {len(values)} entries in a partition where X has {rows} rows; divide them alike"
            )
    return int(rows)


def _stack(parts: list[Any], name: str) -> Any:
    """Arrays, tables or sparse matrices below one another; columns must be the same in the same order."""
    first = parts[0]
    if len(parts) == 1 or first is None:
        return first
    if hasattr(first, "iloc"):
        import pandas as pd

        for part in parts[1:]:
            require_same_columns(list(getattr(first, "columns", [])), list(getattr(part, "columns", [])), name)
        return pd.concat(parts, ignore_index=True)
    if any(part.shape[1:] != first.shape[1:] for part in parts):
        widths = sorted({part.shape[1] if part.ndim > 1 else 1 for part in parts})
        raise ValueError(
            f"{name} has partitions with {' and '.join(map(str, widths))} columns; they must have the same"
        )
    if any(scipy.sparse.issparse(part) for part in parts):
        return scipy.sparse.vstack([scipy.sparse.csr_matrix(part) for part in parts], "csr")
    return np.concatenate(parts)


def require_same_columns(first: list[Any], other: list[Any], name: str) -> None:
    """Refuse a partition whose columns are not those of the first one."""
    if first == other:
        return
    if len(first) != len(other):
        raise ValueError(f"{name} has partitions with {len(first)} and {len(other)} columns; they must have the same")
    place = next(k for k, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
    raise ValueError(
        f"{name} has partitions whose columns differ: column {place} is {first[place]!r} in one, {other[place]!r} in "
        "another; give all of them the same columns in the same order"
    )


def _store_alike(X: Any, grid: Grid) -> Any:
    """X as all ranks store it: where one of them has a sparse matrix, all do, unless most entries are stored anyway."""
    sparse = scipy.sparse.issparse(X)
    stored = X.nnz if sparse else X.shape[0] * X.shape[1]
    counts = torch.tensor([float(sparse), stored, X.shape[0] * X.shape[1]], dtype=torch.float64)
    ranks, entries, cells = grid.total(counts).tolist()
    if ranks == 0:
        return X
    if entries > MOST_STORED * cells:
        return X.toarray() if sparse else X
    return X if sparse else scipy.sparse.csr_matrix(np.asarray(X))


def name_columns(X: Any, names: Sequence[str] | None) -> Any:
    """An array as a table with these names of columns; a sparse matrix stays as it is."""
    if names is None or not isinstance(X, np.ndarray):
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(names))


def _portable(error: Exception) -> Exception:
    """The error itself if it survives the way to the user, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
