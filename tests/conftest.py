"""Tests marked `gpu` run where there is one; on machines without, they are not collected at all."""

import os

# The problems here are small and the workers many: one thread each is fastest, and reproducible. What tests start
# inherits it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(config, items):
    if not torch.cuda.is_available():
        absent = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]
