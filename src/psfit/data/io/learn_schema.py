"""The kinds and levels of the columns, learned from all files of all ranks."""

import hashlib
import json
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from psfit.comm import Grid
from psfit.data.io.base import ColumnError, DataFile, DataFileError, DataWarning, PossibleKinds
from psfit.data.schema import KINDS, Column, Kind, Schema
from psfit.data.table_rules import TableRules

if TYPE_CHECKING:
    from psfit.data.io.free_text import Texts

FILES_DIFFER = (
    "path: the files differ in their columns, in their order, or in their targets, sample weights and offsets; all "
    "must be the same"
)
DIGEST = hashlib.sha256().digest_size
# The samples of a rank: files, each with a range.
Pieces = list[tuple[DataFile, int, int]]


def learn_schema(pieces: Pieces, grid: Grid, rules: TableRules | None = None) -> Schema:
    """The schema of the samples of all ranks, the same on every rank; empty for formats whose columns have no kinds.

    A column has the first kind that all of its cells allow: number, boolean, date, category. All ranks must call this.
    """
    local = grid.run_together(lambda: _merge([file.possible_kinds(start, stop) for file, start, stop in pieces]))
    found = _merge([_unpack_kinds(payload, local) for payload in grid.world.all_gather(_pack_kinds(local))])
    if found is None:
        return Schema()
    rules = rules or TableRules()
    kinds = {name: possible[0] for name, possible in found.columns.items()}
    texts = _gather_texts(pieces, [name for name, kind in kinds.items() if kind == "category"], grid)
    _check_texts(pieces, texts, grid)
    gaps = _gather_gaps(pieces, list(kinds), grid) if rules.missing == "indicator" else set()
    columns = [
        Column(
            name,
            kind,
            texts[name].levels if name in texts else (),
            rules.dates if kind == "date" else (),
            "fill" if rules.missing == "indicator" and name not in gaps else rules.missing,
            new_levels=rules.new_levels,
            single=kind == "category" and rules.categories == "columns",
        )
        for name, kind in kinds.items()
    ]
    columns += [Column(name, kind) for name, kind in _gather_unused(local, grid).items() if name not in kinds]
    return Schema(tuple(columns), found.target[0] if found.target else None, target_name=found.target_name)


def _gather_unused(local: PossibleKinds | None, grid: Grid) -> dict[str, Kind]:
    """The columns that give no features, of all ranks."""
    payload = json.dumps({} if local is None else local.unused).encode()
    found: dict[str, Kind] = {}
    for other in grid.world.all_gather(payload):
        found |= json.loads(other)
    return found


def _gather_gaps(pieces: Pieces, names: list[str], grid: Grid) -> set[str]:
    """The columns that have a missing value on some rank."""
    local = grid.run_together(
        lambda: set().union(*(file.columns_with_gaps(start, stop, names) for file, start, stop in pieces))
    )
    return set().union(*(json.loads(other) for other in grid.world.all_gather(json.dumps(sorted(local)).encode())))


def _merge(found: list[PossibleKinds | None]) -> PossibleKinds | None:
    """The kinds that are possible in all files."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    first = known[0]
    same_names = all(list(one.columns) == list(first.columns) for one in known)
    # By default the target is the last column; the last column may have another name in each file.
    if len(known) < len(found) or not same_names or len({one.target_name for one in known}) > 1:
        raise DataFileError(FILES_DIFFER)
    columns = {name: _common(name, [one.columns[name] for one in known]) for name in first.columns}
    target = None if first.target is None else _common(str(first.target_name), [one.target or () for one in known])
    unused: dict[str, Kind] = {}
    for one in known:
        unused |= one.unused
    return PossibleKinds(columns, target, first.target_name, unused)


def _common(name: str, several: list[tuple[Kind, ...]]) -> tuple[Kind, ...]:
    """The kinds that all files allow for a column."""
    shared = set(KINDS).intersection(*several)
    if not shared:
        found = " and ".join(sorted({kinds[0] for kinds in several}))
        raise DataFileError(f"path: column {name!r} holds {found} in different files; write it in the same way in all")
    return tuple(kind for kind in KINDS if kind in shared)


def _gather_texts(pieces: Pieces, names: list[str], grid: Grid) -> "dict[str, Texts]":
    """The texts of some columns of all ranks; the ranks exchange only different texts and counts of cells."""
    if not names:
        return {}
    from psfit.data.io.free_text import Texts

    def count() -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {name: Counter() for name in names}
        for file, start, stop in pieces:
            for name, counts in file.count_levels(start, stop, names).items():
                found[name].update(counts)
        return found

    local = [Texts.of(counts) for counts in grid.run_together(count).values()]
    payload = json.dumps([(sorted(one.levels), one.cells, one.numbers) for one in local]).encode()
    gathered = [json.loads(other) for other in grid.world.all_gather(payload)]
    return {name: Texts.union([Texts(*other[k]) for other in gathered]) for k, name in enumerate(names)}


def _check_texts(pieces: Pieces, texts: "dict[str, Texts]", grid: Grid) -> None:
    """Refuse columns of text that are no categories; warn of categories that are perhaps numbers."""
    if not texts:
        return
    from psfit.data.io.free_text import explain_mixed, explain_no_category

    paths = {file.path for file, _, _ in pieces}
    where = paths.pop() if len(paths) == 1 else None

    def check() -> None:
        for name, found in texts.items():
            path = where or pieces[0][0].path
            if found.is_free or found.is_mistaken:
                raise ColumnError(f"{where or 'path'}: {explain_no_category(path, name, found)}")
            if found.is_doubtful and grid.world.rank == 0:
                use = f"column {name!r} is used as a category of {len(found.levels):,} levels"
                warnings.warn(f"{path}: {use}: {explain_mixed(path, found)}", DataWarning, stacklevel=2)

    grid.run_together(check)


def _pack_kinds(found: PossibleKinds | None) -> bytes:
    """A short message, since tables may have many columns: a digest of all names, and a digit for each column."""
    if found is None:
        return b""
    digest = hashlib.sha256(json.dumps([*found.columns, found.target_name]).encode()).digest()
    digits = "".join(map(_digit, found.columns.values())) + ("-" if found.target is None else _digit(found.target))
    return digest + digits.encode()


def _unpack_kinds(payload: bytes, local: PossibleKinds | None) -> PossibleKinds | None:
    """The kinds that another rank found; its columns and its target must have the same names as here."""
    if not payload:
        return None
    if local is None or payload[:DIGEST] != _pack_kinds(local)[:DIGEST]:
        raise DataFileError(FILES_DIFFER)
    digits, target = payload[DIGEST:-1].decode(), payload[-1:].decode()
    columns = {name: _kinds(digit) for name, digit in zip(local.columns, digits, strict=True)}
    return PossibleKinds(columns, None if target == "-" else _kinds(target), local.target_name, local.unused)


def _digit(kinds: tuple[Kind, ...]) -> str:
    return f"{sum(1 << k for k, kind in enumerate(KINDS) if kind in kinds):x}"


def _kinds(digit: str) -> tuple[Kind, ...]:
    return tuple(kind for k, kind in enumerate(KINDS) if int(digit, 16) >> k & 1)
