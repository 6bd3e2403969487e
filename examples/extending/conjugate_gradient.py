"""A local solver of one's own: conjugate gradients in place of a factored matrix.

With the squared loss a node's step is the linear system ``(diag(w) + 2 A'DA) x = diag(w) v + 2 A'D b``. The built-in
solver factors the matrix once. This one only multiplies with the data, so it needs no memory for a factor; it starts
from the last answer, and is as accurate as the iteration around it asks for.
``python examples/extending/conjugate_gradient.py`` compares the two.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from psfit import BiCADMM, GridSpec, SparseLinearRegression
from psfit.admm.local import LocalSolver, LocalState, Subproblem
from psfit.losses import Loss


@dataclass(frozen=True)
class ConjugateGradient(LocalSolver[LocalState]):
    """The configuration; what changes from call to call is in the state, which is passed in and returned."""

    max_steps: int = 200
    name: ClassVar[str] = "conjugate_gradient"

    def objection(self, loss: Loss, blocks: int) -> str | None:
        """Why this solver cannot work, and which one can; None if it can."""
        if not loss.quadratic:
            return f"conjugate gradients solve the squared loss, not {loss.name}; use 'newton' or 'feature_split'"
        if blocks > 1:
            return f"conjugate gradients work on whole nodes, not on {blocks} blocks; use 'feature_split'"
        return None

    def init(self, sub: Subproblem, x: Tensor) -> LocalState:
        return LocalState(x)

    def prox(self, sub: Subproblem, state: LocalState, v: Tensor, tol: Tensor | float) -> LocalState:
        """All nodes ``(N, n, c)`` at once; every node and output has a system and step lengths of its own."""
        x = state.x
        residual = sub.weight * v + sub.split.Q - self._product(sub, x)
        direction, size = residual, self._dot(residual, residual)
        # An error in x is at most the residual over the smallest weight. The first calls ask for no error at all.
        rounding = 10 * torch.finfo(x.dtype).eps * size.sqrt().max()
        enough = torch.clamp(torch.as_tensor(tol) * sub.weight.min(), min=rounding)
        for _ in range(self.max_steps):
            if bool((size.sqrt() <= enough).all()):
                break
            image = self._product(sub, direction)
            step = self._ratio(size, self._dot(direction, image))
            x, residual = x + step * direction, residual - step * image
            last, size = size, self._dot(residual, residual)
            direction = residual + self._ratio(size, last) * direction
        return LocalState(x)

    @staticmethod
    def _product(sub: Subproblem, x: Tensor) -> Tensor:
        """``(diag(w) + 2 A'DA) x``, one pass over the data forwards and one back."""
        return sub.weight * x + 2 * sub.split.rmv(sub.split.source.weight * sub.split.mv(x))

    @staticmethod
    def _dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=1, keepdim=True)

    @staticmethod
    def _ratio(a: Tensor, b: Tensor) -> Tensor:
        """``a / b``, zero where both have vanished."""
        return torch.where(b > 0, a / b, 0.0)


def main() -> None:
    """The same model from both solvers; an estimator takes the new one through `BiCADMM`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 60))
    y = X[:, :4] @ [2.0, -1.0, 1.0, 3.0] + rng.normal(size=400)
    for local in ("direct", ConjugateGradient()):
        model = SparseLinearRegression(4, gamma=10.0, solver=BiCADMM(local=local), grid=GridSpec(nodes=4)).fit(X, y)
        print(f"{model.result_.local:>18}: support {model.support_}, objective {model.objective_:.6f}")


if __name__ == "__main__":
    main()
