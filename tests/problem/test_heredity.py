"""Items that need others: what decided items imply, against all supports."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from constrained import is_allowed

from psfit.problem import Domain, GroupItems, OutputItems
from psfit.problem.constrained_domain import most_counted, require_feasible, restrict_supports
from psfit.problem.constraints import Constraints

SIZE = 6
PARENTS = ((4, (0, 1)), (5, (1, 2)), (3, (4,)))


def domain_of(kind, limit, **others):
    demands = Constraints(parents=PARENTS, heredity=kind, **others)
    return restrict_supports(Domain.of(OutputItems(SIZE, 1, 0), limit, torch.device("cpu")), demands)


def all_allowed(domain):
    for size in range(SIZE + 1):
        for items in itertools.combinations(range(SIZE), size):
            mask = torch.zeros(SIZE, dtype=torch.bool)
            mask[list(items)] = True
            if domain.allows(mask):
                yield mask


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_supports_are_those_that_the_words_say(kind):
    found = {tuple(mask.nonzero().flatten().tolist()) for mask in all_allowed(domain_of(kind, 4))}
    needs = all if kind == "strong" else any
    expected = {
        items
        for size in range(5)
        for items in itertools.combinations(range(SIZE), size)
        if all(needs(parent in items for parent in parents) for child, parents in PARENTS if child in items)
    }
    assert found == expected


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_what_is_implied_loses_no_support(kind):
    domain = domain_of(kind, 4)
    every = list(all_allowed(domain))
    for inside, outside in itertools.permutations(range(SIZE), 2):
        masks = torch.zeros(2, SIZE, dtype=torch.bool)
        masks[0, inside], masks[1, outside] = True, True
        tight, possible = domain.decide(masks[:1], masks[1:]).tighten()
        left = [one for one in every if one[inside] and not one[outside]]
        assert bool(possible) or not left
        for one in left:
            assert not bool((tight.inside[0] & ~one).any() | (tight.outside[0] & one).any())


def test_filling_takes_parents_along():
    domain = domain_of("strong", 3)
    keys = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.9, 0.5])
    chosen = domain.fill(domain.inside[0], keys, 3)
    assert chosen.nonzero().flatten().tolist() == [0, 1, 4]


def test_parents_that_serve_two_children_are_found():
    demands = Constraints(include=(4, 5), parents=PARENTS, heredity="weak")
    domain = restrict_supports(Domain.of(OutputItems(SIZE, 1, 0), 3, torch.device("cpu")), demands)
    keys = torch.tensor([0.9, 0.1, 0.8, 0.0, 0.0, 0.0])
    assert domain.fill(domain.inside[0], keys, 1).nonzero().flatten().tolist() == [1, 4, 5]


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_demands_are_refused_if_and_only_if_no_support_obeys(kind):
    rng, outcomes = np.random.default_rng(0), set()
    for _ in range(60):
        order = rng.permutation(SIZE)
        pairs = tuple((int(child), tuple(order[:3][rng.random(3) < 0.7].tolist())) for child in order[3:])
        demands = Constraints(
            include=tuple(order[4:].tolist()),
            exclude=tuple(order[:1][rng.random(1) < 0.3].tolist()),
            kind=rng.integers(-1, 2, size=SIZE),
            at_most=rng.integers(1, 3, size=2),
            parents=tuple(pair for pair in pairs if pair[1]) or ((int(order[5]), (int(order[0]),)),),
            heredity=kind,
        )
        limit = int(rng.integers(2, 5))
        supports = [some for k in range(limit + 1) for some in itertools.combinations(range(SIZE), k)]
        feasible = any(is_allowed(np.isin(np.arange(SIZE), some)[:, None], demands) for some in supports)
        outcomes.add(feasible)
        with nullcontext() if feasible else pytest.raises(ValueError, match="cannot hold together"):
            require_feasible(OutputItems(SIZE, 1, 0), limit, demands)
    assert outcomes == {True, False}


def test_demands_that_cannot_hold_together_are_refused():
    items = OutputItems(SIZE, 1, 0)
    with pytest.raises(ValueError, match="cannot hold together"):
        require_feasible(items, 2, Constraints(include=(4,), parents=PARENTS))
    with pytest.raises(ValueError, match="cannot hold together"):
        require_feasible(items, 4, Constraints(include=(4,), exclude=(0,), parents=PARENTS))
    require_feasible(items, 3, Constraints(include=(4,), parents=PARENTS))
    groups = GroupItems(SIZE, 1, 0, torch.tensor([0, 0, 1, 1, 2, 2]), False)
    with pytest.raises(ValueError, match="heredity is about single features"):
        require_feasible(groups, 3, Constraints(parents=PARENTS))
    assert most_counted(items, Constraints(include=(0,), exclude=(2, 3))) == 3
