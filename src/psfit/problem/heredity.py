"""Heredity: items that may be in a support only with all of their parents, or with one of them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Heredity:
    """The pairs ``child (E,), parent (E,)`` of items among `size`; a child needs all of its parents if it is `strong`.

    Otherwise it needs one of them.
    """

    child: Tensor
    parent: Tensor
    size: int
    strong: bool

    def to(self, device: torch.device) -> "Heredity":
        """The same on another device."""
        return Heredity(self.child.to(device), self.parent.to(device), self.size, self.strong)

    @property
    def children(self) -> Tensor:
        """The items that have parents ``(size,)``."""
        return torch.zeros(self.size, dtype=torch.bool, device=self.child.device).index_fill(0, self.child, True)

    def count_parents(self, chosen: Tensor) -> Tensor:
        """How many parents of each item are among ``chosen (..., size)``."""
        taken = chosen[..., self.parent].long()
        return torch.zeros_like(chosen, dtype=torch.long).index_add(-1, self.child, taken)

    def find_missing(self, chosen: Tensor) -> Tensor:
        """Chosen items ``(..., size)`` that lack a parent they need."""
        have = self.count_parents(chosen)
        if self.strong:
            return chosen & (have < self.count_parents(torch.ones_like(chosen)))
        return chosen & self.children & (have == 0)

    def find_ancestors(self, chosen: Tensor) -> Tensor:
        """The items ``chosen (size,)`` and those that they may need: parents, their parents, and so on."""
        while True:
            more = chosen.clone()
            more[self.parent[chosen[self.child]]] = True
            if torch.equal(more, chosen):
                return chosen
            chosen = more

    def tighten(self, inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        """What decided items ``(B, size)`` say about their parents and children, directly."""
        possible = self.count_parents(~outside)
        if self.strong:
            impossible = possible < self.count_parents(torch.ones_like(outside))
            needed = inside[:, self.child]
        else:
            impossible = self.children & (possible == 0)
            last = (possible == 1)[:, self.child] & ~outside[:, self.parent]
            needed = inside[:, self.child] & last
        wanted = torch.zeros_like(inside, dtype=torch.long).index_add(1, self.parent, needed.long()) > 0
        return inside | wanted, outside | impossible

    def restrict(self, index: Tensor) -> tuple["Heredity", Tensor]:
        """The pairs among some items ``(k,)``, and which of these items lack a parent outside them ``(k,)``."""
        device = index.device
        place = torch.full((self.size,), -1, device=device).index_copy(
            0, index, torch.arange(len(index), device=device)
        )
        kept = (place[self.child] >= 0) & (place[self.parent] >= 0)
        rest = Heredity(place[self.child[kept]], place[self.parent[kept]], len(index), self.strong)
        every = torch.zeros(self.size, dtype=torch.bool, device=device).index_fill(0, index, True)
        return rest, self.find_missing(every)[index]
