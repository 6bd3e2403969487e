"""The smallest eigenvalue of a symmetric matrix: by all eigenvalues of a small one, by a guess and its proof else."""

import torch
from torch import Tensor

from psfit.kernels.blocks import invert, inverts_by_blocks

# Up to this size all eigenvalues are cheap. Above it Lanczos' method with the inverse guesses the smallest one, and a
# Cholesky factor of the matrix without a share of the guess proves it.
EIGENVALUES_UP_TO = 256
# The guess is looked at every few steps. They end when it no longer falls by more than this share.
MOST_STEPS = 20
LOOK_EVERY = 4
ACCURACY = 1e-3
# The first share to prove is one less twice the last change of the guess, but at least this much less. Then these.
LEAST_MARGIN = 0.003
FURTHER_SHARES = (0.95, 0.8, 0.5)


def least_eigenvalue(M: Tensor) -> float:
    """The smallest eigenvalue of a symmetric matrix, or a little less, up to the rounding of a Cholesky factor."""
    if len(M) <= EIGENVALUES_UP_TO:
        return float(torch.linalg.eigvalsh(M)[0])
    factor, info = torch.linalg.cholesky_ex(M)
    if int(info):
        return float(torch.linalg.eigvalsh(M)[0])
    guess, change = _guess(factor)
    del factor
    first = 1 - max(2 * change, LEAST_MARGIN)
    shifted = M.clone()
    for share in (first, *(share for share in FURTHER_SHARES if share < first)):
        shifted.diagonal().copy_(M.diagonal() - share * guess)
        if not int(torch.linalg.cholesky_ex(shifted).info):
            return share * guess
    return 0.0


def _guess(factor: Tensor) -> tuple[float, float]:
    """At least the smallest eigenvalue of a matrix with this Cholesky factor, and the share by which it fell last."""
    n = len(factor)
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(n, 1, generator=generator, dtype=factor.dtype).to(factor.device)
    # Where it is made quickly, a product with the inverse takes much less time than two triangular systems.
    inverse = invert(factor) if inverts_by_blocks(factor) else None
    basis, images = factor.new_empty(n, MOST_STEPS), factor.new_empty(n, MOST_STEPS)
    guess, change = float("inf"), 1.0
    for k in range(1, MOST_STEPS + 1):
        basis[:, k - 1 : k] = v / v.norm()
        last = basis[:, k - 1 : k]
        v = torch.cholesky_solve(last, factor) if inverse is None else inverse @ last
        images[:, k - 1 : k] = v
        if k % LOOK_EVERY == 0:
            ritz = torch.linalg.eigvalsh((basis[:, :k].T @ images[:, :k]).cpu())[-1]
            before, guess = guess, 1 / float(ritz)
            change = 1 - guess / before if before < float("inf") else 1.0
            if change <= ACCURACY:
                break
        # Twice, so that rounding does not spoil the basis.
        for _ in range(2):
            v = v - basis[:, :k] @ (basis[:, :k].T @ v)
    return guess, change
