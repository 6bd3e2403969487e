"""Numbers, shares and lists of names as text for people."""

# A longer name is cut in a sentence; tables have the whole name.
LONGEST = 60


def join_names(names: list[str], most: int = 12, last: str = " and ") -> str:
    """Names in a sentence; at most `most` of them, and long names are cut."""
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}\u2026" for name in names]
    if len(names) > most:
        return f"{', '.join(names[:most])}{last}{len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])}{last}{names[-1]}"


def plural(count: int, noun: str) -> str:
    """``1 sample``, ``2 samples``, ``3 classes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def number(value: float, digits: int = 6) -> str:
    """A number for people: a true minus sign, commas between thousands, and an exponent only if needed."""
    # Rounding may add a digit: 99.96 has three digits before the point if only two are shown.
    size = abs(float(f"{value:.{digits}g}"))
    if min(1e4, 10.0**digits) <= size < 1e9:
        # All digits before the point; the digits that remain go after it.
        whole = f"{value:,.{max(0, digits - len(str(int(size))))}f}"
        text = whole.rstrip("0").rstrip(".") if "." in whole else whole
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "\u2212")


def percent(value: float) -> str:
    """A share in percent with two digits; a very small one is "under 0.0001"."""
    text = "under 0.0001" if 0 < value < 1e-6 else number(100 * value, 2)
    return f"{text}\u00a0%"
