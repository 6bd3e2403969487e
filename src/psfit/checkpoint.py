"""Checkpoints of the iteration: what every rank needs to go on, bit for bit, from where it was.

A checkpoint is a folder ``iteration-N`` with one file for each rank, one for what all ranks share, and a manifest. The
manifest is written last, after all ranks have their files on disk: a folder without it is no checkpoint. All files are
plain arrays and JSON; nothing in them is ever executed.
"""

import json
import shutil
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from psfit.bicadmm import BiCADMM, Setup, State
from psfit.bilinear import BilinearState
from psfit.comm import Moved
from psfit.files import write_whole

FORMAT = 3
# Column means and scales come from sums over the data: close means the same data, summed in another order.
SAME_DATA = 1e-6
PREFIX = "iteration-"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used, with the reason."""


@dataclass(frozen=True)
class Row:
    """What is remembered of one iteration for the history."""

    measured: Tensor
    seconds: float
    objective: float | None
    moved: Moved


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoints of one run in a folder."""

    folder: Path
    every: int
    solver: BiCADMM
    setup: Setup

    def due(self, state: State) -> bool:
        """Whether this iteration is one to be kept."""
        return state.iteration % self.every == 0

    def save(self, state: State, rows: list[Row]) -> None:
        """Write all files, then the manifest, then remove older checkpoints."""
        world, here = self.setup.instance.grid.world, self._path(state.iteration)

        def write() -> None:
            here.mkdir(parents=True, exist_ok=True)
            write_whole(self._rank_file(here), lambda file: _save(file, self._local(state)))
            if world.rank == 0:
                write_whole(here / "shared.npz", lambda file: _save(file, self._shared(state, rows)))

        def finish() -> None:
            if world.rank == 0:
                manifest = json.dumps({"format": FORMAT, "run": self._description()}, indent=1)
                write_whole(here / "manifest.json", lambda file: file.write(manifest.encode()))

        grid = self.setup.instance.grid
        grid.together(write)
        grid.together(finish)
        for old in self.folder.glob(PREFIX + "*"):
            if old != here:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, state: State) -> tuple[State, list[Row]]:
        """The state and history of the last checkpoint; the given state and no history if there is none."""
        grid = self.setup.instance.grid
        found = -1
        if grid.world.rank == 0:
            manifests = self.folder.glob(PREFIX + "*/manifest.json")
            found = max((int(path.parent.name.removeprefix(PREFIX)) for path in manifests), default=-1)
        found = int(grid.world.broadcast(torch.tensor([found])))
        if found < 0:
            return state, []
        return grid.together(lambda: self._read(self._path(found), state))

    def _read(self, here: Path, state: State) -> tuple[State, list[Row]]:
        if self.setup.instance.grid.world.rank == 0:
            self._compare(here)
        local, shared = _load(self._rank_file(here)), _load(here / "shared.npz")
        inst = self.setup.instance
        for name, mine in (("shift", inst.shift), ("scale", inst.scale)):
            if not np.allclose(
                shared[name], mine.cpu().numpy(), rtol=SAME_DATA, atol=SAME_DATA * float(inst.scale.max())
            ):
                raise CheckpointError(f"{here} belongs to other data; choose another folder, or delete it")
        device = inst.source.matrix.device

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(device)

        bilinear = {name: tensor(shared[f"bilinear_{name}"]) for name in vars(state.bilinear)}
        restored = replace(
            state,
            iteration=int(shared["iteration"]),
            age=torch.full_like(state.age, float(shared["iteration"])),
            local=state.local.restored({name: tensor(local[f"local_{name}"]) for name in state.local.varying}),
            bilinear=BilinearState(**bilinear),
            u=tensor(local["u"]),
            sums=tensor(local["sums"]),
            dual=tensor(shared["dual"]),
            settled=tensor(shared["settled"]),
            measured=tensor(shared["measured"]),
        )
        lists = [shared[name].tolist() for name in ("seconds", "objectives", "moved")]
        history = zip(shared["history"], *lists, strict=True)
        return restored, [Row(tensor(m), s, None if o != o else o, Moved(*moved)) for m, s, o, moved in history]

    def _compare(self, here: Path) -> None:
        try:
            manifest = json.loads((here / "manifest.json").read_text())
            stated, form = manifest["run"], manifest["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{here}: the manifest cannot be read ({error}); delete the folder") from None
        if form != FORMAT:
            raise CheckpointError(f"{here} has format {form}, this version reads {FORMAT}; delete it to start afresh")
        mine = json.loads(json.dumps(self._description()))
        for name in mine:
            if stated.get(name) != mine[name]:
                raise CheckpointError(
                    f"{here} belongs to another run: its {name} is {stated.get(name)!r}, this one's {mine[name]!r}; "
                    "choose another folder, or delete it"
                )

    def _description(self) -> dict[str, Any]:
        """What must be equal for the iterates to go on."""
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
            "features": inst.layout.features,
            "nodes": grid.nodes.size,
            "blocks": grid.blocks.size,
            "ranks": grid.world.size,
            "dtype": str(inst.source.matrix.dtype),
            "local solver": setup.solver.name,
            "effort": self.solver.thoroughness,
            "penalties": [self.solver.rho_c, self.solver.rho_b, self.solver.rho_l],
            "tol": self.solver.tol,
        }

    def _local(self, state: State) -> dict[str, Tensor]:
        varying = {f"local_{name}": values for name, values in state.local.tensors().items()}
        return varying | {"u": state.u, "sums": state.sums}

    def _shared(self, state: State, rows: list[Row]) -> dict[str, Tensor]:
        inst = self.setup.instance
        objectives = [float("nan") if row.objective is None else row.objective for row in rows]
        return {f"bilinear_{name}": values for name, values in vars(state.bilinear).items()} | {
            "iteration": torch.tensor(state.iteration),
            "dual": state.dual,
            "settled": state.settled,
            "measured": state.measured,
            "history": torch.stack([row.measured for row in rows]),
            "seconds": torch.tensor([row.seconds for row in rows], dtype=torch.float64),
            "objectives": torch.tensor(objectives, dtype=torch.float64),
            "moved": torch.tensor([row.moved for row in rows], dtype=torch.float64),
            "shift": inst.shift,
            "scale": inst.scale,
        }

    def _path(self, iteration: int) -> Path:
        return self.folder / f"{PREFIX}{iteration:08d}"

    def _rank_file(self, here: Path) -> Path:
        return here / f"rank-{self.setup.instance.grid.world.rank:05d}.npz"


def _save(file: BinaryIO, tensors: dict[str, Tensor]) -> None:
    arrays: dict[str, Any] = {name: values.cpu().numpy() for name, values in tensors.items()}
    np.savez(file, **arrays)


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); delete the folder to start afresh") from None
