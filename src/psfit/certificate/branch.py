"""Best-first branch and bound over supports, a batch of tree nodes at a time.

A tree node says of some items that they are inside or outside. Its relaxation gives a bound. If the bound is not close
to the objective of the best known support, one undecided item is put inside in one child and outside in the other.
Children start from their parent's iterate. A batch of them costs a few matrix products. When as many nodes are open as
memory allows, the search goes down from a few of them first, until these are closed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from psfit.certificate.open_nodes import OpenNodes
from psfit.certificate.relaxation import Bounds, Relaxation
from psfit.problem import Domain, all_supports

# In each batch, the rounded supports of one in so many nodes, those with the smallest bounds, are tried as answers.
NODES_PER_ROUNDING, FEWEST_ROUNDINGS, MOST_ROUNDINGS = 32, 2, 64
# What an item with a whole share lacks in the choice of the next item, so that its score still counts.
LEAST_LACK = 0.01
# So many supports that were tried are remembered.
MOST_TRIED = 1 << 17


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


@dataclass(frozen=True)
class TreeState:
    """The open nodes of a search, the bound of those that were closed, and its best support, None if there is none.

    The columns are the masks of the items inside and outside, the item to branch on, and the point.
    """

    upper: float
    floor: float
    explored: int
    best: Tensor | None
    lower: Tensor
    depth: Tensor
    columns: tuple[Tensor, ...]


class Search:
    """One tree; `upper` is the objective of the incumbent and `best` its support, None before a better one is found.

    At most about `most_open` nodes wait at the same time. Items with the same label in ``twins (size,)`` can stand for
    each other, so that only one of them need be tried.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        upper: float,
        gap_tol: float,
        most_open: float = inf,
        twins: Tensor | None = None,
    ) -> None:
        self.relaxation, self.upper, self.gap_tol, self.most_open = relaxation, upper, gap_tol, most_open
        self.twins = twins
        self.best: Tensor | None = None
        self.floor, self.explored = inf, 0
        self.nodes = OpenNodes(relaxation.device)
        self.tried: dict[bytes, tuple[float, float]] = {}

    @property
    def cutoff(self) -> float:
        """Supports with objectives above this are of no interest."""
        return self.upper

    @property
    def enough(self) -> float:
        """A node with a bound this high need not be explored."""
        return self.upper - self.gap_tol * abs(self.upper)

    @property
    def lower(self) -> float:
        """The lower bound proved so far."""
        return min(self.upper, self.floor, self.lowest_open)

    @property
    def lowest_open(self) -> float:
        """A bound of all supports that wait to be explored."""
        return self.nodes.lowest

    def run(self, root: Domain, bounds: Bounds, stop: Callable[[Standing], bool]) -> Tree:
        """Explore from the root, whose bounds are known, until everything is proved or `stop` returns True."""
        bounds = bounds.without_nan()
        self._process(root, bounds, bounds.lower)
        return self.explore(stop)

    def resume(self, state: TreeState, stop: Callable[[Standing], bool]) -> Tree:
        """Explore from where another search was."""
        self.upper, self.floor, self.explored, self.best = state.upper, state.floor, state.explored, state.best
        if len(state.lower):
            inside, outside, item, points = state.columns
            self.nodes.add(state.lower, state.depth, (inside, outside, item, *self.relaxation.restart(points)))
        return self.explore(stop)

    @property
    def state(self) -> TreeState:
        """What another search needs to go on from here."""
        lower, depth, columns = self.nodes.rows()
        return TreeState(self.upper, self.floor, self.explored, self.best, lower, depth, columns[:4])

    def explore(self, stop: Callable[[Standing], bool]) -> Tree:
        """Explore the open nodes until everything is proved or `stop` returns True."""
        while len(self.nodes) and not stop(Standing(self.upper, self.lower, self.explored, len(self.nodes))):
            self.floor = min(self.floor, self.nodes.close(self.enough))
            if not len(self.nodes):
                break
            # When memory is full, the search goes down until there is room again.
            lower, rows = self.nodes.take(self.relaxation.width, deepest=len(self.nodes) > self.most_open)
            self._expand(rows, lower)
        return Tree(self.lower, self.upper, self.best, self.explored)

    def try_all(self, stop: Callable[[Standing], bool]) -> Tree:
        """Bound every support by itself; nothing is proved if `stop` returns True before the last one."""
        root = self.relaxation.root
        every = all_supports(root.items.size, self.relaxation.kappa, self.relaxation.device)
        supports = [one for one in every if root.allows(one)]
        for part in torch.stack(supports).split(max(1, self.relaxation.width // 4)):
            if stop(Standing(self.upper, -inf, self.explored, 1)):
                self.floor = -inf
                break
            self._try(part, None, [-inf] * len(part))
            self.explored += len(part)
        return Tree(self.lower, self.upper, self.best, self.explored)

    def _expand(self, rows: tuple[Tensor, ...], parent_bounds: Tensor) -> None:
        inside, outside, chosen, *state = rows
        mark = torch.zeros_like(inside).scatter(1, chosen, True)
        # A support with a twin of an item in its place is as good, and belongs to the other branch.
        others = mark if self.twins is None else (self.twins == self.twins[chosen]) & ~inside
        inside, outside = torch.cat([inside | mark, inside]), torch.cat([outside, outside | others])
        domain, possible = self.relaxation.root.decide(inside, outside).tighten()
        bounds = self.relaxation.bound_children(domain, tuple(state), self.enough).without_nan()
        self.explored += len(inside)
        lower = torch.maximum(bounds.lower, parent_bounds.repeat(2))
        self._process(domain, bounds, torch.where(possible, lower, inf))

    def _process(self, domain: Domain, bounds: Bounds, lower: Tensor) -> None:
        """Try rounded supports, decide the items that the bounds decide, close leaves, and queue the other nodes.

        `lower` may come from a parent and be better than the node's own bound. The scores belong to the latter.
        """
        self._round(domain, bounds, lower)
        domain, possible = domain.screen(bounds.scores, bounds.lower, self.cutoff)
        possible = possible & (lower <= self.cutoff)
        high = possible & (lower >= self.enough)
        if bool(high.any()):
            self.floor = min(self.floor, float(lower[high].min()))
        # No places left, or no more candidates than places: one support remains.
        free, left = domain.free, domain.left.squeeze(1)
        supports = torch.where(left.unsqueeze(1) > 0, domain.inside | free, domain.inside)
        roomy = (domain.weigh(free).squeeze(1) <= left) & domain.obeys_groups(supports)
        leaf = possible & ~high & ((left <= 0) | roomy)
        if bool(leaf.any()):
            self._try(supports[leaf], tuple(part[leaf] for part in bounds.state), lower[leaf].tolist())
        queue = (possible & ~high & ~leaf).nonzero().flatten()
        if len(queue):
            self._wait(domain.select(queue), bounds.select(queue), lower[queue])

    def _wait(self, domain: Domain, bounds: Bounds, lower: Tensor) -> None:
        """Add nodes to those that wait."""
        depth = (domain.inside | domain.outside).sum(dim=1)
        self.nodes.add(lower, depth, (domain.inside, domain.outside, branching_item(domain, bounds), *bounds.state))

    def _round(self, domain: Domain, bounds: Bounds, lower: Tensor) -> None:
        """Try the supports of the largest shares in the nodes with the smallest bounds."""
        count = min(max(FEWEST_ROUNDINGS, len(lower) // NODES_PER_ROUNDING), MOST_ROUNDINGS)
        rows = lower.argsort()[:count]
        # Some nodes allow no support.
        rows = rows[(lower[rows] < inf) & (domain.left[rows].squeeze(1) >= 0)]
        if not len(rows):
            return
        if domain.weights is not None:
            supports = domain.select(rows).largest(bounds.shares[rows])
            self._try(supports, tuple(part[rows] for part in bounds.state))
            return
        outside = domain.outside[rows]
        order = torch.where(outside, -1.0, bounds.shares[rows] + domain.inside[rows].double())
        chosen = order.topk(min(self.relaxation.kappa, order.shape[1]), dim=1).indices
        supports = torch.zeros_like(outside).scatter(1, chosen, True) & ~outside
        if not domain.counts_only:
            # Shares know nothing of the other rules.
            keys = torch.where(supports, order, -1.0 - order)
            supports = domain.select(rows).choose(keys)
            root = self.relaxation.root
            allowed = [k for k, support in enumerate(supports) if root.allows(support)]
            rows, supports = rows[allowed], supports[allowed]
            if not len(rows):
                return
        self._try(supports, tuple(part[rows] for part in bounds.state))

    def _try(self, supports: Tensor, state: tuple[Tensor, ...] | None, leaves: list[float] | None = None) -> None:
        """Take the best of the supports as the answer if it is better.

        If they are `leaves`, with these bounds, they are closed at their own optima. Where there is no time left to
        find these, the bounds still hold.
        """
        keys = [row.tobytes() for row in supports.cpu().numpy()]
        new = [k for k, key in enumerate(keys) if key not in self.tried]
        if len(self.tried) + len(new) > MOST_TRIED:
            self.tried, new = {}, list(range(len(keys)))
        if new:
            starts = None if state is None else tuple(part[new] for part in state)
            values, errors = self.relaxation.optima(supports[new], starts, self.cutoff)
            self.tried.update(
                zip([keys[k] for k in new], zip(values.tolist(), errors.tolist(), strict=True), strict=True)
            )
        for number, (key, support) in enumerate(zip(keys, supports, strict=True)):
            value, error = self.tried[key]
            self._note(key, support, value)
            if leaves is not None:
                self.floor = min(self.floor, max(value - error, leaves[number]))
            if value < self.upper:
                self.upper, self.best = value, support

    def _note(self, key: bytes, support: Tensor, value: float) -> None:
        """Do more with a support whose objective is known; a search for the best one does nothing."""


def branching_item(domain: Domain, bounds: Bounds) -> Tensor:
    """The free item ``(B, 1)`` with the largest product of what its two choices cost.

    With a share ``s`` the bound rises by about ``(1 - s)^2`` of the item's score if the item is put inside. To put it
    outside costs what `costs` says, or else about ``s^2`` of its score.
    """
    shares, scores = bounds.shares, bounds.scores
    into = (1 - shares).clamp(min=LEAST_LACK).square() * scores
    out = shares.square() * scores if bounds.costs is None else bounds.costs
    promise = into * out
    return torch.where(domain.free, promise, -1.0).argmax(dim=1, keepdim=True)
