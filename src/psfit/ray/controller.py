"""What Ray Train's controller needs to know of a fit: how a dataset is divided, and that the ranks connect themselves.

The controller is a process that starts before the workers, which wait for it. So this imports neither torch nor the
estimators.
"""

from typing import Any

from ray.train import DataConfig
from ray.train.backend import BackendConfig


class WholeBlocks(DataConfig):
    """Divides datasets by whole blocks, so that no row is lost; a worker may get none. Give it to a `TorchTrainer`.

    Ray Train's own way gives all workers the same number of rows, and drops the rest.
    """

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: Any,
        worker_node_ids: list[str] | None,
        **_: Any,
    ) -> list[dict[str, Any]]:
        """The part of every dataset for each worker."""
        shares: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            # The order of the blocks must be the same in every attempt, or a checkpoint would belong to other samples.
            ordered = dataset.copy(dataset)
            ordered.context.execution_options.preserve_order = True
            for share, part in zip(shares, ordered.split(world_size), strict=True):
                share[name] = part.iterator()
        return shares


class Unconnected(BackendConfig):
    """In the place of a `TorchConfig`: the ranks connect themselves, on one host by its loopback interface alone."""

    # What a `TorchTrainer` would choose by itself.
    backend = "gloo"
