"""The residuals of Bi-cADMM, and the stopping test.

    p = sum_i ||x_i - z||,   d = sqrt(N) rho_c ||z - z_old||,   b = |s'z - t|

Each is measured relative to the size of the numbers in it. The sums over nodes that p and the sizes need are part of
the next iteration's reduction, so residuals are known one iteration late.
"""

import torch
from torch import Tensor

from psfit.admm.bilinear import BilinearState
from psfit.admm.settings import Settings
from psfit.admm.setup import Setup
from psfit.admm.state import State
from psfit.common.status import Status

# Sums over nodes of ||x_i - z||, ||x_i|| and ||u_i||^2; ||z||, the length of its last step, |s'z - t|, t and the number
# of nonzeros in z.
MEASURED = ("gaps", "lengths", "squares", "size", "moved", "bilinear", "t", "nonzeros")
# From an all-zero start the first residuals may vanish by accident; no run converges before this iteration.
FIRST_STOP = 4
# A sparse support that stayed the same for this many iterations is final. The rest is a convex problem on it, which the
# refit solves exactly and faster.
SETTLED_AFTER = 20
SETTLED_IF_BRIEF = 5


def sum_norms(setup: Setup, gap: Tensor, x: Tensor, u: Tensor) -> Tensor:
    """Sums of ``||x_i - z||``, ``||x_i||`` and ``||u_i||^2`` over the nodes of this rank, ``(3, problems)``."""
    grid = setup.instance.grid
    # Norms over all blocks of a node, then sums over nodes.
    norms = setup.instance.items.norms(torch.stack([gap, x, u]))
    squares = grid.blocks.total(norms.square())
    return grid.count_once(torch.cat([squares[:2].sqrt(), squares[2:]]).sum(dim=1))


def count_settled(settings: Settings, state: State, bilinear: BilinearState) -> Tensor:
    """For how many iterations each problem has had the same sparse support."""
    same = ((bilinear.s != 0) == (state.bilinear.s != 0)).all(dim=1)
    sparse = (bilinear.residual <= settings.tol * bilinear.t).squeeze(1) | (settings.thoroughness == "brief")
    return torch.where(same & sparse, state.settled + 1, 0)


def measure(setup: Setup, state: State, sums: Tensor) -> Tensor:
    """The numbers from which the residuals of a state are computed, from its sums over all nodes; see `MEASURED`."""
    items, bilinear = setup.instance.items, state.bilinear
    nonzeros = (items.pack(bilinear.z) != 0).sum(dim=1, dtype=sums.dtype)
    numbers = items.norms(bilinear.z), state.dual, bilinear.residual.squeeze(1), bilinear.t.squeeze(1), nonzeros
    return torch.cat([sums, torch.stack(numbers)])


def compare(settings: Settings, setup: Setup, measured: Tensor) -> tuple[Tensor, Tensor]:
    """The residuals p, d, b and their limits, ``(..., 3, problems)`` each, from measurements on the host."""
    N, floor = setup.instance.grid.nodes.size, 1e-3 * setup.unit
    gaps, lengths, squares, size, moved, bilinear, t, _ = measured.unbind(dim=-2)
    root = N**0.5
    limits = [
        torch.maximum(lengths, N * size) + N * floor,
        setup.rho_c * (squares.sqrt() + root * floor),
        t + floor,
    ]
    residuals = [gaps, root * setup.rho_c * moved, bilinear]
    return torch.stack(residuals, dim=-2), settings.tol * torch.stack(limits, dim=-2)


def judge(settings: Settings, setup: Setup, state: State) -> Status:
    """Whether the last measured residuals allow a stop. Reads device numbers: call it sparingly."""
    if state.iteration > FIRST_STOP:
        fetch = setup.instance.grid.transfers.fetch
        *rows, settled = fetch(torch.cat([state.measured, state.settled.unsqueeze(0)]))
        measured = torch.stack(rows)
        if not bool(measured.isfinite().all()):
            return Status.DIVERGED
        residuals, limits = compare(settings, setup, measured)
        if bool((residuals <= limits).all()):
            return Status.CONVERGED
        if bool((settled >= (SETTLED_IF_BRIEF if settings.thoroughness == "brief" else SETTLED_AFTER)).all()):
            return Status.SETTLED
    return Status.MAX_ITER if state.iteration >= settings.max_iter else Status.RUNNING


def local_accuracy(setup: Setup, state: State) -> Tensor | float:
    """How accurate the local step must be: a tenth of the distance that the iterates still move."""
    if state.iteration < FIRST_STOP:
        return 0.0
    apart = state.measured[MEASURED.index("gaps")] / setup.instance.grid.nodes.size
    return 0.1 * torch.maximum(apart, state.measured[MEASURED.index("moved")]).min()
