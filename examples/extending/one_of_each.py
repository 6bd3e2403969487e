"""A constraint of your own: at most one feature of each group, such as one lag of each variable.

A domain says which supports are allowed, and a problem makes it. Here it is the usual domain with groups: `group` has
the number of each feature's group, and `most` says how many features of each group a support may have. What is allowed
is less than what kappa alone allows, so bounds that know only kappa stay valid.

    python examples/extending/one_of_each.py
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit import Dense, GridSpec, Problem, Result, Source, solve
from psfit.losses import Squared
from psfit.problem import Domain, Items


@dataclass(frozen=True)
class GroupedProblem(Problem):
    """A problem whose features belong to ``groups``, a number for each feature; each group has one feature at most."""

    groups: tuple[int, ...] = ()

    def domain(self, items: Items, limit: Tensor | int, device: torch.device) -> Domain:
        group = torch.tensor(self.groups, device=device)
        most = torch.ones(max(self.groups) + 1, dtype=torch.long, device=device)
        return super().domain(items, limit, device).with_groups(group, most)


def fit(X: np.ndarray, y: np.ndarray, groups: tuple[int, ...], kappa: int) -> Result:
    """Linear regression on at most kappa features, no two of them of one group."""
    target = torch.from_numpy(y).unsqueeze(1)
    source = Source(Dense(torch.from_numpy(X)), target, torch.ones_like(target))
    problem = GroupedProblem(Squared(), (kappa,), gamma=1.0, groups=groups)
    return solve(problem, source, grid=GridSpec(device="cpu", backend="serial"))


def main() -> None:
    """Four lags of each of ten variables; neighbouring lags are much alike."""
    rng = np.random.default_rng(0)
    series = rng.normal(size=(500, 10)).cumsum(axis=0)
    X = np.concatenate([np.roll(series, lag, axis=0) for lag in range(4)], axis=1)[4:]
    y = X[:, 0] - 2 * X[:, 13] + X[:, 35] + rng.normal(size=len(X))
    result = fit(X, y, groups=tuple(range(10)) * 4, kappa=3)
    print(result)
    print("lag and variable:", [(int(j) // 10, int(j) % 10) for j in result.support])


if __name__ == "__main__":
    main()
