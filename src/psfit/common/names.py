"""Names in messages: lists that are not too long, and the name that was probably meant."""

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# The most names that a message lists.
MOST_LISTED = 20


def list_names(names: Iterable[object], most: int = MOST_LISTED) -> str:
    """Names as a message lists them; at most `most`."""
    every = [str(name) for name in names]
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")


def quote_name(name: object) -> str:
    """A name in a list that is separated by commas; one with a comma is quoted."""
    text = str(name)
    return repr(text) if "," in text else text


def suggest_name(name: object, names: Sequence[str]) -> str:
    """A question after an unknown name, if one of `names` is nearly the same; else nothing.

    A part of a name that has a comma is unknown because it was not in quotes.
    """
    whole = next((one for one in names if "," in one and str(name) in [part.strip() for part in one.split(",")]), None)
    if whole is not None:
        return f" (a name with a comma needs quotes on the command line: {shlex.quote(quote_for_list(whole))})"
    near = get_close_matches(str(name).lower(), [one.lower() for one in names], 1)
    return f" (did you mean {next(one for one in names if one.lower() == near[0])!r}?)" if near else ""


def quote_for_list(name: str) -> str:
    """A name as options take it in lists that are separated by commas."""
    return f'"{name}"' if "," in name else name
