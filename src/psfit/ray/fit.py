"""Fits by Ray Train: its `TorchTrainer` starts the ranks, and they divide the blocks of a dataset."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray.exceptions
import ray.train
import ray.train.torch
from ray.data.dataset import MaterializedDataset
from ray.train import RunConfig, ScalingConfig
from sklearn.base import clone

from psfit.comm import PeerLostError
from psfit.common.arguments import instance
from psfit.data.table_rules import TableRules
from psfit.estimators.model import SparseModel
from psfit.estimators.persistence.model_file import load
from psfit.estimators.ranks import find_cause, spec_for_ranks
from psfit.ray.columns import Columns
from psfit.ray.controller import Unconnected
from psfit.ray.parts import Part
from psfit.ray.room import await_room, read_scaling
from psfit.ray.worker import MODEL, train_rank

# How often Ray Train asks its workers whether they are done, in seconds; its own 2 would be waited for after the fit.
ASK_EVERY = 0.25
# Seconds from the first sign of a shutdown until Ray calls itself shut down, and between two looks.
NOTICE, PAUSE = 5.0, 0.05


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
    instance("an estimator of PsFiT", SparseModel)("estimator", estimator)
    instance("a ray.data.Dataset", ray.data.Dataset)("dataset", dataset)
    scaling = read_scaling(scaling_config)
    known = Columns(label, features, weight, offset).check(dataset)
    await_room(scaling, spec_for_ranks(estimator).timeout)
    run = run_config or RunConfig()
    settings = {"label": label, "features": features, "weight": weight, "offset": offset, "rules": rules}
    blocks = {"known": known, "parts": _make_parts(dataset, scaling.num_workers)}
    keep = run.failure_config.max_failures != 0
    trainer = ray.train.torch.TorchTrainer(
        # Settings apart from the function would be read by the controller, which would import torch for them first.
        partial(train_rank, {"estimator": estimator, "keep_iterations": keep, **settings, **blocks}),
        torch_config=Unconnected(),
        scaling_config=scaling,
        run_config=run,
    )
    fitted = clone(estimator)
    with _set_train(keep):
        result = _run(trainer)
    with result.checkpoint.as_directory() as folder:
        model = load(Path(folder, MODEL))
    fitted.learned_, fitted.result_ = model.learned_, model.result_
    return fitted


def _make_parts(dataset: "ray.data.Dataset", workers: int) -> list[Part]:
    """The dataset in memory, and divided: by blocks, or by rows if there are fewer blocks than workers.

    Ray reads small files into few blocks, and takes seconds to cut them; here the workers only read some of their rows.
    """
    # This is done before the workers start, which may take all processors that Ray has.
    whole = dataset if isinstance(dataset, MaterializedDataset) else dataset.materialize()
    if whole.num_blocks() >= workers:
        return [Part(part) for part in whole.split(workers)]
    cuts = [k * whole.count() // workers for k in range(workers + 1)]
    return [Part(whole, *rows) for rows in pairwise(cuts)]


@contextmanager
def _set_train(restarts: bool) -> Iterator[None]:
    """Settings of Ray Train for one fit, where the user has not set them: it takes them from the environment only."""
    settings = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(ASK_EVERY)}
    if not restarts:
        # A process that foresees the loss of a machine, in order to start the workers again.
        settings["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _run(trainer: Any) -> Any:
    """The result of Ray Train; raises the error of the rank that failed, or says that Ray itself was lost."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        return trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise _find_error(error) from None
    except (Exception, SystemExit) as error:
        # What Ray raises where it waits for a process depends on what has gone first. A SystemExit would end the
        # program without a word.
        if isinstance(error, ray.exceptions.RayError) or _has_ended(NOTICE if isinstance(error, SystemExit) else 0.0):
            raise PeerLostError(f"Ray was shut down or lost during the fit ({type(error).__name__})") from None
        raise
    finally:
        # Ray leaves its own behind, and Ctrl-C would not end the program any more.
        if main and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _has_ended(patience: float) -> bool:
    """Whether Ray was shut down, at the latest after these seconds."""
    end = time.monotonic() + patience
    while ray.is_initialized() and time.monotonic() < end:
        time.sleep(PAUSE)
    return not ray.is_initialized()


def _find_error(error: Exception) -> Exception:
    """The error of the rank that failed."""
    failures: dict[int, Any] = getattr(error, "worker_failures", {})
    causes = {rank: getattr(failure, "cause", None) or failure for rank, failure in failures.items()}
    if not causes:
        return PeerLostError(f"Ray Train has ended the fit: {str(error).strip().splitlines()[0]}")
    rank = find_cause(causes)
    cause = causes[rank]
    if type(cause).__module__.startswith("ray."):
        return PeerLostError(f"rank {rank} was lost during the fit: {str(cause).strip().splitlines()[0]}")
    cause.add_note(f"on rank {rank}, a worker of Ray Train")
    return cause
