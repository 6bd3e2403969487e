"""Scores of exchanges: what a local model gains or loses when items join or leave the support.

With ``K = H_SS^-1`` on the fitted variables S, taking item j out costs ``x_j^2 / (2 K_jj)`` and moves the gradient
and the curvature of an outside item i. The gain of the best fit after the exchange has a closed form:

    gain(j, i) = (d_i - T_ji x_j / K_jj)^2 / (2 (q_i + T_ji^2 / K_jj)) - x_j^2 / (2 K_jj),
    T = K H_S,out,   q_i = H_ii - H_i,S T_,i,   d = gradient.

One array scores all pairs, exactly for the squared loss and to second order for the others. For items of
several coefficients these scalars become blocks.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.problem.box import CoefficientBox
from psfit.problem.items import Items
from psfit.problem.local_model import LocalModel

SCORE_ENTRIES = 1 << 24


def score_swaps(
    model: LocalModel, kept: Tensor | None, newcomers: Tensor, items: Items, box: CoefficientBox | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Gains of all swaps of fitted items for items with the numbers `newcomers`; those in the mask `kept` must stay.

    Yields a bounded number of newcomers at a time: gains ``(removable, some)``, the items that leave, those that join.
    Items of several coefficients are scored in blocks, without regard to bounds. Single newcomers stay in the `box`.
    """
    K = torch.cholesky_inverse(cholesky(model.inner))
    removable = model.item >= 0
    if kept is not None:
        removable = removable & ~kept[model.item.clamp(min=0)]
    variables = removable.nonzero().flatten()
    if items.in_blocks:
        leaving = model.item[variables].unique()
        rows = items.features_of(newcomers)
        gains = score_rows(model, K, leaving, rows)
        if items.in_groups:
            whole = gains.new_zeros(len(leaving), items.features).index_copy_(1, rows, gains)
            gains = items.sum_rows(whole)[:, newcomers]
        yield gains - score_removals(model, K, leaving).unsqueeze(1), leaving, newcomers
        return
    flat = model.columns.reshape(-1, model.columns.shape[2])
    curvature = model.blocks.diagonal(dim1=1, dim2=2).reshape(-1)
    gradient = model.gradient.reshape(-1)
    for part in newcomers.split(max(1, SCORE_ENTRIES // K.shape[0])):
        T = K @ flat[part].T
        q = curvature[part] - (flat[part].T * T).sum(dim=0)
        bounds = None if box is None else (box.low.reshape(-1)[part], box.high.reshape(-1)[part])
        scores = score_items(gradient[part], q, T[variables], model.x[variables], K.diagonal()[variables], bounds)
        yield scores, model.item[variables], part


def score_items(
    d: Tensor, q: Tensor, T: Tensor, x: Tensor, K: Tensor, bounds: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Gains ``(removable, outside)`` of all swaps of single coefficients; `K` is the diagonal of the inverse."""
    x, K = x.unsqueeze(1), K.unsqueeze(1)
    curvature = (q.clamp(min=0) + T.square() / K).clamp(min=torch.finfo(d.dtype).tiny)
    return _gain(d - T * (x / K), curvature, bounds) - x.square() / (2 * K)


def _gain(d: Tensor, curvature: Tensor, bounds: tuple[Tensor, Tensor] | None) -> Tensor:
    """By how much a coefficient lowers a model, between its bounds."""
    if bounds is None:
        return d.square() / (2 * curvature)
    step = torch.minimum(torch.maximum(-d / curvature, bounds[0]), bounds[1])
    return -(d * step + 0.5 * curvature * step.square())


def score_removals(model: LocalModel, K: Tensor, leaving: Tensor) -> Tensor:
    """What it costs to take out each of the items `leaving`."""
    costs = []
    for item in leaving:
        mine = (model.item == item).nonzero().flatten()
        factor = cholesky(K[mine.unsqueeze(1), mine])
        x = model.x[mine].unsqueeze(1)
        costs.append(0.5 * (x * torch.cholesky_solve(x, factor)).sum())
    return torch.stack(costs) if costs else model.x.new_zeros(0)


def score_rows(model: LocalModel, K: Tensor, leaving: Tensor, newcomers: Tensor) -> Tensor:
    """What whole rows gain if they join after one of the items `leaving` is out, ``(leaving, newcomers)``.

    Rows of a group are scored as if the columns of one had nothing in common with those of another: their products are
    not at hand. So the sum over a group is only an estimate.
    """
    C = model.columns[newcomers]
    T = C @ K
    Q = model.blocks[newcomers] - T @ C.transpose(1, 2)
    d = model.gradient[newcomers]
    gains = []
    for item in leaving:
        mine = (model.item == item).nonzero().flatten()
        # Where columns are nearly dependent, rounding may make this block singular; `cholesky` allows for it.
        inverse = torch.cholesky_inverse(cholesky(K[mine.unsqueeze(1), mine]))
        force = inverse @ model.x[mine]
        part = T[:, :, mine]
        schur = Q + part @ inverse @ part.transpose(1, 2)
        left = d - part @ force
        solved = torch.cholesky_solve(left.unsqueeze(2), cholesky(schur)).squeeze(2)
        gains.append(0.5 * (left * solved).sum(dim=1))
    return torch.stack(gains) if gains else d.new_zeros(0, len(newcomers))


def score_additions(model: LocalModel, newcomers: Tensor, items: Items, box: CoefficientBox | None = None) -> Tensor:
    """By how much each of the `newcomers` alone would lower the model ``(size,)``; zero for all other items.

    For groups this is an estimate; see `score_rows`.
    """
    K = torch.cholesky_inverse(cholesky(model.inner))
    rows = items.features_of(newcomers) if items.in_groups else newcomers
    size = items.features if items.in_groups else items.size
    gains = torch.zeros(size, dtype=model.gradient.dtype, device=model.gradient.device)
    for part in rows.split(max(1, SCORE_ENTRIES // max(1, model.columns[0].numel()))):
        if items.in_blocks:
            C, d = model.columns[part], model.gradient[part]
            left = model.blocks[part] - C @ K @ C.transpose(1, 2)
            solved = torch.cholesky_solve(d.unsqueeze(2), cholesky(left)).squeeze(2)
            gains[part] = 0.5 * (d * solved).sum(dim=1)
        else:
            C, d = model.columns.flatten(0, 1)[part], model.gradient.reshape(-1)[part]
            own = model.blocks.diagonal(dim1=1, dim2=2).reshape(-1)[part]
            left = (own - ((C @ K) * C).sum(dim=1)).clamp(min=1e-9 * own + torch.finfo(own.dtype).tiny)
            bounds = None if box is None else (box.low.reshape(-1)[part], box.high.reshape(-1)[part])
            gains[part] = _gain(d, left, bounds)
    return items.sum_rows(gains)
