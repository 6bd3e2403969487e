"""What exact mode is asked for, and a search tree as a checkpoint keeps it, so that a later run can go on with it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from psfit.certificate.branch import Search, Standing, Tree, TreeState

Stop = Callable[[Standing], bool]


@dataclass(frozen=True)
class TreeRecord:
    """A tree, with what was known before it began.

    At the `start`, with that objective, a bound of `root` was proved for all supports, and the items ``inside (size,)``
    and ``outside (size,)`` were decided. ``support (size,)`` has the objective of the tree, whose nodes do not have the
    items that were taken out. ``extracted (n,)`` is the curvature that was moved to the ridge of a quadratic form, or
    empty. Twins may cost as much as the `rise`.
    """

    start: float
    root: float
    rise: float
    inside: Tensor
    outside: Tensor
    support: Tensor
    extracted: Tensor
    tree: TreeState


@dataclass(frozen=True)
class Proof:
    """No support is better than `lower`. `support` ``(size,)`` is a better one than the answer's, with the objective
    `upper`; it is None if none was found. `inside` and `outside` are the items that were decided before branching.
    """

    lower: float
    upper: float
    support: Tensor | None
    inside: Tensor
    outside: Tensor
    explored: int


class Keeper(Protocol):
    """Keeps the tree of one problem in a checkpoint."""

    def load(self) -> TreeRecord | None:
        """The tree that was kept; None if there is none."""

    def is_due(self) -> bool:
        """Whether the tree should be kept now; asked after every batch of nodes."""

    def save(self, record: TreeRecord) -> None:
        """Keep a tree, and forget the one before."""


@dataclass(frozen=True)
class Request:
    """Look for supports better than `objective`, until the relative gap is below `gap_tol` or `stop` returns True.

    `stop` is called with the progress between batches of tree nodes. About `most_open` nodes may wait at the same time.
    """

    objective: float
    gap_tol: float
    stop: Stop
    most_open: float
    keeper: Keeper | None = None

    def load(self) -> TreeRecord | None:
        """The tree of an earlier run, if one was kept."""
        return None if self.keeper is None else self.keeper.load()

    def explore(
        self, search: Search, begin: Callable[[Stop], Tree], describe: Callable[[TreeState], TreeRecord]
    ) -> Tree:
        """Explore a tree from its beginning, and keep it from time to time and at the end."""
        keeper = self.keeper
        if keeper is None:
            return begin(self.stop)

        def stop(standing: Standing) -> bool:
            if keeper.is_due():
                keeper.save(describe(search.state))
            return self.stop(standing)

        tree = begin(stop)
        keeper.save(describe(search.state))
        return tree


def find_support(inside: Tensor, index: Tensor, best: Tensor | None) -> Tensor | None:
    """The support ``(size,)`` with the items `inside` and the ``best`` of those numbered `index`; None without it."""
    if best is None:
        return None
    support = inside.clone()
    support[index[best]] = True
    return support


def restore(record: TreeRecord, objective: float, index: Tensor) -> TreeState:
    """The tree of a record for a run whose own answer has this objective; its items are those numbered `index`."""
    if objective <= record.tree.upper:
        return replace(record.tree, upper=objective, best=None)
    return replace(record.tree, best=record.support[index])
