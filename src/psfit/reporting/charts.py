"""Charts as SVG inside a page: in the page's colours, without a date, with ids that no other chart has."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

# matplotlib draws text and axes in these colours; the page shows them in its text colour, so dark pages work, too.
INK = ("#0a0b0c", "#000000")
# Ten colours that can be seen on white and on black.
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
# In inches: on a phone, where a page is about as wide, letters of ten points can still be read.
WIDTH = 5.2
# Intervals between the labels below a chart: seven labels of seven letters do not touch.
MOST_INTERVALS = 6
# A legend with no more entries and letters than this fits into one line above a chart.
MOST_ENTRIES, MOST_LETTERS = 3, 40


def svg_chart(name: str, label: str, height: float, draw: Callable[[Any], Any]) -> Markup:
    """An inline SVG of what `draw` draws on the axes that it gets.

    Parameters
    ----------
    name : str
        Prefix of all ids inside, so that charts on one page do not refer to each other.
    label : str
        What the picture shows, for screen readers.
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
        # The browser draws letters that matplotlib's font does not have.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from", category=UserWarning)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = draw(figure.subplots())
        # The page has its own headings and captions.
        axes.set_title("")
        _move_short_legend(axes)
        _limit_labels(axes)
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
    return _inline(ElementTree.fromstring(image.getvalue()), name, label)


def _move_short_legend(axes: Any) -> None:
    """Put a legend of a few words above the picture, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    short = len(labels) <= MOST_ENTRIES and sum(map(len, labels)) <= MOST_LETTERS
    if axes.get_legend() is not None and short:
        axes.legend(handles, labels, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(labels), frameon=False)


def _limit_labels(axes: Any) -> None:
    """Leave out some of the numbers below the picture, where long ones would touch."""
    from matplotlib.ticker import MaxNLocator

    locator = axes.xaxis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        locator.set_params(nbins=MOST_INTERVALS)


def _inline(root: ElementTree.Element, name: str, label: str) -> Markup:
    """The SVG as part of a page: tags without namespaces, the page's colours, and only ids that are used."""
    for parent in list(root.iter()):
        for child in list(parent):
            # matplotlib's style would apply to the whole page; the page's own style has the same rules for charts.
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    referred = set(re.findall(r"#([\w-]+)", " ".join(v for e in root.iter() for v in e.attrib.values())))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {
            key.rpartition("}")[2]: _adapt_attribute(key, value, name)
            for key, value in element.attrib.items()
            if key != "id" or value in referred
        }
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=True))


def _adapt_attribute(key: str, value: str, name: str) -> str:
    """The value with the chart's prefix on ids and references, and with the page's text colour."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href"):
        return value.replace("#", f"#{name}-", 1)
    for ink in INK:
        value = value.replace(ink, "currentColor")
    return value.replace("url(#", f"url(#{name}-")
