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
# This many programs keep a GPU busy: a few rows are cut into parts, whose sums are added in a fixed order at the end.
PROGRAMS = 1024


class LossRows:
    """The kernels of one loss, for float64 rows; `target` and `weight` have one number for each column.

    Without a `weight` all samples count once.
    """

    def __init__(self, loss: str, target: Tensor, weight: Tensor | None) -> None:
        self.number, self.target, self.weighted = NUMBERS[loss], target.contiguous(), weight is not None
        self.weight = self.target if weight is None else weight.contiguous()

    def evaluate(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of the losses ``(B,)`` at predictors ``(B, m)``, and their slopes ``(B, m)`` times the weights."""
        slopes = torch.empty_like(eta, memory_format=torch.contiguous_format)
        return self._run(_evaluate, 1, eta, slopes)[:, 0], slopes

    def add_halves(self, slopes: Tensor) -> Tensor:
        """The sums ``(B, 2)`` of the positive slopes and of the negative ones, times the weights, both as sizes.

        The slopes are moved into the domain of the conjugate first.
        """
        return self._run(_add_halves, 2, slopes)

    def shrink(self, slopes: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes ``(B, m)`` in the conjugate's domain, times ``factors (B, 2)`` of their sign; and sums ``(B, 3)``.

        These are the sums of the conjugates, of the sizes of what is added in them, and of the squares, with weights.
        """
        shrunk = torch.empty_like(slopes, memory_format=torch.contiguous_format)
        return shrunk, self._run(_shrink, 3, slopes, factors.contiguous(), shrunk)

    def _run(self, function, sums: int, rows: Tensor, *others: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """The sums ``(B, sums)`` of a kernel for ``rows (B, m)``."""
        count, m = rows.shape
        tiles = max(1, triton.cdiv(m, TILE))
        height = TILE * triton.cdiv(tiles, max(1, min(tiles, PROGRAMS // max(count, 1))))
        parts = triton.cdiv(TILE * tiles, height)
        total = rows.new_empty(count, parts, sums)
        with torch.cuda.device(rows.device):
            function[(count, parts)](
                *(rows.contiguous(), *others, total, self.target, self.weight, m, height),
                LOSS=self.number,
                WEIGHTED=self.weighted,
                TILE=TILE,
                num_warps=4,
            )
        return total.sum(dim=1)


def loss_rows(loss: str, target: Tensor, weight: Tensor | None) -> LossRows:
    """The kernels of a loss by its name."""
    return LossRows(loss, target, weight)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _evaluate(  # type: ignore[no-untyped-def]
    eta, slopes, total, target, weight, m, height, LOSS: tl.constexpr, WEIGHTED: tl.constexpr, TILE: tl.constexpr
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    sums = tl.zeros((TILE,), tl.float64)
    for start in range(0, height, TILE):
        j = part * height + start + tl.arange(0, TILE)
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
    tl.store(total + row * tl.num_programs(1) + part, tl.sum(sums, axis=0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _move_inside(a, b, LOSS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The slope in the domain of the conjugate that is nearest."""
    margin = tl.minimum(a * b, 0.0)
    if LOSS == 0:
        margin = tl.maximum(margin, -1.0)
    return b * margin


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _add_halves(  # type: ignore[no-untyped-def]
    slopes, total, target, weight, m, height, LOSS: tl.constexpr, WEIGHTED: tl.constexpr, TILE: tl.constexpr
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    up, down = tl.zeros((TILE,), tl.float64), tl.zeros((TILE,), tl.float64)
    for start in range(0, height, TILE):
        j = part * height + start + tl.arange(0, TILE)
        here = j < m
        b = tl.load(target + j, mask=here, other=1.0)
        a = _move_inside(tl.load(slopes + row * m + j, mask=here, other=0.0), b, LOSS)
        if WEIGHTED:
            a = a * tl.load(weight + j, mask=here, other=0.0)
        up += tl.maximum(a, 0.0)
        down += tl.maximum(-a, 0.0)
    place = total + 2 * (row * tl.num_programs(1) + part)
    tl.store(place, tl.sum(up, axis=0))
    tl.store(place + 1, tl.sum(down, axis=0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _shrink(  # type: ignore[no-untyped-def]
    slopes,
    factors,
    shrunk,
    total,
    target,
    weight,
    m,
    height,
    LOSS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TILE: tl.constexpr,
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    up, down = tl.load(factors + 2 * row), tl.load(factors + 2 * row + 1)
    conjugates, sizes = tl.zeros((TILE,), tl.float64), tl.zeros((TILE,), tl.float64)
    squares = tl.zeros((TILE,), tl.float64)
    for start in range(0, height, TILE):
        j = part * height + start + tl.arange(0, TILE)
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
    place = total + 3 * (row * tl.num_programs(1) + part)
    tl.store(place, tl.sum(conjugates, axis=0))
    tl.store(place + 1, tl.sum(sizes, axis=0))
    tl.store(place + 2, tl.sum(squares, axis=0))
