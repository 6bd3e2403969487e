"""The rules of the source tree: few packages and layers, small files, short functions, names that explain."""

import ast
import inspect
import tomllib
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import psfit

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/psfit"
MOST_ENTRIES, MOST_LAYERS, MOST_LINES, MOST_FUNCTION_LINES, MOST_MODULES = 17, 10, 300, 50, 10
FILES = sorted(SOURCE.rglob("*.py"))
# Tests that belong to no package: to all of them together, or to several processes.
ACROSS = {"answers", "distributed", "project", "warm"}
# A function is named by what it does or gives: `search`, `weighted_gram`; not `searched`, `passed_on`.
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "speed"}
IRREGULAR = {"begun", "built", "drawn", "found", "given", "grown", "kept", "known", "made", "sent", "shown"}
IRREGULAR |= {"shrunk", "spent", "taken", "told", "written"}
SMALL_WORDS = {
    "about",
    "along",
    "at",
    "by",
    "for",
    "from",
    "in",
    "into",
    "of",
    "off",
    "on",
    "out",
    "over",
    "to",
    "with",
}
METAPHORS = {"alike", "benign", "dear", "feet", "heard", "once", "scene", "wishes"}


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_property(node):
    return any("property" in ast.unparse(one) for one in node.decorator_list)


def is_participle(name):
    """Whether a name is nothing but a participle, perhaps with a small word: `searched`, `passed_on`."""
    first, *others = name.strip("_").split("_")
    ends = (first.endswith("ed") and first not in NO_PARTICIPLES) or first in IRREGULAR
    return ends and set(others) <= SMALL_WORDS


def body_lines(node):
    """Lines of a function without its parameters and its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_the_package_has_few_entries():
    entries = [entry.name for entry in SOURCE.iterdir() if entry.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, entries


def test_the_import_contract_has_few_layers_and_names_every_package():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert len(contract["layers"]) <= MOST_LAYERS
    named = {name.strip().removeprefix("psfit.") for layer in contract["layers"] for name in layer.split("|")}
    assert named == {path.parent.name for path in SOURCE.glob("*/__init__.py")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_short_and_well_named(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
    for node in functions(path):
        if "kernels/cuda" not in str(path):
            assert body_lines(node) <= MOST_FUNCTION_LINES, node.name
        assert is_property(node) or not is_participle(node.name), node.name
        assert node.name.strip("_") not in METAPHORS, node.name


def test_every_package_says_what_it_is_for():
    for path in SOURCE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_tests_mirror_the_packages():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - ACROSS <= packages
    # The smallest tools and the communicators are tested by those who use them, and by several processes.
    assert packages - folders <= {"common", "comm"}


def test_the_walk_from_fit_to_the_algorithm_is_short_and_goes_down(monkeypatch):
    """A newcomer who reads `fit` and follows it meets few modules before Algorithm 1, and none of them twice."""
    walks = []
    step = psfit.BiCADMM.step

    def watch(self, *arguments):
        names = [frame.frame.f_globals.get("__name__", "") for frame in inspect.stack()]
        walks.append([name for name, _ in groupby(reversed([name for name in names if name.startswith("psfit.")]))])
        return step(self, *arguments)

    monkeypatch.setattr(psfit.BiCADMM, "step", watch)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12))
    psfit.SparseLinearRegression(3).fit(X, X[:, 0] + rng.normal(size=60))
    walk = [*walks[0], psfit.BiCADMM.__module__]
    assert len(walk) <= MOST_MODULES, walk
    assert len(set(walk)) == len(walk), walk
