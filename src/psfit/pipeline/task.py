"""What is solved, and on which data. All ranks agree on it at the start of each call of the user."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint import CheckpointError
from psfit.admm.loop import StoppedError
from psfit.comm import Grid, GridSpec, RemoteError, build_grid
from psfit.comm.watch import Watch
from psfit.common.progress import Callback
from psfit.common.signals import Signals, choose_signals
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.problem import Problem
from psfit.problem.instance import Instance
from psfit.problem.pose import pose


@dataclass(frozen=True)
class Task:
    """A problem, this rank's samples, the grid, the solver, and which stages to run.

    Parameters
    ----------
    certify : bool
        Prove lower bounds.
    brief : bool
        End at supports that no swap improves, without restarts or bounds.
    exact : bool
        Go on with branch and bound.
    """

    problem: Problem
    source: Source
    grid: Grid
    solver: BiCADMM
    certify: bool = True
    brief: bool = False
    exact: bool = False

    @property
    def effort(self) -> str:
        """How long to search for a support: branch and bound needs only a good start."""
        return self.solver.thoroughness if self.exact else self.solver.effort

    @property
    def exact_products(self) -> bool:
        """Whether Gram matrices are always made in floating point."""
        return self.exact or self.solver.precision == "highest"

    def start_watch(
        self, callback: Callback | None, problems: int = 0, keyboard: bool = False, received: Signals | None = None
    ) -> Watch:
        """The clock of one fit; the callback gets the sum of the objectives of `problems` problems."""
        signals = choose_signals(self.solver.interruptible, keyboard)
        return Watch(self.grid, self.solver.time_limit, callback, problems, signals, received)

    def pose(self, watch: Watch, raw: RawForm | None = None) -> Instance:
        """The problem on the data, in internal coordinates; a known `raw` form of the samples saves a pass."""
        inst = pose(self.problem, self.source, self.grid, self.exact_products, raw, watch)
        return replace(inst, seed=self.solver.random_state or 0)

    @contextmanager
    def end_other_ranks_on_error(self) -> Iterator[None]:
        """Around work of all ranks: an exception on this rank ends the others, too, which would wait for it."""
        try:
            yield
        except (RemoteError, CheckpointError, StoppedError):
            raise
        except Exception as error:
            self.grid.world.abort(error)
            raise


def agree_on_task(
    problem: Problem,
    source: Source,
    solver: BiCADMM | None,
    grid: Grid | GridSpec | None,
    certify: bool,
    brief: bool = False,
    exact: bool = False,
    **others: object,
) -> Task:
    """Build the grid, and check that all ranks have the same settings, `others` included."""
    task = Task(problem, source, _build_grid(grid, source), solver or BiCADMM(), certify, brief, exact)
    _require_same_settings(task, others)
    return task


def _build_grid(grid: Grid | GridSpec | None, source: Source) -> Grid:
    """Build the grid, and check that it has the device and precision of the data."""
    grid = build_grid(grid, source.matrix.device)
    if grid.device.type != source.matrix.device.type:
        raise ValueError(
            f"device={str(grid.device)!r}, but the data lie on {str(source.matrix.device)!r}; move them first"
        )
    if grid.dtype not in (None, source.matrix.dtype):
        raise ValueError(f"dtype={grid.dtype}, but the data are {source.matrix.dtype}; convert them first")
    return grid


def _require_same_settings(task: Task, others: dict[str, object]) -> None:
    """Refuse settings that differ between ranks, which would wait for each other for ever."""
    problem, source, solver, grid = task.problem, task.source, task.solver, task.grid
    grid.require_same(
        features=source.matrix.shape[1],
        outputs=source.outputs,
        dtype=str(source.matrix.dtype),
        nodes=grid.nodes.size,
        blocks=grid.blocks.size,
        kappa=problem.kappa,
        gamma=problem.gamma,
        loss=(problem.loss.name, vars(problem.loss)),
        sparsity=problem.sparsity,
        fit_intercept=problem.fit_intercept,
        standardize=problem.standardize,
        constraints=problem.constraints.signature,
        solver=replace(solver, checkpoint=None, local=None, interruptible=False, n_jobs=None),
        local=getattr(solver.local, "name", solver.local),
        checkpoint=solver.checkpoint is not None,
        certify=task.certify,
        brief=task.brief,
        **others,
    )
