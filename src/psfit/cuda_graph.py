"""One iteration as a CUDA graph: dozens of small kernels, launched all at once.

An iteration on a GPU is made of kernels that take microseconds each, less than it takes to launch them one by one.
Where every iteration does the same work on one device and asks the host for nothing, it is recorded once and replayed.
"""

import torch

from psfit.bicadmm import BiCADMM, Setup, State

# The first iterations run as they are: they warm up the libraries, and short runs are not worth a recording.
EAGER_STEPS = 2


def stepper(solver: BiCADMM, setup: Setup) -> "Steps":
    """How to make steps: replayed where that is possible, else as written."""
    inst = setup.instance
    alone = inst.grid.world.size == 1 and inst.source.matrix.device.type == "cuda"
    if alone and setup.solver.steady and not inst.source.matrix.streamed:
        return Replay(solver, setup)
    return Steps(solver, setup)


class Steps:
    """Plain steps: every state is new."""

    def __init__(self, solver: BiCADMM, setup: Setup) -> None:
        self.solver, self.setup = solver, setup

    def __call__(self, state: State) -> State:
        return self.solver.step(self.setup, state)

    def kept(self, state: State) -> State:
        """The state such that further steps leave it alone."""
        return state


class Replay(Steps):
    """Steps in fixed buffers: a step overwrites all of the state before it but what was measured."""

    def __init__(self, solver: BiCADMM, setup: Setup) -> None:
        super().__init__(solver, setup)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.last: State | None = None
        self.eager = 0

    def __call__(self, state: State) -> State:
        if self.eager < EAGER_STEPS:
            self.eager += 1
            return super().__call__(state)
        if self.graph is None:
            self._record(state)
        assert self.graph is not None
        if state is not self.last:
            for name, value in state.tensors().items():
                self.buffers[name].copy_(value)
        self.graph.replay()
        now = {name: value.clone() if name == "measured" else value for name, value in self.buffers.items()}
        self.last = state.restored(state.iteration + 1, now)
        return self.last

    def kept(self, state: State) -> State:
        return state.restored(state.iteration, {name: value.clone() for name, value in state.tensors().items()})

    def _record(self, state: State) -> None:
        self.buffers = {name: value.clone() for name, value in state.tensors().items()}
        fixed = state.restored(state.iteration, self.buffers)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            after = self.solver.step(self.setup, fixed).tensors()
            for name, buffer in self.buffers.items():
                buffer.copy_(after[name])
