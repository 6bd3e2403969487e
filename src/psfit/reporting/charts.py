"""Pictures as SVG that lives inside a page: in the page's own colours, without a date, with ids of its own."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

# Drawn in these colours, shown in that of the page's text, so that dark pages have light axes.
INK = ("#0a0b0c", "#000000")
# Ten hues that can be read on white and on black.
HUES = (
    "#3b7dd8",
    "#dd7230",
    "#379a5a",
    "#c64f6b",
    "#8a6fd1",
    "#a17b45",
    "#2a9fa8",
    "#b58900",
    "#7a869a",
    "#d070b0",
)
WIDTH = 6.8
# What fits into one line above a chart.
MOST_ENTRIES, MOST_LETTERS = 4, 54


def chart(name: str, label: str, height: float, draw: Callable[[Any], Any]) -> Markup:
    """An inline SVG of what `draw` draws on the axes it is given.

    Parameters
    ----------
    name : str
        Goes before every id inside, so that charts on one page do not refer to each other.
    label : str
        What the picture shows, for those who cannot see it.
    height : float
        In inches; all charts of a page are equally wide.
    """
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ink = INK[0]
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
    settings: Any = dict.fromkeys(colours, ink) | {
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=HUES),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": 10,
        "legend.framealpha": 0.0,
        "svg.fonttype": "none",
        "svg.hashsalt": name,
    }
    image = io.BytesIO()
    with rc_context(settings), warnings.catch_warnings():
        # Letters that matplotlib's font lacks are drawn by the browser, which has more of them.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from", category=UserWarning)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = draw(figure.subplots())
        # The page has its own headings and captions.
        axes.set_title("")
        _move_short_legend(axes)
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
    return _inline(ElementTree.fromstring(image.getvalue()), name, label)


def _move_short_legend(axes: Any) -> None:
    """A legend of a few words goes above the picture, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    short = len(labels) <= MOST_ENTRIES and sum(map(len, labels)) <= MOST_LETTERS
    if axes.get_legend() is not None and short:
        axes.legend(handles, labels, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(labels), frameon=False)


def _inline(root: ElementTree.Element, name: str, label: str) -> Markup:
    """The same for a page: bare tags, the page's colours, and only ids that something refers to."""
    for parent in list(root.iter()):
        for child in list(parent):
            # matplotlib's style would hold for the whole page; the page's own says the same of charts.
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    referred = set(re.findall(r"#([\w-]+)", " ".join(v for e in root.iter() for v in e.attrib.values())))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {
            key.rpartition("}")[2]: _adapted(key, value, name)
            for key, value in element.attrib.items()
            if key != "id" or value in referred
        }
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=True))


def _adapted(key: str, value: str, name: str) -> str:
    """An attribute with its references made the chart's own, and ink in the page's colour."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href"):
        return value.replace("#", f"#{name}-", 1)
    for ink in INK:
        value = value.replace(ink, "currentColor")
    return value.replace("url(#", f"url(#{name}-")
