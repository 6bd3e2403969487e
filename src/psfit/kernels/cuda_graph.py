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
    Those named in `constants` are only read; they are copied again only if another tensor is given. A call applies the
    function so many `times`; if that is more than once, all but the very first application are replayed.
    """

    def __init__(
        self,
        function: Callable[[Tensors], Tensors],
        fresh: tuple[str, ...] = (),
        constants: tuple[str, ...] = (),
        times: int = 1,
    ) -> None:
        self.function, self.fresh, self.constants = function, fresh, constants
        self.times = times
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self._given: Tensors = {}

    def __call__(self, tensors: Tensors) -> Tensors:
        """The results: the same names as the arguments, and possibly more."""
        self.calls += 1
        if self.times == 1 and self.calls <= PLAIN_CALLS:
            return self.function(tensors)
        left = self.times
        if self.graph is None:
            if left > 1:
                found = self.function(tensors)
                tensors, left = {name: found[name] for name in tensors}, left - 1
            self._record(tensors)
        assert self.graph is not None
        for name, buffer in self.inputs.items():
            if tensors[name] is not buffer and tensors[name] is not self._given.get(name):
                buffer.copy_(tensors[name])
        self._given = {name: tensors[name] for name in self.constants if name in tensors}
        for _ in range(left):
            self.graph.replay()
        return {name: value.clone() if name in self.fresh else value for name, value in self.results.items()}

    def _record(self, tensors: Tensors) -> None:
        self.inputs = {name: value.clone() for name, value in tensors.items()}
        self.graph = torch.cuda.CUDAGraph()
        device = next(iter(tensors.values())).device
        with _without_garbage_collection(), _recording(self.graph, device):
            found = self.function(self.inputs)
            for name, buffer in self.inputs.items():
                if found[name] is not buffer:
                    buffer.copy_(found[name])
        self.results = found | self.inputs


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Record what is launched inside.

    The context manager of torch also waits for the device and gives all free memory back, which then must be allocated
    anew.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)


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
