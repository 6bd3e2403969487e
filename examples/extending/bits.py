"""A storage of your own: columns of zeros and ones, eight of them in a byte.

A design matrix gives products, rows and columns, and dense pieces of some rows. Everything else (Gram matrices, means,
refits, proofs) is made from these. `Source` takes it, and `psfit.solve` fits it.

    python examples/extending/bits.py
"""

import numpy as np
import torch
from torch import Tensor

from psfit import Dense, GridSpec, Problem, Result, Source, solve
from psfit.data import DesignMatrix
from psfit.losses import Logistic

# The bit of each column within its byte, as `np.packbits` orders them.
PLACES = torch.arange(7, -1, -1, dtype=torch.uint8)


class Bits(DesignMatrix):
    """Samples by features, ``packed (m, bytes)``; the last byte of a row may have unused bits."""

    def __init__(self, packed: Tensor, width: int) -> None:
        self.packed = packed
        self.shape = (packed.shape[0], width)
        self.dtype, self.device = torch.float32, packed.device

    @classmethod
    def pack(cls, values: np.ndarray) -> "Bits":
        """The matrix of an array of zeros and ones."""
        return cls(torch.from_numpy(np.packbits(values.astype(bool), axis=1)), values.shape[1])

    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        bits = (self.packed[start:stop].unsqueeze(2) >> PLACES.to(self.device)) & 1
        return bits.flatten(1)[:, : self.shape[1]].to(dtype)

    def mv(self, X: Tensor) -> Tensor:
        return torch.cat([strip.mv(X) for _, strip in self.strips()])

    def rmv(self, R: Tensor) -> Tensor:
        return torch.stack([strip.rmv(R[at]) for at, strip in self.strips()]).sum(dim=0)

    def rows(self, start: int, stop: int) -> "Bits":
        return Bits(self.packed[start:stop], self.shape[1])

    def columns(self, index: slice | Tensor) -> DesignMatrix:
        if isinstance(index, slice) and index.indices(self.shape[1]) == (0, self.shape[1], 1):
            return self
        # The few columns of a support, strip by strip.
        return Dense(torch.cat([strip.dense()[:, index] for _, strip in self.strips()]))


def fit(bits: Bits, labels: np.ndarray, kappa: int) -> Result:
    """Logistic regression on bits; the labels are -1 and +1."""
    target = torch.from_numpy(labels.astype(float)).unsqueeze(1)
    source = Source(bits, target, torch.ones_like(target))
    return solve(Problem(Logistic(), (kappa,), gamma=0.1), source, grid=GridSpec(device="cpu", backend="serial"))


def main() -> None:
    """Words that occur in a text or not, and two kinds of texts."""
    rng = np.random.default_rng(0)
    words = rng.random((1_000, 100)) < 0.1
    labels = np.where(rng.random(1_000) < 1 / (1 + np.exp(-4 * words[:, :3].sum(axis=1) + 1)), 1, -1)
    bits = Bits.pack(words)
    print(f"{words.shape[0]:,} samples x {words.shape[1]} features in {bits.packed.numel():,} bytes")
    print(fit(bits, labels, 3))


if __name__ == "__main__":
    main()
