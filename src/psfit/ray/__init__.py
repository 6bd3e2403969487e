"""PsFiT on Ray: fits by Ray Train, predictions by Ray Data (``pip install 'psfit-toolbox[ray]'``)."""

try:
    import ray.train  # noqa: F401
except ImportError:
    raise ImportError("psfit.ray needs Ray Train and Ray Data: pip install 'psfit-toolbox[ray]'") from None

from psfit.ray.fit import WholeBlocks, fit_on_ray, train_rank
from psfit.ray.predict import predict_on_ray

__all__ = ["WholeBlocks", "fit_on_ray", "predict_on_ray", "train_rank"]
