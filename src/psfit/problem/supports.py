"""All supports of a size, for problems that have only a few of them."""

from collections.abc import Iterator
from itertools import combinations
from math import comb

import torch
from torch import Tensor

# Trying this many supports is no more work than a search with its restarts, and it misses nothing.
FEW_SUPPORTS = 300


def are_few(size: int, kappa: int) -> bool:
    """Whether supports of `kappa` out of `size` items are few enough to try all of them."""
    return comb(size, kappa) <= FEW_SUPPORTS


def all_supports(size: int, kappa: int, device: torch.device) -> Iterator[Tensor]:
    """All supports of `kappa` out of `size` items, as masks ``(size,)``."""
    for items in combinations(range(size), kappa):
        support = torch.zeros(size, dtype=torch.bool, device=device)
        support[list(items)] = True
        yield support
