"""Swap search: exchange one chosen item for one outside as long as the objective falls.

With ``K = H_SS^-1`` on the fitted variables S, taking item j out costs ``x_j^2 / (2 K_jj)`` and moves the gradient
and the curvature of an outside item i, so that the best objective after the exchange is known in closed form:

    gain(j, i) = (d_i - T_ji x_j / K_jj)^2 / (2 (q_i + T_ji^2 / K_jj)) - x_j^2 / (2 K_jj),
    T = K H_S,out,   q_i = H_ii - H_i,S T_,i,   d = gradient.

One array scores all pairs, exactly for the squared loss and to second order for the others; there a swap counts only if
the refitted objective really falls. An item that is a whole row has blocks in place of these scalars.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.search.landscape import Landscape, Model
from psfit.search.refit import Fit

MAX_ROUNDS = 100
SCORE_ENTRIES = 1 << 24
# The best newcomers of every chosen item are looked at.
PARTNERS = 4
# Single swaps to try at least; and at most, while all of them together cost less than the model that proposed them.
SINGLE_TRIES = 8
MOST_TRIES = 100


@dataclass(frozen=True)
class Swap:
    """Take item `out` off the support, put item `into` on it."""

    gain: float
    out: int
    into: int


def swap_search(scene: Landscape, chosen: Tensor, Z: Tensor, rel_tol: float) -> tuple[Tensor, Fit, int]:
    """From the items ``chosen (size,)`` to a support that no single swap improves by more than `rel_tol`.

    Returns the support, its fit and the number of rounds. Several swaps that do not touch each other are tried at
    once, best first, and halved until the objective falls. It ends after a round in which the fit was found to be over.
    """
    fit = scene.fit(chosen, Z)
    if bool(chosen.all()) or not bool(chosen.any()):
        return chosen, fit, 0
    for rounds in range(MAX_ROUNDS):
        threshold, before = rel_tol * abs(fit.value), scene.work
        swaps = [s for s in propose(scene.model(fit, chosen), chosen) if s.gain > threshold]
        better = _improve(scene, chosen, fit, swaps, threshold, 2 * scene.work - before)
        if better is None:
            return chosen, fit, rounds
        chosen, fit = better
        if scene.inst.watch.must_stop():
            return chosen, fit, rounds + 1
    return chosen, fit, MAX_ROUNDS


def _improve(
    scene: Landscape, chosen: Tensor, fit: Fit, swaps: list[Swap], threshold: float, allowed: float
) -> tuple[Tensor, Fit] | None:
    """The first group of swaps, from many to one and then the runners-up, that lowers the objective.

    Where scores are only a second-order guess, those of whole features may be far off. So the runners-up are the best
    swaps of different newcomers, and as many as the work `allowed` has room for.
    """
    apart = _disjoint(swaps)
    groups = []
    count = len(apart)
    while count > 1:
        groups.append(apart[:count])
        count //= 4
    least = len(groups) + SINGLE_TRIES
    newcomers = {swap.into: swap for swap in reversed(swaps)}.values()
    groups += [[swap] for swap in sorted(newcomers, key=_order)][:MOST_TRIES]
    for tries, group in enumerate(groups):
        if (tries >= least and scene.work > allowed) or scene.inst.watch.must_stop():
            break
        trial = chosen.clone()
        trial[[s.out for s in group]] = False
        trial[[s.into for s in group]] = True
        moved = scene.fit(trial, fit.Z, fit.value)
        if moved.value < fit.value - threshold:
            return trial, moved
    return None


def propose(model: Model, chosen: Tensor) -> list[Swap]:
    """Swaps with a positive predicted gain, best first."""
    K = torch.cholesky_inverse(cholesky(model.inner))
    outside = (~chosen).nonzero().flatten()
    p, c = model.gradient.shape
    if chosen.numel() == p and c > 1:
        rows = score_rows(model, K, outside)
        inside = chosen.nonzero().flatten()
        found = _best(rows, inside, outside)
    else:
        found = _score_by_blocks(model, K, outside)
    return sorted(found, key=_order)


def _order(swap: Swap) -> tuple[float, int, int]:
    """Best first; ties in a way that is the same everywhere."""
    return -swap.gain, swap.out, swap.into


def gains_of_adding(model: Model, chosen: Tensor) -> Tensor:
    """By how much each outside item alone would lower the model if it joined the support; zero for the chosen ones."""
    K = torch.cholesky_inverse(cholesky(model.inner))
    p, c = model.gradient.shape
    rows = chosen.numel() == p and c > 1
    gains = torch.zeros_like(chosen, dtype=model.gradient.dtype)
    for part in (~chosen).nonzero().flatten().split(max(1, SCORE_ENTRIES // max(1, model.columns[0].numel()))):
        if rows:
            C, d = model.columns[part], model.gradient[part]
            left = model.blocks[part] - C @ K @ C.transpose(1, 2)
            solved = torch.cholesky_solve(d.unsqueeze(2), cholesky(left)).squeeze(2)
            gains[part] = 0.5 * (d * solved).sum(dim=1)
        else:
            C, d = model.columns.flatten(0, 1)[part], model.gradient.reshape(-1)[part]
            own = model.blocks.diagonal(dim1=1, dim2=2).reshape(-1)[part]
            left = (own - ((C @ K) * C).sum(dim=1)).clamp(min=1e-9 * own + torch.finfo(own.dtype).tiny)
            gains[part] = d.square() / (2 * left)
    return gains


def _score_by_blocks(model: Model, K: Tensor, outside: Tensor) -> list[Swap]:
    """Scores of single coefficients, a bounded number of outside items at a time."""
    removable = (model.item >= 0).nonzero().flatten()
    flat = model.columns.reshape(-1, model.columns.shape[2])
    curvature = model.blocks.diagonal(dim1=1, dim2=2).reshape(-1)
    gradient = model.gradient.reshape(-1)
    width = max(1, SCORE_ENTRIES // K.shape[0])
    found: list[Swap] = []
    for part in outside.split(width):
        T = K @ flat[part].T
        q = curvature[part] - (flat[part].T * T).sum(dim=0)
        scores = score_items(gradient[part], q, T[removable], model.x[removable], K.diagonal()[removable])
        found += _best(scores, model.item[removable], part)
    return found


def score_items(d: Tensor, q: Tensor, T: Tensor, x: Tensor, K: Tensor) -> Tensor:
    """Gains ``(removable, outside)`` of all swaps of single coefficients; `K` is the diagonal of the inverse."""
    x, K = x.unsqueeze(1), K.unsqueeze(1)
    curvature = (q.clamp(min=0) + T.square() / K).clamp(min=torch.finfo(d.dtype).tiny)
    return (d - T * (x / K)).square() / (2 * curvature) - x.square() / (2 * K)


def score_rows(model: Model, K: Tensor, outside: Tensor) -> Tensor:
    """Gains ``(chosen, outside)`` of all swaps of whole rows."""
    C = model.columns[outside]
    T = C @ K
    Q = model.blocks[outside] - T @ C.transpose(1, 2)
    d = model.gradient[outside]
    gains = []
    for item in model.item[model.item >= 0].unique(sorted=True):
        mine = (model.item == item).nonzero().flatten()
        # A part of the inverse may be singular to rounding, where columns are nearly dependent.
        inverse = torch.cholesky_inverse(cholesky(K[mine.unsqueeze(1), mine]))
        force = inverse @ model.x[mine]
        part = T[:, :, mine]
        schur = Q + part @ inverse @ part.transpose(1, 2)
        left = d - part @ force
        solved = torch.cholesky_solve(left.unsqueeze(2), cholesky(schur)).squeeze(2)
        gains.append(0.5 * (left * solved).sum(dim=1) - 0.5 * (model.x[mine] * force).sum())
    return torch.stack(gains)


def _best(scores: Tensor, inside: Tensor, outside: Tensor) -> list[Swap]:
    """The highest positive scores of every chosen item and of many newcomers.

    The best newcomers suit most of the chosen items, and the cheapest of these suit most newcomers. So that many swaps
    are disjoint, the k-th best of the ones also meets the k-th best of the others.
    """
    width = len(outside)
    if not scores.numel():
        return []
    by_item, by_newcomer = scores.max(dim=1), scores.max(dim=0)
    partners = scores.topk(min(width, PARTNERS), dim=1).indices
    partners = partners + width * torch.arange(len(inside), device=partners.device).unsqueeze(1)
    newcomers = by_newcomer.values.topk(min(width, max(len(inside), MOST_TRIES))).indices
    tried = newcomers[:MOST_TRIES]
    paired = by_item.values.argsort(descending=True, stable=True)[: len(newcomers)]
    diagonal = paired * width + newcomers[: len(paired)]
    index = torch.cat([partners.flatten(), by_newcomer.indices[tried] * width + tried, diagonal]).unique()
    gains = scores.flatten()[index]
    gains, index = gains[gains > 0], index[gains > 0]
    out, into = inside[index // width], outside[index % width]
    return [Swap(*row) for row in zip(gains.tolist(), out.tolist(), into.tolist(), strict=True)]


def _disjoint(swaps: list[Swap]) -> list[Swap]:
    """The best swaps of which no two share an item."""
    taken: set[int] = set()
    picked = []
    for swap in swaps:
        if swap.out not in taken and swap.into not in taken:
            taken |= {swap.out, swap.into}
            picked.append(swap)
    return picked
