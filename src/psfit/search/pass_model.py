"""The model of all items around a fitted support, by one pass over the data.

For one problem with fitted variables S (its chosen items and intercepts) the model holds the gradient at the fit for
all coefficients, the diagonal blocks of the Hessian, and the Hessian's columns of S.
"""

import torch
from torch import Tensor

from psfit.losses import Loss, convert_targets
from psfit.problem import LocalModel
from psfit.problem.instance import Instance
from psfit.search.refit import Fit
from psfit.search.restriction import Restriction, pin_idle_intercepts


def model_by_pass(inst: Instance, view: Restriction, fit: Fit) -> LocalModel:
    """The model at a fit on the support of a view."""
    p, c = inst.items.features, len(view.outputs)
    x = view.gather(fit.Z)
    Z = fit.Z[:, view.outputs]
    n = p + inst.items.free
    gradient = Z.new_zeros(n, c, dtype=torch.float64)
    blocks = gradient.new_zeros(n, c, c)
    columns = gradient.new_zeros(n, c, view.size)
    own, dtype = inst.source.matrix.own[0], inst.source.matrix.dtype
    for at, strip, fitted in inst.source.matrix.strips_with_columns(view.rows):
        eta = fitted.mv(Z[view.rows].to(dtype))
        b, weight = convert_targets(view.target[at], dtype), inst.source.weight[at].to(dtype)
        slope = inst.problem.loss.gradient(eta, b) if fit.slope is None else fit.slope[at].to(eta.dtype)
        gradient[own] += strip.rmv(weight * slope)
        curvature = weight.unsqueeze(2) * curvature_at(inst.problem.loss, eta, b)
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
    pin_idle_intercepts(inst, inner, view.intercepts)
    return LocalModel(gradient[:p], blocks[:p], columns[:p], inner, x[0], _items(inst, view))


def curvature_at(loss: Loss, eta: Tensor, b: Tensor) -> Tensor:
    """Second derivatives in all pairs of outputs ``(m, c, c)``, over steps of the usual size."""
    return loss.cross_curvature(eta, b) if loss.joint else loss.broad_curvature(eta, b).diag_embed()


def _items(inst: Instance, view: Restriction) -> Tensor:
    """The item of each fitted variable; -1 for an intercept."""
    items, found = inst.items, []
    for k, at in enumerate(view.at):
        row = view.rows[at]
        found.append(torch.where(row < items.features, items.item_of(row, k), -1))
    return torch.cat(found)
