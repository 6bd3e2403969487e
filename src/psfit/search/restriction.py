"""A problem restricted to a support, evaluated in float64 for data of any precision.

Only sums over samples leave a node: the objective, its gradient and its Hessian on the support, added up over chunks of
rows and then over the grid.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from psfit.data import Dense, DesignMatrix, Strip
from psfit.data.quadratic_form import QuadraticForm
from psfit.data.strip import DenseStrip
from psfit.kernels.linalg import Evaluation, cholesky
from psfit.losses import Loss
from psfit.problem.instance import Instance
from psfit.search.equal_samples import EqualSamples
from psfit.search.idle_intercepts import pin_idle_intercepts

# Each round of orthogonalisation divides the condition number by up to about 1e8.
ROUNDS = 3
# Up to this many numbers of standardised columns are kept from one evaluation to the next, by the kind of device: 128
# MiB and 1 GiB.
MOST_KEPT = {"cpu": 1 << 24, "cuda": 1 << 27}
# A Hessian is used again while no sample's curvature has changed by more than this share: each of Newton's steps then
# divides the error by 20 or more, at a fraction of the cost.
LARGEST_CHANGE = 0.05


class Restriction:
    """One problem of an instance on the coefficients where ``mask (p, c')`` is true, and its free intercepts.

    The variables form one vector: for each of the problem's c' outputs its chosen rows in order, intercept last. In an
    orthogonal `basis`, which has a matrix for each output, they are the coordinates in it. Samples that are `equal` on
    the support are one sample, if that makes them much fewer.
    """

    def __init__(
        self,
        inst: Instance,
        outputs: list[int],
        mask: Tensor,
        loss: Loss,
        target: Tensor,
        equal: EqualSamples | None = None,
    ) -> None:
        self.inst, self.loss, self.target, self.weight = inst, loss, target, inst.source.weight
        self.outputs = outputs
        free = torch.ones(inst.items.free, len(outputs), dtype=torch.bool, device=mask.device)
        full = torch.cat([mask, free])
        self.rows = full.any(dim=1).nonzero().flatten()
        inside = full[self.rows]
        self.at = [inside[:, k].nonzero().flatten() for k in range(len(outputs))]
        ends = torch.tensor([len(a) for a in self.at]).cumsum(0).tolist()
        self.slices = [slice(end - len(a), end) for end, a in zip(ends, self.at, strict=True)]
        self.size = ends[-1]
        self.ridge = torch.cat([inst.ridge[self.rows[a], 0] for a in self.at])
        self.bounds: tuple[Tensor, ...] | None = None
        if inst.box is not None:
            tables = [table[self.rows][:, outputs] for table in inst.box.with_free(inst.items.free)]
            self.bounds = tuple(torch.cat([table[a, k] for k, a in enumerate(self.at)]) for table in tables)
        merged = None if equal is None else equal.merge(self.rows.unsqueeze(0))
        if merged is not None:
            self.matrix = Dense(merged.columns[0])
            self.target, self.weight = merged.target.T, merged.weight.T
        self._hessian: Tensor | None = None
        self._latest: tuple[Tensor, Tensor] | None = None
        self._evaluated: tuple[Tensor, Evaluation] | None = None
        self.basis: list[Tensor] | None = None
        self._kept_strips: list[tuple[slice, list[Strip]]] | None = None

    def orthogonalise(self) -> None:
        """Change to variables in which columns and ridge together are orthonormal.

        A Gram matrix of nearly dependent columns has too few digits. So it is made and factored again in the basis
        found so far, which needs only sums over samples.
        """
        self._hessian = self._latest = self._evaluated = None
        basis = [torch.eye(len(a), dtype=torch.float64, device=self.ridge.device) for a in self.at]
        weight = self.weight.expand(-1, len(self.outputs))
        for _ in range(ROUNDS):
            self.basis, self._kept_strips = basis, None
            gram = self.products(weight, [])[0] + self.ridge_matrix
            next_basis = [
                torch.linalg.solve_triangular(cholesky(gram[s, s]), T.T, upper=False).T
                for T, s in zip(basis, self.slices, strict=True)
            ]
            basis = list(self.agree(*next_basis))
        self.basis, self._kept_strips = basis, None

    @cached_property
    def intercepts(self) -> Tensor:
        """Where the intercepts are among the variables, if there are any."""
        return torch.tensor([s.stop - 1 for s in self.slices], device=self.ridge.device)

    @cached_property
    def matrix(self) -> DesignMatrix:
        """The columns of the support, gathered when they are first needed."""
        return self.inst.source.matrix.columns(self.rows)

    def take_hessian(self, form: QuadraticForm) -> None:
        """Use the Hessian of a known quadratic form instead of making it from the data."""
        self._hessian = torch.block_diag(*(form.block(self.rows[at]) for at in self.at))

    def gather(self, Z: Tensor) -> Tensor:
        """The variables ``(1, size)`` of coefficients ``Z (n, c)``."""
        parts = [Z[self.rows[a], k].double() for a, k in zip(self.at, self.outputs, strict=True)]
        if self.basis is not None:
            parts = [*self.agree(*(torch.linalg.solve(T, part) for T, part in zip(self.basis, parts, strict=True)))]
        return torch.cat(parts).unsqueeze(0)

    def clip(self, x: Tensor) -> Tensor:
        """The variables ``(1, size)`` moved between their bounds."""
        return x if self.bounds is None else torch.minimum(torch.maximum(x, self.bounds[0]), self.bounds[1])

    def coefficients(self, x: Tensor) -> Tensor:
        """The coefficients ``(1, size)`` of variables ``x (1, size)``."""
        if self.basis is None:
            return x
        parts = [T @ x[0, s] for T, s in zip(self.basis, self.slices, strict=True)]
        return torch.cat(parts).unsqueeze(0)

    def pull_back(self, g: Tensor) -> Tensor:
        """The derivatives ``(size,)`` with respect to the variables from those with respect to the coefficients."""
        if self.basis is None:
            return g
        return torch.cat([T.T @ g[s] for T, s in zip(self.basis, self.slices, strict=True)])

    def push_forward(self, g: Tensor) -> Tensor:
        """The inverse of `pull_back`."""
        if self.basis is None:
            return g
        return torch.cat([torch.linalg.solve(T.T, g[s]) for T, s in zip(self.basis, self.slices, strict=True)])

    @property
    def ridge_matrix(self) -> Tensor:
        """The second derivatives of the ridge ``(size, size)`` with respect to the variables."""
        if self.basis is None:
            return torch.diag(self.ridge)
        pairs = zip(self.basis, self.slices, strict=True)
        return torch.block_diag(*(T.T @ (self.ridge[s].unsqueeze(1) * T) for T, s in pairs))

    def scatter(self, x: Tensor, Z: Tensor) -> Tensor:
        """`Z` with this problem's outputs set to the variables ``x (1, size)``, zero elsewhere."""
        Z, x = Z.clone(), x if self.basis is None else self.agree(self.coefficients(x))[0]
        for a, k, s in zip(self.at, self.outputs, self.slices, strict=True):
            Z[:, k] = 0
            Z[self.rows[a], k] = x[0, s]
        return Z

    def value(self, x: Tensor) -> Tensor:
        """The objective ``(1,)`` at ``x (1, size)``."""
        total = sum((weight * self.loss.value(eta, b)).sum() for _, _, eta, b, weight in self._passes(x))
        return self.total(self._add_penalty(torch.as_tensor(total, dtype=x.dtype, device=x.device).reshape(1), x))

    @property
    def value_at_zero(self) -> Tensor:
        """The objective ``(1,)`` where all variables are zero; it needs no columns."""
        zero = self.weight.new_zeros(self.target.shape)
        return self.total((self.weight * self.loss.value(zero, self.target)).sum().reshape(1))

    def evaluate(self, x: Tensor) -> Evaluation:
        """Objective, gradient and Hessian for `newton`; the Hessian of a quadratic loss is made once.

        Where columns are kept, a Hessian is made only if the curvature differs from that of the latest one. The latest
        evaluation is kept, too.
        """
        if self._evaluated is not None and self._evaluated[0] is x:
            return self._evaluated[1]
        known, later = self._hessian, self._keeps_strips and not self.loss.joint
        value, gradient, curvatures = x.new_zeros(1), x.new_zeros(self.size), []
        hessian = x.new_zeros(self.size, self.size) if known is None else known
        for _, parts, eta, b, weight in self._passes(x):
            value += (weight * self.loss.value(eta, b)).sum()
            slope = weight * self.loss.gradient(eta, b)
            for k, s in enumerate(self.slices):
                gradient[s] += parts[k].rmv(slope[:, k : k + 1]).squeeze(1)
            if known is None and later:
                curvatures.append(weight * self.loss.curvature(eta, b))
            elif known is None:
                self._add_hessian(hessian, parts, eta, b, weight)
        value, together = self._add_penalty(value, x), known is None and not later
        total = self.total(torch.cat([value, gradient, hessian.flatten()] if together else [value, gradient]))
        if together:
            hessian = self._complete(total[1 + self.size :].view(self.size, self.size))
        elif known is None:
            hessian = self._update_hessian(torch.cat(curvatures))
        self._hessian = hessian if self.loss.quadratic else None
        gradient = total[1 : 1 + self.size] + self.pull_back(self.ridge * self.coefficients(x)[0])
        found = total[:1], gradient.unsqueeze(0), hessian.unsqueeze(0)
        self._evaluated = x, found
        return found

    def _update_hessian(self, curvature: Tensor) -> Tensor:
        """The Hessian at the weighted curvatures ``(m, c')`` of the samples, or the latest one if it is close."""
        if self._latest is not None:
            before, hessian = self._latest
            # A start far away may have infinite curvatures, of which nothing is used again.
            close = ((curvature - before).abs() <= LARGEST_CHANGE * before) & before.isfinite()
            if bool(self.total((~close).sum()) == 0):
                return hessian
        hessian = self._complete(self.products(curvature, [])[0])
        self._latest = curvature, hessian
        return hessian

    def _complete(self, hessian: Tensor) -> Tensor:
        """The Hessian of the losses with that of the ridge, and regular."""
        hessian = hessian + self.ridge_matrix
        if self.basis is None:
            self.pin_common_shift(hessian)
            pin_idle_intercepts(self.inst, hessian, self.intercepts)
        return hessian

    def _add_hessian(self, H: Tensor, parts: list[Strip], eta: Tensor, b: Tensor, weight: Tensor) -> None:
        curvature = self.loss.curvature(eta, b)
        if self.loss.joint:
            u = self.loss.coupling(eta, b)
            if all(isinstance(part, DenseStrip) for part in parts):
                roots = (weight.sqrt() * u).split(1, dim=1)
                weighted = torch.cat([root * part.dense() for root, part in zip(roots, parts, strict=True)], dim=1)
                H.addmm_(weighted.T, weighted, alpha=-1)
            else:
                for k, s in enumerate(self.slices):
                    H[s] -= parts[k].cross(parts, weight * u[:, k : k + 1] * u)
            curvature = curvature + u.square()
        for k, s in enumerate(self.slices):
            H[s, s] += parts[k].gram(weight * curvature[:, k : k + 1])

    def pin_common_shift(self, H: Tensor) -> None:
        """Make the Hessian regular where all intercepts move together, since a joint loss does not change there.

        The gradient has no component in that direction, so Newton's direction stays the same.
        """
        if self.loss.joint and self.inst.items.free:
            last = self.intercepts
            H[last.unsqueeze(1), last] += H[last, last].mean()

    def _add_penalty(self, local: Tensor, x: Tensor) -> Tensor:
        """The objective's part of this rank: the first one has the ridge, so that all ranks get the same sum."""
        if self.inst.grid.nodes.comm.rank > 0:
            return local
        return local + 0.5 * (self.ridge * self.coefficients(x).square()).sum(dim=1)

    def total(self, local: Tensor) -> Tensor:
        """The sum over all nodes, the same on all ranks."""
        return self.inst.grid.total_of_nodes(local)

    def agree(self, *numbers: Tensor) -> tuple[Tensor, ...]:
        """The numbers of the first rank, for those that each rank has computed."""
        return self.inst.grid.agree(*numbers)

    def products(self, weights: Tensor | None, sides: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """``A' diag(weights) A (size, size)``, zero if there are no weights, and ``A' side (size,)`` for each side.

        Weights and sides are ``(m, c')``; sums over all nodes, from one pass over the support's columns.
        """
        gram = self.ridge.new_zeros(self.size, self.size)
        sums = self.ridge.new_zeros(len(sides), self.size)
        for at, parts in self._strips():
            for k, s in enumerate(self.slices):
                if weights is not None:
                    gram[s, s] += parts[k].gram(weights[at, k : k + 1])
                if sides:
                    sums[:, s] += parts[k].rmv(torch.stack([side[at, k] for side in sides], dim=1)).T
        if weights is None:
            return gram, list(self.total(sums))
        summed = self.total(torch.cat([gram, sums]))
        return summed[: self.size], list(summed[self.size :])

    @property
    def _keeps_strips(self) -> bool:
        return self.inst.samples * self.size <= MOST_KEPT[self.ridge.device.type]

    def _strips(self) -> Iterator[tuple[slice, list[Strip]]]:
        """Ranges of rows, each with the columns of every output; for a small problem they are made only once."""
        if not self._keeps_strips:
            yield from self._make_strips()
            return
        if self._kept_strips is None:
            self._kept_strips = list(self._make_strips())
        yield from self._kept_strips

    def _make_strips(self) -> Iterator[tuple[slice, list[Strip]]]:
        for at, strip in self.matrix.strips(torch.float64):
            parts = [strip if len(a) == strip.shape[1] else strip.columns(a) for a in self.at]
            if self.basis is not None:
                parts = [DenseStrip(part.dense() @ T) for part, T in zip(parts, self.basis, strict=True)]
            yield at, parts

    def _passes(self, x: Tensor) -> Iterator[tuple[slice, list[Strip], Tensor, Tensor, Tensor]]:
        """Strips of rows: their range, the columns of each output, predictors, targets and weights."""
        for at, parts in self._strips():
            eta = torch.cat([part.mv(x[0, s].unsqueeze(1)) for part, s in zip(parts, self.slices, strict=True)], dim=1)
            yield at, parts, eta, self.target[at], self.weight[at]

    def predictors(self, x: Tensor) -> Tensor:
        """``(m, c')`` on this rank's samples."""
        return torch.cat([eta for _, _, eta, _, _ in self._passes(x)])
