"""The domain against brute force: conjugate, proximal step, screening margins, scores of exchanges, groups."""

import itertools

import numpy as np
import pytest
import torch
from scipy import optimize

from psfit.problem import Domain, EntryItems, LocalModel, OutputItems, RowItems, perspective
from psfit.problem.exchanges import score_rows


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
    out, into = perspective.margins(scores, domain.free, domain.left)
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


def test_swaps_of_rows_are_scored_where_a_part_of_the_inverse_is_singular():
    rng = np.random.default_rng(0)

    def draw(*shape):
        return torch.tensor(rng.normal(size=shape))

    inner = draw(4, 4)
    model = LocalModel(
        gradient=draw(3, 2),
        blocks=torch.eye(2).double().repeat(3, 1, 1),
        columns=0.01 * draw(3, 2, 4),
        inner=inner @ inner.T + torch.eye(4),
        x=draw(4),
        item=torch.tensor([0, 0, 1, 1]),
    )
    K = torch.linalg.inv(model.inner)
    K[0], K[:, 0] = 0.0, 0.0
    assert score_rows(model, K, torch.tensor([0, 1]), torch.tensor([2])).isfinite().all()


# Eight items, of which the last two have no group.
GROUP, MOST = torch.tensor([0, 0, 0, 1, 1, 2, -1, -1]), torch.tensor([2, 1, 0])


def keeps_groups(chosen):
    """Whether a support keeps the limits of the groups, counted in NumPy."""
    counts = [int(((GROUP.numpy() == g) & chosen.numpy()).sum()) for g in range(3)]
    return all(count <= most for count, most in zip(counts, MOST.tolist(), strict=True))


def grouped(kappa):
    return of_size(8, kappa).with_groups(GROUP, MOST)


def every_support(size):
    for bits in itertools.product([False, True], repeat=size):
        yield torch.tensor(bits)


def test_supports_that_groups_allow():
    domain = grouped(4)
    assert not domain.counts_only
    assert of_size(8, 4).counts_only
    inside, outside = torch.zeros(2, 1, 8, dtype=torch.bool)
    inside[0, 1] = outside[0, 6] = True
    decided = domain.decide(inside, outside)
    for chosen in every_support(8):
        rules = keeps_groups(chosen) and int(chosen.sum()) <= 4
        assert domain.allows(chosen) == rules
        assert decided.allows(chosen) == (rules and bool(chosen[1]) and not bool(chosen[6]))
        assert of_size(8, 4).allows(chosen) == (int(chosen.sum()) <= 4)


def test_items_of_full_groups_are_closed():
    for chosen in every_support(8):
        assert not of_size(8, 4).find_closed(chosen).any()
        if keeps_groups(chosen):
            one = torch.eye(8, dtype=torch.bool)
            closed = [not keeps_groups(chosen | one[j]) for j in range(8)]
            assert grouped(8).find_closed(chosen)[~chosen].tolist() == torch.tensor(closed)[~chosen].tolist()


@pytest.mark.parametrize("seed", range(10))
def test_a_support_is_filled_with_the_largest_keys_that_are_allowed(seed):
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(0, 5, (8,), generator=generator).double()
    keys[seed % 8] = -torch.inf
    outside = torch.zeros(1, 8, dtype=torch.bool)
    outside[0, (seed + 3) % 6] = True
    for domain in (of_size(8, 8), grouped(8)):
        domain = domain.decide(torch.zeros_like(outside), outside)
        for count in range(8):
            chosen = expected = torch.eye(8, dtype=torch.bool)[6]
            for _ in range(count):
                # Ties go to the smaller index.
                for j in sorted(range(8), key=lambda j: (-float(keys[j]), j)):
                    more = expected | torch.eye(8, dtype=torch.bool)[j]
                    if not expected[j] and keys[j] > -torch.inf and domain.allows(more):
                        expected = more
                        break
            assert torch.equal(domain.fill(chosen, keys, count), expected)


def test_the_largest_items_keep_the_rules_of_every_row():
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    limits = torch.tensor([[1], [2], [3], [4], [8]])
    domain = Domain.of(OutputItems(8, 1, 0), limits, torch.device("cpu")).with_groups(GROUP, MOST)
    supports = domain.largest(packed)
    for row, limit in enumerate(limits.flatten().tolist()):
        options = [s for s in every_support(8) if keeps_groups(s) and int(s.sum()) <= limit]
        best = max(options, key=lambda s: float(packed[row].abs()[s].sum()))
        assert torch.equal(supports[row], best)


@pytest.mark.parametrize("index", [[0, 2, 3, 5, 7], [1], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_the_domain_of_some_items(index):
    inside, outside = torch.zeros(2, 1, 8, dtype=torch.bool)
    inside[0, 0] = outside[0, 5] = True
    domain = grouped(3).decide(inside, outside)
    part = domain.restrict(torch.tensor(index))
    assert part.items.size == len(index) == part.inside.shape[1]
    for chosen in every_support(len(index)):
        whole = torch.zeros(8, dtype=torch.bool).index_copy(0, torch.tensor(index), chosen)
        # An item that is forced in and left out of the part is nothing to the part.
        whole |= inside[0] if 0 not in index else torch.zeros_like(whole)
        assert part.allows(chosen) == domain.allows(whole)


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_the_domain_of_some_entries_and_rows(count):
    index = torch.arange(count)
    entries = Domain.of(EntryItems(4, 3, 1), 5, torch.device("cpu")).restrict(index)
    assert entries.items.size == count
    assert entries.items.width == 1
    rows = Domain.of(RowItems(12, 3, 1), 5, torch.device("cpu")).restrict(index)
    assert rows.items.size == count
    assert rows.items.width == 3


@pytest.mark.parametrize("seed", range(3))
def test_exchanges_and_additions_keep_the_groups(seed):
    H, q, rows = quadratic(seed, 8, 1)
    chosen = torch.zeros(8, dtype=torch.bool)
    chosen[[0, 1, 3]] = True
    model = model_at(H, q, rows, [0, 1, 3], 1)
    one = torch.eye(8, dtype=torch.bool)
    plain, domain = of_size(8, 3), grouped(3)
    free = [(float(g), o, i) for gs, out, into in plain.swap_scores(model, chosen) for g, o, i in pairs(gs, out, into)]
    kept = [(float(g), o, i) for gs, out, into in domain.swap_scores(model, chosen) for g, o, i in pairs(gs, out, into)]
    assert len(free) == len(kept) == 15
    for (gain, out, into), (found, *_) in zip(free, kept, strict=True):
        assert found == (gain if keeps_groups((chosen & ~one[out]) | one[into]) else -np.inf)
    gains, found = plain.addition_scores(model, chosen), domain.addition_scores(model, chosen)
    expected = [gain if keeps_groups(chosen | one[j]) else 0.0 for j, gain in enumerate(gains.tolist())]
    assert found.tolist() == expected


def pairs(gains, leaving, joining):
    for a, out in enumerate(leaving.tolist()):
        for b, into in enumerate(joining.tolist()):
            yield gains[a, b], out, into
