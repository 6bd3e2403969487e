"""Work that is the same each time, as a CUDA graph: dozens of small kernels, launched all at once.

An iteration on a GPU is made of kernels that take microseconds each, less than it takes to launch them one by one.
Where every iteration does the same work on one device and asks the host for nothing, it is recorded once and replayed.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
# The first calls run as they are: they warm up the libraries, and short runs are not worth a recording.
PLAIN_CALLS = 2


class Replay:
    """A function of tensors by name, to be applied again and again to its own result.

    All results live in the same buffers: the next call overwrites them. Only those named in `fresh` are new each time.
    """

    def __init__(self, function: Callable[[Tensors], Tensors], fresh: tuple[str, ...] = ()) -> None:
        self.function, self.fresh = function, fresh
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, tensors: Tensors) -> Tensors:
        """The result for the same names as the arguments, and perhaps more."""
        self.calls += 1
        if self.calls <= PLAIN_CALLS:
            return self.function(tensors)
        if self.graph is None:
            self._record(tensors)
        assert self.graph is not None
        for name, buffer in self.inputs.items():
            if tensors[name] is not buffer:
                buffer.copy_(tensors[name])
        self.graph.replay()
        return {name: value.clone() if name in self.fresh else value for name, value in self.results.items()}

    def _record(self, tensors: Tensors) -> None:
        self.inputs = {name: value.clone() for name, value in tensors.items()}
        self.graph = torch.cuda.CUDAGraph()
        with _uncollected(), torch.cuda.graph(self.graph):
            found = self.function(self.inputs)
            for name, buffer in self.inputs.items():
                buffer.copy_(found[name])
        self.results = found | self.inputs


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection for a while: the end of another graph within a recording would spoil it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
