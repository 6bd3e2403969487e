"""What each worker of Ray Train runs: a rank of the fit.

Workers start with every fit, so this imports no more than a rank needs.
"""

import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.util
import torch
import torch.distributed as dist
from ray.train import Checkpoint
from ray.train.collective import broadcast_from_rank_zero
from sklearn.base import clone

from psfit.comm import GridSpec, RemoteError
from psfit.comm.meeting import LOOPBACK, Place, meet
from psfit.estimators.persistence.model_file import save
from psfit.estimators.ranks import Partition, fit_rank, spec_for_ranks
from psfit.ray.checkpoints import keep_iterations
from psfit.ray.columns import Columns

# The names of the dataset, and of the model file in the checkpoint that Ray keeps.
TRAIN, MODEL = "train", "model.psfit"
# Seconds that a rank waits before it says that another rank has failed: longer than Ray Train takes to see that one.
GIVE_WAY = 10.0


def train_rank(config: dict[str, Any]) -> None:
    """What each worker of a `TorchTrainer` runs; the model file is the checkpoint that Ray keeps.

    The settings (``train_loop_config``) are ``estimator``; ``label``, the column of targets; and, where they are
    needed, ``features``, ``weight``, ``offset`` and ``rules``, as in `fit_on_ray`. With ``keep_iterations`` the
    checkpoints of the iteration are in Ray's storage, too. The trainer needs the dataset "train" and
    ``dataset_config=WholeBlocks()``.
    """
    named = {name: config[name] for name in ("features", "weight", "offset", "known") if name in config}
    columns = Columns(config["label"], **named)
    rules = config.get("rules")
    estimator, context = clone(config["estimator"]), ray.train.get_context()
    spec = choose_device(spec_for_ranks(estimator), _find_device())
    rank = context.get_world_rank()

    def gather() -> list[Partition]:
        # Parts that come with the settings need no process of Ray Train that divides a dataset.
        if "parts" in config:
            return [columns.read(batch) for batch in config["parts"][rank].read()]
        shard = ray.train.get_dataset_shard(TRAIN)
        return [columns.read(batch) for batch in shard.iter_batches(batch_size=None, batch_format="pandas")]

    with tempfile.TemporaryDirectory() as folder:
        if config.get("keep_iterations") and (estimator.solver is None or estimator.solver.checkpoint is None):
            keep_iterations(estimator, Path(folder, "iterations"))
        try:
            with _join_others(context, spec):
                outcome = fit_rank(estimator, spec, gather, rank, None if rules is None else vars(rules))
        except RemoteError:
            # Ray Train ends all workers as soon as it sees that one has failed, and reports only what it has seen by
            # then; that should be the cause.
            time.sleep(GIVE_WAY)
            raise
        checkpoint = None
        if outcome.model is not None:
            Path(folder, "result").mkdir()
            save(estimator.set_params(solver=config["estimator"].solver), Path(folder, "result", MODEL))
            checkpoint = Checkpoint.from_directory(str(Path(folder, "result")))
        # Every rank must report; only the one with the model has something to keep.
        ray.train.report({}, checkpoint=checkpoint)


def choose_device(spec: GridSpec, device: torch.device) -> GridSpec:
    """The grid on the device that Ray has given to this worker."""
    if spec.device in ("auto", device.type):
        return replace(spec, device=str(device))
    if device.type == "cuda":
        raise ValueError(f"grid: device={spec.device!r}, but this worker has a GPU; leave it 'auto', or use_gpu=False")
    return spec


def _find_device() -> torch.device:
    """The device that Ray has given to this worker; the module that knows is not imported for a processor."""
    if not any(ray.get_runtime_context().get_accelerator_ids().values()):
        return torch.device("cpu")
    return import_module("ray.train.torch").get_device()


def _join_others(context: Any, spec: GridSpec) -> AbstractContextManager[None]:
    """Connect this rank to the others, unless the trainer has done it."""
    if dist.is_initialized():
        return nullcontext()
    size = context.get_world_size()
    address = LOOPBACK if context.get_local_world_size() == size else ray.util.get_node_ip_address()
    place = Place(context.get_world_rank(), size, context.get_local_rank(), address)
    return meet(place, broadcast_from_rank_zero, spec)
