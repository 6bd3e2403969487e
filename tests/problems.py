"""Small generated problems for the tests."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.data import Dense, Source
from psfit.data.synthetic import paper_recipe
from psfit.losses import Hinge, Huber, Logistic, Poisson, Softmax, Squared, SquaredHinge

LOSSES = [Squared(), Huber(), Logistic(), SquaredHinge(), Hinge(), Poisson(), Softmax()]
SPARSITIES = ["element", "feature"]
CLASSES = 3


class Sample(Source):
    """A source with a few ways to change it."""

    def with_target(self, target: Tensor) -> "Sample":
        return _sample(replace(self, target=target))

    def with_bounds(self, bounds: tuple[int, ...]) -> "Sample":
        return _sample(replace(self, bounds=bounds))

    def to(self, where: str | torch.dtype) -> "Sample":
        return Sample(Dense(self.matrix.values.to(where)), self.target.to(where), self.weight.to(where))


def _sample(source: Source) -> Sample:
    return Sample(source.matrix, source.target, source.weight, source.bounds)


def make_source(loss, *, samples, features, nonzeros, seed, correlation=0.4) -> Sample:
    """AR(1)-correlated features, a few true coefficients, targets that suit the loss."""
    g = torch.Generator().manual_seed(seed)
    outputs = CLASSES if loss.joint else 1

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    A = normal(samples, features)
    for j in range(1, features):
        A[:, j] = correlation * A[:, j - 1] + (1 - correlation**2) ** 0.5 * A[:, j]
    x = torch.zeros(features, outputs, dtype=torch.float64)
    place = torch.randperm(features * outputs, generator=g)[:nonzeros]
    x.view(-1)[place] = 1.5 * normal(nonzeros).sign() + 0.5 * normal(nonzeros)
    eta = A @ x + 0.3
    if loss.name in ("squared", "huber"):
        b = eta + 0.5 * normal(samples, 1)
    elif loss.name == "poisson":
        b = torch.poisson((0.4 * eta).clamp(max=4).exp(), generator=g)
    elif loss.joint:
        b = torch.nn.functional.one_hot((eta + normal(samples, outputs)).argmax(1), outputs).double()
    else:
        b = torch.where(eta + normal(samples, 1) > 0, 1.0, -1.0).double()
    return _sample(Source(Dense(A), b, torch.ones(samples, 1, dtype=torch.float64)))


@dataclass(frozen=True)
class Truth:
    """The truth behind data of the paper's kind."""

    kappa: int
    A: Tensor
    b: Tensor

    def objective(self, gamma: float) -> float:
        return ridge_objective(self.A, self.b, gamma)


def paper_source(m, n, level, *, nodes, dtype, device="cpu", seed=0):
    data = paper_recipe(m, n, level, nodes, seed=seed, dtype=dtype, device=device)
    support = data.x[:, 0] != 0
    source = Source(Dense(data.A), data.b, torch.ones(m, 1, dtype=dtype, device=device))
    return source, Truth(data.kappa, data.A[:, support].double(), data.b.double())


def ridge_objective(A: Tensor, b: Tensor, gamma: float) -> float:
    """Minimum of ``||A x - b||^2 + ||x||^2 / (2 gamma)`` by normal equations."""
    H = 2 * A.T @ A + torch.eye(A.shape[1], dtype=A.dtype, device=A.device) / gamma
    x = torch.linalg.solve(H, 2 * A.T @ b)
    return float((A @ x - b).square().sum() + x.square().sum() / (2 * gamma))
