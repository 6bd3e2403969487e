"""The relaxation of any loss by a primal-dual method that uses the data only in products.

With slopes ``a`` and coefficients ``z`` one iteration is

    z+ = prox of the perspective at  z - tau A'(w a)
    a+ = prox of the conjugate at    a + sigma A (2 z+ - z).

Only sums over samples leave a node, and nothing is factored. The slopes are always a valid dual point, also where a
loss has kinks. Tree nodes of a scalar loss are columns of one batch; those of a joint loss are bounded one by one.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from psfit.certificate.dual import dual_bound
from psfit.certificate.relaxation import (
    CHECK_EVERY,
    CHILD_ITERATIONS,
    PATIENCE,
    STALLED,
    WIDTH,
    Bounds,
    Fit,
    Relaxation,
    least_ridge,
)
from psfit.kernels import kernel
from psfit.kernels.cuda_graph import Replay, Tensors
from psfit.problem import Domain
from psfit.problem.instance import Instance

# Steps of two passes over the data: for small data, and for data so large that a pass takes milliseconds.
POWER_STEPS, FEW_POWER_STEPS = 12, 4
ITERATIONS, FEW_ITERATIONS = 150, 20
SMALL = 1 << 18
# The ratio of the steps in slopes and in coefficients, as a share of the ratio of their sizes.
BALANCE = 0.07
# The relaxation is solved at this relative gap. Long runs end after so many checks without a gain.
SOLVED = 1e-4
LONG_PATIENCE = 5
# With fewer steps than this, recording them would take longer than it saves.
WORTH_RECORDING = 20
# A bound in float64 costs as much as several steps, so in long runs it is made less often.
LONG_RUN, CHECK_EVERY_IN_LONG_RUN = 20, 10

# The step in coefficients ``z (n, B c)`` along the gradient: the new ones, twice these less the old ones, and shares.
Shrink = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def count_iterations(inst: Instance) -> int:
    """How many iterations a certificate of an answer may take: on a CPU fewer for large data."""
    if inst.source.matrix.device.type == "cuda":
        return ITERATIONS
    return max(FEW_ITERATIONS, min(ITERATIONS, ITERATIONS * SMALL // _count_numbers(inst)))


def _count_numbers(inst: Instance) -> int:
    return max(1, inst.samples * inst.source.matrix.shape[1])


class DataRelaxation(Relaxation):
    """The relaxation of an instance of one problem; it ends after its iterations, or when the fit must stop.

    `fit` minimises on a support. Only a search that tries supports needs it.
    """

    def __init__(self, inst: Instance, fit: Fit | None = None) -> None:
        self.inst, self.fit = inst, fit
        items, c = inst.items, inst.source.outputs
        self.root, self.kappa, self.device = inst.domain, inst.problem.kappa[0], inst.ridge.device
        self.ridge = items.pack_ridge(inst.ridge[: items.features, 0])
        self.width, self.child_iterations = WIDTH[self.device.type], CHILD_ITERATIONS
        self.norm = self._norm()
        self.balance = BALANCE * inst.problem.loss.typical_curvature(inst.mean_target, c) * self.norm

    def _norm(self) -> float:
        """The largest singular value of the weighted data, as estimated by a few power steps, and slightly more."""
        source, nodes = self.inst.source, self.inst.grid.nodes
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(source.matrix.shape[1], 1, generator=generator).to(source.matrix.device, source.matrix.dtype)
        for _ in range(POWER_STEPS if _count_numbers(self.inst) <= 4 * SMALL else FEW_POWER_STEPS):
            v = nodes.total(source.matrix.rmv(source.working_weight * source.matrix.mv(v / v.norm())))
        return 1.05 * float(v.norm()) ** 0.5

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        source = self.inst.source
        z = Z.to(source.matrix.dtype)
        a = self.inst.problem.loss.gradient(source.matrix.mv(z), source.working_target)
        length = self.inst.grid.nodes.total((source.working_weight * a.square()).sum().reshape(1)).sqrt()
        known = BALANCE * length / z.norm().clamp(min=torch.finfo(z.dtype).tiny)
        balance = known.reshape(1, 1).clamp(1e-3 * self.balance, 1e3 * self.balance)
        return z.unsqueeze(0), a.unsqueeze(0), balance

    def restart(self, points: Tensor) -> tuple[Tensor, ...]:
        parts = [self.start(point.view(-1, self.inst.source.outputs)) for point in points]
        return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))

    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        if self.root.items.separate or len(domain.left) == 1:
            return self._batch(domain, state, enough, iterations)
        rows = [torch.tensor([k], device=self.device) for k in range(len(domain.left))]
        wanted = torch.as_tensor(enough, device=self.device).expand(len(rows))
        parts = [self._batch(domain.select(k), tuple(s[k] for s in state), wanted[k], iterations) for k in rows]
        return Bounds(
            lower=torch.cat([part.lower for part in parts]),
            scores=torch.cat([part.scores for part in parts]),
            shares=torch.cat([part.shares for part in parts]),
            state=tuple(torch.cat(columns) for columns in zip(*(part.state for part in parts), strict=True)),
            value=torch.cat([part.lower if part.value is None else part.value for part in parts]),
        )

    def _batch(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        inst = self.inst.copy_problems(len(domain.left) if self.root.items.separate else 1)
        source, loss = inst.source, inst.problem.loss
        z, a = (self._as_columns(part) for part in state[:2])
        balance = state[2]
        tau, sigma = 1 / (balance * self.norm), (balance / self.norm).T
        best = torch.full((len(domain.left),), -torch.inf, dtype=torch.float64, device=self.device)
        idle, scores = torch.zeros_like(best), torch.zeros_like(domain.inside, dtype=torch.float64)

        wanted = torch.as_tensor(enough, dtype=torch.float64, device=self.device)
        shrink = self._choose_shrink(inst, domain, tau, z)

        def step(tensors: Tensors) -> Tensors:
            z, a = tensors["z"], tensors["a"]
            g = inst.grid.nodes.total(source.matrix.rmv(source.working_weight * a))
            moved, ahead, shares = shrink(z, g)
            a = loss.dual_point(a / sigma + source.matrix.mv(ahead), source.working_target, 1 / sigma)
            return {"z": moved, "a": a, "shares": shares}

        advance = Replay(step) if self._steady and iterations >= WORTH_RECORDING else step
        found = {"z": z, "a": a}
        long = iterations >= LONG_RUN
        every, patience = (CHECK_EVERY_IN_LONG_RUN, LONG_PATIENCE) if long else (CHECK_EVERY, PATIENCE)
        for k in range(iterations + 1):
            if k % every == 0 or k == iterations:
                value, measured = dual_bound(inst, found["a"], domain)
                better = value > best
                relaxed = self._measure(inst, found["z"], domain)
                gained = best.isinf() | (value - best > STALLED * (torch.minimum(relaxed, wanted) - best))
                idle = torch.where(gained, 0, idle + 1)
                best = torch.where(better, value, best)
                scores = torch.where(better.unsqueeze(1), measured, scores)
                solved = relaxed - best <= SOLVED * relaxed.abs()
                done = bool(((idle > patience) | solved | (best >= wanted)).all())
                if k == iterations or (k and (inst.grid.follow_first_rank(done) or inst.watch.must_stop())):
                    break
            # A step also returns shares, which the next step does not take.
            found = advance({name: found[name] for name in ("z", "a")})
        state = self._as_rows(found["z"]), self._as_rows(found["a"]), balance
        dense = self._measure(inst, found["z"], domain, limited=False)
        return Bounds(best, scores, found["shares"], state, value=relaxed, dense=dense)

    def _choose_shrink(self, inst: Instance, domain: Domain, tau: Tensor, z: Tensor) -> Shrink:
        """The step in coefficients; for groups on a CPU one compiled function."""
        items, loops = inst.items, kernel("shrink_groups", self.device) if self.device.type == "cpu" else None
        plain = inst.box is None and domain.weights is None and z.dtype == torch.float64 and z.shape[1] == 1
        if loops is not None and plain and items.in_groups:
            group, left = items.item_of(torch.arange(items.features), 0), max(0, int(domain.left))
            return lambda z, g: loops(z, g, float(tau), self.ridge, group, domain.inside, domain.free, left)

        def shrink(z: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            v = z - tau.T * g
            v = v if inst.box is None else inst.box.clip_signs(v)
            factor, shares = domain.shrink(items.pack(v).abs(), self.ridge, 1 / tau)
            moved = items.scale(v, factor.to(v.dtype))
            moved = moved if inst.box is None else inst.box.clip(moved)
            return moved, 2 * moved - z, shares

        return shrink

    def _measure(self, inst: Instance, z: Tensor, domain: Domain, limited: bool = True) -> Tensor:
        """The objective ``(B,)`` of the relaxation, or of the problem that is not limited, at ``z (n, B c)``."""
        source, items = inst.source, inst.items
        losses = source.weight * inst.problem.loss.value(source.matrix.mv(z).double(), source.target)
        sizes = self.ridge.sqrt() * items.pack(z.double()).abs()
        ridge = least_ridge(domain, sizes) if limited else 0.5 * sizes.square().sum(dim=1)
        return items.sum_outputs(inst.grid.nodes.total(losses.sum(dim=0))) + ridge

    @property
    def _steady(self) -> bool:
        """Whether all steps do the same work on one GPU."""
        matrix = self.inst.source.matrix
        alone = self.inst.grid.world.size == 1 and matrix.device.type == "cuda" and not matrix.streamed
        return alone and self.inst.problem.loss.steady

    def _as_columns(self, rows: Tensor) -> Tensor:
        """``(B, n, c) -> (n, B c)``."""
        return rows.transpose(0, 1).flatten(1)

    def _as_rows(self, columns: Tensor) -> Tensor:
        """``(n, B c) -> (B, n, c)``."""
        return columns.unflatten(1, (-1, self.inst.source.outputs)).transpose(0, 1)

    def optima(self, supports: Tensor, state: tuple[Tensor, ...] | None, enough: float) -> tuple[Tensor, Tensor]:
        """The errors are what the refits' slopes cannot prove. So they are right even if a refit is inaccurate."""
        assert self.fit is not None
        values, lowers = [], []
        for chosen in supports.split(1):
            value, slopes = self.fit(chosen[0])
            values.append(value)
            lowers.append(dual_bound(self.inst, slopes, self.root.decide(chosen, ~chosen))[0])
        least, lower = torch.tensor(values, dtype=torch.float64, device=self.device), torch.cat(lowers)
        return least, (least - lower).clamp(min=0).nan_to_num(nan=torch.inf)
