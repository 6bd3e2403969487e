"""The residuals of Bi-cADMM, and the stopping test.

    p = sum_i ||x_i - z||,   d = sqrt(N) rho_c ||z - z_old||,   b = |s'z - t|

Each is measured relative to the size of the numbers in it. The sums over nodes that p and the sizes need are part of
the next iteration's reduction, so residuals are known one iteration late.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psfit.admm.bilinear import BilinearState
from psfit.admm.settings import Settings
from psfit.admm.setup import Setup
from psfit.admm.state import State
from psfit.common.status import Status
from psfit.kernels import kernel

# Sums over nodes of ||x_i - z||, ||x_i|| and ||u_i||^2; ||z||, the length of its last step and its number of nonzeros;
# |s'z - t| and t.
MEASURED = ("gaps", "lengths", "squares", "size", "moved", "nonzeros", "bilinear", "t")
# From an all-zero start the first residuals may vanish by accident; no run converges before this iteration.
FIRST_STOP = 4
# A sparse support that stayed the same for this many iterations is final. The rest is a convex problem on it, which the
# refit solves exactly and faster. Where a search follows, fewer iterations lead to the same answers.
SETTLED_AFTER = {"brief": 5, "low": 20, "medium": 10, "high": 10}
# A tolerance that every residual meets.
ANY = 1e30

Array = NDArray[np.floating]


def observe(
    settings: Settings, setup: Setup, state: State, gap: Tensor, x: Tensor, u: Tensor, bilinear: BilinearState
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums, sizes and counts of an iteration from `state` to ``x``, ``u`` and `bilinear`; ``gap = x - z``."""
    items, grid = setup.instance.items, setup.instance.grid
    tables = items.pack(bilinear.z), bilinear.s, state.bilinear.s
    columns = state.settled.unsqueeze(1), bilinear.residual, bilinear.t
    tol = ANY if settings.thoroughness == "brief" else settings.tol
    summarise = kernel("summarise", x.device) or summarise_by_torch
    squares, numbers = summarise((gap, x, u), bilinear.z, state.bilinear.z, tables, columns, tol, items.separate)
    # Norms over all blocks of a node, then sums over nodes.
    squares = grid.blocks.total(squares)
    squares[:2].sqrt_()
    return grid.count_once(squares.sum(dim=1)), numbers[:3], numbers[3]


def summarise_by_torch(
    parts: tuple[Tensor, ...],
    z: Tensor,
    before: Tensor,
    tables: tuple[Tensor, ...],
    columns: tuple[Tensor, ...],
    tol: float,
    separate: bool,
) -> tuple[Tensor, Tensor]:
    """The same as `kernels.cpu.summarise`, by torch's operations."""

    def norms(X: Tensor) -> Tensor:
        return X.norm(dim=-2) if separate else X.flatten(-2).norm(dim=-1, keepdim=True)

    packed, s, s_before = tables
    counter, residual, compared = columns
    size, moved = norms(torch.stack([z, z - before]))
    same = ((s != 0) == (s_before != 0)).all(dim=1, keepdim=True) & (residual <= tol * compared)
    counts = (packed != 0).sum(dim=1).to(size), torch.where(same, counter + 1, 0.0).squeeze(1)
    return norms(torch.stack(parts)).square(), torch.stack([size, moved, *counts])


def measure(setup: Setup, state: State, sums: Tensor) -> Tensor:
    """The numbers from which the residuals of a state are computed, from its sums over all nodes; see `MEASURED`."""
    return torch.cat([sums, state.sizes, state.bilinear.residual.T, state.bilinear.t.T])


def compare(settings: Settings, setup: Setup, measured: Tensor) -> tuple[Tensor, Tensor]:
    """The residuals p, d, b and their limits, ``(..., 3, problems)`` each, from measurements on the host."""
    pairs = _compare(settings, setup, np.moveaxis(measured.numpy(), -2, 0))
    residuals, limits = (torch.from_numpy(np.stack(part, axis=-2)) for part in zip(*pairs, strict=True))
    return residuals, limits


def _compare(settings: Settings, setup: Setup, measured: Array) -> Iterator[tuple[Array, Array]]:
    """Each residual and its limit, from measurements with a leading axis for the names in `MEASURED`."""
    N, tol, floor = setup.instance.grid.nodes.size, settings.tol, 1e-3 * setup.unit.numpy()
    gaps, lengths, squares, size, moved, _, bilinear, t = measured
    root = N**0.5
    yield gaps, tol * (np.maximum(lengths, N * size) + N * floor)
    yield root * setup.rho_c * moved, tol * setup.rho_c * (np.sqrt(squares) + root * floor)
    yield bilinear, tol * (t + floor)


def judge(settings: Settings, setup: Setup, state: State) -> Status:
    """Whether the last measured residuals allow a stop. Reads device numbers: call it sparingly."""
    # The length of the last step shows whether z is finite, an iteration before it is part of the residuals.
    rows = torch.cat([state.sizes[1:2], state.settled.unsqueeze(0), state.measured])
    fetched = setup.instance.grid.transfers.fetch(rows).numpy()
    late = state.iteration > FIRST_STOP
    if not np.isfinite(fetched if late else fetched[0]).all():
        return Status.DIVERGED
    if late:
        pairs = _compare(settings, setup, fetched[2:])
        if all(bool((residual <= limit).all()) for residual, limit in pairs):
            return Status.CONVERGED
        if fetched[1].min() >= SETTLED_AFTER[settings.thoroughness]:
            return Status.SETTLED
    return Status.MAX_ITER if state.iteration >= settings.max_iter else Status.RUNNING


def local_accuracy(setup: Setup, state: State) -> Tensor | float:
    """How accurate the local step must be: a tenth of the distance that the iterates still move."""
    if state.iteration < FIRST_STOP:
        return 0.0
    apart = state.measured[MEASURED.index("gaps")] / setup.instance.grid.nodes.size
    return 0.1 * torch.maximum(apart, state.measured[MEASURED.index("moved")]).min()
