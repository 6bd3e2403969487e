"""Supports of one quadratic problem as rows of a batch, each with the inverse of its Hessian.

Each row keeps the inverse ``K = H_SS^-1`` of its support S. Items leave and join all rows at once by updates of low
rank, so hardly any matrix is factored. Let E mark the places of the items that leave, or the free places in which the
items I join:

    leave:  K - K E (E'KE)^-1 E'K          join:  K + (U - E)(H_II - H_IS U)^-1 (U - E)',   U = K H_SI.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky


class Batch:
    """Tensors whose first axis counts the same rows."""

    def select(self, index: Tensor | slice) -> Self:
        """Some of the rows."""
        return type(self)(*(part[index] for part in vars(self).values()))

    def replace(self, index: Tensor, other: Self) -> Self:
        """All rows, with those in `index` replaced by others."""
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine.index_copy(0, index, theirs) for mine, theirs in parts))

    @classmethod
    def join(cls, batches: Sequence[Self]) -> Self:
        """The rows of all batches, one after the other."""
        return cls(*(torch.cat(parts) for parts in zip(*(vars(batch).values() for batch in batches), strict=True)))


@dataclass(frozen=True)
class SupportBatch(Batch):
    """Supports: the variable in each place ``(L, W)``, whether the place is `taken`, the inverse ``K (L, W, W)`` with
    zeros in the other places, the minimiser ``x (L, W)`` and its objective ``values (L,)``.
    """

    places: Tensor
    taken: Tensor
    K: Tensor
    x: Tensor
    values: Tensor


class Inverses:
    """Batches of supports with at most `places` variables, for the objective ``x'Hx / 2 - q'x + power``.

    The first `features` variables are items; the others, intercepts, belong to every support.
    """

    def __init__(self, H: Tensor, q: Tensor, power: float, features: int, places: int) -> None:
        self.H, self.q, self.power, self.features, self.places = H, q, power, features, places

    def invert(self, chosen: Tensor) -> SupportBatch:
        """A batch of one row for a support ``(p,)``, by a Cholesky factor."""
        intercepts = torch.arange(self.features, len(self.q), device=chosen.device)
        variables = torch.cat([chosen.nonzero().flatten(), intercepts])
        count = len(variables)
        places = variables.new_zeros(1, self.places)
        places[0, :count] = variables
        K = self.H.new_zeros(1, self.places, self.places)
        K[0, :count, :count] = torch.cholesky_inverse(cholesky(self.H[variables.unsqueeze(1), variables]))
        return self._minimise(places, torch.arange(self.places, device=chosen.device).unsqueeze(0) < count, K)

    def costs(self, batch: SupportBatch) -> Tensor:
        """By how much each objective rises without the item in each place ``(L, W)``; infinite for all others."""
        own = batch.K.diagonal(dim1=1, dim2=2)
        return torch.where(batch.taken & (batch.places < self.features), batch.x.square() / (2 * own), torch.inf)

    def shrink(self, batch: SupportBatch, costs: Tensor, counts: Tensor) -> SupportBatch:
        """Take out the ``counts (L,)`` items of each row that cost least."""
        places = costs.argsort(dim=1, stable=True)[:, : int(counts.max())]
        valid = torch.arange(places.shape[1], device=counts.device) < counts.unsqueeze(1)
        K, taken = self._remove(batch, places, valid)
        return self._minimise(batch.places, taken, K)

    def grow(self, batch: SupportBatch, gains: Tensor, counts: Tensor) -> SupportBatch:
        """Add the ``counts (L,)`` variables of each row with the largest ``gains (L, n)``."""
        places = batch.taken.int().argsort(dim=1, stable=True)[:, : int(counts.max())]
        valid = torch.arange(places.shape[1], device=counts.device) < counts.unsqueeze(1)
        variables = gains.topk(places.shape[1], dim=1).indices
        return self._add(batch.places, batch.taken, batch.K, places, variables, valid)

    def swap(self, batch: SupportBatch, out: Tensor, into: Tensor, valid: Tensor) -> SupportBatch:
        """Exchange the items in the places `out` for the variables `into`, each ``(L, r)``, where that is `valid`."""
        K, taken = self._remove(batch, out, valid)
        return self._add(batch.places, taken, K, out, into, valid)

    def by_variable(self, batch: SupportBatch, values: Tensor) -> Tensor:
        """Values by place as values by variable, ``(L, n)``."""
        return values.new_zeros(len(values), len(self.q)).scatter_add(1, batch.places, values * batch.taken)

    def newton_steps(self, batch: SupportBatch) -> Callable[[Tensor], Tensor]:
        """Newton's steps ``(n, L)`` on all supports, as a function of gradients ``(n, L)``."""

        def step(gradient: Tensor) -> Tensor:
            own = torch.where(batch.taken, gradient.T.gather(1, batch.places), 0.0)
            return self.by_variable(batch, (batch.K @ own.unsqueeze(2)).squeeze(2)).T

        return step

    def _minimise(self, places: Tensor, taken: Tensor, K: Tensor) -> SupportBatch:
        right = torch.where(taken, self.q[places], 0.0)
        x = (K @ right.unsqueeze(2)).squeeze(2)
        return SupportBatch(places, taken, K, x, self.power - 0.5 * (right * x).sum(dim=1))

    def _remove(self, batch: SupportBatch, places: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """The inverses and the taken places without the items in ``places (L, r)``, as far as these are `valid`."""
        E = _mark(places, valid, batch.K)
        B = batch.K @ E
        inner = E.mT @ B + torch.diag_embed((~valid).to(B.dtype))
        taken = batch.taken & (E.sum(dim=2) == 0)
        K = batch.K - B @ torch.linalg.inv_ex(inner).inverse @ B.mT
        return K * (taken.unsqueeze(2) & taken.unsqueeze(1)), taken

    def _add(self, places: Tensor, taken: Tensor, K: Tensor, at: Tensor, into: Tensor, valid: Tensor) -> SupportBatch:
        """Supports with more variables `into` in the free places `at`."""
        E = _mark(at, valid, K)
        h = self.H[places.unsqueeze(2), into.unsqueeze(1)]
        U = (K @ h) * valid.unsqueeze(1)
        inner = self.H[into.unsqueeze(2), into.unsqueeze(1)] - h.mT @ U
        both = valid.unsqueeze(2) & valid.unsqueeze(1)
        inner = torch.where(both, inner, 0.0) + torch.diag_embed((~valid).to(K.dtype))
        V = U - E
        K = K + V @ torch.linalg.inv_ex(inner).inverse @ V.mT
        filled = E.sum(dim=2) > 0
        places = torch.where(filled, (E * into.unsqueeze(1)).sum(dim=2).long(), places)
        return self._minimise(places, taken | filled, (K + K.mT) / 2)


def _mark(places: Tensor, valid: Tensor, like: Tensor) -> Tensor:
    """``(L, W, r)``: a one in each of the places ``(L, r)`` that is valid."""
    E = like.new_zeros(len(places), like.shape[1], places.shape[1])
    return E.scatter(1, places.unsqueeze(1), valid.unsqueeze(1).to(like.dtype))
