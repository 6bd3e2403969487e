"""Models of tree nodes: a point and shares that are allowed, and a dual value as high, prove a minimum."""

import numpy as np
import pytest

from psfit.kernels.cpu.node_models import minimise_models


def make_nodes(seed, n, rows, samples):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(samples, n))
    A[:, 1:] += 0.9 * A[:, :-1]
    weights = rng.uniform(0.1, 1, size=(2, samples))
    H = np.stack([(A * w[:, None]).T @ A for w in weights])
    which = rng.integers(2, size=rows)
    Q = (A.T @ (A[:, :3].sum(1)[:, None] + rng.normal(size=(samples, rows)))).T.copy()
    kind = rng.choice([-1, 0, 0, 0, 1], size=(rows, n)).astype(np.int8)
    left = rng.integers(0, n // 2, size=rows)
    return (
        H,
        which,
        Q,
        rng.uniform(0.1, 10, size=n) * 10.0 ** rng.integers(-3, 3),
        kind,
        left,
        rng.normal(size=(rows, n)),
    )


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("n", "samples"), [(3, 10), (12, 60), (40, 20)])
def test_the_dual_value_proves_the_minimum(seed, n, samples, signs):
    H, which, Q, ridge, kind, left, X = make_nodes(seed, n, 10, samples)
    shares, sign = np.empty_like(X), np.zeros(n, np.int8)
    if signs:
        sign[:] = np.random.default_rng(seed).choice([-1, 0, 1], n)
    minimise_models(H, which, Q, ridge, sign, kind, left, np.zeros(10), 300, X, shares)
    assert (sign * X >= 0).all()
    for G, q, role, places, x, s in zip(H[which], Q, kind, left, X, shares, strict=True):
        free = role == 0
        assert (x[role < 0] == 0).all()
        assert (s[role > 0] == 1).all()
        assert ((s >= 0) & (s <= 1)).all()
        assert s[free].sum() <= places + 1e-8
        used = x != 0
        value = 0.5 * x @ G @ x - q @ x + 0.5 * (ridge[used] * x[used] ** 2 / s[used]).sum()
        pull = q - G @ x
        scores = np.where(sign * pull < 0, 0.0, pull**2 / (2 * ridge))
        conjugate = scores[role > 0].sum() + np.sort(scores[free])[::-1][: max(places, 0)].sum()
        assert value + 0.5 * x @ G @ x + conjugate <= 1e-7 * (abs(value) + conjugate)


def test_rounds_only_lower_the_value():
    H, which, Q, ridge, kind, left, X = make_nodes(1, 15, 6, 30)
    values = []
    for rounds in (1, 3, 10, 100):
        x, s = X.copy(), np.empty_like(X)
        minimise_models(H, which, Q, ridge, np.zeros(15, np.int8), kind, left, np.zeros(6), rounds, x, s)
        smooth = 0.5 * np.einsum("bi,bij,bj->b", x, H[which], x) - (Q * x).sum(1)
        values.append(smooth + 0.5 * np.where(x != 0, ridge * x**2 / np.where(x != 0, s, 1), 0).sum(1))
    assert (np.diff(values, axis=0) <= 1e-9 * np.abs(values[0])).all()
