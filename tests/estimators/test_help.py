"""What `help` shows: every parameter and every attribute of every estimator, and no others."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import psfit
from psfit.estimators.docstrings import ATTRIBUTES, PARAMETERS, gather, split

REFERENCE = Path(__file__).parents[2] / "docs/api.md"
PUBLIC = [getattr(psfit, name) for name in psfit.__all__]
ESTIMATORS = [one for one in PUBLIC if hasattr(one, "predict")]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.__name__)
def test_all_parameters_are_explained(estimator):
    explained = split(estimator.__doc__)[1][PARAMETERS]
    taken = list(inspect.signature(estimator).parameters)
    assert list(explained) == taken
    for name, text in explained.items():
        first, *rest = text.splitlines()
        assert " : " in first, name
        assert rest, f"{name} has no text"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.__name__)
def test_all_that_a_fit_leaves_is_explained(estimator):
    X = np.random.default_rng(0).normal(size=(40, 4))
    y = (X[:, 1] > 0) + 1
    model = estimator([1, 2], cv=2) if estimator.__name__.endswith("CV") else estimator(2)
    model.fit(X, y)
    explained = split(estimator.__doc__)[1][ATTRIBUTES]
    left = {name for name in dir(model) if name.endswith("_") and not name.startswith("_")}
    assert left <= set(explained)
    # Names are known only if X has them.
    assert set(explained) - left <= {"feature_names_in_"}


def test_every_public_name_is_in_the_reference():
    shown = re.findall(r"auto(?:class|function|exception):: psfit\.(\w+)$", REFERENCE.read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(name for name in psfit.__all__ if not name.startswith("_"))
    assert not [name for name in psfit.__all__ if not inspect.getdoc(getattr(psfit, name))]


def test_prose_behind_a_section_is_kept():
    prose, sections = split(
        """First line.

        Parameters
        ----------
        a, b : int
            Two numbers.

            With a second paragraph.
        c : str
            A word.

        Last line.
        """
    )
    assert prose == "First line.\n\n\nLast line."
    assert list(sections[PARAMETERS]) == ["a", "b", "c"]
    assert sections[PARAMETERS]["a"] == "a, b : int\n    Two numbers.\n\n    With a second paragraph."


def test_a_class_without_a_docstring_stays_without():
    class Silent:
        pass

    gather(Silent)
    assert Silent.__doc__ is None
