"""Reading samples from files: ``.npz`` with arrays X and y, or ``.csv`` with a header."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from psfit.comm import Grid, even_bounds


@dataclass(frozen=True)
class Table:
    """Samples by features, with the target and weights if the file has them."""

    X: np.ndarray
    y: np.ndarray | None
    weight: np.ndarray | None
    names: tuple[str, ...] | None


def read_share(files: list[Path], target: str | None, grid: Grid) -> Table:
    """The samples of this rank: its share of the files, or of the rows if there is only one file."""
    if len(files) == 1:
        table = read(files[0], target)
        return _rows(table, grid.rows(len(table.X)))
    ranks, rank = grid.nodes.comm.size, grid.nodes.comm.rank
    if len(files) < ranks:
        raise ValueError(f"DATA: {len(files)} files are fewer than the {ranks} ranks; give one file, or one a rank")
    bounds = even_bounds(len(files), ranks)
    return _joined([read(path, target) for path in files[bounds[rank] : bounds[rank + 1]]])


def read(path: Path, target: str | None) -> Table:
    """One file with its target."""
    if _is_npz(path):
        arrays = _arrays(path)
        if "y" not in arrays:
            raise ValueError(f"DATA: {path} has no array 'y'")
        return Table(arrays["X"], arrays["y"], arrays.get("sample_weight"), None)
    header, cells = _cells(path)
    name = target or header[-1]
    at = _position(name, header, path)
    names = tuple(other for other in header if other != name)
    return Table(_features(header, cells, names, path), _labels(cells[:, at]), None, names)


def read_features(path: Path, names: tuple[str, ...]) -> np.ndarray:
    """The features of one file; those of a ``.csv`` by name, whatever else it holds."""
    if _is_npz(path):
        return _arrays(path)["X"]
    header, cells = _cells(path)
    return _features(header, cells, names or tuple(header), path)


def _is_npz(path: Path) -> bool:
    if not path.is_file():
        raise ValueError(f"DATA: there is no file {path}")
    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"DATA: {path} is neither .npz nor .csv")
    return path.suffix == ".npz"


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in ("X", "y", "sample_weight") if name in arrays.files}
    if "X" not in found:
        raise ValueError(f"DATA: {path} has no array 'X'")
    return found


def _cells(path: Path) -> tuple[list[str], np.ndarray]:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        cells = [row for row in rows if row]
    uneven = [k for k, row in enumerate(cells) if len(row) != len(header)]
    if uneven or not cells:
        where = f"row {uneven[0] + 2} has {len(cells[uneven[0]])}" if uneven else "there are none"
        raise ValueError(f"DATA: {path} needs a header and rows of {len(header)} cells each; {where}")
    return header, np.array(cells, dtype=str)


def _features(header: list[str], cells: np.ndarray, names: tuple[str, ...], path: Path) -> np.ndarray:
    columns = [_numbers(cells[:, _position(name, header, path)], path, name) for name in names]
    return np.stack(columns, axis=1)


def _position(name: str, header: list[str], path: Path) -> int:
    if name not in header:
        raise ValueError(f"DATA: {path} has no column {name!r}; its columns are {', '.join(header[:20])}")
    return header.index(name)


def _numbers(cells: np.ndarray, path: Path, column: str) -> np.ndarray:
    try:
        return np.where(cells == "", "nan", cells).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"DATA: column {column!r} of {path} is not numeric ({error})") from None


def _labels(cells: np.ndarray) -> np.ndarray:
    """Numbers where all cells are numbers, else text."""
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells


def _rows(table: Table, at: slice) -> Table:
    part = [None if array is None else array[at] for array in (table.y, table.weight)]
    return Table(table.X[at], part[0], part[1], table.names)


def _joined(tables: list[Table]) -> Table:
    if len({table.names for table in tables}) > 1:
        raise ValueError("DATA: the files have different columns")
    parts: list[np.ndarray | None] = []
    for arrays in ([table.y for table in tables], [table.weight for table in tables]):
        known = [array for array in arrays if array is not None]
        if known and len(known) < len(tables):
            raise ValueError("DATA: some of the files have sample weights or targets, others have none")
        parts.append(np.concatenate(known) if known else None)
    return Table(np.concatenate([table.X for table in tables]), parts[0], parts[1], tables[0].names)
