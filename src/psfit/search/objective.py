"""The objective around a fitted support, as a quadratic model that the swap search can score.

For one problem with fitted variables S (its chosen items and intercepts) the model holds the gradient at the fit for
all coefficients, the diagonal blocks of the Hessian, and the Hessian's columns of S. There are two ways to get them:
from the quadratic form, without a pass over the data and exact, for the squared loss; or by one pass over the data, for
any loss.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from psfit.problem import LocalModel
from psfit.problem.instance import Instance
from psfit.search.refit import Fit, refit
from psfit.search.restriction import Restriction

# Accurate enough to compare supports; the final answer is refitted more accurately.
SEARCH_TOL = 1e-7
# A fit by the quadratic form is trusted up to this ratio of the targets' power to the objective times the smallest
# pivot (the share of a column that is no combination of the others).
MOST_LOST = 1e8


class Objective(ABC):
    """One problem of an instance: fits on supports, and models around them."""

    def __init__(self, inst: Instance, problem: int) -> None:
        self.inst, self.problem = inst, problem
        self.outputs = inst.items.outputs_of(problem)
        self.domain = inst.domain_of(problem)
        # Floating-point operations so far, by an estimate that is the same on every rank and in every run.
        self.work = 0.0

    @property
    def pass_work(self) -> float:
        """Operations of one product with the data and one with its transpose."""
        return 4.0 * self.inst.samples * self.inst.items.features * len(self.outputs)

    @abstractmethod
    def fit(self, chosen: Tensor, Z: Tensor, give_up: float = float("inf")) -> Fit:
        """The minimiser over the items ``chosen (size,)``, from `Z`; or any point if it clearly exceeds `give_up`."""

    @abstractmethod
    def model(self, fit: Fit, chosen: Tensor) -> LocalModel:
        """The quadratic model at a fit."""

    def _view(self, chosen: Tensor) -> Restriction:
        inst = self.inst
        mask = inst.items.mask_one(chosen)
        return Restriction(inst, self.outputs, mask, inst.problem.loss, inst.source.target[:, self.outputs])

    def _variables(self, chosen: Tensor) -> int:
        """How many coefficients the chosen items have."""
        return int(self.inst.items.mask_one(chosen).sum())

    def _items(self, view: Restriction) -> Tensor:
        """The item of each fitted variable; -1 for an intercept."""
        items, found = self.inst.items, []
        for k, at in enumerate(view.at):
            row = view.rows[at]
            found.append(torch.where(row < items.features, items.item_of(row, k), -1))
        return torch.cat(found)


class DataObjective(Objective):
    """Any loss; every fit is a few passes over the support's columns, every model one pass over all columns."""

    def fit(self, chosen: Tensor, Z: Tensor, give_up: float = float("inf")) -> Fit:
        fit = refit(self.inst, self.problem, chosen, Z, give_up, SEARCH_TOL)
        self.work += 2.0 * fit.evaluations * self.inst.samples * self._variables(chosen) ** 2
        return fit

    def model(self, fit: Fit, chosen: Tensor) -> LocalModel:
        inst, view = self.inst, self._view(chosen)
        self.work += 0.5 * self.pass_work * view.size
        p, c = inst.items.features, len(self.outputs)
        x = view.gather(fit.Z)
        Z = fit.Z[:, self.outputs]
        n = p + inst.items.free
        gradient = Z.new_zeros(n, c, dtype=torch.float64)
        blocks = gradient.new_zeros(n, c, c)
        columns = gradient.new_zeros(n, c, view.size)
        own, dtype = inst.source.matrix.own[0], inst.source.matrix.dtype
        for at, strip, fitted in inst.source.matrix.strips_with_columns(view.rows):
            eta = fitted.mv(Z[view.rows].to(dtype))
            b, weight = view.target[at].to(dtype), inst.source.weight[at].to(dtype)
            slope = inst.problem.loss.gradient(eta, b) if fit.slope is None else fit.slope[at].to(eta.dtype)
            gradient[own] += strip.rmv(weight * slope)
            curvature = weight.unsqueeze(2) * self._curvature(eta, b)
            blocks[own] += strip.squares(curvature.flatten(1)).unflatten(1, (c, c))
            parts = [fitted if len(rows) == fitted.shape[1] else fitted.columns(rows) for rows in view.at]
            for k in range(c):
                if inst.problem.loss.joint:
                    columns[own, k] += strip.cross(parts, curvature[:, k])
                else:
                    columns[own, k, view.slices[k]] += strip.cross([parts[k]], curvature[:, k, k : k + 1])
        summed = inst.grid.total(torch.cat([gradient.flatten(), blocks.flatten(), columns.flatten()]))
        sizes = [gradient.numel(), blocks.numel(), columns.numel()]
        gradient, blocks, columns = (
            part.view_as(like) for part, like in zip(summed.split(sizes), (gradient, blocks, columns), strict=True)
        )
        gradient = gradient + inst.ridge * Z
        blocks = blocks + torch.diag_embed(inst.ridge.expand(n, c))
        inner = torch.cat([columns[view.rows[at], k] for k, at in enumerate(view.at)]) + torch.diag(view.ridge)
        view.pin_common_shift(inner)
        view.pin_idle_intercepts(inner)
        return LocalModel(gradient[:p], blocks[:p], columns[:p], inner, x[0], self._items(view))

    def _curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        """Second derivatives in all pairs of outputs."""
        loss = self.inst.problem.loss
        return loss.cross_curvature(eta, b) if loss.joint else loss.broad_curvature(eta, b).diag_embed()


