"""Intercepts without curvature in a Hessian: they have no ridge, and losses may be linear between kinks."""

from torch import Tensor

from psfit.problem.instance import Instance

# An intercept with less than this share of the typical curvature of all samples is taken to have none.
IDLE = 1e-12


def pin_idle_intercepts(inst: Instance, H: Tensor, places: Tensor) -> None:
    """Give curvature to an intercept that has none.

    It gets the curvature that all samples together typically give it, so that a step does not go too far. `places` are
    those of the intercepts of a problem in its Hessian.
    """
    if inst.items.free:
        curvature = inst.problem.loss.typical_curvature(inst.mean_target, len(places))
        most = inst.coordinates.column_norm**2 * curvature
        H[places, places] += most * (H[places, places] <= IDLE * most)
