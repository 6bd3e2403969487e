"""What all pictures need: matplotlib, and names that it can draw."""

from typing import Any

# A longer name would leave no room for the picture.
LONGEST_NAME = 28


def label_of(name: object) -> str:
    """A name that matplotlib can draw: short, printable, not read as a formula, not hidden from the legend."""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in str(name)).split())
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 1].rstrip() + "\u2026"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def pyplot() -> Any:
    """The interface of matplotlib for pictures."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures need matplotlib; install it with: pip install matplotlib") from None
    return plt