class FormObjective(Objective):
    """The squared loss by its quadratic form: no pass over the data."""

    def __init__(self, inst: Instance, problem: int) -> None:
        super().__init__(inst, problem)
        self.form = inst.search_form.with_outputs(self.outputs)
        self.power = float(self.form.constant.sum())

    def fit(self, chosen: Tensor, Z: Tensor, give_up: float = float("inf")) -> Fit:
        found = self.domain.minimise(self.form, chosen)
        self.work += len(found.rows) ** 3 / 3
        if len(found.rows) and self.power > MOST_LOST * found.pivot * found.value:
            # The form has too few digits for nearly dependent columns, and for a fit with nearly no residual.
            return refit(self.inst, self.problem, chosen, Z, give_up, SEARCH_TOL)
        answer = Z.clone()
        answer[:, self.outputs] = 0
        answer[found.rows.unsqueeze(1), torch.tensor(self.outputs, device=Z.device)] = found.x.to(Z.dtype)
        return Fit(answer, found.value, 0.0)

    def model(self, fit: Fit, chosen: Tensor) -> LocalModel:
        view = self._view(chosen)
        self.work += 2.0 * view.size**2 * self.inst.items.size
        p, c = self.inst.items.features, len(self.outputs)
        rows, width = view.rows, len(view.rows)
        x = view.gather(fit.Z)[0]
        H = self.form.columns(rows)
        gradient = H[:p] @ x.view(c, width).T - self.form.Q[:p]
        blocks = torch.diag_embed(self.form.diagonal[:p].unsqueeze(1).expand(p, c))
        columns = H.new_zeros(p, c, c, width)
        inner = H.new_zeros(c, width, c, width)
        for k in range(c):
            columns[:, k, k] = H[:p]
            inner[k, :, k] = H[rows]
        size = c * width
        return LocalModel(gradient, blocks, columns.view(p, c, size), inner.view(size, size), x, self._items(view))


def objective_of(inst: Instance, problem: int, search: bool = True) -> Objective:
    """By the quadratic form or by passes, whichever costs less; `search` tells that more than a fit is needed."""
    if inst.costs.searches_by_form if search else inst.costs.form_at_hand:
        return FormObjective(inst, problem)
    return DataObjective(inst, problem)
