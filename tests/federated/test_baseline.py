"""The baseline of the benchmark, on Flower's own simulation, against the same rounds in NumPy."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.special

FOLDER = Path(__file__).parents[2] / "benchmarks/federated"


def step(X, Y, W, rate, ridge):
    """One gradient step for the mean softmax loss; the intercepts, in the last row, pay no ridge."""
    slope = X.T @ (scipy.special.softmax(X @ W, axis=1) - Y) / len(X)
    return W - rate * (slope + ridge * np.vstack([W[:-1], 0 * W[-1:]]))


@pytest.mark.long
def test_the_baseline_averages_and_keeps_the_largest(monkeypatch):
    pytest.importorskip("flwr")
    pytest.importorskip("ray")
    monkeypatch.syspath_prepend(str(FOLDER))
    # For the processes of Ray, which run the clients.
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=os.pathsep)
    import baseline

    rng, rounds = np.random.default_rng(0), 3
    sites = []
    for samples in (20, 30, 50):
        X = np.column_stack([rng.normal(size=(samples, 6)), np.ones(samples)])
        sites.append((X, np.eye(3)[rng.integers(3, size=samples)]))
    tasks = [baseline.Task(4, 0.5), baseline.Task(9, 0.2)]
    found = baseline.run_tasks(sites, 2.0, tasks, rounds)
    for task, answer in zip(tasks, found, strict=True):
        W = np.zeros((7, 3))
        for turn in range(rounds):
            moved = []
            for X, Y in sites:
                own = W
                for _ in range(baseline.LOCAL_STEPS):
                    own = step(X, Y, own, task.rate * 0.1 ** (turn / rounds), 1 / (2.0 * 100))
                moved.append(own)
            W = np.average(moved, axis=0, weights=[20, 30, 50])
            order = np.argsort(-np.abs(W[:-1]), axis=None)
            W[:-1].flat[order[task.kappa :]] = 0
        np.testing.assert_allclose(answer, W, atol=1e-12)
        assert np.count_nonzero(answer[:-1]) == task.kappa
