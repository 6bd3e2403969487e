"""Items that a domain puts inside or outside are there, or not, in every answer; against enumeration by NumPy."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
import torch

from psfit import Dense, Problem, Source, solve
from psfit.losses import Squared

FORCED, BANNED = 7, 2


@dataclass(frozen=True)
class ForcedProblem(Problem):
    def domain(self, items, limit, device):
        plain = super().domain(items, limit, device)
        inside, outside = torch.zeros_like(plain.inside), torch.zeros_like(plain.outside)
        inside[:, FORCED] = outside[:, BANNED] = True
        return plain.decide(inside, outside)


@pytest.mark.parametrize(("features", "kappa"), [(8, 2), (14, 4)])
def test_the_best_support_with_forced_items_is_found(features, kappa):
    """Few supports are all tried; more of them are searched."""
    rng = np.random.default_rng(features)
    X = rng.normal(size=(60, features)) + rng.normal(size=(60, 1))
    y = X @ np.where(np.arange(features) == FORCED, 0.0, rng.normal(size=features)) + 3 * X[:, BANNED]
    target = torch.tensor(y).unsqueeze(1)
    result = solve(ForcedProblem(Squared(), (kappa,)), Source(Dense(torch.tensor(X)), target, torch.ones_like(target)))

    def objective(support):
        A = np.column_stack([X[:, support], np.ones(60)])
        ridge = np.diag([0.5] * len(support) + [0.0])
        x = np.linalg.solve(A.T @ A + ridge, A.T @ y)
        return ((A @ x - y) ** 2).sum() + x @ ridge @ x

    others = [j for j in range(features) if j not in (FORCED, BANNED)]
    best = min(objective([FORCED, *more]) for more in combinations(others, kappa - 1))
    assert FORCED in result.support
    assert BANNED not in result.support
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.lower_bound <= best * (1 + 1e-9)
