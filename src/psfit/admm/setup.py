"""What stays fixed during a run of Bi-cADMM: the penalties, the local solver and its factors."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from psfit.admm.local import LocalSolver, Subproblem, choose
from psfit.admm.settings import Settings
from psfit.comm import even_bounds
from psfit.problem.instance import Instance

# rho_b as a share of N rho_c, the curvature of all nodes together. Only this ratio enters the step of z, so a run does
# not slow down when the same data are divided among more nodes. A small rho_b often finds the better support.
PRESSURES = (0.3, 1.0, 0.1)
# After the first iterations rho_b grows by a factor at each iteration, at most MOST_PRESSURE times in all.
# Without this, data with many more features than samples need several times as many iterations for the same supports.
FIRST_ITERATIONS, GROWTH = 15, 1.2
# Groups stay in or out sooner, so that they can take a faster growth.
FIRST_OF_GROUPS, GROWTH_OF_GROUPS = 10, 1.5
MOST_PRESSURE = 1e3


@dataclass(frozen=True)
class Setup:
    """The instance, the local solver with its subproblem, and the penalties.

    Parameters
    ----------
    own : Tensor (n, 1)
        One for coordinates whose blocks are hosted here, else zero; ``x_i`` and ``u_i`` are zero in the others.
    unit : Tensor (problems,)
        The size of a coefficient fitted alone. Residuals are compared with it if the answer itself is zero.
    share : Tensor (n, 1)
        ``rho_c / w``, the factor of the centres of the local steps.
    pressures : Tensor (iterations, 2, problems, 1)
        ``rho_b / (N rho_c)`` at each iteration, and the last rho_b as a share of it; afterwards both stay the same.
    copies : int
        How often each problem occurs among the columns, each time with another rho_b.
    """

    instance: Instance
    solver: LocalSolver[Any]
    sub: Subproblem
    own: Tensor
    rho_c: float
    rho_b: Tensor
    share: Tensor
    pressures: Tensor
    unit: Tensor
    copies: int

    def pressure(self, age: Tensor) -> tuple[Tensor, ...]:
        """``rho_b / (N rho_c)`` and the factor of the multiplier v at an iteration, whose number is on the device.

        Only the bilinear step uses rho_b, so no matrix is factored again. The multiplier shrinks as rho_b grows.
        """
        row = age.clamp(max=len(self.pressures) - 1).reshape(1)
        return self.pressures.index_select(0, row).squeeze(0).unbind()


def prepare(settings: Settings, inst: Instance) -> Setup:
    """Choose the penalties and the local solver."""
    N, M = inst.grid.nodes.size, inst.grid.blocks.size
    loss, n = inst.problem.loss, inst.source.matrix.shape[1]
    curvature = loss.typical_curvature(inst.mean_target, inst.source.outputs)
    # A mean diagonal of a node's Hessian. The harmonic mean, since in these coordinates a column with a tiny norm
    # has a huge ridge, which must not determine the penalty of all columns.
    diagonal = curvature * inst.coordinates.column_norm**2 + inst.ridge[: inst.items.features]
    node_curvature = 1 / (N * float((1 / diagonal).mean()))
    rho_c = node_curvature if settings.rho_c == "auto" else float(settings.rho_c)
    shares = _choose_pressures(settings, inst)
    inst = inst.copy_problems(len(shares))
    rho_b = torch.tensor(
        [share * N * rho_c if settings.rho_b == "auto" else settings.rho_b for share in shares], dtype=torch.float64
    )
    rho_b = rho_b.repeat_interleave(inst.items.problems // len(shares)).unsqueeze(1)
    rho_l = M * curvature if settings.rho_l == "auto" else float(settings.rho_l)
    sub = _make_subproblem(inst, rho_c, rho_l)
    own = torch.zeros_like(sub.weight)
    own[inst.grid.columns(n)] = 1
    first, growth = FIRST_ITERATIONS, 1.0
    if settings.effort != "low" and settings.rho_b == "auto":
        first, growth = (FIRST_OF_GROUPS, GROWTH_OF_GROUPS) if inst.items.in_groups else (FIRST_ITERATIONS, GROWTH)
    unit = inst.items.norms(inst.grid.nodes.total(inst.slope_at_zero())) / (N * node_curvature)
    return Setup(
        instance=inst,
        solver=choose(settings.local, loss, inst.items.features, inst.source.outputs, M),
        sub=sub,
        own=own,
        rho_c=rho_c,
        rho_b=rho_b.to(unit),
        share=rho_c / sub.weight,
        pressures=_plan_pressures(rho_b / (N * rho_c), first, growth).to(unit),
        unit=unit.cpu(),
        copies=len(shares),
    )


def _make_subproblem(inst: Instance, rho_c: float, rho_l: float) -> Subproblem:
    """The subproblem of a local solver; the ridge and rho_c are one weight for each coordinate."""
    bounds = even_bounds(inst.source.matrix.shape[1], inst.grid.blocks.size)
    return Subproblem(
        loss=inst.problem.loss,
        split=inst.split,
        weight=(inst.ridge / inst.grid.nodes.size + rho_c).to(inst.source.matrix.dtype),
        blocks=tuple(slice(bounds[j], bounds[j + 1]) for j in inst.grid.blocks.hosted),
        axis=inst.grid.blocks,
        rho_l=rho_l,
    )


def _choose_pressures(settings: Settings, inst: Instance) -> tuple[float, ...]:
    """Shares rho_b / (N rho_c) to try side by side; only one if a problem cannot be copied to further columns.

    There are fewer groups than features, so each of them gets more pressure.
    """
    single = settings.thoroughness in ("low", "brief") or settings.rho_b != "auto" or not inst.items.separate
    shares = PRESSURES[:1] if single or not settings.portfolio else PRESSURES
    width = inst.items.features / inst.items.size if inst.items.in_groups else 1.0
    return tuple(width * share for share in shares)


def _plan_pressures(values: Tensor, first: int, growth: float) -> Tensor:
    """The rows of `Setup.pressures` for ``values (problems, 1)``: constant in the `first` iterations, then growing."""
    factors = torch.ones(1, dtype=torch.float64)
    if growth > 1:
        growing = math.ceil(math.log(MOST_PRESSURE) / math.log(growth))
        age = torch.arange(first + growing + 2, dtype=torch.float64)
        factors = torch.pow(growth, (age - first).clamp(min=0)).clamp(max=MOST_PRESSURE)
    now = factors.reshape(-1, 1, 1)
    shrink = torch.cat([torch.ones_like(now[:1]), now[:-1] / now[1:]])
    return torch.stack([now * values, shrink.expand(-1, *values.shape)], dim=1)
