"""Writes the state of an iteration, and reads it again."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.bilinear import BilinearState
from psfit.admm.checkpoint.arrays import Expected, read_arrays
from psfit.admm.checkpoint.error import CheckpointError
from psfit.admm.checkpoint.files import find_latest, write_checkpoint
from psfit.admm.checkpoint.folder import SHARED
from psfit.admm.checkpoint.manifest import describe_problem, require_same_run
from psfit.admm.checkpoint.store import Store
from psfit.admm.setup import Setup
from psfit.admm.state import State
from psfit.comm import Moved

# Column means and scales are sums over the data. If they are this close, the columns are the same, and only the order
# of the sums was different.
SAME_COLUMNS = 1e-6


@dataclass(frozen=True)
class Row:
    """What the history keeps of one iteration."""

    measured: Tensor
    seconds: float
    objective: float | None
    moved: Moved


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoints of one run in a store."""

    store: Store
    solver: BiCADMM
    setup: Setup

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return self.store.folder.path

    def due(self, state: State) -> bool:
        """Whether a checkpoint is to be written after this iteration."""
        return state.iteration % self.store.every == 0

    def save(self, state: State, rows: list[Row]) -> None:
        """Write all files, then the manifest, then remove older checkpoints. A diverged state is not written."""
        if not bool(state.bilinear.z.isfinite().all()):
            return
        grid = self.setup.instance.grid
        own, shared = self._local_arrays(state), self._shared_arrays(state, rows)
        write_checkpoint(self.store, grid, state.iteration, own, shared, self._description())

    def load(self, state: State) -> tuple[State, list[Row]]:
        """The state and history of the last checkpoint; the given state and no history if there is none."""
        grid = self.setup.instance.grid
        found = find_latest(self.store, grid)
        if found is None:
            return state, []
        return grid.run_together(lambda: self._read(found, state))

    def _read(self, iteration: int, state: State) -> tuple[State, list[Row]]:
        place, device = self.store.folder.place(iteration), state.u.device
        require_same_run(place, self._description(), self.store.known)
        local = read_arrays(
            self.store.folder.rank_file(iteration),
            {name: Expected.like(values) for name, values in self._local_arrays(state).items()},
        )
        shared = read_arrays(place / SHARED, self._expected_arrays(state, iteration))
        if int(shared["iteration"]) != iteration:
            raise CheckpointError(f"{place} holds iteration {int(shared['iteration'])}; delete it to start again")
        self._require_same_columns(place, shared)
        local, shared = ({name: values.to(device) for name, values in part.items()} for part in (local, shared))
        restored = replace(
            state,
            iteration=iteration,
            age=torch.full_like(state.age, iteration),
            local=state.local.restore({name: local[f"local_{name}"] for name in state.local.varying}),
            bilinear=BilinearState(**{name: shared[f"bilinear_{name}"] for name in vars(state.bilinear)}),
            u=local["u"],
            sums=local["sums"],
            sizes=shared["sizes"],
            settled=shared["settled"],
            measured=shared["measured"],
        )
        lists = [shared[name].tolist() for name in ("seconds", "objectives", "moved")]
        history = zip(shared["history"], *lists, strict=True)
        return restored, [Row(m, s, None if o != o else o, Moved(*moved)) for m, s, o, moved in history]

    def _require_same_columns(self, place: Path, shared: dict[str, Tensor]) -> None:
        """Refuse a checkpoint of other columns: the rounds of a working set have the same data, but other columns."""
        inst = self.setup.instance
        most = SAME_COLUMNS * float(inst.coordinates.scale.max())
        for name, mine in (("shift", inst.coordinates.shift), ("scale", inst.coordinates.scale)):
            if not np.allclose(shared[name].numpy(), mine.cpu().numpy(), rtol=SAME_COLUMNS, atol=most):
                raise CheckpointError(f"{place} belongs to other columns of X; choose another folder, or delete it")

    def _description(self) -> dict[str, Any]:
        """All settings that must be equal to continue, besides the data."""
        setup = self.setup
        return describe_problem(setup.instance) | {
            "local solver": f"{setup.solver.name} {vars(setup.solver)}",
            "effort": self.solver.thoroughness,
            "penalties": [self.solver.rho_c, self.solver.rho_b, self.solver.rho_l],
            "precision": self.solver.precision,
            "tol": self.solver.tol,
        }

    def _local_arrays(self, state: State) -> dict[str, Tensor]:
        varying = {f"local_{name}": values for name, values in state.local.tensors().items()}
        return varying | {"u": state.u, "sums": state.sums}

    def _shared_arrays(self, state: State, rows: list[Row]) -> dict[str, Tensor]:
        objectives = [float("nan") if row.objective is None else row.objective for row in rows]
        return self._fixed_size_arrays(state) | {
            "iteration": torch.tensor(state.iteration),
            "measured": state.measured,
            "history": torch.stack([row.measured for row in rows]),
            "seconds": torch.tensor([row.seconds for row in rows], dtype=torch.float64),
            "objectives": torch.tensor(objectives, dtype=torch.float64),
            "moved": torch.tensor([row.moved for row in rows], dtype=torch.float64),
        }

    def _fixed_size_arrays(self, state: State) -> dict[str, Tensor]:
        """Arrays that all ranks share and whose size does not depend on the iteration."""
        inst = self.setup.instance
        return {f"bilinear_{name}": values for name, values in vars(state.bilinear).items()} | {
            "sizes": state.sizes,
            "settled": state.settled,
            "shift": inst.coordinates.shift,
            "scale": inst.coordinates.scale,
        }

    def _expected_arrays(self, state: State, k: int) -> dict[str, Expected]:
        """The shapes and types of `_shared_arrays` after `k` iterations."""
        measured, number = state.measured, torch.float64
        return {name: Expected.like(values) for name, values in self._fixed_size_arrays(state).items()} | {
            "iteration": Expected((), torch.int64),
            "measured": Expected.like(measured),
            "history": Expected((k, *measured.shape), measured.dtype),
            "seconds": Expected((k,), number),
            "objectives": Expected((k,), number, finite=False),
            "moved": Expected((k, len(Moved._fields)), number),
        }
