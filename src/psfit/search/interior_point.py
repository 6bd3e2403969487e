"""Interior point method for losses that are made of lines and parabolas, such as hinge and Huber.

Such a loss is ``max over low <= a <= high of a (eta - centre) - bend a^2 / 2``. So a problem on a support is

    min_x max_a  sum_i w_i (a_i (eta_i - centre_i) - bend a_i^2 / 2) + 1/2 x'Rx,      eta = A x,

a quadratic problem with one bounded slope ``a_i`` for each sample. With slacks ``up, down >= 0`` the optimum is where

    R x + A'(w a) = 0,   eta - centre - bend a = up - down,   up (high - a) = 0,   down (a - low) = 0.

Each step solves these equations to first order, with the zeros of the last two replaced by a falling target (Mehrotra's
predictor and corrector). A step needs ``A' diag(w / D) A`` and a few products, all of them sums over samples. Five to
twenty steps are enough for data of any scale. The slopes are always a valid dual point, which gives the duality gap.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.losses import Box
from psfit.search.restriction import Restriction

MAX_STEPS = 100
# A step may go this share of the way to the boundary.
BOUNDARY_SHARE = 0.995
# After this many steps without a smaller gap, rounding is assumed to prevent further progress.
PATIENCE = 10


@dataclass(frozen=True)
class InteriorResult:
    """The point ``x (1, size)``, its value, an estimate of the duality gap there, a lower bound of the optimum (up to
    the residual of the intercepts' equations), the slopes ``(m, c')``, and the number of steps.
    """

    x: Tensor
    value: float
    gap: float
    lower: float
    slopes: Tensor
    steps: int


@dataclass(frozen=True)
class _Slack:
    """A point of the method on this rank's samples: slopes and their slacks, each ``(m, c')``."""

    a: Tensor
    up: Tensor
    down: Tensor

    def move(self, step: float, by: "_Slack") -> "_Slack":
        return _Slack(self.a + step * by.a, self.up + step * by.up, self.down + step * by.down)


class Interior:
    """One problem on a support, as described above."""

    def __init__(self, view: Restriction, box: Box, weight: Tensor) -> None:
        self.view, self.box, self.weight = view, box, weight.expand_as(box.centre)
        counted = self.weight > 0
        self.total_weight, self.count = view.total(torch.stack([self.weight.sum(), counted.sum()])).tolist()
        # Every sample contributes the same to the gap on the central path. A weight of zero is replaced by the mean.
        self.unit = torch.where(counted, self.weight, self.total_weight / self.count)

    def minimise(self, x: Tensor, tol: float, give_up: float = float("inf")) -> InteriorResult:
        """Start at ``x (1, size)``; stop when the duality gap is `tol` times the objective, or cannot shrink further.

        The method also stops when the optimum is known to lie above `give_up`.
        """
        eta = self.view.predictors(x)
        state = self._start(eta)
        # The first slopes are arbitrary, so their gap is not used.
        best, idle, steps = replace(self._measure(x, eta, state, 0), gap=float("inf")), 0, 0
        for steps in range(1, MAX_STEPS + 1):
            if idle >= PATIENCE or best.gap <= tol * abs(best.value) or best.lower > give_up:
                break
            x, eta, state = self._step(x, eta, state)
            if not bool(self.view.total((~x.isfinite()).sum()) == 0):
                break
            found = self._measure(x, eta, state, steps)
            idle, best = (0, found) if found.gap < best.gap else (idle + 1, best)
        return replace(best, steps=steps)

    def _start(self, eta: Tensor) -> _Slack:
        a = (self.box.low + self.box.high) / 2
        e = eta - self.box.centre - self.box.bend * a
        size = float(self.view.total((self.weight * e.abs()).sum())) / self.total_weight
        room = size if size > 0 else 1.0
        return _Slack(a, e.clamp(min=0) + room, (-e).clamp(min=0) + room)

    def _measure(self, x: Tensor, eta: Tensor, state: _Slack, steps: int) -> InteriorResult:
        """Objective and duality gap: the part of slopes and predictors, and the part of the equation of `x`."""
        box, view = self.box, self.view
        loss = view.loss.value(eta, view.target)
        missed = loss - state.a * (eta - box.centre - 0.5 * box.bend * state.a)
        sums = view.total(torch.stack([(self.weight * loss).sum(), (self.weight * missed.clamp(min=0)).sum()]))
        coefficients = view.coefficients(x)[0]
        penalty = 0.5 * (view.ridge * coefficients.square()).sum()
        left = view.ridge * coefficients + view.push_forward(view.products(None, [self.weight * state.a])[1][0])
        # With a tiny ridge, the proved part of the gap is far too large. There the gap is estimated by a move of the
        # size of the coefficients themselves.
        proved = torch.where(view.ridge > 0, 0.5 * left.square() / view.ridge, 0.0)
        size = 2 * coefficients.abs() + coefficients.abs().amax()
        gap_of_x = torch.minimum(proved, left.abs() * size).sum()
        value, missing = sums[0] + penalty, sums[1]
        agreed = view.agree(value, missing + gap_of_x, value - missing - proved.sum())
        value_of_x, gap, lower = (float(number) for number in agreed)
        return InteriorResult(x, value_of_x, gap, lower, state.a, steps)

    def _step(self, x: Tensor, eta: Tensor, state: _Slack) -> tuple[Tensor, Tensor, _Slack]:
        box, view, w = self.box, self.view, self.weight
        above, below = box.high - state.a, state.a - box.low
        e = eta - box.centre - box.bend * state.a
        D = box.bend + state.up / above + state.down / below
        H, (slope, pull) = view.products(w / D, [w * state.a, w * e / D])
        factor, left = cholesky(H + view.ridge_matrix), slope + view.pull_back(view.ridge * view.coefficients(x)[0])

        def direction(rhs: Tensor, up: Tensor | float, down: Tensor | float) -> tuple[Tensor, Tensor, _Slack]:
            """The step after which the two products of slack and distance would be `up` and `down`."""
            (dx,) = view.agree(torch.cholesky_solve(rhs.unsqueeze(1), factor).T)
            deta = view.predictors(dx)
            da = (deta + e - up / above + down / below) / D
            return (
                dx,
                deta,
                _Slack(
                    da,
                    up / above - state.up + (state.up / above) * da,
                    down / below - state.down - (state.down / below) * da,
                ),
            )

        _, _, ahead = direction(-left - pull, 0.0, 0.0)
        reach = self._longest_step(state, ahead)
        now, then = self._complementarity(state, state.move(reach, ahead))
        target = (then / now) ** 3 * now / (2 * self.count * self.unit)
        up, down = target + ahead.up * ahead.a, target - ahead.down * ahead.a
        _, (shift,) = view.products(None, [w * (e - up / above + down / below) / D])
        dx, deta, move = direction(-left - shift, up, down)
        step = min(1.0, BOUNDARY_SHARE * self._longest_step(state, move))
        return x + step * dx, eta + step * deta, state.move(step, move)

    def _longest_step(self, state: _Slack, move: _Slack) -> float:
        """The longest step for which all slacks and distances to bounds stay positive; at most 1 / BOUNDARY_SHARE."""
        left = torch.stack([self.box.high - state.a, state.a - self.box.low, state.up, state.down])
        use = torch.stack([move.a, -move.a, -move.up, -move.down])
        most = (use / left).max().clamp(min=BOUNDARY_SHARE).reshape(1)
        grid = self.view.inst.grid
        return 1 / float(grid.blocks.comm.broadcast(grid.nodes.maximum(most)))

    def _complementarity(self, *states: _Slack) -> list[float]:
        """The weighted sums of all products of slack and distance."""
        sums = [
            (self.weight * (s.up * (self.box.high - s.a) + s.down * (s.a - self.box.low)).clamp(min=0)).sum()
            for s in states
        ]
        return self.view.total(torch.stack(sums)).tolist()
