"""Fits by Ray Train: its `TorchTrainer` starts the ranks, and they divide the blocks of a dataset."""

import signal
import tempfile
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray.exceptions
import ray.train
import ray.train.torch
import ray.util
import torch
import torch.distributed as dist
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.collective import broadcast_from_rank_zero
from sklearn.base import clone

from psfit.comm import GridSpec, PeerLostError, RemoteError
from psfit.comm.meeting import LOOPBACK, Place, meet
from psfit.data.table_rules import TableRules
from psfit.estimators.model import SparseModel
from psfit.estimators.persistence.model_file import load, save
from psfit.estimators.ranks import Partition, fit_rank, spec_for_ranks
from psfit.ray.checkpoints import keep_iterations
from psfit.ray.columns import Columns
from psfit.ray.controller import Unconnected, WholeBlocks

# The names of the dataset, and of the model file in the checkpoint that Ray keeps.
TRAIN, MODEL = "train", "model.psfit"


def train_rank(config: dict[str, Any]) -> None:
    """What each worker of a `TorchTrainer` runs; the model file is the checkpoint that Ray keeps.

    The settings (``train_loop_config``) are ``estimator``; ``label``, the column of targets; and, where they are
    needed, ``features``, ``weight``, ``offset`` and ``rules``, as in `fit_on_ray`. With ``keep_iterations`` the
    checkpoints of the iteration are in Ray's storage, too. The trainer needs the dataset "train" and
    ``dataset_config=WholeBlocks()``.
    """
    columns = Columns(config["label"], config.get("features"), config.get("weight"), config.get("offset"))
    rules = config.get("rules")
    estimator, context = clone(config["estimator"]), ray.train.get_context()
    spec = choose_device(spec_for_ranks(estimator), ray.train.torch.get_device())
    shard, rank = ray.train.get_dataset_shard(TRAIN), context.get_world_rank()

    def gather() -> list[Partition]:
        return [columns.read(batch) for batch in shard.iter_batches(batch_size=None, batch_format="pandas")]

    with tempfile.TemporaryDirectory() as folder:
        if config.get("keep_iterations") and (estimator.solver is None or estimator.solver.checkpoint is None):
            keep_iterations(estimator, Path(folder, "iterations"))
        with _join_others(context, spec):
            outcome = fit_rank(estimator, spec, gather, rank, None if rules is None else vars(rules))
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


def _join_others(context: Any, spec: GridSpec) -> AbstractContextManager[None]:
    """Connect this rank to the others, unless the trainer has done it."""
    if dist.is_initialized():
        return nullcontext()
    size = context.get_world_size()
    address = LOOPBACK if context.get_local_world_size() == size else ray.util.get_node_ip_address()
    place = Place(context.get_world_rank(), size, context.get_local_rank(), address)
    return meet(place, broadcast_from_rank_zero, spec)


def fit_on_ray(
    estimator: SparseModel,
    dataset: "ray.data.Dataset",
    scaling_config: ScalingConfig | int,
    *,
    label: str,
    features: str | Sequence[str] | None = None,
    weight: str | None = None,
    offset: str | None = None,
    rules: TableRules | None = None,
    run_config: RunConfig | None = None,
) -> Any:
    """A fitted copy of the estimator; each worker is a node of the algorithm.

    Parameters
    ----------
    estimator : SparseModel
        Any estimator of PsFiT.
    dataset : ray.data.Dataset
        The samples; its blocks are divided among the workers.
    scaling_config : ray.train.ScalingConfig or int
        How many workers, and whether they use GPUs; a number is that of the workers.
    label : str
        The column of targets.
    features : str, list of str or None
        The columns of features; a single name is a column of arrays. None means all columns that have no other use.
    weight, offset : str or None
        The columns of the samples' weights, and of numbers that are added to the linear predictors.
    rules : TableRules or None
        How text, dates and missing values are read; None refuses them.
    run_config : ray.train.RunConfig, optional
        Where Ray keeps the model, and how often it starts lost workers again (``FailureConfig``). If it does, the
        iteration goes on from its last checkpoint, which Ray keeps, too.
    """
    scaling = ScalingConfig(num_workers=scaling_config) if isinstance(scaling_config, int) else scaling_config
    Columns(label, features, weight, offset).check(dataset)
    spec_for_ranks(estimator)
    run = run_config or RunConfig()
    settings = {"label": label, "features": features, "weight": weight, "offset": offset, "rules": rules}
    keep = run.failure_config.max_failures != 0
    trainer = ray.train.torch.TorchTrainer(
        # Settings apart from the function would be read by the controller, which would import torch for them first.
        partial(train_rank, {"estimator": estimator, "keep_iterations": keep, **settings}),
        torch_config=Unconnected(),
        scaling_config=scaling,
        run_config=run,
        datasets={TRAIN: _make_blocks(dataset, scaling.num_workers)},
        dataset_config=WholeBlocks(),
    )
    fitted = clone(estimator)
    with _run(trainer).checkpoint.as_directory() as folder:
        model = load(Path(folder, MODEL))
    fitted.learned_, fitted.result_ = model.learned_, model.result_
    return fitted


def _make_blocks(dataset: "ray.data.Dataset", workers: int) -> "ray.data.Dataset":
    """The dataset in memory, in at least one block for each worker: Ray reads small files into fewer.

    This is done before the workers start, which may take all processors that Ray has.
    """
    whole = dataset.materialize()
    return whole if whole.num_blocks() >= workers else whole.repartition(workers).materialize()


def _run(trainer: Any) -> Any:
    """The result of Ray Train; raises the error of the rank that failed, or says that Ray itself was lost."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        return trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise _find_cause(error) from None
    except Exception as error:
        # What Ray raises where it waits for a process depends on what has gone first.
        if isinstance(error, ray.exceptions.RayError) or not ray.is_initialized():
            raise PeerLostError(f"Ray was shut down or lost during the fit ({type(error).__name__})") from None
        raise
    finally:
        # Ray leaves its own behind, and Ctrl-C would not end the program any more.
        if main and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _find_cause(error: Exception) -> Exception:
    """The error of the rank that failed; the others only tell that another rank has."""
    failures: dict[int, Any] = getattr(error, "worker_failures", {})
    causes = {rank: getattr(failure, "cause", None) or failure for rank, failure in failures.items()}
    if not causes:
        return PeerLostError(f"Ray Train has ended the fit: {str(error).strip().splitlines()[0]}")
    rank = min(causes, key=lambda one: isinstance(causes[one], (RemoteError, PeerLostError)))
    cause = causes[rank]
    if type(cause).__module__.startswith("ray."):
        return PeerLostError(f"rank {rank} was lost during the fit: {str(cause).strip().splitlines()[0]}")
    cause.add_note(f"on rank {rank}, a worker of Ray Train")
    return cause
