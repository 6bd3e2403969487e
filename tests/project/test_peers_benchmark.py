"""The comparison with other packages: which supports a path offers, what a turn answers, what the page says."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
# Found by their folders, under names that other benchmarks have as well.
SHARED = ("environment", "methods", "pictures", "problems", "report", "run", "worker")


@pytest.fixture
def peers(monkeypatch):
    for name in SHARED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for folder in (FOLDER, FOLDER / "quality", FOLDER / "peers"):
        monkeypatch.syspath_prepend(str(folder))
    import methods
    import problems
    import report
    import run
    import worker

    yield SimpleNamespace(methods=methods, problems=problems, report=report, run=run, worker=worker)
    for name in SHARED:
        sys.modules.pop(name, None)


def test_a_path_offers_its_largest_coefficients(peers):
    path = [np.array([1.0, 0, 0, 0, 0, 0]), np.array([1.0, 0.2, 0, 0, 0, 0]), np.array([1.0, 0.2, -0.5, 0.1, 0, 0])]
    path += [np.array([1.0, 0, 0.4, 0.3, 0, 0]), np.array([0.1, 0.1, 0.1, 0.1, 5.0, 6.0])]
    found = peers.methods.largest(path, 2)
    # The last model of the path has more than twice the limit.
    assert [support.tolist() for support in found] == [[0], [0, 1], [0, 2]]


def test_a_path_that_never_fills_the_limit_offers_its_last_model(peers):
    path = [np.array([0.0, 0, 0]), np.array([0.0, 2, 0])]
    assert [support.tolist() for support in peers.methods.largest(path, 2)] == [[1]]


def test_names_are_chosen_by_their_parts(peers, tmp_path):
    chosen = list(peers.problems.problems(["suite", "real", "large"], tmp_path, ["ar 0.8#", "communities"]))
    assert [problem.name for problem in chosen] == [
        *(f"linear small ar 0.8#{seed}" for seed in range(3)),
        *(f"logistic ar 0.8#{seed}" for seed in range(3)),
        *(f"communities, kappa {kappa}" for kappa in (5, 10, 20, 40)),
    ]
    assert not list(peers.problems.problems(["real"], None, []))


def test_turns_are_timed_and_judged(peers):
    """Matching pursuit finds the only column that matters; a method that fails says why."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    spec = peers.problems.Spec("one column", samples=30, features=5, kappa=1, gamma=2.0)
    case = peers.problems.Case(spec, 0, X, 3 * X[:, 2])
    workers = {name: peers.worker.Worker(name, 1) for name in ("matching pursuit", "l1 path")}
    workers["l1 path"].method = "nobody"
    try:
        measured = peers.run.measure(case, workers, 60.0)
    finally:
        for worker in workers.values():
            worker.stop()
    problem = peers.problems.Problem("test", "one column", lambda: case)
    found, failed = peers.run.judge_all(problem, case, measured)
    x, y = X[:, 2] - X[:, 2].mean(), 3 * (X[:, 2] - X[:, 2].mean())
    expected = y @ y - (x @ y) ** 2 / (x @ x + 1 / 4)
    assert (found.status, found.nonzeros, found.runs) == ("done", 1, 3)
    assert found.objective == pytest.approx(expected, rel=1e-10)
    assert found.seconds > 0
    assert failed.status == "failed: KeyError: 'nobody'"
    assert failed.objective == np.inf


def row(problem, method, objective, seconds, status="done"):
    about = {"group": "g", "problem": problem, "model": "linear", "method": method, "status": status}
    return about | {"objective": str(objective), "seconds": str(seconds), "runs": "3", "machine": "M"}


def test_the_page_names_every_defeat(peers, tmp_path):
    rows = [row("won", "PsFiT", 1.0, 0.04), row("won", "abess", 1.1, 0.001)]
    rows += [row("lost", "PsFiT", 2.02, 0.3), row("lost", "abess", 2.0, 0.1), row("lost", "PsFiT high", 1.0, 9.0)]
    rows += [row("won", "skscope", np.inf, np.nan, "over 5 s")]
    peers.report.write_page(rows, ["skglm MCP path"], tmp_path)
    page = (tmp_path / "peers.md").read_text()
    assert "| g | lost | abess | 1.00000 |" in page
    assert "| g | won | abess" not in page
    assert "| g | lost | 0.300 | 0.100 | 0.200 |" in page
    assert "| g | PsFiT | 2 of 2 | 51.00000 | 102.00000 | 0.17 | 1.00 |" in page
    assert "| g | abess | 2 of 2 | 55.00000 | 100.00000 | 0.0505 | 21.50 |" in page
    assert "- won, skscope: over 5 s" in page
    assert "skglm MCP path" in page
    assert (tmp_path / "peers.png").stat().st_size > 1000
