"""PsFiT on Ray: fits by Ray Train, predictions by Ray Data (``pip install 'psfit-toolbox[ray]'``).

The names are imported on first use, because some processes of Ray need only a part of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import ray.train  # noqa: F401
except ImportError:
    raise ImportError("psfit.ray needs Ray Train and Ray Data: pip install 'psfit-toolbox[ray]'") from None

if TYPE_CHECKING:
    from psfit.ray.controller import WholeBlocks
    from psfit.ray.fit import fit_on_ray
    from psfit.ray.predict import predict_on_ray
    from psfit.ray.worker import train_rank

PLACES = {"WholeBlocks": "controller", "fit_on_ray": "fit", "predict_on_ray": "predict", "train_rank": "worker"}
__all__ = ["WholeBlocks", "fit_on_ray", "predict_on_ray", "train_rank"]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
