"""Bi-cADMM, Algorithm 1 of the paper, over nodes without a coordinator.

In the scaled form one iteration is

    x_i   = prox of node i's data and ridge at  z - u_i                  (local, in parallel)
    c     = mean_i (x_i + u_i)                                           (the one reduction)
    z, t, s, v from c                                                    (`bilinear`, the same on every rank)
    u_i  += x_i - z                                                      (local)

and it ends when the paper's residuals

    p = sum_i ||x_i - z||,   d = sqrt(N) rho_c ||z - z_old||,   b = |s'z - t|

are small against the numbers they compare. The sums over nodes that the residuals need ride along with the next
iteration's reduction, so they are known one iteration late.
"""

import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from psfit.admm.bilinear import BilinearState, bilinear_start, bilinear_step
from psfit.admm.local import BY_NAME, LocalSolver, LocalState, Subproblem, choose
from psfit.comm import even_bounds
from psfit.comm.watch import REASONS
from psfit.common.arguments import BOOLEAN, NONE, POSITIVE, Rule, check, instance, integer, number, one_of
from psfit.common.result import Status
from psfit.problem.instance import Instance

Penalty = float | Literal["auto"]

# Sums over nodes of ||x_i - z||, ||x_i|| and ||u_i||^2; ||z||, the length of its last step, |s'z - t|, t and the number
# of nonzeros in z.
MEASURED = ("gaps", "lengths", "squares", "size", "moved", "bilinear", "t", "nonzeros")
# From an all-zero start the first residuals may vanish by accident; no run converges before this iteration.
FIRST_STOP = 4
# A sparse support that stayed the same for so many iterations is final: what is left to do is a convex problem on it,
# which the polish solves exactly and faster.
SETTLED_AFTER = 20
SETTLED_BRIEFLY = 5
# rho_b as a share of N rho_c, the curvature of all nodes together: only that ratio enters the step of z, so that a run
# does not slow down as the same data are dealt to more nodes. Gentle pressure often finds the better support.
PRESSURES = (0.3, 1.0, 0.1)
# After a gentle start the pressure grows by this factor an iteration, up to a limit: data with many more features than
# samples would otherwise wait for it several times as long, for the same supports.
GENTLE = 30
GROWTH = 1.05
MOST_PRESSURE = 1e3
# A search with the effort "high" ends early only where the certificate leaves as good as nothing to find.
THOROUGH_GAP = 1e-9

# What each setting of the solver may be.
RULES: dict[str, Rule] = {
    "rho_c": POSITIVE | one_of("auto"),
    "rho_b": POSITIVE | one_of("auto"),
    "rho_l": POSITIVE | one_of("auto"),
    "tol": number("a number above 0 and below 1", lambda value: 0 < value < 1),
    "max_iter": integer(1),
    "time_limit": number("a positive number of seconds", lambda value: value > 0) | NONE,
    "local": one_of(*BY_NAME) | instance("a psfit.admm.local.LocalSolver", LocalSolver) | NONE,
    "effort": one_of("low", "medium", "high"),
    "exact": BOOLEAN,
    "gap_tol": number("a number of at least 0 and below 1", lambda value: 0 <= value < 1),
    "checkpoint": instance("the path of a folder", str, Path) | NONE,
    "checkpoint_every": integer(1),
    "portfolio": BOOLEAN,
    "precision": one_of("auto", "highest"),
    "record_objective": BOOLEAN,
    "interruptible": BOOLEAN,
}


@dataclass(frozen=True)
class Setup:
    """What stays fixed during a run: the instance, the local solver with its subproblem, the penalties; and a mask
    ``own (n, 1)`` of the coordinates whose blocks are hosted here. All others are zero in ``x_i`` and ``u_i``.
    """

    instance: Instance
    solver: LocalSolver[Any]
    sub: Subproblem
    own: Tensor
    rho_c: float
    rho_b: Tensor
    unit: Tensor
    copies: int


