"""Best-first branch and bound over supports, a batch of tree nodes at a time.

A tree node says of some items that they are inside or outside. Its relaxation gives a bound. If the bound is not close
to the objective of the best known support, one undecided item is put inside in one child and outside in the other.
Children start from their parent's iterate and share one factor of the data. So a batch of them costs a few matrix
products.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.certificate.relaxation import Bounds, Relaxation
from psfit.problem import Domain, all_supports

BATCH = {"cpu": 64, "cuda": 1024}
CHILD_ITERATIONS = 10
# In each batch, the rounded supports of this many nodes with the smallest bounds are tried as answers.
ROUNDINGS = 2


@dataclass(frozen=True)
class Standing:
    """The state of a search: bounds on the optimum, nodes explored and nodes still open."""

    upper: float
    lower: float
    explored: int
    open: int


@dataclass(frozen=True)
class Tree:
    """The result of a search: no support is better than `lower`. `support` has the objective `upper`; it is None if the
    search found nothing better than the start.
    """

    lower: float
    upper: float
    support: Tensor | None
    explored: int


class _Pool:
    """The open nodes of the tree, as rows of tensors. Rows that were taken out are used again."""

    def __init__(self, like: tuple[Tensor, ...]) -> None:
        self.columns = tuple(column[:0].clone() for column in like)
        self.unused: list[int] = []

    def add(self, rows: tuple[Tensor, ...]) -> list[int]:
        count, capacity = len(rows[0]), len(self.columns[0])
        if count > len(self.unused):
            added = max(256, capacity, count)
            self.columns = tuple(torch.cat([c, c.new_empty(added, *c.shape[1:])]) for c in self.columns)
            self.unused += range(capacity, capacity + added)
        places = [self.unused.pop() for _ in range(count)]
        index = torch.tensor(places, device=rows[0].device)
        for column, row in zip(self.columns, rows, strict=True):
            column[index] = row
        return places

    def take(self, places: list[int]) -> tuple[Tensor, ...]:
        index = torch.tensor(places, device=self.columns[0].device)
        self.unused += places
        return tuple(column[index] for column in self.columns)


class Search:
    """One tree; `upper` is the objective of the incumbent and `best` its support, None before a better one is found."""

    def __init__(self, relaxation: Relaxation, upper: float, gap_tol: float) -> None:
        self.relaxation, self.upper, self.gap_tol = relaxation, upper, gap_tol
        self.best: Tensor | None = None
        self.floor, self.explored = float("inf"), 0
        self.heap: list[tuple[float, int]] = []
        self.pool: _Pool | None = None
        self.tried: dict[bytes, tuple[float, float]] = {}

    @property
    def enough(self) -> float:
        """A node with a bound this high need not be explored."""
        return self.upper - self.gap_tol * abs(self.upper)

    @property
    def lower(self) -> float:
        """The lower bound proved so far."""
        waiting = self.heap[0][0] if self.heap else float("inf")
        return min(self.upper, self.floor, waiting)

    def run(self, root: Domain, bounds: Bounds, stop: Callable[[Standing], bool]) -> Tree:
        """Explore from the root, whose bounds are known, until everything is proved or `stop` returns True."""
        self._process(root, bounds, bounds.lower)
        width = BATCH[self.relaxation.device.type]
        while self.heap and not stop(Standing(self.upper, self.lower, self.explored, len(self.heap))):
            if self.heap[0][0] >= self.enough:
                # The waiting node with the smallest bound need not be explored, so no other node need be.
                self.floor, self.heap = min(self.floor, self.heap[0][0]), []
                break
            taken = [heapq.heappop(self.heap) for _ in range(min(width, len(self.heap)))]
            lowers = torch.tensor([lower for lower, _ in taken], dtype=torch.float64, device=self.relaxation.device)
            assert self.pool is not None
            self._expand(self.pool.take([place for _, place in taken]), lowers)
        return Tree(self.lower, self.upper, self.best, self.explored)

    def try_all(self, stop: Callable[[Standing], bool]) -> Tree:
        """Bound every support by itself; nothing is proved if `stop` returns True before the last one."""
        for support in all_supports(self.relaxation.root.items.size, self.relaxation.kappa, self.relaxation.device):
            if stop(Standing(self.upper, float("-inf"), self.explored, 1)):
                self.floor = float("-inf")
                break
            self._try(support, closing=True)
            self.explored += 1
        return Tree(self.lower, self.upper, self.best, self.explored)

    def _expand(self, rows: tuple[Tensor, ...], parent_bounds: Tensor) -> None:
        inside, outside, chosen, *state = rows
        mark = torch.zeros_like(inside).scatter(1, chosen, True)
        inside, outside = torch.cat([inside | mark, inside]), torch.cat([outside, outside | mark])
        domain = self.relaxation.root.decide(inside, outside)
        parent = torch.arange(len(chosen), device=inside.device).repeat(2)
        bounds = self.relaxation.bound(domain, tuple(s[parent] for s in state), self.enough, CHILD_ITERATIONS)
        self.explored += len(parent)
        self._process(domain, bounds, torch.maximum(bounds.lower, parent_bounds[parent]))

    def _process(self, domain: Domain, bounds: Bounds, lower: Tensor) -> None:
        """Try rounded supports, decide the items that the bounds decide, close leaves, and queue the other nodes.

        `lower` may come from a parent and be better than the node's own bound. The scores belong to the latter.
        """
        self._round(domain, bounds, lower)
        domain, possible = domain.screen(bounds.scores, bounds.lower, self.upper)
        possible = possible & (lower <= self.upper)
        # No places left, or no more candidates than places: one support remains.
        free = domain.free
        full = domain.left.squeeze(1) <= 0
        leaf = possible & (full | (free.sum(dim=1) <= domain.left.squeeze(1)))
        for row in leaf.nonzero().flatten().tolist():
            self._try(domain.inside[row] if bool(full[row]) else domain.inside[row] | free[row], closing=True)
        for value, is_open in zip(lower.tolist(), (possible & ~leaf).tolist(), strict=True):
            if is_open and value >= self.enough:
                self.floor = min(self.floor, value)
        queue = (possible & ~leaf & (lower < self.enough)).nonzero().flatten()
        if not len(queue):
            return
        kept = domain.select(queue)
        chosen = branching_item(kept, bounds.shares[queue], bounds.scores[queue])
        rows = (kept.inside, kept.outside, chosen, *(s[queue] for s in bounds.state))
        self.pool = self.pool or _Pool(rows)
        for value, place in zip(lower[queue].tolist(), self.pool.add(rows), strict=True):
            heapq.heappush(self.heap, (value, place))

    def _round(self, domain: Domain, bounds: Bounds, lower: Tensor) -> None:
        for row in lower.argsort()[:ROUNDINGS].tolist():
            order = torch.where(domain.outside[row], -1.0, bounds.shares[row] + domain.inside[row].double())
            support = torch.zeros_like(domain.inside[row])
            support[order.topk(min(self.relaxation.kappa, len(order))).indices] = True
            self._try(support & ~domain.outside[row])

    def _try(self, support: Tensor, closing: bool = False) -> None:
        """Take a support as the answer if it is better; a leaf is closed at its own optimum."""
        key = support.cpu().numpy().tobytes()
        if key not in self.tried:
            self.tried[key] = self.relaxation.optimum(support)
        value, error = self.tried[key]
        if closing:
            self.floor = min(self.floor, value - error)
        if value < self.upper:
            self.upper, self.best = value, support


def branching_item(domain: Domain, shares: Tensor, scores: Tensor) -> Tensor:
    """The free item ``(B, 1)`` with the largest product of its share of the limit and its score."""
    return torch.where(domain.free, shares * scores, -1.0).argmax(dim=1, keepdim=True)
