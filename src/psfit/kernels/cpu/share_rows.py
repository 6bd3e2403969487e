"""The proximal step of the perspective for a batch of tree nodes, one after the other; see `perspective.shrink`."""

from math import inf

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.cpu.compiler import compile_loops
from psfit.kernels.cpu.perspective import find_theta


def share_rows(
    size: Tensor, ridge: Tensor, rho: Tensor | float, inside: Tensor, undecided: Tensor, left: Tensor
) -> tuple[Tensor, Tensor]:
    """The factors and the shares ``(B, size)`` of items with the magnitudes ``size (B, size)``, in float64.

    Items `inside` have the share one. Those that are `undecided` share ``left (B, 1)`` places.
    """
    slope = np.where(undecided.numpy(), size.double().numpy(), 0.0) * np.sqrt(ridge.double().numpy())
    offset = np.broadcast_to((ridge / rho).double().numpy(), slope.shape)
    shares = np.empty(slope.shape)
    _share_rows(slope, np.ascontiguousarray(offset), left.flatten().long().numpy(), shares)
    share = torch.where(inside, 1.0, torch.from_numpy(shares))
    return rho * share / (rho * share + ridge), share


@compile_loops
def _share_rows(slope: np.ndarray, offset: np.ndarray, left: np.ndarray, shares: np.ndarray) -> None:
    for b in range(len(slope)):
        theta = find_theta(slope[b], offset[b], left[b], 0.0) if left[b] > 0 else 0.0
        for j in range(slope.shape[1]):
            if not slope[b, j] > 0:
                shares[b, j] = 0.0
            elif theta == inf:
                shares[b, j] = 1.0
            else:
                shares[b, j] = min(max(slope[b, j] * theta - offset[b, j], 0.0), 1.0)


def compile_kernels() -> None:
    """Compile the kernel."""
    one, yes = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    share_rows(one, one[0], 1.0, ~yes, yes, one)
