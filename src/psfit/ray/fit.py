"""Fits by Ray Train: its `TorchTrainer` starts and connects the ranks, and they divide the blocks of a dataset.

Ray Train's own way to divide a dataset gives all workers the same number of rows, and drops the rest. Here every row
belongs to exactly one rank, and blocks stay whole.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
from ray.train import Checkpoint, DataConfig, RunConfig, ScalingConfig
from sklearn.base import clone

from psfit.comm import PeerLostError, RemoteError
from psfit.estimators.model import SparseModel
from psfit.estimators.persistence.model_file import load, save
from psfit.estimators.ranks import Partition, fit_rank, spec_for_ranks
from psfit.ray.columns import Columns

# The names of the dataset, and of the model file in the checkpoint that Ray keeps.
TRAIN, MODEL = "train", "model.psfit"


class WholeBlocks(DataConfig):
    """Divides datasets by whole blocks, so that no row is lost; a worker may get none. Give it to a `TorchTrainer`."""

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: Any,
        worker_node_ids: list[str] | None,
        **_: Any,
    ) -> list[dict[str, Any]]:
        """The part of every dataset for each worker, near its node."""
        shares: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            # Ray divides by node only where actors are given; the order of the blocks is the same in every attempt.
            for share, part in zip(shares, dataset.split(world_size), strict=True):
                share[name] = part.iterator()
        return shares


def train_rank(config: dict[str, Any]) -> None:
    """What each worker of a `TorchTrainer` runs; the model file is the checkpoint that Ray keeps.

    The settings (``train_loop_config``) are ``estimator``; ``label``, the column of targets; and, where they are
    needed, ``features`` and ``weight``, as in `fit_on_ray`. The trainer needs the dataset "train" and
    ``dataset_config=WholeBlocks()``.
    """
    columns = Columns(config["label"], config.get("features"), config.get("weight"))
    estimator = clone(config["estimator"])
    spec = spec_for_ranks(estimator)
    device = ray.train.torch.get_device()
    if spec.device == "auto":
        spec = replace(spec, device=str(device))
    shard = ray.train.get_dataset_shard(TRAIN)

    def gather() -> list[Partition]:
        return [columns.read(batch) for batch in shard.iter_batches(batch_size=None, batch_format="pandas")]

    outcome = fit_rank(estimator, spec, gather, ray.train.get_context().get_world_rank())
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if outcome.model is not None:
            save(estimator, Path(folder, MODEL))
            checkpoint = Checkpoint.from_directory(folder)
        # Every rank must report; only the one with the model has something to keep.
        ray.train.report({}, checkpoint=checkpoint)


def fit_on_ray(
    estimator: SparseModel,
    dataset: "ray.data.Dataset",
    scaling_config: ScalingConfig | int,
    *,
    label: str,
    features: str | Sequence[str] | None = None,
    weight: str | None = None,
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
        The columns of features; a single name is a column of arrays. None means all columns but `label` and `weight`.
    weight : str or None
        The column of the samples' weights.
    run_config : ray.train.RunConfig, optional
        Where Ray keeps the model, and how often it starts lost workers again.
    """
    scaling = ScalingConfig(num_workers=scaling_config) if isinstance(scaling_config, int) else scaling_config
    columns = Columns(label, features, weight)
    columns.check(dataset)
    spec_for_ranks(estimator)
    trainer = ray.train.torch.TorchTrainer(
        train_rank,
        train_loop_config={"estimator": estimator, "label": label, "features": features, "weight": weight},
        scaling_config=scaling,
        run_config=run_config,
        datasets={TRAIN: dataset},
        dataset_config=WholeBlocks(),
    )
    try:
        result = trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise _find_cause(error) from None
    fitted = clone(estimator)
    with result.checkpoint.as_directory() as folder:
        model = load(Path(folder, MODEL))
    fitted.learned_, fitted.result_ = model.learned_, model.result_
    return fitted


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
