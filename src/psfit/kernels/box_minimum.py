"""The minimum of a small quadratic function in a box, by pivoting between free variables and those at a bound.

With ``x`` at the solution a free variable has the derivative zero and lies between its bounds; at a lower bound the
derivative is at least zero, at an upper one at most zero. Each round solves for the free variables and moves every
variable that breaks its rule. This nearly always ends after a few rounds. Where the number of broken rules does not
fall for some rounds, only the last of the variables is moved, which always ends (Murty).
"""

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.linalg import Direction, cholesky

# Rounds that move all variables although the number of broken rules has not fallen.
PATIENCE = 10
# Rounds in all, for each variable and in addition.
ROUNDS_PER_VARIABLE, MORE_ROUNDS = 10, 100
# A derivative that is smaller than this share of the numbers in it is zero.
ROUNDING = 1e-12


def minimise_in_box(H: Tensor, q: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The minimiser ``(d,)`` of ``x'Hx / 2 - q'x`` with ``low <= x <= high``, in float64; `H` is positive definite."""
    x = torch.cholesky_solve(q.unsqueeze(1), cholesky(H)).squeeze(1)
    if bool(((x >= low) & (x <= high)).all()):
        return x
    arrays = [part.cpu().numpy() for part in (H, q, low, high, x)]
    return torch.from_numpy(_pivot(*arrays)).to(H.device)


def direct_into_box(low: Tensor, high: Tensor) -> Direction:
    """Directions of Newton's method from a point to the minimum of its model in a box ``(d,)``; for a batch of one."""

    def direct(x: Tensor, gradient: Tensor, H: Tensor) -> Tensor:
        q = (H[0] @ x[0]) - gradient[0]
        return (minimise_in_box(H[0], q, low, high) - x[0]).unsqueeze(0)

    return direct


def _pivot(H: np.ndarray, q: np.ndarray, low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
    # A variable is free (0), at its lower bound (-1), or at its upper bound (1).
    place = np.where(x < low, -1, np.where(x > high, 1, 0))
    sizes = np.sqrt(np.abs(np.diagonal(H)))
    fewest, patience = len(q) + 1, PATIENCE
    for _ in range(ROUNDS_PER_VARIABLE * len(q) + MORE_ROUNDS):
        free = place == 0
        x = np.where(place < 0, low, np.where(place > 0, high, 0.0))
        held = x.copy()
        if free.any():
            right = torch.from_numpy(q[free] - H[np.ix_(free, ~free)] @ held[~free])
            factor = cholesky(torch.from_numpy(np.ascontiguousarray(H[np.ix_(free, free)])))
            x[free] = torch.cholesky_solve(right.unsqueeze(1), factor).squeeze(1).numpy()
        slope = H @ x - q
        rounding = ROUNDING * (np.abs(q) + sizes * float(sizes @ np.abs(x)))
        room = ROUNDING * np.abs(x)
        moved = np.where(free & (x < low - room), -1, np.where(free & (x > high + room), 1, place))
        moved = np.where((place < 0) & (slope < -rounding) & (low < high), 0, moved)
        moved = np.where((place > 0) & (slope > rounding) & (low < high), 0, moved)
        broken = np.flatnonzero(moved != place)
        if not len(broken):
            break
        if len(broken) < fewest:
            fewest, patience = len(broken), PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            broken = broken[-1:]
        place[broken] = moved[broken]
    return np.clip(x, low, high)
