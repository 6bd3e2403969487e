"""How the numbers of all text files of all ranks are written."""

import json
from dataclasses import asdict

from psfit.comm import Grid
from psfit.data.io.base import DataFileError
from psfit.data.io.dialect import Dialect
from psfit.data.io.learn_schema import Pieces
from psfit.data.schema import TextFormat
from psfit.data.table_rules import TableRules


def gather_dialects(pieces: Pieces, grid: Grid) -> list[Dialect]:
    """The dialects of the text files of all ranks, in order. All ranks must call this."""
    local = [asdict(file.numbers) for file, _, _ in pieces if file.numbers is not None]
    gathered = [json.loads(other) for other in grid.world.all_gather(json.dumps(local).encode())]
    return [Dialect(**one) for several in gathered for one in several]


def find_missed_sign(found: list[Dialect]) -> str | None:
    """The decimal sign that some files show, if others, which show none, were read with another; else None."""
    shown = {one.decimal for one in found if one.basis == "shown"}
    if len(shown) > 1 and any(one.basis == "default" for one in found):
        raise DataFileError(
            "path: some files have a decimal comma and some a decimal point, and others show neither; say which "
            "(--csv decimal=)"
        )
    missed = len(shown) == 1 and any(one.decimal not in shown for one in found)
    return shown.pop() if missed else None


def common_format(found: list[Dialect], rules: TableRules) -> TextFormat:
    """What the files have in common, and what the user has said about them, for later files."""
    decimals = {one.decimal for one in found if one.basis != "none"}
    marks = {one.thousands for one in found if one.thousands is not None}
    agree = len(decimals) <= 1 and len(marks) <= 1
    decimal, thousands = (next(iter(signs), None) if agree else None for signs in (decimals, marks))
    return TextFormat(decimal, thousands, rules.missing_marks, rules.date_format)
