"""Raises the bound of a quadratic form: ascent on the dual, on a CPU with the few items that matter.

At the solution of the relaxation most items are zero. So the ascent works on a few of them, and one product with the
form's matrix tells which others would change the bound: those with scores among the largest.
"""

import torch
from torch import Tensor

from psfit.certificate.form_bound import FormBound, Point
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import CHECK_EVERY, PATIENCE, STALLED, QuadraticRelaxation, choose_rho
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain

# The most iterations in each round, and the most rounds.
ITERATIONS = 100
ROUNDS = 6
# How many items the ascent works on at first: some for each place, and some more. If that is most of them, all.
ITEMS_PER_PLACE = 4
MORE_ITEMS = 50
MOST_OF_THEM = 0.6
# Another round follows only if the last one closed at least this share of the gap.
WORTHWHILE = 0.02


def raise_bound(limited: LimitedForm, bound: FormBound, start: Point, domain: Domain, objective: float) -> Point:
    """A point with a better bound than the start's, or the start. A bound of `objective` is good enough.

    The points are improved for the plain limit, and their bounds are those of the `domain`.
    """
    if bound.form.G.device.type != "cpu" or bound.items.weights is not None:
        relaxation = QuadraticRelaxation(limited, bound.extracted)
        state = relaxation.start(start.x.T)
        above = bound.at(relaxation.ascend(relaxation.root, state, objective, ITERATIONS)[0][0], domain)
        return above if above.lower > start.lower else start
    ascent, best = _Ascent(bound, limited.kappa, start), start
    for k in range(ROUNDS):
        x, g = ascent.improve(objective)
        found = bound.at(x, domain, g)
        gain = found.lower - best.lower
        best = found if gain > 0 else best
        worthwhile = k == 0 or gain > WORTHWHILE * (objective - best.lower)
        if best.lower >= objective or not worthwhile or not ascent.grow(found.scores[0]):
            break
    return best


class _Ascent:
    """The iterates of the items at work; all other items are zero."""

    def __init__(self, bound: FormBound, places: int, start: Point) -> None:
        self.bound, self.places, self.room = bound, places, ITEMS_PER_PLACE * places + MORE_ITEMS
        self.rho = choose_rho(bound)
        keys, count = torch.where(self._find_used(start.x), torch.inf, start.scores[0]), bound.items.size
        few = self.room < MOST_OF_THEM * count
        size = max(self.room, int(keys.isinf().sum())) if few else count
        self.items = keys.topk(size).indices if few else torch.arange(count)
        self.z, self.g = start.x, bound.gradient(start.x.unsqueeze(0))[0]
        # The multipliers that belong to z.
        self.u = -self.g / self.rho

    def _find_used(self, x: Tensor) -> Tensor:
        """The items ``(size,)`` with a coefficient in ``x (c, n)``."""
        return self.bound.items.sum_rows((x != 0).sum(dim=0)) > 0

    def _find_columns(self) -> tuple[Tensor, Tensor]:
        """The columns of the items at work, and the place of the item of each among them."""
        count = self.bound.items.size
        place = torch.full((count,), -1).index_copy(0, self.items, torch.arange(len(self.items)))
        if not self.bound.items.in_groups:
            return self.items, place[self.items]
        every = self.bound.items.spread_rows(place)
        columns = (every >= 0).nonzero().flatten()
        return columns, every[columns]

    def improve(self, objective: float) -> tuple[Tensor, Tensor]:
        """The best point ``(c, n)`` of some iterations, and the gradient there."""
        from psfit.kernels.cpu.perspective import ascend

        bound = self.bound
        items, place = self._find_columns()
        rows = bound.form.G if len(items) == bound.size else bound.form.G[items]
        block = rows.clone() if rows is bound.form.G else rows[:, items]
        block.diagonal().add_(self.rho - bound.extracted[items])
        inverse = torch.cholesky_inverse(cholesky(block))
        z, u, Q, low, high = (part[:, items].contiguous() for part in (self.z, self.u, bound.Q, *bound.limits))
        point = torch.empty_like(z)
        ascend(
            inverse.numpy(),
            Q.numpy(),
            low.numpy(),
            high.numpy(),
            place.numpy(),
            bound.items.pack_ridge(bound.ridge)[self.items].numpy(),
            self.places,
            self.rho,
            bound.constant,
            z.numpy(),
            u.numpy(),
            objective,
            ITERATIONS,
            CHECK_EVERY,
            STALLED,
            PATIENCE,
            point.numpy(),
        )
        x = torch.zeros_like(self.z).index_copy_(1, items, point)
        self.g = (point @ rows).sub_(bound.extracted * x).sub_(bound.Q)
        self.z = torch.zeros_like(x).index_copy_(1, items, z)
        self.u = (-self.g / self.rho).index_copy_(1, items, u)
        return x, self.g

    def grow(self, scores: Tensor) -> bool:
        """Add items, at most as many as there are, whose scores would be among the largest; tell if there are any."""
        if len(self.items) == len(scores):
            return False
        least = scores[self.items].topk(self.places).values[-1]
        others = scores.index_fill(0, self.items, -torch.inf)
        ranked = others.topk(min(self.room, len(scores) - len(self.items)))
        new = ranked.indices[ranked.values >= least]
        used = self._find_used(self.z)[self.items]
        self.items = torch.cat([self.items[used], new])
        return len(new) > 0