@dataclass(frozen=True)
class State:
    """The iterates. `sums` are this rank's contributions to the residuals of the current iteration, `measured` is all
    that the residuals of the one before are made of: a row for each name in `MEASURED`, a column per problem. `wishes`
    are this rank's reasons to stop that no formula knows, those of `Watch`; `heard` is their sum over all ranks.
    `age` is the iteration once more, where the device can see it.
    """

    iteration: int
    age: Tensor
    local: LocalState
    bilinear: BilinearState
    u: Tensor
    sums: Tensor
    dual: Tensor
    settled: Tensor
    measured: Tensor
    wishes: Tensor
    heard: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """All that changes from step to step, as arrays by name."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return (
            own
            | {f"local.{name}": value for name, value in self.local.tensors().items()}
            | {f"bilinear.{name}": value for name, value in vars(self.bilinear).items()}
        )

    def restored(self, iteration: int, tensors: dict[str, Tensor]) -> "State":
        """The state that once gave these `tensors`, at an iteration."""
        parts: dict[str, dict[str, Tensor]] = {"": {}, "local": {}, "bilinear": {}}
        for name, value in tensors.items():
            where, _, last = name.rpartition(".")
            parts[where][last] = value
        local, bilinear = self.local.restored(parts["local"]), BilinearState(**parts["bilinear"])
        return replace(self, iteration=iteration, local=local, bilinear=bilinear, **parts[""])


@dataclass(frozen=True)
class BiCADMM:
    """The solver's configuration.

    Parameters
    ----------
    rho_c, rho_b, rho_l : float or "auto"
        Penalties of consensus, of the bilinear constraint and of the feature decomposition, for columns divided by
        their standard deviations (about zero without an intercept). "auto" follows the curvature of the data.
    tol : float, default=1e-4
        Relative tolerance of the residuals.
    max_iter : int, default=1000
        Most outer iterations.
    time_limit : float or None, default=None
        Seconds after which the fit ends with the best answer so far; the refit of that comes on top.
    local : str, LocalSolver or None
        The local solver: "direct", "newton", "feature_split"; None chooses by loss, shape and grid.
    effort : {"low", "medium", "high"}, default="medium"
        How hard to look for the support. "low" is the paper's algorithm with a refit. "medium" runs a portfolio of
        penalties as columns of one batch and improves the best support by swaps and a few perturbed restarts; "high"
        restarts until many of them in a row bring nothing.
    exact : bool, default=False
        Go on after the polish with branch and bound until no support can be better by more than `gap_tol`, or the time
        limit comes. Quick where the certificate's gap is small; without a limit it may search for very long elsewhere.
    gap_tol : float, default=1e-4
        The relative gap at which exact mode is done, and a certificate good enough to end the search for supports (with
        the effort "high" that needs a smaller one).
    checkpoint : str, Path or None
        A folder for checkpoints of the iteration. A run that finds one of its own there goes on from it; one of other
        data or settings is refused. Only one run at a time can use a folder.
    checkpoint_every : int, default=50
        Iterations between checkpoints; SIGTERM during the iteration writes one, too, and raises `StoppedError`.
    portfolio : bool, default=True
        Try several penalties side by side, where the effort allows it.
    precision : {"auto", "highest"}, default="auto"
        How Gram matrices of float32 data are made on a GPU: "auto" by integer products with a known error where they
        are good enough, "highest" always in floating point. The answer is refitted and proved in float64 either way.
    record_objective : bool, default=False
        Write the objective at z into every history record (one more pass over the data each).
    interruptible : bool, default=False
        Whether Ctrl-C and SIGTERM end the fit with the best answer so far, whose status says so; else they end the
        program, as usual. A second Ctrl-C does so in any case.
    """

    rho_c: Penalty = "auto"
    rho_b: Penalty = "auto"
    rho_l: Penalty = "auto"
    tol: float = 1e-4
    max_iter: int = 1000
    time_limit: float | None = None
    local: LocalSolver[Any] | str | None = None
    effort: Literal["low", "medium", "high"] = "medium"
    exact: bool = False
    gap_tol: float = 1e-4
    checkpoint: str | Path | None = None
    checkpoint_every: int = 50
    portfolio: bool = True
    precision: Literal["auto", "highest"] = "auto"
    record_objective: bool = False
    interruptible: bool = False

    def __post_init__(self) -> None:
        for name, value in check(self, RULES).items():
            object.__setattr__(self, name, value)

    @property
    def thoroughness(self) -> str:
        """The effort, but "brief" where a search that goes everywhere follows and needs no more than a good start."""
        return "brief" if self.exact and self.effort == "medium" else self.effort

    def signals(self, keyboard: bool = False) -> tuple[int, ...]:
        """Those that end a fit with its best answer, at a `keyboard` or not."""
        if self.interruptible:
            return signal.SIGINT, signal.SIGTERM
        return (signal.SIGINT,) if keyboard else ()

    @property
    def certified_gap(self) -> float:
        """The gap at which a certificate is good enough and the search for supports can end; hardly any for "high"."""
        return min(self.gap_tol, THOROUGH_GAP) if self.effort == "high" else self.gap_tol

    def init(self, instance: Instance, start: Tensor | None = None) -> tuple[Setup, State]:
        """Choose penalties and local solver, factor, and place all nodes at `start` (or zero)."""
        setup = self._setup(instance)
        instance = setup.instance
        n, c = instance.source.matrix.shape[1], instance.source.outputs
        zero = instance.ridge.new_zeros(n, c, dtype=instance.source.matrix.dtype)
        z = zero if start is None else start.repeat(1, setup.copies)
        x = (setup.own * z).expand(instance.split.nodes, n, c).clone()
        nothing = torch.zeros(3, instance.items.problems, dtype=x.dtype, device=x.device)
        state = State(
            iteration=0,
            age=x.new_zeros((), dtype=torch.float64),
            local=setup.solver.init(setup.sub, x),
            bilinear=bilinear_start(z, instance.kappa, instance.items),
            u=torch.zeros_like(x),
            sums=nothing,
            dual=nothing[0],
            settled=nothing[0],
            measured=x.new_full((len(MEASURED), instance.items.problems), torch.inf),
            wishes=x.new_zeros(len(REASONS)),
            heard=x.new_zeros(len(REASONS)),
        )
        return setup, state

    def step(self, setup: Setup, state: State) -> State:
        """One iteration of Algorithm 1."""
        inst, N, items = setup.instance, setup.instance.grid.nodes.size, setup.instance.items
        z, u = state.bilinear.z, state.u
        # x_i: the ridge is folded into the weight, so the centre is (rho_c / w)(z - u_i).
        local = setup.solver.prox(
            setup.sub,
            state.local,
            setup.rho_c / setup.sub.weight * (z - u),
            self._inner(setup, state),
        )
        x = local.x
        # Collect: the mean of x_i + u_i, and with it the residual sums of the previous iteration and the wishes.
        summed = inst.grid.total(torch.cat([(x + u).sum(dim=0).flatten(), state.sums.flatten(), state.wishes]))
        mean, sums, heard = summed.split([z.numel(), state.sums.numel(), len(state.wishes)])
        mean, sums = mean.view_as(z) / N, sums.view_as(state.sums)
        measured = self._measured(setup, state, sums)
        # Global updates (z, t), s, v, computed alike on every rank.
        pressure, last = self._pressure(torch.stack([state.age, state.age - 1]))
        before = replace(state.bilinear, v=state.bilinear.v * (last / pressure))
        ratio = pressure * setup.rho_b / (N * setup.rho_c)
        bilinear = bilinear_step(before, mean, inst.kappa, ratio, items)
        # u_i, and this rank's share of the new residuals.
        gap = x - setup.own * bilinear.z
        u = u + gap
        same = ((bilinear.s != 0) == (state.bilinear.s != 0)).all(dim=1)
        sparse = (bilinear.residual <= self.tol * bilinear.t).squeeze(1) | (self.thoroughness == "brief")
        # Norms over all blocks of a node, then sums over nodes.
        norms = items.norms(torch.stack([gap, x, u]))
        squares = inst.grid.blocks.total(norms.square())
        sums = torch.cat([squares[:2].sqrt(), squares[2:]]).sum(dim=1)
        return State(
            iteration=state.iteration + 1,
            age=state.age + 1,
            local=local,
            bilinear=bilinear,
            u=u,
            sums=inst.grid.once(sums),
            dual=items.norms(bilinear.z - z),
            settled=torch.where(same & sparse, state.settled + 1, 0),
            measured=measured,
            wishes=state.wishes,
            heard=heard,
        )

    def status(self, setup: Setup, state: State) -> Status:
        """Whether the last measured residuals allow a stop. Reads device numbers: call it sparingly."""
        if state.iteration > FIRST_STOP:
            fetch = setup.instance.grid.transfers.fetch
            *rows, settled = fetch(torch.cat([state.measured, state.settled.unsqueeze(0)]))
            measured = torch.stack(rows)
            if not bool(measured.isfinite().all()):
                return Status.DIVERGED
            residuals, limits = self.residuals(setup, measured)
            if bool((residuals <= limits).all()):
                return Status.CONVERGED
            if bool((settled >= (SETTLED_BRIEFLY if self.thoroughness == "brief" else SETTLED_AFTER)).all()):
                return Status.SETTLED
        return Status.MAX_ITER if state.iteration >= self.max_iter else Status.RUNNING

    def _setup(self, inst: Instance) -> Setup:
        N, M = inst.grid.nodes.size, inst.grid.blocks.size
        loss, (_, n) = inst.problem.loss, inst.source.matrix.shape
        curvature = loss.typical_curvature(inst.mean_target, inst.source.outputs)
        # A mean diagonal of a node's Hessian. The harmonic one, since in these coordinates a column with a tiny norm
        # carries a huge ridge, which must not set the pace of all others.
        diagonal = curvature * inst.column_norm**2 + inst.ridge[: inst.items.features]
        node_curvature = 1 / (N * float((1 / diagonal).mean()))
        rho_c = node_curvature if self.rho_c == "auto" else float(self.rho_c)
        shares = self._pressures(inst)
        inst = inst.batched(len(shares))
        rho_b = torch.tensor(
            [share * N * rho_c if self.rho_b == "auto" else self.rho_b for share in shares], dtype=torch.float64
        )
        rho_b = rho_b.repeat_interleave(inst.items.problems // len(shares)).unsqueeze(1)
        rho_l = M * curvature if self.rho_l == "auto" else float(self.rho_l)
        bounds = even_bounds(n, M)
        sub = Subproblem(
            loss=loss,
            split=inst.split,
            weight=(inst.ridge / N + rho_c).to(inst.source.matrix.dtype),
            blocks=tuple(slice(bounds[j], bounds[j + 1]) for j in inst.grid.blocks.hosted),
            axis=inst.grid.blocks,
            rho_l=rho_l,
        )
        solver = choose(self.local, loss, inst.items.features, inst.source.outputs, M)
        # The size of a coefficient fitted alone: what "small" means when the answer itself is zero.
        slope = inst.slope_at_zero()
        unit = inst.items.norms(inst.grid.nodes.total(slope)) / (N * node_curvature)
        own = torch.zeros_like(sub.weight)
        own[inst.grid.columns(n)] = 1
        return Setup(inst, solver, sub, own, rho_c, rho_b.to(unit), unit.cpu(), len(shares))

    def _pressures(self, inst: Instance) -> tuple[float, ...]:
        """Shares rho_b / (N rho_c) to try side by side: one, unless columns are free to be copies of a problem."""
        single = self.thoroughness in ("low", "brief") or self.rho_b != "auto" or not inst.items.separate
        return PRESSURES[:1] if single or not self.portfolio else PRESSURES

    def _pressure(self, age: Tensor) -> Tensor:
        """The factor on rho_b: one for a gentle start, then growing.

        Only the data-free step knows rho_b, so no factor is made again; its scaled multiplier v shrinks as rho_b grows.
        """
        growth = 1.0 if self.effort == "low" or self.rho_b != "auto" else GROWTH
        return torch.pow(growth, (age - GENTLE).clamp(min=0)).clamp(max=MOST_PRESSURE)

    def measure(self, setup: Setup, state: State) -> Tensor:
        """The residuals of the current iteration, for which the next one would have waited."""
        return self._measured(setup, state, setup.instance.grid.total(state.sums))

    def _measured(self, setup: Setup, state: State, sums: Tensor) -> Tensor:
        """What the previous iteration's residuals are made of, from the sums over all nodes."""
        items, bilinear = setup.instance.items, state.bilinear
        nonzeros = (items.pack(bilinear.z) != 0).sum(dim=1, dtype=sums.dtype)
        numbers = items.norms(bilinear.z), state.dual, bilinear.residual.squeeze(1), bilinear.t.squeeze(1), nonzeros
        return torch.cat([sums, torch.stack(numbers)])

    def residuals(self, setup: Setup, measured: Tensor) -> tuple[Tensor, Tensor]:
        """The residuals p, d, b and their limits, ``(..., 3, problems)`` each, from measurements on the host."""
        N, floor = setup.instance.grid.nodes.size, 1e-3 * setup.unit
        gaps, lengths, squares, size, moved, bilinear, t, _ = measured.unbind(dim=-2)
        root = N**0.5
        limits = [
            torch.maximum(lengths, N * size) + N * floor,
            setup.rho_c * (squares.sqrt() + root * floor),
            t + floor,
        ]
        return torch.stack([gaps, root * setup.rho_c * moved, bilinear], dim=-2), self.tol * torch.stack(limits, dim=-2)

    def _inner(self, setup: Setup, state: State) -> Tensor | float:
        """How accurate the local step must be: a tenth of the distance the iterates still move."""
        if state.iteration < FIRST_STOP:
            return 0.0
        apart = state.measured[MEASURED.index("gaps")] / setup.instance.grid.nodes.size
        return 0.1 * torch.maximum(apart, state.measured[MEASURED.index("moved")]).min()
