"""The smallest eigenvalue of a symmetric matrix: by all eigenvalues of a small one, by a guess and its proof else."""

import torch
from torch import Tensor

# Up to this size all eigenvalues are cheap. Above it a Krylov space of the inverse guesses the smallest one, and a
# Cholesky factor of the matrix without one of these shares of the guess proves it.
EIGENVALUES_UP_TO = 512
KRYLOV_WIDTH = 8
KRYLOV_STEPS = 5
PROVED_SHARES = (0.99, 0.95, 0.8, 0.5)


def least_eigenvalue(M: Tensor) -> float:
    """The smallest eigenvalue of a symmetric matrix, or a little less, up to the rounding of a Cholesky factor."""
    if len(M) <= EIGENVALUES_UP_TO:
        return float(torch.linalg.eigvalsh(M)[0])
    factor, info = torch.linalg.cholesky_ex(M)
    if int(info):
        return float(torch.linalg.eigvalsh(M)[0])
    guess = _krylov_guess(M, factor)
    for share in PROVED_SHARES:
        shifted = M.clone()
        shifted.diagonal().sub_(share * guess)
        if not int(torch.linalg.cholesky_ex(shifted).info):
            return share * guess
    return 0.0


def _krylov_guess(M: Tensor, factor: Tensor) -> float:
    """At least the smallest eigenvalue of a positive definite matrix, and close to it."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(len(M), KRYLOV_WIDTH, generator=generator, dtype=M.dtype).to(M.device)
    blocks = []
    for _ in range(KRYLOV_STEPS):
        block = torch.cholesky_solve(block, factor)
        block = block / block.norm(dim=0)
        blocks.append(block)
    basis = torch.linalg.qr(torch.cat(blocks, dim=1)).Q
    return float(torch.linalg.eigvalsh((basis.T @ (M @ basis)).cpu())[0])
