"""Searches in a form without the variables of items that are in every support: these always take their best values.

With the forced variables F and the others R the form that is left is

    H_RR - H_RF H_FF^-1 H_FR,   q_R - H_RF H_FF^-1 q_F,   constant - 1/2 q_F' H_FF^-1 q_F.

So a search costs as much as one for the items that are still to be chosen.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from psfit.kernels.linalg import cholesky
from psfit.problem import Domain
from psfit.search.form_search import End, FormSearch, SearchForm

# Makes the search in the form that is left.
Make = Callable[[SearchForm, Domain], FormSearch]


class ReducedSearch(FormSearch):
    """Searches for items of one variable each, of which some are in every support; see `FormSearch`."""

    def __init__(self, form: SearchForm, domain: Domain, rel_tol: float, make: Make) -> None:
        super().__init__(form, domain, rel_tol)
        self.forced = domain.inside[0].cpu().numpy()
        self.count = int(self.forced.sum())
        self.rest = make(*eliminate_forced(form, domain))

    def grow(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        return self._extend_all(self.rest.grow(chosen[~self.forced], self._lower(limits)))

    def shrink(self, chosen: np.ndarray, limits: Sequence[int]) -> list[np.ndarray]:
        return self._extend_all(self.rest.shrink(chosen[~self.forced], self._lower(limits)))

    def change_each(self, supports: Sequence[np.ndarray], limits: Sequence[int]) -> list[np.ndarray]:
        packed = [chosen[~self.forced] for chosen in supports]
        return self._extend_all(self.rest.change_each(packed, self._lower(limits)))

    def descend(self, starts: Iterable[np.ndarray]) -> list[End]:
        return self._extend_ends(self.rest.descend([start[~self.forced] for start in starts]))

    def descend_around(self, base: np.ndarray, starts: np.ndarray, most_swaps: Sequence[int]) -> list[End]:
        free = ~self.forced
        return self._extend_ends(self.rest.descend_around(base[free], starts[:, free], most_swaps))

    def single_swaps(self, base: np.ndarray, count: int) -> list[End]:
        return self._extend_ends(self.rest.single_swaps(base[~self.forced], count))

    def count_affordable(self, base: np.ndarray, work: float) -> int:
        return self.rest.count_affordable(base[~self.forced], work)

    def _lower(self, limits: Sequence[int]) -> list[int]:
        return [limit - self.count for limit in limits]

    def _extend(self, chosen: np.ndarray) -> np.ndarray:
        whole = np.ones(self.items, dtype=bool)
        whole[~self.forced] = chosen
        return whole

    def _extend_all(self, supports: Iterable[np.ndarray]) -> list[np.ndarray]:
        self.work = self.rest.work
        return [self._extend(chosen) for chosen in supports]

    def _extend_ends(self, ends: Iterable[End]) -> list[End]:
        self.work = self.rest.work
        return [replace(end, chosen=self._extend(end.chosen)) for end in ends]


def eliminate_forced(form: SearchForm, domain: Domain) -> tuple[SearchForm, Domain]:
    """The form minimised over the variables of the items inside, and the domain of the other items."""
    inside = domain.inside[0]
    others = len(form.H) - len(inside)
    kept = torch.nn.functional.pad(~inside, (0, others), value=True).nonzero().flatten()
    gone = inside.nonzero().flatten()
    factor = cholesky(form.H[gone.unsqueeze(1), gone])
    half = torch.linalg.solve_triangular(factor, torch.cat([form.H[gone][:, kept], form.Q[gone]], dim=1), upper=False)
    H_half, q_half = half[:, : len(kept)], half[:, len(kept) :]
    H = form.H[kept.unsqueeze(1), kept]
    own = H.diagonal().clone()
    H = torch.addmm(H, H_half.T, H_half, alpha=-1)
    # A variable that depends on those that are gone has next to no curvature left, and rounding must not make it less.
    H.diagonal().clamp_(min=form.accuracy * own)
    left = SearchForm(
        H,
        form.Q[kept] - H_half.T @ q_half,
        form.constant - 0.5 * float(q_half.square().sum()),
        accuracy=form.accuracy,
    )
    rest = domain.restrict((~inside).nonzero().flatten())
    if domain.group is not None and domain.most is not None:
        taken = domain.group[inside & (domain.group >= 0)].bincount(minlength=len(domain.most))
        rest = replace(rest, most=domain.most - taken.to(domain.most.dtype))
    return left, rest
