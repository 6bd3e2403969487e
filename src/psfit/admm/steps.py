"""How the outer loop makes its steps: one operation after the other, or recorded and replayed on a GPU."""

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.setup import Setup
from psfit.admm.state import State
from psfit.kernels.cuda_graph import Replay, Tensors


def choose_steps(solver: BiCADMM, setup: Setup) -> "Steps":
    """Replayed steps if every step does the same work on one GPU, else plain steps."""
    inst = setup.instance
    alone = inst.grid.world.size == 1 and inst.source.matrix.device.type == "cuda"
    if alone and setup.solver.steady and not inst.source.matrix.streamed:
        return ReplayedSteps(solver, setup)
    return Steps(solver, setup)


class Steps:
    """Plain steps: every state is new."""

    def __init__(self, solver: BiCADMM, setup: Setup) -> None:
        self.solver, self.setup = solver, setup

    def __call__(self, state: State) -> State:
        return self.solver.step(self.setup, state)

    def keep(self, state: State) -> State:
        """A state that further steps do not change."""
        return state


class ReplayedSteps(Steps):
    """Steps in fixed buffers: a step overwrites the state before it, except what was measured."""

    def __init__(self, solver: BiCADMM, setup: Setup) -> None:
        super().__init__(solver, setup)
        self.replay: Replay | None = None

    def __call__(self, state: State) -> State:
        if self.replay is None:
            self.replay = _replay(self.solver, self.setup, state)
        return state.restore(state.iteration + 1, self.replay(state.tensors()))

    def keep(self, state: State) -> State:
        return state.restore(state.iteration, {name: value.clone() for name, value in state.tensors().items()})


def _replay(solver: BiCADMM, setup: Setup, like: State) -> Replay:
    """Steps as a function of tensors. It does not refer to its caller: a cycle would keep the graph alive."""

    def step(tensors: Tensors) -> Tensors:
        return solver.step(setup, like.restore(like.iteration, tensors)).tensors()

    return Replay(step, fresh=("measured",))
