"""The iterates of Bi-cADMM, and measurements of them."""

from dataclasses import dataclass, replace

from torch import Tensor

from psfit.admm.bilinear import BilinearState
from psfit.admm.local import LocalState


@dataclass(frozen=True)
class State:
    """The iterates after `iteration` iterations.

    Parameters
    ----------
    age : Tensor ()
        The same number as `iteration`, on the device.
    local : LocalState
        ``x_i`` and what the local solver keeps between steps.
    bilinear : BilinearState
        z, t, s and v.
    u : Tensor (N, n, c)
    sums : Tensor (3, problems)
        This rank's sums for the residuals of this iteration.
    sizes : Tensor (3, problems)
        The norm of z, the length of its last step, and its nonzeros.
    settled : Tensor (problems,)
        For how many iterations the support has been the same and sparse.
    measured : Tensor (rows, problems)
        The numbers in the residuals of the iteration before: a row for each name in `MEASURED`.
    stop_reasons, stop_counts : Tensor
        Which of the `STOP_REASONS` this rank has, and how many of all ranks have each.
    """

    iteration: int
    age: Tensor
    local: LocalState
    bilinear: BilinearState
    u: Tensor
    sums: Tensor
    sizes: Tensor
    settled: Tensor
    measured: Tensor
    stop_reasons: Tensor
    stop_counts: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """All that changes from step to step, as arrays by name."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return (
            own
            | {f"local.{name}": value for name, value in self.local.tensors().items()}
            | {f"bilinear.{name}": value for name, value in vars(self.bilinear).items()}
        )

    def restore(self, iteration: int, tensors: dict[str, Tensor]) -> "State":
        """The state at an iteration whose `tensors` are given."""
        parts: dict[str, dict[str, Tensor]] = {"": {}, "local": {}, "bilinear": {}}
        for name, value in tensors.items():
            where, _, last = name.rpartition(".")
            parts[where][last] = value
        local, bilinear = self.local.restore(parts["local"]), BilinearState(**parts["bilinear"])
        return replace(self, iteration=iteration, local=local, bilinear=bilinear, **parts[""])
