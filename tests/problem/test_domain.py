"""The domain against brute force: conjugate, proximal step, screening margins, scores of exchanges."""

import itertools

import numpy as np
import pytest
import torch
from scipy import optimize

from psfit.problem import Domain, LocalModel, OutputItems, RowItems


def of_size(size, kappa):
    """Nothing is decided yet about so many items."""
    return Domain.of(OutputItems(size, 1, 0), kappa, torch.device("cpu"))


def random_domain(generator, size, kappa):
    draw = torch.randint(0, 4, (1, size), generator=generator)
    inside = (draw == 1) & ((draw == 1).cumsum(1) < kappa)
    return of_size(size, kappa).decide(inside, draw == 2)


def allowed(domain, size, kappa):
    """Every support that the decisions leave open, as sets of items."""
    inside = set(domain.inside[0].nonzero().flatten().tolist())
    free = domain.free[0].nonzero().flatten().tolist()
    for count in range(min(kappa - len(inside), len(free)) + 1):
        for more in itertools.combinations(free, count):
            yield inside | set(more)


@pytest.mark.parametrize("seed", range(20))
def test_the_conjugate_is_the_most_any_support_can_gain(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(1, 7, generator=generator, dtype=torch.float64)
    domain = random_domain(generator, 7, 3)
    best = max(float(scores[0, sorted(s)].sum()) for s in allowed(domain, 7, 3))
    assert float(domain.conjugate(scores)) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(20))
def test_margins_are_the_change_of_the_conjugate(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(1, 7, generator=generator, dtype=torch.float64)
    domain = random_domain(generator, 7, 3)
    out, into = domain.margins(scores)
    base = domain.conjugate(scores)
    for j in domain.free[0].nonzero().flatten().tolist():
        mark = torch.zeros_like(domain.inside)
        mark[0, j] = True
        without = of_size(7, 3).decide(domain.inside, domain.outside | mark).conjugate(scores)
        assert float(out[0, j]) == pytest.approx(float(base - without), abs=1e-12)
        if int(domain.left) > 0:
            forced = of_size(7, 3).decide(domain.inside | mark, domain.outside).conjugate(scores)
            assert float(into[0, j]) == pytest.approx(float(base - forced), abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_proximal_step_minimises(seed):
    rng = np.random.default_rng(seed)
    n, kappa, rho = 5, 2, 10.0 ** rng.integers(-1, 2)
    v, ridge = rng.normal(size=n) * 10.0 ** rng.integers(-2, 3), rng.uniform(0.1, 2, n)
    domain = random_domain(torch.Generator().manual_seed(seed), n, kappa)
    inside, outside = domain.inside[0].numpy(), domain.outside[0].numpy()

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
    factor, share = domain.shrink(size, torch.tensor(ridge), rho)
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
    domain = of_size(n, kappa).decide(inside, draw < cut)
    size = 10 ** (6 * torch.rand(rows, n, generator=generator, dtype=torch.float64) - 3)
    size[torch.rand(rows, n, generator=generator) < 0.2] = 0
    ridge = torch.rand(n, generator=generator, dtype=torch.float64) + 1e-3
    _, share = domain.shrink(size, ridge, 0.7)
    candidates = (domain.free & (size > 0)).sum(dim=1, keepdim=True)
    wanted = torch.minimum(candidates, domain.left)
    taken = torch.where(domain.free, share, 0.0).sum(dim=1, keepdim=True)
    torch.testing.assert_close(taken, wanted.double(), atol=1e-9, rtol=0)
    assert bool((share[domain.inside] == 1).all())
    assert bool((share[domain.outside] == 0).all())


def minimum(H, q, rows):
    """The least value of x'Hx / 2 - q'x on some rows, by NumPy."""
    rows = list(rows)
    return 0.0 if not rows else -0.5 * float(q[rows] @ np.linalg.solve(H[np.ix_(rows, rows)], q[rows]))


def quadratic(seed, n, width):
    """A quadratic in n items of `width` coefficients each: Hessian, linear part, and where each item's rows are."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3 * n * width, n * width))
    H = A.T @ A + np.eye(n * width)
    return H, A.T @ rng.normal(size=len(A)) * 3, [list(range(j * width, (j + 1) * width)) for j in range(n)]


def model_at(H, q, rows, chosen, width):
    """The model at the minimiser on a support, as the search makes it."""
    inside = [r for j in chosen for r in rows[j]]
    n = len(rows)
    x = np.linalg.solve(H[np.ix_(inside, inside)], q[inside])
    gradient = H[:, inside] @ x - q
    blocks = np.stack([H[np.ix_(own, own)] for own in rows])
    item = [j for j in chosen for _ in range(width)]
    parts = gradient.reshape(n, width), blocks, H[:, inside].reshape(n, width, -1), H[np.ix_(inside, inside)], x
    return LocalModel(*(torch.tensor(part) for part in parts), torch.tensor(item))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_exchanges_gain_what_refits_gain_and_forced_items_stay(seed, width):
    n, chosen, forced, banned = 7, [1, 4, 5], 4, 6
    H, q, rows = quadratic(seed, n, width)
    items = OutputItems(n, 1, 0) if width == 1 else RowItems(n, width, 0)
    inside, outside = torch.zeros(1, n, dtype=torch.bool), torch.zeros(1, n, dtype=torch.bool)
    inside[0, forced] = outside[0, banned] = True
    domain = Domain.of(items, 3, torch.device("cpu")).decide(inside, outside)
    model = model_at(H, q, rows, chosen, width)
    mask = torch.zeros(n, dtype=torch.bool)
    mask[chosen] = True

    def value(support):
        return minimum(H, q, [r for j in sorted(support) for r in rows[j]])

    before = value(chosen)
    gains = {}
    for scores, leaving, joining in domain.swap_scores(model, mask):
        for a, out in enumerate(leaving.tolist()):
            for b, into in enumerate(joining.tolist()):
                gains[out, into] = float(scores[a, b])
    expected = {(out, into): before - value(set(chosen) - {out} | {into}) for out in (1, 5) for into in (0, 2, 3)}
    assert gains == pytest.approx(expected, rel=1e-8)
    additions = domain.addition_scores(model, mask).numpy()
    expected = [0.0 if j in (*chosen, banned) else before - value([*chosen, j]) for j in range(n)]
    np.testing.assert_allclose(additions, expected, rtol=1e-8, atol=1e-12)
    costs = domain.removal_costs(model, mask)
    assert costs.isfinite().tolist() == [j in (1, 5) for j in range(n)]
    if width == 1:
        assert float(costs[1]) == pytest.approx(value([4, 5]) - before)
