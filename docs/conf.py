"""How Sphinx builds the documentation: ``make docs``. Nothing here needs a network."""

from typing import Any

import psfit

project = "PsFiT"
author = "the PsFiT developers"
version = release = psfit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# A word in single backticks is a link where it names something documented, else plain.
default_role = "autolink"
myst_heading_anchors = 3

# The docstrings say what shapes and types mean; annotations would say it once more, and less well.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
# Types are prose ("array-like (m, p)"), not names to look up.
napoleon_use_param = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"PsFiT {version}"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator, and attributes that the class's own text already lists."""
    if name in {"set_fit_request", "set_score_request", "get_metadata_routing"}:
        return True
    return True if isinstance(thing, property) and name.endswith("_") else None


def setup(app: Any) -> None:
    """Connect the hook above."""
    app.connect("autodoc-skip-member", skip)
