"""Groups of features as items, and the parts of a domain with weights, against loops and a linear program."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from psfit.problem import Domain, GroupItems, OutputGroupItems, perspective

GROUP = torch.tensor([2, 0, 1, 0, 3, 1, 1])
CPU = torch.device("cpu")


def members():
    return [np.flatnonzero(GROUP.numpy() == group) for group in range(4)]


@pytest.mark.parametrize("kind", [GroupItems, OutputGroupItems])
def test_norms_of_groups_and_the_way_back(kind):
    items = kind(7, 2, 1, GROUP)
    Z = torch.randn(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    packed = items.pack(Z)
    for problem in range(items.problems):
        outputs = items.outputs_of(problem)
        for group, rows in enumerate(members()):
            assert packed[problem, group] == pytest.approx(float(Z[rows][:, outputs].norm()))
    torch.testing.assert_close(items.replace(Z, packed), Z)
    halved = items.replace(Z, 0.5 * packed)
    torch.testing.assert_close(halved[:7], 0.5 * Z[:7])
    torch.testing.assert_close(halved[7:], Z[7:])
    chosen = torch.tensor([[True, False, True, False]]).expand(items.problems, 4)
    assert items.mask(chosen)[:, 0].tolist() == [True, True, False, True, False, False, False]
    assert items.rows_of(chosen[0]).tolist() == [0, 1, 3, 7]


def test_parts_of_groups():
    items = OutputGroupItems(7, 1, 0, GROUP)
    assert items.restrict(torch.tensor([0, 1, 3])).group.tolist() == [1, 0, 0]
    assert items.select(torch.tensor([1, 3])).group.tolist() == [0, 1, 0, 0]
    assert items.features_of(torch.tensor([1, 2])).tolist() == [0, 2, 5, 6]
    assert items.items_of(torch.tensor([1, 2, 3])).tolist() == [0, 1]
    order = torch.tensor([5, 0, 1, 2, 3, 4, 6])
    assert items.take_first(order, 5, 0).tolist() == [0, 2, 5, 6]
    assert items.take_first(order, 1, 1).tolist() == [2, 5, 6]
    with pytest.raises(ValueError, match="whole groups"):
        items.restrict(torch.tensor([0, 1]))


def weighted_domain(limit, inside=(), outside=()):
    items = OutputGroupItems(7, 1, 0, GROUP, True)
    domain = Domain.of(items, limit, CPU)
    numbers = torch.arange(4)
    masks = [torch.isin(numbers, torch.tensor(part, dtype=torch.int64)).unsqueeze(0) for part in (inside, outside)]
    return domain.decide(*masks)


@pytest.mark.parametrize(("limit", "inside", "outside"), [(3, (), ()), (5, (2,), ()), (4, (), (1,)), (7, (), ())])
def test_the_conjugate_with_weights_is_a_linear_program(limit, inside, outside):
    """It bounds every allowed support, and margins tell how it falls if an item is decided."""
    domain, weights = weighted_domain(limit, inside, outside), np.array([2, 3, 1, 1])
    for seed in range(5):
        scores = np.random.default_rng(seed).exponential(size=4)

        def relaxed(inside, outside, scores=scores):
            left = limit - weights[list(inside)].sum()
            free = [j for j in range(4) if j not in inside and j not in outside and weights[j] <= left]
            found = linprog(-scores[free], weights[None, free], [left], bounds=(0, 1)) if free else None
            return scores[list(inside)].sum() - (found.fun if found is not None else 0.0)

        table = torch.tensor(scores)[None]
        value = float(domain.conjugate(table))
        assert value == pytest.approx(relaxed(inside, outside))
        for count in range(5):
            for chosen in itertools.combinations(range(4), count):
                allowed = set(inside) <= set(chosen) and not set(outside) & set(chosen)
                support = torch.isin(torch.arange(4), torch.tensor(chosen, dtype=torch.int64))
                assert domain.allows(support) == (allowed and weights[list(chosen)].sum() <= limit)
                if domain.allows(support):
                    assert scores[list(chosen)].sum() <= value + 1e-12
        out, into = perspective.margins(table, domain.free, domain.left, domain.weights)
        for j in set(range(4)) - set(inside) - set(outside):
            assert relaxed(inside, (*outside, j)) <= value - float(out[0, j]) + 1e-9
            if weights[list(inside)].sum() + weights[j] <= limit:
                assert relaxed((*inside, j), outside) <= value - float(into[0, j]) + 1e-9
            else:
                assert into[0, j] == torch.inf


def test_shares_with_weights_minimise_the_relaxed_ridge():
    """The factors are those of the best shares, found on a grid of multipliers of the limit."""
    domain = weighted_domain(3)
    size, ridge, rho = torch.tensor([[1.0, 2.0, 0.5, 1.5]]).double(), torch.tensor([0.5, 1.0, 2.0, 0.7]).double(), 0.8
    factor, share = domain.shrink(size, ridge, rho)
    weights = torch.tensor([2.0, 3.0, 1.0, 1.0]).double()
    assert float((share * weights).sum()) == pytest.approx(3.0)

    def cost(s):
        return float((rho * ridge * size.square() / (2 * (rho * s + ridge))).sum())

    torch.testing.assert_close(factor, rho * share / (rho * share + ridge))
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        other = torch.rand(1, 4, dtype=torch.float64, generator=generator)
        used = (other * weights).sum()
        other = (other * (3.0 / used)).clamp(max=1)
        assert cost(other) >= cost(share) - 1e-9
