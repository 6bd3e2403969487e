"""Interior point method for losses that are made of lines and parabolas, such as hinge and Huber.

Such a loss is ``max over low <= a <= high of a (eta - centre) - bend a^2 / 2``. So a problem on a support is

    min_x max_a  sum_i w_i (a_i (eta_i - centre_i) - bend a_i^2 / 2) + 1/2 x'Rx,      eta = A x,

a quadratic problem with one bounded slope ``a_i`` for each sample. With slacks ``up, down >= 0`` the optimum is where

    R x + A'(w a) = 0,   eta - centre - bend a = up - down,   up (high - a) = 0,   down (a - low) = 0.

Each step solves these equations to first order, with the zeros of the last two replaced by a falling target (Mehrotra's
predictor and corrector). A step needs ``A' diag(w / D) A`` and a few products, all of them sums over samples. Five to
twenty steps are enough for data of any scale. The slopes are always a valid dual point, which gives the duality gap.

Bounds ``l <= x <= h`` have multipliers of their own: ``R x + A'(w a) = below - above`` with ``below (x - l) = 0`` and
``above (h - x) = 0``. They add ``below / (x - l) + above / (h - x)`` to the diagonal of the matrix.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.losses import Box
from psfit.problem.box import score
from psfit.search.restriction import Restriction

MAX_STEPS = 100
# A step may go this share of the way to the boundary.
BOUNDARY_SHARE = 0.995
# After this many steps without a smaller gap, rounding is assumed to prevent further progress.
PATIENCE = 10
# A variable closer to its bound than this share of the largest variable is at the bound.
AT_BOUND = 1e-9


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
    """A point of the method on this rank's samples: slopes and their slacks, each ``(m, c')``; and the multipliers of
    bounds ``(size,)``.
    """

    a: Tensor
    up: Tensor
    down: Tensor
    below: Tensor
    above: Tensor

    def move(self, step: float, by: "_Slack") -> "_Slack":
        return _Slack(
            self.a + step * by.a,
            self.up + step * by.up,
            self.down + step * by.down,
            self.below + step * by.below,
            self.above + step * by.above,
        )


class Interior:
    """One problem on a support, as described above."""

    def __init__(self, view: Restriction, box: Box, weight: Tensor) -> None:
        self.view, self.box, self.weight = view, box, weight.expand_as(box.centre)
        counted = self.counted = self.weight > 0
        self.total_weight, self.count = view.total(torch.stack([self.weight.sum(), counted.sum()])).tolist()
        # Every sample contributes the same to the gap on the central path. A weight of zero is replaced by the mean.
        self.unit = torch.where(counted, self.weight, self.total_weight / self.count)
        nothing = torch.full_like(view.ridge, torch.inf)
        self.low, self.high = (-nothing, nothing) if view.bounds is None else view.bounds

    def minimise(self, x: Tensor, tol: float, give_up: float = float("inf")) -> InteriorResult:
        """Start at ``x (1, size)``; stop when the duality gap is `tol` times the objective, or cannot shrink further.

        The method also stops when the optimum is known to lie above `give_up`.
        """
        x = self._place_inside(x)
        eta = self.view.predictors(x)
        state = self._start(eta, x)
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
        return self._settle(replace(best, steps=steps))

    def _place_inside(self, x: Tensor) -> Tensor:
        """A point strictly between the bounds."""
        width = self.high - self.low
        room = torch.where(width.isfinite(), 0.5 * width, 1.0).clamp(max=1.0)
        return torch.minimum(torch.maximum(x, self.low + room), self.high - room)

    def _settle(self, found: InteriorResult) -> InteriorResult:
        """The same with variables at their bounds if nothing but rounding is between them."""
        if self.view.bounds is None:
            return found
        close = AT_BOUND * found.x.abs().max()
        x = torch.where(found.x - self.low <= close, self.low, found.x)
        x = torch.where(self.high - x <= close, self.high, x)
        return replace(found, x=x, value=float(self.view.value(x)))

    def _start(self, eta: Tensor, x: Tensor) -> _Slack:
        a = (self.box.low + self.box.high) / 2
        e = eta - self.box.centre - self.box.bend * a
        size = float(self.view.total((self.weight * e.abs()).sum())) / self.total_weight
        room = size if size > 0 else 1.0
        product = room * float((self.box.high - self.box.low).max()) * self.total_weight / self.count
        near, far = x[0] - self.low, self.high - x[0]
        return _Slack(a, e.clamp(min=0) + room, (-e).clamp(min=0) + room, product / near, product / far)

    def _measure(self, x: Tensor, eta: Tensor, state: _Slack, steps: int) -> InteriorResult:
        """Objective and duality gap: the part of slopes and predictors, and the part of the equation of `x`."""
        box, view = self.box, self.view
        loss = view.loss.value(eta, view.target)
        missed = loss - state.a * (eta - box.centre - 0.5 * box.bend * state.a)
        sums = view.total(torch.stack([(self.weight * loss).sum(), (self.weight * missed.clamp(min=0)).sum()]))
        coefficients = view.coefficients(x)[0]
        penalty = 0.5 * (view.ridge * coefficients.square()).sum()
        slope = view.push_forward(view.products(None, [self.weight * state.a])[1][0])
        left = view.ridge * coefficients + slope
        # With a tiny ridge, the proved part of the gap is far too large. There the gap is estimated by a move of the
        # size of the coefficients themselves.
        size = 2 * coefficients.abs() + coefficients.abs().amax()
        if view.bounds is None:
            proved = torch.where(view.ridge > 0, 0.5 * left.square() / view.ridge, 0.0)
            guess = left.abs() * size
        else:
            scores = score(slope, 0.0, view.ridge.clamp(min=torch.finfo(torch.float64).tiny), self.low, self.high)
            kept = 0.5 * view.ridge * coefficients.square() + slope * coefficients
            proved = torch.where(view.ridge > 0, (scores + kept).clamp(min=0), 0.0)
            near, far = coefficients - self.low, self.high - coefficients
            products = _multiply(state.below, near) + _multiply(state.above, far)
            guess = (left - state.below + state.above).abs() * size + products
        gap_of_x = torch.minimum(proved, guess).sum()
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
        near, far = x[0] - self.low, self.high - x[0]
        bend = torch.diag(state.below / near + state.above / far)
        factor = cholesky(H + view.ridge_matrix + bend)
        left = slope + view.pull_back(view.ridge * view.coefficients(x)[0])

        def direction(
            rhs: Tensor, up: Tensor | float, down: Tensor | float, low: Tensor | float, high: Tensor | float
        ) -> tuple[Tensor, Tensor, _Slack]:
            """The step after which the products of slack and distance would be `up`, `down`, and those of bounds `low`
            and `high`.
            """
            pushed = rhs + low / near - high / far
            (dx,) = view.agree(torch.cholesky_solve(pushed.unsqueeze(1), factor).T)
            deta = view.predictors(dx)
            # Samples without a weight stay where they are: they must not shorten the steps of the others.
            da = torch.where(self.counted, (deta + e - up / above + down / below) / D, 0.0)
            return (
                dx,
                deta,
                _Slack(
                    da,
                    torch.where(self.counted, up / above - state.up + (state.up / above) * da, 0.0),
                    torch.where(self.counted, down / below - state.down - (state.down / below) * da, 0.0),
                    (low - state.below * dx[0]) / near - state.below,
                    (high + state.above * dx[0]) / far - state.above,
                ),
            )

        dx, _, ahead = direction(-left - pull, 0.0, 0.0, 0.0, 0.0)
        reach = self._longest_step(x, state, dx, ahead)
        now, then = self._complementarity((x, state), (x + reach * dx, state.move(reach, ahead)))
        common = (then / now) ** 3 * now / (2 * self.count)
        target = common / self.unit
        up, down = target + ahead.up * ahead.a, target - ahead.down * ahead.a
        low, high = common - ahead.below * dx[0], common + ahead.above * dx[0]
        _, (shift,) = view.products(None, [w * (e - up / above + down / below) / D])
        dx, deta, move = direction(-left - shift, up, down, low, high)
        step = min(1.0, BOUNDARY_SHARE * self._longest_step(x, state, dx, move))
        return x + step * dx, eta + step * deta, state.move(step, move)

    def _longest_step(self, x: Tensor, state: _Slack, dx: Tensor, move: _Slack) -> float:
        """The longest step for which all slacks and distances to bounds stay positive; at most 1 / BOUNDARY_SHARE."""
        left = torch.stack([self.box.high - state.a, state.a - self.box.low, state.up, state.down])
        use = torch.stack([move.a, -move.a, -move.up, -move.down])
        most = (use / left).max().clamp(min=BOUNDARY_SHARE).reshape(1)
        if self.view.bounds is not None:
            distances = torch.stack([x[0] - self.low, self.high - x[0], state.below, state.above])
            spent = torch.stack([-dx[0], dx[0], -move.below, -move.above])
            # A bound that does not exist is infinitely far away, and its multiplier is zero.
            shares = torch.where((distances > 0) & distances.isfinite(), spent / distances, 0.0)
            most = torch.maximum(most, shares.max())
        grid = self.view.inst.grid
        return 1 / float(grid.blocks.comm.broadcast(grid.nodes.maximum(most)))

    def _complementarity(self, *states: tuple[Tensor, _Slack]) -> list[float]:
        """The weighted sums of all products of slack and distance."""
        sums = [
            (self.weight * (s.up * (self.box.high - s.a) + s.down * (s.a - self.box.low)).clamp(min=0)).sum()
            for _, s in states
        ]
        summed = self.view.total(torch.stack(sums)).tolist()
        walls = [
            float((_multiply(s.below, x[0] - self.low) + _multiply(s.above, self.high - x[0])).clamp(min=0).sum())
            for x, s in states
        ]
        return [one + other for one, other in zip(summed, walls, strict=True)]


def _multiply(multiplier: Tensor, distance: Tensor) -> Tensor:
    """Products of multipliers and distances from bounds; zero where there is no bound."""
    return torch.where(distance.isinf(), 0.0, multiplier * distance)
