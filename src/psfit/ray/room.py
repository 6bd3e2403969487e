"""Room for all workers of a fit, without which Ray Train would wait for ever."""

import warnings
from typing import Any

import ray
from ray.train import ScalingConfig
from ray.util.placement_group import placement_group, remove_placement_group

from psfit.common.arguments import instance, integer

SCALING = integer(1) | instance("a ray.train.ScalingConfig", ScalingConfig)
# Seconds without room after which the user is told.
SOON = 5.0


def read_scaling(given: Any) -> ScalingConfig:
    """The workers to start: from a number of them, or as Ray describes them."""
    read = SCALING("scaling_config", given)
    scaling = ScalingConfig(num_workers=read) if isinstance(read, int) else read
    if not isinstance(scaling.num_workers, int) or scaling.num_workers < 1:
        raise ValueError(
            f"scaling_config: num_workers={scaling.num_workers!r}, but a fit has a fixed number of workers; give one "
            "number of at least 1"
        )
    return scaling


def await_room(scaling: ScalingConfig, timeout: float) -> None:
    """Where Ray has less than all workers need, wait until the cluster has grown; an error after so many seconds."""
    workers = scaling.num_workers
    # All that they need together, as Ray counts it; every worker needs the same.
    each = {name: amount / workers for name, amount in scaling.total_resources.items() if amount}
    has = {name: ray.cluster_resources().get(name, 0.0) for name in each}
    if all(has[name] >= workers * amount for name, amount in each.items()):
        return
    # Ray reserves room for such a group as it does for the workers, and lets a cluster grow for it.
    group = placement_group([each] * workers, strategy=scaling.placement_strategy)
    try:
        if group.wait(min(SOON, timeout)):
            return
        lack = f"Ray has no room for {workers} workers with {_list(each)} each; in all it has {_list(has)}"
        warnings.warn(f"{lack}. Waiting for at most {timeout:g} s", stacklevel=3)
        if not group.wait(max(timeout - SOON, 0.0)):
            raise TimeoutError(
                f"scaling_config: {lack}. Ask for fewer workers, or fit again when others have ended or the cluster "
                f"has grown; GridSpec(timeout={timeout:g}) is how long a fit waits"
            )
    finally:
        remove_placement_group(group)


def _list(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
