"""Second-order models of a joint loss, such as softmax, in all its coefficients, with a penalty added.

With few coefficients a model has all second derivatives. With many it has one block for each output, of twice its own
second derivatives ``2 p_k (1 - p_k)``, and is least over all common shifts of the outputs of a feature, which do not
change the loss. Such a model lies above the one with all derivatives, and is the same for two outputs.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from psfit.kernels.blocks import invert
from psfit.kernels.cuda_graph import Tensors

# A block is regular with this share of its mean diagonal added.
LEAST_SHARE = 1e-9


class JointModel(ABC):
    """A quadratic form ``M`` in coefficients ``(n, c)``, with a positive `penalty` ``P (n, 1)`` of the rows.

    `parts` are the tensors that `solve` reads, the penalty among them.
    """

    parts: Tensors

    @abstractmethod
    def apply(self, Z: Tensor) -> Tensor:
        """``M Z``."""

    @staticmethod
    @abstractmethod
    def solve(parts: Tensors, R: Tensor) -> Tensor:
        """``(M + P)^-1 R`` for the parts of a model."""

    @property
    @abstractmethod
    def failed(self) -> bool:
        """Whether rounding has left a form that cannot be factored."""


class FullModel(JointModel):
    """All second derivatives ``H (n c, n c)``."""

    def __init__(self, H: Tensor, penalty: Tensor) -> None:
        self.H, c = H, len(H) // len(penalty)
        factor, failed = torch.linalg.cholesky_ex(H + torch.diag(penalty.repeat_interleave(c)))
        self._failed = bool(failed)
        inverse = factor if self._failed else invert(factor)
        self.parts = {"penalty": penalty.unsqueeze(1), "inverse": inverse}

    @property
    def failed(self) -> bool:
        return self._failed

    def apply(self, Z: Tensor) -> Tensor:
        return (self.H @ Z.flatten()).view_as(Z)

    @staticmethod
    def solve(parts: Tensors, R: Tensor) -> Tensor:
        return (parts["inverse"] @ R.flatten()).view_as(R)


class BlockModel(JointModel):
    """One block ``D_k (n, n)`` for each output, at the best common shift ``s (n,)``.

    ``M`` is the least ``sum_k (z_k - s)' D_k (z_k - s)`` over s. With ``K_k = (D_k + P)^-1`` and ``t_k = K_k r_k`` the
    minimum of the form with its penalty has ``sum_k (P - P K_k P) s = sum_k (r_k - P t_k)`` and
    ``z_k = t_k + s - K_k P s``.
    """

    def __init__(self, blocks: Tensor, penalty: Tensor) -> None:
        self.blocks = blocks
        factors, failed = torch.linalg.cholesky_ex(blocks + torch.diag(penalty))
        pooled = blocks.sum(dim=0)
        self._failed = bool(failed.any())
        if self._failed:
            return
        K = invert(factors)
        left = len(blocks) * torch.diag(penalty) - penalty.unsqueeze(1) * K.sum(dim=0) * penalty
        self.parts = {"penalty": penalty.unsqueeze(1), "K": K, "shift": _invert(left)}
        self.pooled_inverse = _invert(pooled)

    @property
    def failed(self) -> bool:
        return self._failed

    def apply(self, Z: Tensor) -> Tensor:
        pulled = _each(self.blocks, Z)
        shift = self.pooled_inverse @ pulled.sum(dim=1, keepdim=True)
        return pulled - _each(self.blocks, shift.expand_as(Z))

    @staticmethod
    def solve(parts: Tensors, R: Tensor) -> Tensor:
        K, penalty = parts["K"], parts["penalty"]
        T = _each(K, R)
        shift = parts["shift"] @ (R - penalty * T).sum(dim=1, keepdim=True)
        return T + shift - _each(K, (penalty * shift).expand_as(R))


def _each(matrices: Tensor, Z: Tensor) -> Tensor:
    """Every output ``z_k`` times its own matrix."""
    return torch.bmm(matrices, Z.T.unsqueeze(2)).squeeze(2).T


def _invert(H: Tensor) -> Tensor:
    """The inverse of a form that may be singular in directions that do not matter, a little of its diagonal added."""
    least = LEAST_SHARE * H.diagonal().mean()
    for _ in range(4):
        factor, failed = torch.linalg.cholesky_ex(H + least * torch.eye(len(H), dtype=H.dtype, device=H.device))
        if not bool(failed):
            return invert(factor)
        least = 100 * least
    return torch.zeros_like(H)
