"""Writes the state of an iteration, and reads it again."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.bilinear import BilinearState
from psfit.admm.checkpoint.arrays import Expected, read_arrays, write_arrays
from psfit.admm.checkpoint.error import CheckpointError
from psfit.admm.checkpoint.folder import MANIFEST, SHARED
from psfit.admm.checkpoint.manifest import read_manifest, write_manifest
from psfit.admm.checkpoint.store import Store, differences
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
        grid, folder, k = self.setup.instance.grid, self.store.folder, state.iteration
        data = self.store.fingerprints(grid)

        def prepare() -> None:
            if folder.leads:
                folder.prepare(k)

        def write() -> None:
            write_arrays(folder.rank_file(k), self._local_arrays(state))
            if folder.leads:
                write_arrays(folder.place(k) / SHARED, self._shared_arrays(state, rows))

        def finish() -> None:
            if folder.leads:
                write_manifest(folder.place(k), self._description(), data)

        for action in (prepare, write, finish):
            grid.run_together(action)
        if folder.leads:
            folder.remove_others(k)

    def load(self, state: State) -> tuple[State, list[Row]]:
        """The state and history of the last checkpoint; the given state and no history if there is none."""
        grid, folder = self.setup.instance.grid, self.store.folder
        data = self.store.fingerprints(grid)
        own = grid.run_together(lambda: [folder.finished_iterations(), folder.usable_iterations()])
        ranks = [json.loads(one) for one in grid.world.all_gather(json.dumps(own).encode())]
        found = grid.run_together(lambda: _find_latest(self.folder, ranks))
        if found is None:
            return state, []
        return grid.run_together(lambda: self._read(found, state, data))

    def _read(self, iteration: int, state: State, data: list[dict[str, str]]) -> tuple[State, list[Row]]:
        place, device = self.store.folder.place(iteration), state.u.device
        if (place / MANIFEST).exists():
            self._require_same_run(place, data)
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

    def _require_same_run(self, place: Path, data: list[dict[str, str]]) -> None:
        """Refuse a checkpoint of another run, with what differs."""
        stated, known = read_manifest(place)
        mine = json.loads(json.dumps(self._description()))
        for name in mine:
            if stated.get(name) != mine[name]:
                raise CheckpointError(
                    f"{place} belongs to another run: its {name} is {stated.get(name)!r}, this one's {mine[name]!r}; "
                    "choose another folder, or delete it"
                )
        if len(known) != len(data):
            raise CheckpointError(f"{place}: the manifest is not complete; delete the folder to start again")
        others = differences(known, data)
        if others:
            raise CheckpointError(
                f"{place} belongs to another run: this one has {' and '.join(others)}; "
                "choose another folder, or delete it"
            )

    def _require_same_columns(self, place: Path, shared: dict[str, Tensor]) -> None:
        """Refuse a checkpoint of other columns: the rounds of a working set have the same data, but other columns."""
        inst = self.setup.instance
        most = SAME_COLUMNS * float(inst.coordinates.scale.max())
        for name, mine in (("shift", inst.coordinates.shift), ("scale", inst.coordinates.scale)):
            if not np.allclose(shared[name].numpy(), mine.cpu().numpy(), rtol=SAME_COLUMNS, atol=most):
                raise CheckpointError(f"{place} belongs to other columns of X; choose another folder, or delete it")

    def _description(self) -> dict[str, Any]:
        """All settings that must be equal to continue, besides the data."""
        inst, setup = self.setup.instance, self.setup
        problem, grid = inst.problem, inst.grid
        return {
            "loss": f"{problem.loss.name} {vars(problem.loss)}",
            "kappa": list(problem.kappa),
            "gamma": problem.gamma,
            "sparsity": problem.sparsity,
            "fit_intercept": problem.fit_intercept,
            "standardize": problem.standardize,
            "samples": inst.samples,
            "features": inst.items.features,
            "outputs": inst.items.outputs,
            "nodes": grid.nodes.size,
            "blocks": grid.blocks.size,
            "ranks": grid.world.size,
            "dtype": str(inst.source.matrix.dtype),
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


def _find_latest(folder: Path, ranks: list[list[list[int]]]) -> int | None:
    """The last iteration that has a manifest on some rank, and whose files every rank has."""
    finished_iterations = {iteration for done, _ in ranks for iteration in done}
    usable_iterations = finished_iterations.intersection(*(set(have) for _, have in ranks))
    if usable_iterations or not finished_iterations:
        return max(usable_iterations, default=None)
    last = max(finished_iterations)
    lost = ", ".join(str(rank) for rank, (_, have) in enumerate(ranks) if last not in have)
    raise CheckpointError(
        f"{folder}: rank {lost} does not find its files of the checkpoint at iteration {last}; restore them, or "
        "delete the folder on every host to start again"
    )
