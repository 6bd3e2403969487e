"""Losses of many rows of predictors, their slopes, and what these prove: a pass over the predictors for each."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor
from triton.language.extra import libdevice  # type: ignore[import-not-found, import-untyped, unused-ignore]

# The losses that the kernels know. Their targets are -1 and +1.
LOGISTIC, SQUARED_HINGE = 0, 1
NUMBERS = {"logistic": LOGISTIC, "squared_hinge": SQUARED_HINGE}
TILE = 1024


class LossRows:
    """The kernels of one loss, for float64 rows; `target` and `weight` have one number for each column.

    Without a `weight` all samples count once.
    """

    def __init__(self, loss: str, target: Tensor, weight: Tensor | None) -> None:
        self.number, self.target, self.weighted = NUMBERS[loss], target.contiguous(), weight is not None
        self.weight = self.target if weight is None else weight.contiguous()

    def evaluate(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of the losses ``(B,)`` at predictors ``(B, m)``, and their slopes ``(B, m)`` times the weights."""
        slopes, total = torch.empty_like(eta), eta.new_empty(len(eta))
        self._run(_evaluate, eta, slopes, total)
        return total, slopes

    def add_halves(self, slopes: Tensor) -> Tensor:
        """The sums ``(B, 2)`` of the positive slopes and of the negative ones, times the weights, both as sizes.

        The slopes are moved into the domain of the conjugate first.
        """
        total = slopes.new_empty(len(slopes), 2)
        self._run(_add_halves, slopes, total)
        return total

    def shrink(self, slopes: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes ``(B, m)`` in the conjugate's domain, times ``factors (B, 2)`` of their sign; and sums ``(B, 3)``.

        These are the sums of the conjugates, of the sizes of what is added in them, and of the squares, with weights.
        """
        shrunk, total = torch.empty_like(slopes), slopes.new_empty(len(slopes), 3)
        self._run(_shrink, slopes, factors.contiguous(), shrunk, total)
        return shrunk, total

    def _run(self, function, rows: Tensor, *others: Tensor) -> None:  # type: ignore[no-untyped-def]
        count, m = rows.shape
        with torch.cuda.device(rows.device):
            function[(count,)](
                *(rows.contiguous(), *others, self.target, self.weight, m),
                LOSS=self.number,
                WEIGHTED=self.weighted,
                TILE=TILE,
                num_warps=4,
            )


def loss_rows(loss: str, target: Tensor, weight: Tensor | None) -> LossRows:
    """The kernels of a loss by its name."""
    return LossRows(loss, target, weight)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _evaluate(  # type: ignore[no-untyped-def]
    eta, slopes, total, target, weight, m, LOSS: tl.constexpr, WEIGHTED: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((TILE,), tl.float64)
    for first in range(0, m, TILE):
        j = first + tl.arange(0, TILE)
        here = j < m
        b = tl.load(target + j, mask=here, other=1.0)
        margin = b * tl.load(eta + row * m + j, mask=here, other=0.0)
        if LOSS == 0:
            small = tl.exp(-tl.abs(margin))
            value = tl.maximum(-margin, 0.0) + libdevice.log1p(small)
            slope = -b * tl.where(margin >= 0, small, 1.0) / (1.0 + small)
        else:
            short = tl.maximum(1.0 - margin, 0.0)
            value = short * short
            slope = -2.0 * b * short
        if WEIGHTED:
            w = tl.load(weight + j, mask=here, other=0.0)
            value, slope = w * value, w * slope
        sums += tl.where(here, value, 0.0)
        tl.store(slopes + row * m + j, slope, mask=here)
    tl.store(total + row, tl.sum(sums, axis=0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _move_inside(a, b, LOSS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The slope in the domain of the conjugate that is nearest."""
    margin = tl.minimum(a * b, 0.0)
    if LOSS == 0:
        margin = tl.maximum(margin, -1.0)
    return b * margin


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _add_halves(  # type: ignore[no-untyped-def]
    slopes, total, target, weight, m, LOSS: tl.constexpr, WEIGHTED: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    up, down = tl.zeros((TILE,), tl.float64), tl.zeros((TILE,), tl.float64)
    for first in range(0, m, TILE):
        j = first + tl.arange(0, TILE)
        here = j < m
        b = tl.load(target + j, mask=here, other=1.0)
        a = _move_inside(tl.load(slopes + row * m + j, mask=here, other=0.0), b, LOSS)
        if WEIGHTED:
            a = a * tl.load(weight + j, mask=here, other=0.0)
        up += tl.maximum(a, 0.0)
        down += tl.maximum(-a, 0.0)
    tl.store(total + 2 * row, tl.sum(up, axis=0))
    tl.store(total + 2 * row + 1, tl.sum(down, axis=0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _shrink(  # type: ignore[no-untyped-def]
    slopes, factors, shrunk, total, target, weight, m, LOSS: tl.constexpr, WEIGHTED: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    up, down = tl.load(factors + 2 * row), tl.load(factors + 2 * row + 1)
    conjugates, sizes = tl.zeros((TILE,), tl.float64), tl.zeros((TILE,), tl.float64)
    squares = tl.zeros((TILE,), tl.float64)
    for first in range(0, m, TILE):
        j = first + tl.arange(0, TILE)
        here = j < m
        b = tl.load(target + j, mask=here, other=1.0)
        a = _move_inside(tl.load(slopes + row * m + j, mask=here, other=0.0), b, LOSS)
        a = tl.where(a > 0, up, down) * a
        tl.store(shrunk + row * m + j, a, mask=here)
        margin = a * b
        if LOSS == 0:
            # Zero times the logarithm of zero is zero.
            y, rest = -margin, 1.0 + margin
            conjugate = y * tl.log(tl.where(y > 0, y, 1.0)) + rest * tl.log(tl.where(rest > 0, rest, 1.0))
        else:
            conjugate = margin + margin * margin / 4.0
        square = a * a
        size = tl.abs(conjugate) + tl.abs(a) * (1.0 + tl.abs(b)) + square
        if WEIGHTED:
            w = tl.load(weight + j, mask=here, other=0.0)
            conjugate, size, square = w * conjugate, w * size, w * square
        conjugates += tl.where(here, conjugate, 0.0)
        sizes += tl.where(here, size, 0.0)
        squares += tl.where(here, square, 0.0)
    tl.store(total + 3 * row, tl.sum(conjugates, axis=0))
    tl.store(total + 3 * row + 1, tl.sum(sizes, axis=0))
    tl.store(total + 3 * row + 2, tl.sum(squares, axis=0))
