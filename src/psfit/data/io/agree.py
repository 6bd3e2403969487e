"""What all files of all ranks make of their columns: kinds and levels that no single file knows."""

import hashlib
import json
from collections.abc import Iterable, Mapping

from psfit.comm import Grid
from psfit.data.io.base import DataFile, DataFileError, Possible
from psfit.data.schema import KINDS, Column, Kind, Schema

UNLIKE = (
    "path: the files differ in their columns, in their order, or in their targets and sample weights; all must be alike"
)
DIGEST = hashlib.sha256().digest_size
# Ranges of files: the samples of a rank.
Pieces = list[tuple[DataFile, int, int]]


def learn(pieces: Pieces, grid: Grid) -> Schema:
    """The schema of all ranks' samples, the same on every rank; empty for formats whose columns have no kinds.

    A column is what all of its cells can be: numbers, else booleans, else a category. All ranks must call this.
    """
    local = grid.together(lambda: _merge([file.possible(start, stop) for file, start, stop in pieces]))
    found = _merge([_unpacked(payload, local) for payload in grid.world.all_gather(_packed(local))])
    if found is None:
        return Schema()
    kinds = {name: possible[0] for name, possible in found.columns.items()}
    levels = _all_levels(pieces, [name for name, kind in kinds.items() if kind == "category"], grid)
    columns = tuple(Column(name, kind, tuple(levels.get(name, ()))) for name, kind in kinds.items())
    return Schema(columns, found.target[0] if found.target else None, target_name=found.target_name)


def _merge(found: list[Possible | None]) -> Possible | None:
    """What is possible everywhere; a category is possible wherever the readers let text pass."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    first = known[0]
    alike = all(list(one.columns) == list(first.columns) for one in known)
    # By default the target is the last column, which may be another in each file.
    if len(known) < len(found) or not alike or len({one.target_name for one in known}) > 1:
        raise DataFileError(UNLIKE)
    columns = {name: _common(one.columns[name] for one in known) for name in first.columns}
    target = None if first.target is None else _common(one.target or () for one in known)
    return Possible(columns, target, first.target_name)


def _common(several: Iterable[tuple[Kind, ...]]) -> tuple[Kind, ...]:
    shared = set(KINDS).intersection(*several)
    return tuple(kind for kind in KINDS if kind in shared)


def _all_levels(pieces: Pieces, names: list[str], grid: Grid) -> dict[str, list[str]]:
    """The sorted levels of all ranks; only the levels themselves are exchanged."""
    if not names:
        return {}
    local = grid.together(lambda: _union(file.levels(start, stop, names) for file, start, stop in pieces))
    payload = json.dumps({name: sorted(found) for name, found in local.items()}).encode()
    gathered = (json.loads(other) for other in grid.world.all_gather(payload))
    return {name: sorted(found) for name, found in _union(gathered).items()}


def _union(several: Iterable[Mapping[str, Iterable[str]]]) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for one in several:
        for name, found in one.items():
            merged.setdefault(name, set()).update(found)
    return merged


def _packed(found: Possible | None) -> bytes:
    """Short, as tables may have very many columns: a digest of all names, and a digit for the kinds of each."""
    if found is None:
        return b""
    digest = hashlib.sha256(json.dumps([*found.columns, found.target_name]).encode()).digest()
    digits = "".join(map(_digit, found.columns.values())) + ("-" if found.target is None else _digit(found.target))
    return digest + digits.encode()


def _unpacked(payload: bytes, local: Possible | None) -> Possible | None:
    """What another rank found; its columns and its target must have the names of this rank's."""
    if not payload:
        return None
    if local is None or payload[:DIGEST] != _packed(local)[:DIGEST]:
        raise DataFileError(UNLIKE)
    digits, target = payload[DIGEST:-1].decode(), payload[-1:].decode()
    columns = {name: _kinds(digit) for name, digit in zip(local.columns, digits, strict=True)}
    return Possible(columns, None if target == "-" else _kinds(target), local.target_name)


def _digit(kinds: tuple[Kind, ...]) -> str:
    return str(sum(1 << k for k, kind in enumerate(KINDS) if kind in kinds))


def _kinds(digit: str) -> tuple[Kind, ...]:
    return tuple(kind for k, kind in enumerate(KINDS) if int(digit) >> k & 1)
