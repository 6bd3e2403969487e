"""HTML for notebooks: a title, facts and tables. It takes the notebook's own colours, so light and dark ones work."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

# Only rules for what is inside; grey and two hues that can be seen on white and on black.
STYLE = """<style>
.psfit-card {font-size: 0.93em; line-height: 1.45; max-width: 60em; overflow-x: auto;}
.psfit-card h4 {margin: 0.2em 0 0.4em; font-size: 1.1em;}
.psfit-card table {border-collapse: collapse; margin: 0.4em 0;}
.psfit-card th, .psfit-card td {border: 0; border-top: 1px solid rgba(128, 128, 128, 0.35); padding: 0.2em 0.8em;
 text-align: right; background-color: transparent; color: inherit; font-variant-numeric: tabular-nums;}
.psfit-card th:first-child, .psfit-card .psfit-facts td {text-align: left; overflow-wrap: anywhere;}
.psfit-card thead th:first-child {white-space: nowrap;}
.psfit-card tbody th:first-child {min-width: 3em;}
.psfit-card th {font-weight: 600;}
.psfit-card .psfit-facts th {font-weight: 400; opacity: 0.75; vertical-align: top; white-space: nowrap;}
.psfit-card .psfit-chosen th, .psfit-card .psfit-chosen td {background-color: rgba(59, 125, 216, 0.22);}
.psfit-card .psfit-note {opacity: 0.75;}
.psfit-card summary {cursor: pointer;}
</style>"""
POSITIVE, NEGATIVE = "rgba(59, 125, 216, 0.45)", "rgba(221, 114, 48, 0.5)"


@dataclass(frozen=True)
class Bar:
    """A cell with a bar behind its text; `share` is its length between -1 and 1, and its sign the colour."""

    text: str
    share: float


@dataclass(frozen=True)
class HtmlTable:
    """Headings, and rows of texts or bars; the rows with the numbers in `marked` stand out."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Bar]]
    marked: frozenset[int] = field(default_factory=frozenset)


def render_card(title: str, facts: Iterable[tuple[str, str]], *tables: HtmlTable, notes: Iterable[str] = ()) -> str:
    """A title, facts by name, tables and notes as HTML; all text is escaped."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts)
    parts = [f"<h4>{escape(title)}</h4>", f'<table class="psfit-facts"><tbody>{rows}</tbody></table>' if rows else ""]
    parts += [_render_table(table) for table in tables if table.rows]
    parts += [f'<p class="psfit-note">{escape(note)}</p>' for note in notes]
    return f'{STYLE}<div class="psfit-card">{"".join(parts)}</div>'


def thin_rows(count: int, most: int) -> list[int]:
    """The numbers of at most `most` of `count` rows, evenly spread, with the first and the last."""
    return list(range(count)) if count <= most else [round(k * (count - 1) / (most - 1)) for k in range(most)]


def _render_table(table: HtmlTable) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    rows = []
    for place, row in enumerate(table.rows):
        first, *rest = row
        chosen = ' class="psfit-chosen"' if place in table.marked else ""
        cells = f"<th>{_render_text(first)}</th>" + "".join(_render_cell(cell) for cell in rest)
        rows.append(f"<tr{chosen}>{cells}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _render_text(cell: str | Bar) -> str:
    return escape(cell.text if isinstance(cell, Bar) else cell)


def _render_cell(cell: str | Bar) -> str:
    if not isinstance(cell, Bar):
        return f"<td>{escape(cell)}</td>"
    color = POSITIVE if cell.share >= 0 else NEGATIVE
    width = 100 * min(1.0, abs(cell.share))
    bar = (
        f"background-image: linear-gradient(to right, {color} {width:.1f}%, transparent {width:.1f}%); min-width: 8em;"
    )
    return f'<td style="{bar}">{escape(cell.text)}</td>'
