"""Quadratic forms for tests of swap searches, and the objective on a support by a dense solver."""

from itertools import product

import numpy as np


def make_form(items, width=1, outputs=1, intercepts=0, seed=0, ridge=0.1):
    """``H (n, n)`` and ``Q (n, outputs)`` of items with correlated columns, and of intercepts behind them."""
    generator = np.random.default_rng(seed)
    n = items * width + intercepts
    A = generator.standard_normal((3 * n, n)) + generator.standard_normal((3 * n, 1))
    return A.T @ A / n + ridge * np.eye(n), 3 * generator.standard_normal((n, outputs))


def variables_of(chosen, width, n, items):
    """The variables of some items, intercepts first."""
    chosen = np.asarray(chosen, dtype=np.int64)
    return np.concatenate([np.arange(items * width, n), (chosen[:, None] * width + np.arange(width)).ravel()])


def value_on(H, Q, variables):
    """The minimum of the form over some variables."""
    x = np.linalg.solve(H[np.ix_(variables, variables)], Q[variables])
    return -0.5 * float((Q[variables] * x).sum())


def gains_of(H, Q, chosen, width, items, fixed, group, most):
    """The gain of every allowed swap of items, by a dense solver: ``{(leaving, joining): gain}``."""
    n = len(H)
    before, gains = value_on(H, Q, variables_of(chosen, width, n, items)), {}
    for j, i in product(chosen, range(items)):
        after = [i if k == j else k for k in chosen]
        counts = np.bincount(group[after][group[after] >= 0], minlength=len(most))
        if i not in chosen and not fixed[j] and not fixed[i] and (counts <= most).all():
            gains[j, i] = before - value_on(H, Q, variables_of(after, width, n, items))
    return gains
