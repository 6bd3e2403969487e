"""The judge: refits every support itself in float64 under the same ridge, and looks for the best known one."""

import numpy as np
import torch
from suite import Case

from psfit import Dense, GridSpec, Problem, Source
from psfit.instance import Instance, pose
from psfit.losses import Logistic, Loss, Softmax, Squared, SquaredHinge
from psfit.polish.landscape import landscape
from psfit.polish.refit import refit
from psfit.polish.swap import swap_search

LOSSES: dict[str, Loss] = {
    "linear": Squared(),
    "logistic": Logistic(),
    "softmax": Softmax(),
    "svm": SquaredHinge(),
}


class Judge:
    """One case with everything that scoring needs."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.problem = Problem(LOSSES[case.spec.model], (case.spec.kappa,), case.spec.gamma, case.spec.sparsity)
        self.source = Source(
            Dense(torch.as_tensor(case.X)), self._target(), torch.ones(len(case.X), 1, dtype=torch.float64)
        )
        self.inst: Instance = pose(self.problem, self.source, GridSpec(device="cpu").build())

    def _target(self) -> torch.Tensor:
        y = torch.as_tensor(self.case.y)
        if self.case.spec.model == "linear":
            return y.double().unsqueeze(1)
        if self.case.spec.model == "softmax":
            return torch.nn.functional.one_hot(y.long()).double()
        return (2.0 * y.double() - 1).unsqueeze(1)

    def objective(self, support: np.ndarray) -> float:
        """The least objective on a support; infinite if it breaks the limit."""
        if len(support) > self.case.spec.kappa:
            return float("inf")
        return refit(self.inst, 0, self._mask(support), self._zero()).value

    def multi_start(self, starts: int) -> float:
        """Swap searches from random supports."""
        scene = landscape(self.inst, 0)
        generator = torch.Generator().manual_seed(12345)
        best = float("inf")
        for _ in range(starts):
            support = torch.randperm(self.inst.layout.size, generator=generator)[: self.case.spec.kappa]
            _, fit, _ = swap_search(scene, self._mask(support.numpy()), self._zero(), 1e-12)
            best = min(best, fit.value)
        return best

    def _mask(self, support: np.ndarray) -> torch.Tensor:
        mask = torch.zeros(self.inst.layout.size, dtype=torch.bool)
        mask[torch.as_tensor(np.array(support), dtype=torch.long)] = True
        return mask

    def _zero(self) -> torch.Tensor:
        return torch.zeros(self.inst.source.matrix.shape[1], self.inst.source.outputs, dtype=torch.float64)
