"""Bi-cADMM, Algorithm 1 of the paper, over nodes without a coordinator.

In the scaled form one iteration is

    x_i   = prox of node i's data and ridge at  z - u_i                  (local, in parallel)
    c     = mean_i (x_i + u_i)                                           (the one reduction)
    z, t, s, v from c                                                    (`bilinear`, the same on every rank)
    u_i  += x_i - z                                                      (local)

and it ends when the paper's residuals are small relative to the numbers that they compare (`residuals`).
"""

import torch
from torch import Tensor

from psfit.admm.bilinear import BilinearState, bilinear_start, bilinear_step, restricted_step
from psfit.admm.local import LocalState
from psfit.admm.residuals import MEASURED, compare, judge, local_accuracy, measure, observe
from psfit.admm.settings import Settings
from psfit.admm.setup import Setup, prepare
from psfit.admm.state import State
from psfit.comm import Grid
from psfit.common.status import STOP_REASONS, Status
from psfit.problem.instance import Instance


class BiCADMM(Settings):
    __doc__ = Settings.__doc__

    def init(self, instance: Instance, start: Tensor | None = None) -> tuple[Setup, State]:
        """Choose penalties and the local solver, make its factors, and start all nodes at `start` (or zero)."""
        setup = prepare(self, instance)
        instance = setup.instance
        n, c = instance.source.matrix.shape[1], instance.source.outputs
        zero = instance.ridge.new_zeros(n, c, dtype=instance.source.matrix.dtype)
        z = zero if start is None else start.repeat(1, setup.copies)
        x = (setup.own * z).expand(instance.split.nodes, n, c).clone()
        nothing = torch.zeros(3, instance.items.problems, dtype=x.dtype, device=x.device)
        state = State(
            iteration=0,
            age=x.new_zeros((), dtype=torch.int64),
            local=setup.solver.init(setup.sub, x),
            bilinear=bilinear_start(z, instance.item_counts, instance.items),
            u=torch.zeros_like(x),
            sums=nothing,
            sizes=nothing,
            settled=nothing[0],
            measured=x.new_full((len(MEASURED), instance.items.problems), torch.inf),
            stop_reasons=x.new_zeros(len(STOP_REASONS)),
            stop_counts=x.new_zeros(len(STOP_REASONS)),
        )
        return setup, state

    def step(self, setup: Setup, state: State) -> State:
        """One iteration of Algorithm 1. It begins with x_i, where the paper's loop ends with it."""
        # Nodes in parallel: update x_i by Algorithm 2, or by another local solver.
        local = self._update_x(setup, state)
        # Collect: the mean of x_i + u_i. The other sums over ranks are part of the same reduction.
        mean, sums, stop_counts = self._collect(setup, state, local.x)
        # Global updates: (z, t), then s, then v. Every rank computes them, so nothing is broadcast.
        bilinear = self._update_z_t_s_v(setup, state, mean)
        # Nodes in parallel: update u_i.
        gap = local.x - setup.own * bilinear.z
        u = state.u + gap
        sums_here, sizes, settled = observe(self, setup, state, gap, local.x, u, bilinear)
        return State(
            iteration=state.iteration + 1,
            age=state.age + 1,
            local=local,
            bilinear=bilinear,
            u=u,
            sums=sums_here,
            sizes=sizes,
            settled=settled,
            measured=measure(setup, state, sums),
            stop_reasons=state.stop_reasons,
            stop_counts=stop_counts,
        )

    def status(self, setup: Setup, state: State) -> Status:
        """Whether the last measured residuals allow a stop. Reads device numbers: call it sparingly."""
        return judge(self, setup, state)

    def measure(self, setup: Setup, state: State) -> Tensor:
        """The measurements of the current iteration, which otherwise come with the next one."""
        return measure(setup, state, setup.instance.grid.total(state.sums))

    def residuals(self, setup: Setup, measured: Tensor) -> tuple[Tensor, Tensor]:
        """The residuals p, d, b and their limits, ``(..., 3, problems)`` each, from measurements on the host."""
        return compare(self, setup, measured)

    def _update_x(self, setup: Setup, state: State) -> LocalState:
        """The prox of every node's losses. The ridge is part of the weight w, so its centre is (rho_c / w)(z - u_i)."""
        center = setup.share * (state.bilinear.z - state.u)
        # A steady solver does the same work for every accuracy.
        tol = 0.0 if setup.solver.steady else local_accuracy(setup, state)
        return setup.solver.prox(setup.sub, state.local, center, tol)

    def _collect(self, setup: Setup, state: State, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mean of x_i + u_i over all nodes; sums for the last residuals; how many ranks have each stop reason."""
        grid = setup.instance.grid
        total, sums, stop_counts = _sum_together(grid, [(x + state.u).sum(dim=0), state.sums, state.stop_reasons])
        return total / grid.nodes.size, sums, stop_counts

    def _update_z_t_s_v(self, setup: Setup, state: State, mean: Tensor) -> BilinearState:
        """The bilinear step. When rho_b grows by a factor, its scaled multiplier v is divided by it."""
        last, (ratio, shrink) = state.bilinear, setup.pressure(state.age)
        before = BilinearState(last.z, last.s, last.t, last.v * shrink, last.residual)
        inst = setup.instance
        if inst.domain.decided or inst.domain.box is not None:
            return restricted_step(before, mean, inst.item_counts, ratio, inst.domain)
        return bilinear_step(before, mean, inst.item_counts, ratio, inst.items)


def _sum_together(grid: Grid, parts: list[Tensor]) -> list[Tensor]:
    """The sums of several arrays over all ranks by one reduction; nothing is copied if there is one rank."""
    if grid.world.size == 1:
        return parts
    summed = grid.total_latest(torch.cat([part.flatten() for part in parts])).split([part.numel() for part in parts])
    return [array.view(part.shape) for array, part in zip(summed, parts, strict=True)]
