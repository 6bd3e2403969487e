"""Checkpoints of the iteration in Ray's storage, so that workers that Ray starts again go on from the last one.

Every rank writes to a folder of its own. When a checkpoint is complete there, all ranks report their folders, and Ray
puts their files together in its storage; a restarted rank gets them back. Reports must be made by all ranks at the same
moments: after the same iteration all ranks have the same checkpoints. A worker without rows makes none, so where there
is one, nothing is kept.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ray.train
from ray.train import Checkpoint

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint.folder import MANIFEST
from psfit.comm import Grid
from psfit.common.progress import Progress
from psfit.estimators.model import SparseModel


def keep_iterations(estimator: SparseModel, folder: Path) -> None:
    """Let the estimator continue from the checkpoint in Ray's storage, if there is one, and keep its own ones there."""
    last = ray.train.get_checkpoint()
    if last is not None:
        last.to_directory(str(folder))
    solver = replace(estimator.solver or BiCADMM(), checkpoint=folder)
    estimator.set_params(solver=solver, callback=_report_from(estimator, folder))


def _report_from(estimator: SparseModel, folder: Path) -> Callable[[Progress], bool]:
    """A callback that reports what is new in the folder."""
    own, ranks = estimator.callback, ray.train.get_context().get_world_size()
    reported = _list_checkpoints(folder)

    def report(progress: Progress) -> bool:
        nonlocal reported
        found = _list_checkpoints(folder)
        # During the fit the grid is that of the ranks that hold rows.
        everybody = isinstance(estimator.grid, Grid) and estimator.grid.world.size == ranks
        if found != reported and everybody:
            reported = found
            ray.train.report({"iteration": progress.iteration}, checkpoint=Checkpoint.from_directory(str(folder)))
        return own is not None and bool(own(progress))

    return report


def _list_checkpoints(folder: Path) -> list[str]:
    """The checkpoints that are complete; the same on all ranks after the same iteration."""
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob(MANIFEST))
