"""The iterates of Bi-cADMM, and what is measured of them."""

from dataclasses import dataclass, replace

from torch import Tensor

from psfit.admm.bilinear import BilinearState
from psfit.admm.local import LocalState


@dataclass(frozen=True)
class State:
    """The iterates after a number of iterations.

    Parameters
    ----------
    age : Tensor ()
        The iteration once more, where the device can see it.
    local : LocalState
        ``x_i`` and what the local solver remembers.
    bilinear : BilinearState
        z, t, s and v.
    u : Tensor (N, n, c)
    sums : Tensor (3, problems)
        This rank's share of the residuals of this iteration.
    dual : Tensor (problems,)
        The length of the last step of z.
    settled : Tensor (problems,)
        For how many iterations the support has been the same, and sparse.
    measured : Tensor (rows, problems)
        All that the residuals of the iteration before are made of: a row for each name in `MEASURED`.
    stop_reasons, stop_counts : Tensor
        Which of the `STOP_REASONS` this rank has, and how many of all ranks have each.
    """

    iteration: int
    age: Tensor
    local: LocalState
    bilinear: BilinearState
    u: Tensor
    sums: Tensor
    dual: Tensor
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
