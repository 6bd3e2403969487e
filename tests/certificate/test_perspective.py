"""The perspective's conjugate, proximal step and screening margins against brute force."""

import itertools

import numpy as np
import pytest
import torch
from scipy import optimize

from psfit.certificate.perspective import Fixed, charge, margins, shrink


def random_fixed(generator, size, kappa):
    draw = torch.randint(0, 4, (1, size), generator=generator)
    inside = (draw == 1) & ((draw == 1).cumsum(1) < kappa)
    return Fixed.of(inside, draw == 2, kappa)


def allowed(fixed, size, kappa):
    """Every support that the decisions leave open, as sets of items."""
    inside = set(fixed.inside[0].nonzero().flatten().tolist())
    free = fixed.free[0].nonzero().flatten().tolist()
    for count in range(min(kappa - len(inside), len(free)) + 1):
        for more in itertools.combinations(free, count):
            yield inside | set(more)


@pytest.mark.parametrize("seed", range(20))
def test_the_charge_is_the_most_any_support_can_gain(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(1, 7, generator=generator, dtype=torch.float64)
    fixed = random_fixed(generator, 7, 3)
    best = max(float(scores[0, sorted(s)].sum()) for s in allowed(fixed, 7, 3))
    assert float(charge(scores, fixed)) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(20))
def test_margins_are_the_change_of_the_charge(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(1, 7, generator=generator, dtype=torch.float64)
    fixed = random_fixed(generator, 7, 3)
    out, into = margins(scores, fixed)
    base = charge(scores, fixed)
    for j in fixed.free[0].nonzero().flatten().tolist():
        mark = torch.zeros_like(fixed.inside)
        mark[0, j] = True
        without = charge(scores, Fixed.of(fixed.inside, fixed.outside | mark, 3))
        assert float(out[0, j]) == pytest.approx(float(base - without), abs=1e-12)
        if int(fixed.left) > 0:
            forced = charge(scores, Fixed.of(fixed.inside | mark, fixed.outside, 3))
            assert float(into[0, j]) == pytest.approx(float(base - forced), abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_proximal_step_minimises(seed):
    rng = np.random.default_rng(seed)
    n, kappa, rho = 5, 2, 10.0 ** rng.integers(-1, 2)
    v, ridge = rng.normal(size=n) * 10.0 ** rng.integers(-2, 3), rng.uniform(0.1, 2, n)
    fixed = random_fixed(torch.Generator().manual_seed(seed), n, kappa)
    inside, outside = fixed.inside[0].numpy(), fixed.outside[0].numpy()

    def objective(s):
        s = np.where(inside, 1.0, np.where(outside, 0.0, np.clip(s, 1e-12, 1)))
        return np.where(s > 0, rho * ridge * v**2 / (2 * (rho * s + ridge)), rho * v**2 / 2).sum()

    free = ~inside & ~outside
    limit = {"type": "ineq", "fun": lambda s: kappa - inside.sum() - s[free].sum()}
    best = np.inf
    for start in (np.full(n, 0.3), rng.uniform(0, 0.4, n)):
        found = optimize.minimize(objective, start, bounds=[(0, 1)] * n, constraints=limit, options={"ftol": 1e-14}).x
        # SLSQP keeps its constraint roughly; what it found is made to keep it exactly.
        best = min(best, objective(found * min(1, (kappa - inside.sum()) / max(found[free].sum(), 1e-9))))
    size = torch.tensor(np.abs(v)).unsqueeze(0)
    factor, share = shrink(size, torch.tensor(ridge), rho, fixed)
    s, z = share[0].numpy(), factor[0].numpy() * v
    assert s.sum() <= kappa + 1e-9
    assert ((s >= 0) & (s <= 1)).all()
    paid = np.where(s > 0, ridge * z**2 / np.maximum(s, 1e-300), 0.0).sum() / 2 + rho / 2 * ((z - v) ** 2).sum()
    assert paid <= best * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_shares_fill_the_places_left_in_every_row(seed):
    """Also where most items are decided, sizes differ by orders of magnitude, and some are zero."""
    generator = torch.Generator().manual_seed(seed)
    rows, n, kappa = 64, 40, 6
    draw = torch.rand(rows, n, generator=generator)
    cut = torch.rand(rows, 1, generator=generator) * 0.8
    inside = (draw > 0.97) & ((draw > 0.97).cumsum(1) <= kappa)
    fixed = Fixed.of(inside, draw < cut, kappa)
    size = 10 ** (6 * torch.rand(rows, n, generator=generator, dtype=torch.float64) - 3)
    size[torch.rand(rows, n, generator=generator) < 0.2] = 0
    ridge = torch.rand(n, generator=generator, dtype=torch.float64) + 1e-3
    _, share = shrink(size, ridge, 0.7, fixed)
    candidates = (fixed.free & (size > 0)).sum(dim=1, keepdim=True)
    wanted = torch.minimum(candidates, fixed.left)
    taken = torch.where(fixed.free, share, 0.0).sum(dim=1, keepdim=True)
    torch.testing.assert_close(taken, wanted.double(), atol=1e-9, rtol=0)
    assert bool((share[fixed.inside] == 1).all())
    assert bool((share[fixed.outside] == 0).all())
