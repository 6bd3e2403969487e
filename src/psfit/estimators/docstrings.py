"""One text for each parameter and attribute: the docstring of a class takes them from its ancestors.

So the help of every estimator lists all arguments of its constructor, in their order, and all attributes that `fit`
sets. And no sentence is in the code twice.
"""

import inspect
from textwrap import indent

PARAMETERS, ATTRIBUTES = "Parameters", "Attributes"

# The text of each entry by its name; an entry may have several names.
Entries = dict[str, str]


def gather(cls: type) -> None:
    """Complete the sections "Parameters" and "Attributes" of a class's docstring from those of its ancestors."""
    own = vars(cls).get("__doc__")
    # Python's option -OO removes all docstrings.
    if own is None:
        return
    parameters: Entries = {}
    attributes: Entries = {}
    for ancestor in reversed(cls.__mro__):
        if ancestor.__module__.startswith("psfit."):
            _, sections = split(vars(ancestor).get("__doc__") or "")
            parameters |= sections[PARAMETERS]
            attributes |= sections[ATTRIBUTES] | _properties(ancestor)
    taken = [parameters[name] for name in inspect.signature(cls).parameters if name in parameters]
    known = [text for _, text in sorted(attributes.items())]
    cls.__doc__ = "\n\n".join([split(own)[0], *_section(PARAMETERS, taken), *_section(ATTRIBUTES, known)]) + "\n"


def split(docstring: str) -> tuple[str, dict[str, Entries]]:
    """The text of a docstring, and the entries of its two sections; a section ends at a blank line before more text."""
    prose: list[str] = []
    sections: dict[str, Entries] = {PARAMETERS: {}, ATTRIBUTES: {}}
    inside: Entries | None = None
    names: list[str] = []
    lines = inspect.cleandoc(docstring).splitlines()
    for number, line in enumerate(lines):
        if line in sections and lines[number + 1 : number + 2] == ["-" * len(line)]:
            inside, names = sections[line], []
        elif inside is None:
            prose.append(line)
        elif not line and not (lines[number + 1 : number + 2] or [""])[0].startswith(" "):
            inside = None
            prose.append(line)
        elif line.startswith(" ") or not line:
            inside |= {name: f"{inside[name]}\n{line}" for name in names}
        elif set(line) != {"-"}:
            names = line.split(" : ")[0].split(", ")
            inside |= dict.fromkeys(names, line)
    return "\n".join(prose).strip(), sections


def _properties(cls: type) -> Entries:
    """The fitted attributes that are properties of the class."""
    found = {name: value for name, value in vars(cls).items() if isinstance(value, property) and name.endswith("_")}
    return {name: f"{name}\n{indent(inspect.cleandoc(value.__doc__ or ''), '    ')}" for name, value in found.items()}


def _section(title: str, entries: list[str]) -> list[str]:
    """The section as a list of one text, each entry once; an empty list if there is no entry."""
    return ["\n".join([title, "-" * len(title), *dict.fromkeys(entries)])] if entries else []
