"""The best known objective of a case: swaps of one item for another, from random supports."""

import numpy as np
from judge import Judge, shifted
from scipy.linalg import cho_factor, cho_solve

# So many of the swaps that a quadratic model likes best are tried.
TRIALS = 5
LEAST_GAIN = 1e-10


def best_known(judge: Judge, starts: int) -> float:
    """The least objective that the searches end at; items are single coefficients."""
    rng = np.random.default_rng(12345)
    return min(_search(judge, rng.permutation(judge.items)[: judge.case.spec.kappa]) for _ in range(starts))


def _search(judge: Judge, support: np.ndarray) -> float:
    """Swap as long as that lowers the objective."""
    theta, value = judge.refit(judge.unknowns(support))
    while True:
        for place, item in _promising_swaps(judge, support, theta, value):
            changed = support.copy()
            changed[place] = item
            start = theta.copy()
            start[place] = 0
            tried, lower = judge.refit(judge.unknowns(changed), start)
            if lower < value * (1 - LEAST_GAIN):
                support, theta, value = changed, tried, lower
                break
        else:
            return value


def _promising_swaps(judge: Judge, support: np.ndarray, theta: np.ndarray, value: float) -> list[tuple[int, int]]:
    """Places of the support and the items that could take them, the best by the quadratic model at `theta` first.

    With ``K`` the inverse Hessian on the support, ``T = K H[support, i]``, ``left`` the curvature of item ``i`` that
    the support cannot take over and ``d`` its slope, moving coefficient ``s`` to zero and ``i`` freely gains
    ``(d - T_s x_s / K_ss)^2 / (2 (left + T_s^2 / K_ss)) - x_s^2 / (2 K_ss)``.
    """
    inside = judge.unknowns(support)
    outside = np.setdiff1d(np.arange(judge.items), support)
    others = judge.unknowns(outside)
    slope, bend = judge.slopes(inside, theta)
    hessian = shifted(inside.products(inside, bend) + np.diag(inside.ridge))
    K = cho_solve(cho_factor(hessian), np.eye(len(hessian)))
    cross = inside.products(others, bend)[:, : len(outside)]
    T = K @ cross
    own = np.array([bend[:, k, k] for k in range(judge.outputs)])[others.outputs].T * np.square(others.columns)
    left = (own.sum(axis=0) + others.ridge)[: len(outside)] - (cross * T).sum(axis=0)
    d = (others.columns * slope[:, others.outputs]).sum(axis=0)[: len(outside)]
    n = len(support)
    x, diagonal = theta[:n, None], np.diag(K)[:n, None]
    gains = np.square(d - T[:n] * x / diagonal) / (2 * (np.maximum(left, 0) + np.square(T[:n]) / diagonal))
    gains -= np.square(x) / (2 * diagonal)
    order = np.argsort(gains, axis=None)[::-1][:TRIALS]
    places, items = np.unravel_index(order, gains.shape)
    return [(s, outside[i]) for s, i in zip(places, items, strict=True) if gains[s, i] > LEAST_GAIN * value]
