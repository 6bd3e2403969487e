"""A constraint of your own: at most one feature of each group, such as one lag of each variable.

A domain says which supports are allowed. The search asks it for supports to begin with (`fill`), for the gains of
exchanges and of additions, and whether it allows a support. What is allowed here is less than what kappa alone allows,
so bounds that know only kappa stay valid.

    python examples/extending/one_of_each.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from psfit import Dense, GridSpec, Problem, Result, Source, solve
from psfit.losses import Squared
from psfit.problem import Domain, Items, LocalModel


@dataclass(frozen=True)
class OneOfEach(Domain):
    """The items ``(size,)`` belong to groups by number; a support has at most one item of a group."""

    counts_only = False
    group: Tensor

    def allows(self, support: Tensor) -> bool:
        return super().allows(support) and int(self.group[support].bincount().max()) <= 1

    def fill(self, chosen: Tensor, keys: Tensor, count: int) -> Tensor:
        for _ in range(count):
            keys = torch.where(self._closed(chosen), -torch.inf, keys)
            chosen = super().fill(chosen, keys, 1)
        return chosen

    def swap_scores(self, model: LocalModel, chosen: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        closed = self._closed(chosen)
        for gains, leaving, joining in super().swap_scores(model, chosen):
            same = self.group[leaving].unsqueeze(1) == self.group[joining]
            yield torch.where(closed[joining] & ~same, -torch.inf, gains), leaving, joining

    def addition_scores(self, model: LocalModel, chosen: Tensor) -> Tensor:
        return torch.where(self._closed(chosen), 0.0, super().addition_scores(model, chosen))

    def _closed(self, chosen: Tensor) -> Tensor:
        """Items whose group has a member in the support."""
        return torch.isin(self.group, self.group[chosen])


@dataclass(frozen=True)
class GroupedProblem(Problem):
    """A problem whose features belong to ``groups``, a number for each feature."""

    groups: tuple[int, ...] = ()

    def domain(self, items: Items, limit: Tensor | int, device: torch.device) -> Domain:
        plain = super().domain(items, limit, device)
        group = torch.tensor(self.groups, device=device)
        return OneOfEach(**{one.name: getattr(plain, one.name) for one in fields(plain)}, group=group)


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
