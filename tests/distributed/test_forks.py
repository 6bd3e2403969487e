"""Fits in processes that were forked from one that has fitted before."""

import os
import signal
import time
import warnings

import numpy as np
import pytest
import torch

from psfit import BiCADMM, SparseLinearRegression

PATIENCE = 60.0


def data():
    X = np.random.default_rng(0).normal(size=(4000, 100))
    return X, 2 * X[:, 3] - X[:, 50]


def in_a_fork(action):
    """The exit status of a forked child that returns what the action does; an error if it never comes back."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(action())
        finally:
            os._exit(99)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child never came back")


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_of_a_process_that_has_fitted_can_fit_and_predict(two_threads):
    X, y = data()
    solver = BiCADMM(effort="low")
    before = SparseLinearRegression(2, solver=solver).fit(X, y)

    def fit_again():
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            first = SparseLinearRegression(2, solver=solver).fit(X, y)
            # A process that sets the threads again does not hang, either.
            torch.set_num_threads(2)
            second = SparseLinearRegression(2, solver=solver).fit(X, y)
        same = [np.allclose(model.coef_, before.coef_, rtol=1e-9) for model in (first, second)]
        told = [str(one.message) for one in heard if "spawn" in str(one.message)]
        predicted = np.allclose(before.predict(X), y, atol=1e-2)
        return 0 if all(same) and len(told) == 2 and predicted and torch.get_num_threads() == 1 else 1

    assert in_a_fork(fit_again) == 0
    assert torch.get_num_threads() == 2
