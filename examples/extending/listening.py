"""Your own communicator: it forwards all messages, and records what leaves this rank.

``torchrun --standalone --nproc-per-node 2 examples/extending/listening.py`` fits on two ranks and prints, phase by
phase, how many messages there were and how long the longest was. No message is as long as a rank has samples.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from psfit import GridSpec, SparseLinearRegression
from psfit.comm import Axis, Communicator, Grid


@dataclass(frozen=True)
class Message:
    """One reduction or broadcast: in which phase of the fit, what kind, and how many numbers."""

    phase: str
    kind: str
    numbers: int


class Listening(Communicator):
    """Another communicator with a record of its messages. A group of one rank sends nothing, so nothing is recorded."""

    def __init__(self, inner: Communicator, heard: list[Message]) -> None:
        self.inner, self.heard = inner, heard
        self.rank, self.size, self.traffic = inner.rank, inner.size, inner.traffic

    def split(self, color: int) -> "Listening":
        return Listening(self.inner.split(color), self.heard)

    def abort(self, error: BaseException) -> None:
        self.inner.abort(error)

    def _all_reduce(self, tensor: Tensor, op: str) -> Tensor:
        self.heard.append(Message(self.traffic.phase, op, tensor.numel()))
        return self.inner._all_reduce(tensor, op)

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        self.heard.append(Message(self.traffic.phase, "broadcast", tensor.numel()))
        return self.inner._broadcast(tensor, root)


@dataclass(frozen=True)
class ListeningGrid(GridSpec):
    """A `GridSpec` whose messages are recorded: pass it to an estimator as `grid`."""

    heard: list[Message] = field(default_factory=list, repr=False, compare=False)

    def build(self, data_device: torch.device | None = None) -> Grid:
        grid = super().build(data_device)
        nodes = Axis(grid.nodes.size, Listening(grid.nodes.comm, self.heard))
        blocks = Axis(grid.blocks.size, Listening(grid.blocks.comm, self.heard))
        return replace(grid, nodes=nodes, blocks=blocks, world=Listening(grid.world, self.heard))


def main() -> None:
    """Fit to this rank's half of the samples; the first rank prints what it sent."""
    spec = ListeningGrid(device="cpu")
    grid = spec.build()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 20))
    y = X[:, 3] - X[:, 11] + rng.normal(size=4000)
    mine = grid.rows(len(X))
    spec.heard.clear()
    model = SparseLinearRegression(2, gamma=10.0, grid=spec).fit(X[mine], y[mine])
    if grid.world.rank == 0:
        print(f"features {model.support_}; this rank holds {len(X[mine])} samples of {X.shape[1]} features")
        for phase in dict.fromkeys(message.phase for message in spec.heard):
            sizes = [message.numbers for message in spec.heard if message.phase == phase]
            print(f"{phase:>24}: {len(sizes):3} messages, the longest of {max(sizes)} numbers")


if __name__ == "__main__":
    main()
