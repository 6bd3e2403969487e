"""The relaxation of a joint loss, such as softmax, by second-order steps for many tree nodes at once.

All coefficients of a node are one row ``x (B, n c)``, feature by feature, and so are its predictors ``eta (B, m c)``,
sample by sample. The steps are those of losses of one output (`newton_relaxation.py`). A model has all second
derivatives ``A' diag(w s_k (1 - s_k)) A`` and ``-A' diag(w s_k s_q) A`` for the shares ``s (m, c)`` of the outputs in
the curvature. Compiled iterations of the alternating direction method minimise it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from psfit.certificate.newton_relaxation import MOST_PREDICTORS, WIDTH, NewtonRelaxation
from psfit.certificate.node_points import Points, Samples
from psfit.certificate.relaxation import RHO_SHARE, Fit
from psfit.certificate.step_models import Maker
from psfit.certificate.support_models import SupportModelMaker
from psfit.kernels import kernel
from psfit.kernels.blocks import invert
from psfit.problem import Domain
from psfit.problem.instance import Instance

# More variables, or more operations for the second derivatives of a node, are served in other ways.
MOST_VARIABLES, MOST_WORK = 1024, 2e10
# The second derivatives of the nodes that are explored together are at most so many numbers. With more nodes, a large
# problem would spend its time on nodes far from the lowest bound.
MOST_DERIVATIVES = 1 << 22
# The most iterations of the alternating direction method, by how much they overshoot, and the share of the largest
# coefficient by which the last one changes another.
ITERATIONS, OVERSHOOT, UNCHANGED = 100, 1.6, 1e-7
# The intercepts have no penalty, but a share of the mean second derivative: they may move together at no cost.
LEAST_SHARE = 1e-9


def serves_joint_nodes(inst: Instance) -> bool:
    """Whether the second derivatives of an instance with a joint loss are few enough for this way, on a CPU."""
    (_, n), c = inst.source.matrix.shape, inst.source.outputs
    here = inst.source.matrix.device.type == "cpu" and kernel("joint_steps", inst.ridge.device) is not None
    return here and n * c <= MOST_VARIABLES and c * c * inst.samples * n * n <= MOST_WORK


class JointSamples(Samples):
    """Samples whose points are rows of the coefficients, and of the predictors, of all outputs."""

    def __init__(self, inst: Instance) -> None:
        super().__init__(inst)
        self.outputs, items, p = inst.source.outputs, inst.items, inst.items.features
        self.n, self.p, self.width = self.columns * self.outputs, p * self.outputs, inst.items.width
        self.item_root = items.pack_ridge(inst.ridge[:p, 0]).sqrt()
        self.ridge = inst.ridge[:p].expand(-1, self.outputs).flatten()

    def _by_output(self, rows: Tensor) -> Tensor:
        """``(B, k c) -> (B c, k)``."""
        return rows.unflatten(1, (-1, self.outputs)).transpose(1, 2).flatten(0, 1)

    def _together(self, rows: Tensor) -> Tensor:
        """``(B c, k) -> (B, k c)``."""
        return rows.unflatten(0, (-1, self.outputs)).transpose(1, 2).flatten(1)

    def predict(self, x: Tensor) -> Tensor:
        return self._together(super().predict(self._by_output(x)))

    def sum_slopes(self, slopes: Tensor) -> Tensor:
        return self._together(super().sum_slopes(self._by_output(slopes)))

    def _flatten(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """Predictors ``(B m, c)``, and the targets that belong to them."""
        return eta.view(-1, self.outputs), self.target.T.repeat(len(eta), 1)

    def _evaluate(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        flat, target = self._flatten(eta)
        value = self.weigh(self.loss.value(flat, target).view(len(eta), -1)).sum(dim=1)
        slopes = self.loss.gradient(flat, target).view(len(eta), -1, self.outputs)
        return value, (slopes if self.weight is None else self.weight.unsqueeze(2) * slopes).flatten(1)

    def slopes(self, eta: Tensor) -> Tensor:
        return self.loss.gradient(*self._flatten(eta)).view(len(eta), -1)

    def measure(self, x: Tensor) -> Tensor:
        """The norms ``(B, size)`` of the items of coefficients ``x (B, p c)``."""
        return x.unflatten(1, (-1, self.width)).norm(dim=2)

    def scores(self, g: Tensor) -> Tensor:
        return 0.5 * (self.measure(g) / self.item_root).square()

    def size_items(self, x: Tensor) -> Tensor:
        return self.item_root * self.measure(x[:, : self.p])

    def admit(self, domain: Domain, x: Tensor) -> Tensor:
        closed = (domain.outside | (domain.free & (domain.left <= 0))).repeat_interleave(self.width, dim=1)
        return x * torch.nn.functional.pad(~closed, (0, self.n - self.p), value=True)

    def bend(self, eta: Tensor, least: Tensor) -> Tensor:
        """The shares ``(B, m c)`` of the outputs in the curvature; a share ``least (B, 1)`` of them is equal ones."""
        share = self.loss.coupling(*self._flatten(eta)).view(len(eta), -1)
        return (1 - least) * share + least / self.outputs

    def couple(self, bend: Tensor) -> Tensor:
        """The second derivatives ``(B, n c, n c)`` for shares ``(B, m c)``."""
        count, n, c = len(bend), self.columns, self.outputs
        share, H = bend.view(count, -1, c), bend.new_empty(count, n, c, n, c)
        for k in range(c):
            for q in range(k + 1):
                block = self.grams(self.weigh(share[:, :, k] * (float(k == q) - share[:, :, q])))
                H[:, :, k, :, q] = H[:, :, q, :, k] = block
        return self.inst.grid.nodes.total(H.view(count, n * c, n * c))


@dataclass(frozen=True)
class JointModels:
    """Second derivatives ``H (k, N, N)`` of all coefficients, and their inverses with ``penalty (k, N)`` added.

    Row b has those with number ``which[b]``.

    The intercepts have the second derivatives ``corner (k, c)``, None if there are none.
    """

    H: Tensor
    inverse: Tensor
    penalty: Tensor
    which: Tensor
    corner: Tensor | None

    @property
    def corners(self) -> Tensor | None:
        return None if self.corner is None else self.corner[self.which]

    def select(self, rows: Tensor) -> "JointModels":
        return replace(self, which=self.which[rows])

    def put(self, rows: Tensor, other: "JointModels") -> "JointModels":
        every = torch.arange(len(self.which), device=rows.device)
        parts = [(self.H, other.H), (self.inverse, other.inverse), (self.penalty, other.penalty)]
        H, inverse, penalty = (mine[self.which].index_copy(0, rows, new[other.which]) for mine, new in parts)
        corner = None
        if self.corners is not None and other.corners is not None:
            corner = self.corners.index_copy(0, rows, other.corners)
        return JointModels(H, inverse, penalty, every, corner)

    def minimise(self, samples: Samples, points: Points, domain: Domain, tolerance: Tensor) -> Tensor:
        """About the minimisers ``(B, n c)`` of the models at the points, whatever the tolerance."""
        assert isinstance(samples, JointSamples)
        H, penalty, p = self.H[self.which], self.penalty[self.which], samples.p
        pull = torch.bmm(H, points.x.unsqueeze(2)).squeeze(2) - points.g
        u = torch.nn.functional.pad(-points.g[:, :p] / penalty[:, :1], (0, samples.n - p))
        kind = domain.inside.to(torch.int8) - domain.outside.to(torch.int8)
        places = samples.item_root.square(), kind, domain.left.flatten().long(), samples.width
        iterate = kernel("joint_steps", points.x.device)
        found: Tensor = iterate(
            self.inverse, self.which, pull, self.penalty, points.x, u, *places, OVERSHOOT, ITERATIONS, UNCHANGED
        )
        return torch.where(found.isfinite().all(dim=1, keepdim=True), found, points.x)


class JointModelMaker:
    """Makes models with all second derivatives, one for each node."""

    def __init__(self, samples: Samples) -> None:
        assert isinstance(samples, JointSamples)
        self.samples = samples

    def make(self, bend: Tensor, rows: int, at: Tensor | None = None, rough: bool = False) -> JointModels:
        """Models of a batch of `rows` from shares ``(k, m c)``, where ``k`` is `rows` or divides it."""
        samples, p = self.samples, self.samples.p
        H = samples.couple(bend)
        diagonal = H.diagonal(dim1=1, dim2=2)
        level = diagonal.mean(dim=1, keepdim=True)
        penalty = (RHO_SHARE * level + samples.ridge.min()).expand(-1, samples.n).clone()
        penalty[:, p:] = LEAST_SHARE * level
        inverse = invert(torch.linalg.cholesky_ex(H + torch.diag_embed(penalty)).L)
        corner = diagonal[:, p:].clamp(min=torch.finfo(H.dtype).tiny) if p < samples.n else None
        return JointModels(H, inverse, penalty, torch.arange(rows, device=bend.device) % len(bend), corner)


class JointSupportModelMaker(SupportModelMaker):
    """Makes models on the supports ``chosen (B, size)``: each has the second derivatives of its own coefficients."""

    def __init__(self, samples: Samples, chosen: Tensor) -> None:
        assert isinstance(samples, JointSamples)
        super().__init__(samples, chosen.repeat_interleave(samples.width, dim=1))
        self.outputs = samples.outputs

    def multiply(self, columns: Tensor, index: Tensor, bend: Tensor) -> Tensor:
        feature, output = index // self.outputs, index % self.outputs
        some, weight = columns[feature], self.samples.weight
        share = bend.view(len(bend), -1, self.outputs).transpose(1, 2)
        share = share.gather(1, output.unsqueeze(2).expand(-1, -1, share.shape[2]))
        own = some * share if weight is None else some * share * weight.unsqueeze(1)
        same = output.unsqueeze(2) == output.unsqueeze(1)
        H = torch.where(same, own @ some.mT, 0.0) - own @ (some * share).mT
        # The intercepts may move together at no cost.
        least = LEAST_SHARE * H.diagonal(dim1=1, dim2=2).mean(dim=1, keepdim=True)
        return H + torch.diag_embed(torch.where(feature >= self.samples.inst.items.features, least, 0.0))


class JointNewtonRelaxation(NewtonRelaxation):
    """The relaxation of an instance of one problem with a smooth joint loss."""

    samples_kind: ClassVar[type[Samples]] = JointSamples
    support_maker_kind: ClassVar[type[SupportModelMaker]] = JointSupportModelMaker
    by_columns: ClassVar[bool] = False

    def __init__(self, inst: Instance, rough: float = 0.0, fit: Fit | None = None) -> None:
        super().__init__(inst, rough, fit)
        # Bends are shares of the outputs, whatever the loss.
        self.typical_curvature = 1.0

    def make_maker(self) -> Maker[Any]:
        return JointModelMaker(self.samples)

    def _count_nodes(self) -> int:
        numbers = self.inst.sizes.most_rows * self.inst.source.outputs
        # Every node has two children.
        together = min(MOST_PREDICTORS // numbers, MOST_DERIVATIVES // (2 * self.samples.n**2))
        return max(1, min(WIDTH["cpu"], together))

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        return (Z.double().reshape(1, -1),)

    def slopes(self, eta: Tensor) -> Tensor:
        """The slopes of the samples ``(m, B c)``."""
        rows = self.samples.slopes(eta).unflatten(1, (-1, self.inst.source.outputs))
        return rows.transpose(0, 1).flatten(1)
