"""Work that is the same each time, as a CUDA graph: one launch for dozens of small kernels.

The kernels of an iteration take microseconds each, less than the time to launch them one by one. If every iteration
does the same work on one device and does not wait for the host, it is recorded once and replayed.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
# The first calls are not recorded: they initialise the libraries, and a recording is not worth it for short runs.
PLAIN_CALLS = 2


class Replay:
    """A function of named tensors that is applied repeatedly to its own result.

    All results are in the same buffers: the next call overwrites them. Only those named in `fresh` are new tensors.
    """

    def __init__(self, function: Callable[[Tensors], Tensors], fresh: tuple[str, ...] = ()) -> None:
        self.function, self.fresh = function, fresh
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, tensors: Tensors) -> Tensors:
        """The results: the same names as the arguments, and possibly more."""
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
        with _without_garbage_collection(), torch.cuda.graph(self.graph):
            found = self.function(self.inputs)
            for name, buffer in self.inputs.items():
                buffer.copy_(found[name])
        self.results = found | self.inputs


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """No garbage collection inside: deleting another graph during a recording would make it fail."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
