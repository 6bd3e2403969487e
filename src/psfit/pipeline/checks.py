"""Checks that refuse answers that are not finite or differ between ranks, and problems that cannot be solved."""

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.problem.instance import Instance


def require_finite(*numbers: Tensor) -> None:
    """Refuse an answer that is not made of finite numbers."""
    if not all(bool(part.isfinite().all()) for part in numbers):
        raise FloatingPointError(
            "the fit left the range of floating-point numbers: the loss or the ridge of some answer is infinite or "
            "undefined. Rescale X, y or sample_weight, or use a gamma of a more usual size"
        )


def require_same_answers(grid: Grid, coef: Tensor, objectives: Tensor) -> None:
    """Refuse answers that differ between the ranks."""
    if not grid.have_same_values(torch.stack([coef.sum(), coef.square().sum(), objectives.sum().to(coef)])):
        raise RuntimeError(
            "the ranks ended with different answers; run all of them on the same kind of processor, with the same "
            "number of threads and the same version of torch"
        )


def require_served(inst: Instance) -> None:
    """Refuse to list close supports where their sizes differ: listed supports have exactly kappa items."""
    if inst.domain.weights is not None:
        raise ValueError(
            "near-optimal models need a kappa that counts groups: where it counts their features, supports have "
            "different sizes; use kappa_counts='groups'"
        )
    if inst.domain.heredity is not None:
        raise ValueError(
            "heredity: near-optimal models are listed for supports of kappa features, and with heredity smaller ones "
            "count, too; leave heredity out"
        )
