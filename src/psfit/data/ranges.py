"""The range of numbers that a fit can use: their squares, products and quotients stay finite and exact."""

import math

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.losses import plain_targets

# Squares of numbers within these limits, times weights and numbers of samples, neither overflow nor underflow.
LARGEST = 1e100
SMALLEST = 1e-100
# Products of float32 numbers keep their digits within narrower limits.
LARGEST_SINGLE = 1e12
SMALLEST_SINGLE = 1e-12
# If a mean is this many standard deviations from zero, products with the raw entries lose digits.
FAR_FROM_ZERO = 1e3


def require_moderate(name: str, magnitude: float, remedy: str) -> None:
    """Refuse a magnitude that is neither zero nor within the limits; the message begins with `name`."""
    if magnitude == 0 or SMALLEST <= magnitude <= LARGEST:
        return
    kind = "large" if not magnitude < SMALLEST else "small"
    size = f"{magnitude:.2g}" if math.isfinite(magnitude) else "1e150 and more"
    raise ValueError(f"{name}: values of size {size} are too {kind} to compute with; {remedy}")


def require_moderate_samples(target: Tensor, weight: Tensor, grid: Grid) -> None:
    """Refuse targets and weights, of all ranks, that are too large or too small to compute with."""
    used = weight > 0
    values = torch.where(used, plain_targets(target), 0.0).abs()
    smallest = torch.where(used, weight, torch.inf).amin()
    local = torch.stack([values.amax(), weight.amax(), 1 / smallest.clamp(min=torch.finfo(torch.float64).tiny)])
    most_target, most_weight, inverse = grid.world.all_reduce(local, "max").tolist()
    require_moderate("y", most_target, "change its unit")
    require_moderate("sample_weight", most_weight, "divide all weights by a common number")
    if inverse > 0 and math.isfinite(most_weight):
        require_moderate("sample_weight", 1 / inverse, "set such weights to zero, or change the unit of all")


def require_moderate_columns(norms: Tensor, means: Tensor, used: Tensor, total_weight: float) -> None:
    """Refuse columns ``(p,)`` that are too large or too small to compute with, also if their squares are zero."""
    sizes = torch.where(used, norms / math.sqrt(total_weight), means.abs())
    bad = torch.where(used, ~((sizes >= SMALLEST) & (sizes <= LARGEST)), (sizes > 0) & (sizes < SMALLEST))
    if bool(bad.any()):
        worst = int(bad.nonzero()[0, 0])
        require_moderate(f"X, column {worst}", float(sizes[worst]), "change its unit")


def products_lose_digits(norms: Tensor, shift: Tensor, used: Tensor, total_weight: float, dtype: torch.dtype) -> bool:
    """Whether products with the raw entries lose too many digits; ``norms (p,)`` are those about ``shift (p,)``."""
    sizes = norms / math.sqrt(total_weight)
    bad = shift.abs() > FAR_FROM_ZERO * sizes
    if dtype == torch.float32:
        bad |= (sizes < SMALLEST_SINGLE) | (sizes > LARGEST_SINGLE)
    return bool((bad & used).any())
