"""The bilinear step of each problem in one kernel: all numbers stay in registers."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor


def sparsify(center: Tensor, s: Tensor, v: Tensor, kappa: Tensor, ratio: Tensor) -> tuple[Tensor, ...]:
    """The new ``z, s (problems, size)`` and ``t, v, residual (problems, 1)``; float32."""
    problems, size = center.shape
    z, signs = torch.empty_like(s), torch.empty_like(s)
    numbers = torch.empty(3, problems, 1, dtype=s.dtype, device=s.device)
    block = triton.next_power_of_2(size)
    with torch.cuda.device(center.device):
        _sparsify[(problems,)](
            center,
            s,
            v,
            kappa,
            ratio.to(torch.float64),
            z,
            signs,
            numbers,
            size,
            center.stride(0),
            center.stride(1),
            problems,
            BLOCK=block,
            num_warps=8 if block <= 4096 else 16,
        )
    return z, signs, numbers[0], numbers[1], numbers[2]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sparsify(  # type: ignore[no-untyped-def]
    center, s, v, kappa, ratio, z, signs, numbers, size, problem_stride, item_stride, problems, BLOCK: tl.constexpr
):
    """One problem, as in `admm.bilinear`; the threshold by Newton's method, which needs a few active sets."""
    problem = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    inside = j < size
    c = tl.load(center + problem * problem_stride + j * item_stride, mask=inside, other=0.0)
    old = tl.load(s + problem * size + j, mask=inside, other=0.0)
    pressed = tl.load(v + problem)
    limit = tl.load(kappa + problem)
    share = tl.load(ratio + problem)
    sign = tl.where(c > 0, 1.0, tl.where(c < 0, -1.0, 0.0))
    a, w = tl.abs(c), 1 - old * sign
    # The function is concave and increasing: steps from the left stay on the left, and the active set only shrinks.
    tau = tl.zeros((), dtype=tl.float64)
    count = tl.sum(((a > 0) & (w > 0)).to(tl.int32))
    before = count + 1
    while count < before:
        before = count
        active = (a.to(tl.float64) > tau * w) & (w > 0)
        first = tl.sum(tl.where(active, w.to(tl.float64) * a, 0.0))
        second = tl.sum(tl.where(active, w.to(tl.float64) * w, 0.0))
        tau = tl.maximum(share * (first - pressed) / (1 + share * second), 0.0)
        count = tl.sum(((a.to(tl.float64) > tau * w) & (w > 0)).to(tl.int32))
    size_new = tl.maximum(a - tau.to(tl.float32) * w, 0.0)
    new = sign * size_new
    length = tl.sum(size_new)
    t = tl.maximum(length, tl.sum(old * new) + pressed)
    # The kappa-th largest magnitude, bit by bit: magnitudes are ordered like the integers with the same bits.
    bits = tl.where(inside, size_new.to(tl.int32, bitcast=True), -1)
    least = tl.zeros((), dtype=tl.int32)
    for k in tl.static_range(31):
        higher = least | (1 << (30 - k))
        enough = tl.sum((bits >= higher).to(tl.int32)) >= limit
        least = tl.where(enough, higher, least)
    above = bits > least
    equal = bits == least
    left = limit - tl.sum(above.to(tl.int32))
    chosen = above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= left))
    fresh = tl.where(chosen, sign, 0.0)
    fresh = tl.where(size_new > 0, fresh, 0.0)
    reach = tl.sum(fresh * new)
    back = tl.where(reach > 0, (t - pressed) / tl.where(reach > 0, reach, 1.0), 1.0)
    fresh = fresh * tl.minimum(tl.maximum(back, -1.0), 1.0)
    g = tl.sum(fresh * new) - t
    tl.store(z + problem * size + j, new, mask=inside)
    tl.store(signs + problem * size + j, fresh, mask=inside)
    tl.store(numbers + problem, t)
    tl.store(numbers + problems + problem, pressed + g)
    tl.store(numbers + 2 * problems + problem, tl.abs(g))
