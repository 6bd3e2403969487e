"""How Sphinx builds the documentation: ``make docs``. Nothing here needs a network."""

import re
from typing import Any

import psfit

project = "PsFiT"
author = "the PsFiT developers"
version = release = psfit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# A word in single backticks is a link where it names something documented, see `plain_words`.
default_role = "py:obj"
myst_heading_anchors = 3
# Dashes are set as such; quotes in code-like prose, as in {"element", "feature"}, stay as they are.
smartquotes_action = "De"

# The docstrings say what shapes and types mean; annotations would say it once more, and less well.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Types are prose ("array-like (m, p)"), not names to look up.
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "furo"
html_title = f"PsFiT {version}"
html_copy_source = False
html_show_copyright = False
# Lines of 100 characters fit on the page.
sizes = {"code-font-size": "75%"}
html_theme_options = {"navigation_with_keys": True, "light_css_variables": sizes, "dark_css_variables": sizes}


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator, and attributes that the class's own text already lists."""
    if re.fullmatch(r"set_\w+_request", name) or name == "get_metadata_routing":
        return True
    return True if isinstance(thing, property) and name.endswith("_") else None


def plain_words(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Docstrings name parameters in backticks and describe types in prose; only names of psfit itself must exist."""
    is_word = node.get("refdomain") == "py" and node.get("reftype") in ("obj", "class")
    return content if is_word and not node["reftarget"].startswith("psfit") else None


def link_files(app: Any, page: str, source: list[str]) -> None:
    """Measured results lie outside this folder; on the site they are files to download."""
    source[0] = re.sub(r"\]\((\.\./benchmarks/[^)]*)\)", r"](path:\1)", source[0])


def setup(app: Any) -> None:
    """Connect the hooks above."""
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", plain_words)
    app.connect("source-read", link_files)
