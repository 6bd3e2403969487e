"""The model of second order at a fit, as a quadratic form: one weighted Gram product for each pair of outputs.

Where the products of all columns cost too much, the form has only the items of the support and those that promise most
by their own derivatives.
"""

import torch
from torch import Tensor

from psfit.data import DesignMatrix, half_gram
from psfit.problem.costs import CHEAP_PRODUCT
from psfit.problem.instance import Instance
from psfit.search.form_search import SearchForm
from psfit.search.idle_intercepts import pin_idle_intercepts
from psfit.search.pass_model import curvature_at
from psfit.search.restriction import Restriction
from psfit.search.support_fit import SupportFit

# A model has at least this many more items outside the support than inside.
LEAST_OTHERS = 50
# A search on a GPU changes its whole table with every swap. The table of all items of a model and of the places of a
# support has at most about this many entries, by the kind of device.
MOST_TABLE = {"cpu": float("inf"), "cuda": 2e6}
# Products that cost more than this are made in single precision, if no mean is farther from zero than so many standard
# deviations; on a GPU in half precision. True fits decide between supports, so a model need not be accurate.
FREE_DOUBLE = 1e8
MOST_SHIFT = 100.0
# The share of a variable's curvature that rounding may leave over if the variable depends on others.
DOUBLE_ACCURACY = 1e-11
SINGLE_ACCURACY = 1e-5


def pick_items(inst: Instance, problem: int, found: SupportFit) -> Tensor | None:
    """The items of the model, sorted; None for all of them, where their products do not cost too much."""
    items, c = inst.items, len(inst.items.outputs_of(problem))
    pairs = c * (c + 1) / 2 if inst.problem.loss.joint else 1.0
    free = CHEAP_PRODUCT[inst.source.matrix.device.type]
    features = int((free / (2.0 * pairs * max(inst.samples, 1))) ** 0.5)
    inside, limit = int(found.chosen.sum()), inst.problem.kappa[problem]
    room = MOST_TABLE[inst.source.matrix.device.type] / (limit * items.width)
    domain, kept = inst.domain_of(problem), found.chosen
    forced = int(domain.inside.sum())
    count = max(int(min(features * items.per_feature, room)), 2 * max(inside, limit) - forced + LEAST_OTHERS)
    if domain.heredity is not None:
        # Items that must stay can need others.
        kept = kept | domain.heredity.find_ancestors(domain.inside[0])
        count = max(count, int(kept.sum()))
    # A model has all entries of most features.
    count += -count % max(1, round(items.per_feature))
    if count >= items.size:
        return None
    gradient, blocks = _derivatives(inst, problem, found)
    own = blocks.diagonal(dim1=1, dim2=2)
    scores = items.pack_scores(gradient[: items.features].square() / own[: items.features].clamp(min=1e-300))[0]
    keys = torch.where(kept, torch.inf, scores)
    return inst.grid.agree(keys.argsort(descending=True, stable=True)[:count].sort().values)[0]


def make_form(inst: Instance, problem: int, found: SupportFit, index: Tensor | None) -> SearchForm:
    """The model in some items, by sorted `index`, or in all, with the value and slope of the objective at a fit."""
    loss, outputs = inst.problem.loss, inst.items.outputs_of(problem)
    c = len(outputs)
    eta, slope = _slopes(inst, problem, found)
    rows = _rows(inst, index)
    matrix, n = inst.source.matrix, len(inst.ridge)
    if rows is not None or inst.grid.blocks.size > 1:
        matrix = matrix.columns(torch.arange(n, device=inst.ridge.device) if rows is None else rows)
    dtype = _precision(inst, len(inst.ridge) if rows is None else len(rows))
    ridge = inst.ridge if rows is None else inst.ridge[rows]
    Z = (found.fit.Z if rows is None else found.fit.Z[rows])[:, outputs]
    if loss.joint and inst.items.width > 1:
        # The loss does not change if all outputs of a row move together. `_pin_shifts` expects rows with sum zero.
        Z = Z - Z.mean(dim=1, keepdim=True)
    picked = _pick_variables(inst, index, rows, c)
    H = _second_derivatives(inst, matrix, eta, inst.source.target[:, outputs], dtype, picked)
    gradient = matrix.rmv(slope.to(matrix.dtype)).double()
    summed = inst.grid.nodes.total(torch.cat([H.flatten(), gradient.flatten()]))
    H, gradient = summed[: H.numel()].view_as(H), summed[H.numel() :].view_as(gradient) + ridge * Z
    gradient, z, ridge = (part.expand(-1, c).reshape(-1, 1) for part in (gradient, Z, ridge))
    if picked is not None:
        gradient, z, ridge = gradient[picked], z[picked], ridge[picked]
    H.diagonal().add_(ridge[:, 0])
    _pin_shifts(inst, H, c)
    pin_idle_intercepts(inst, H, torch.arange(len(H) - c, len(H), device=H.device))
    return _assemble(inst, found, H, gradient, z, index, dtype)


def _pick_variables(inst: Instance, index: Tensor | None, rows: Tensor | None, c: int) -> Tensor | None:
    """The numbers of the variables of a form among those of the features in `rows`; None for all of them.

    Where items are entries, some outputs of a feature may be no candidates. Groups have all of their features.
    """
    if rows is None or index is None or inst.items.per_feature <= 1:
        return None
    numbers = torch.arange(len(rows), device=rows.device)
    place = torch.full((len(inst.ridge),), -1, device=rows.device).index_copy(0, rows, numbers)
    intercepts = torch.arange((len(rows) - inst.items.free) * c, len(rows) * c, device=rows.device)
    return torch.cat([place[index // c] * c + index % c, intercepts])


def _second_derivatives(
    inst: Instance, matrix: DesignMatrix, eta: Tensor, b: Tensor, dtype: torch.dtype, picked: Tensor | None
) -> Tensor:
    """The second derivatives of the losses of this rank's samples in all pairs of coefficients, or of those `picked`.

    The coefficients of a feature follow each other.
    """
    loss, weight, n, c = inst.problem.loss, inst.source.weight, matrix.shape[1], eta.shape[1]
    if dtype == torch.float32 and half_gram.available(matrix):
        if not loss.joint:
            return half_gram.half_hessian(matrix, weight * loss.broad_curvature(eta, b)).view(n * c, n * c)
        u = loss.coupling(eta, b)
        diagonal, coupling = weight * (loss.curvature(eta, b) + u.square()), weight.sqrt() * u
        if picked is not None:
            return half_gram.half_part_of_hessian(matrix, diagonal, coupling, picked)
        return half_gram.half_hessian(matrix, diagonal, coupling).view(n * c, n * c)
    H = weight.new_zeros(n, c, n, c)
    curvature = weight.unsqueeze(2) * curvature_at(loss, eta, b)
    for k in range(c):
        for q in range(k + 1) if loss.joint else [k]:
            H[:, k, :, q] = matrix.gram(curvature[:, k, q : q + 1].to(dtype), dtype)
            H[:, q, :, k] = H[:, k, :, q]
    H = H.view(n * c, n * c)
    return H if picked is None else H[picked.unsqueeze(1), picked]


def _assemble(
    inst: Instance, found: SupportFit, H: Tensor, g: Tensor, z: Tensor, index: Tensor | None, dtype: torch.dtype
) -> SearchForm:
    """The form of second derivatives ``H (k, k)`` and the gradient ``g (k, 1)`` at the coefficients ``z (k, 1)``."""
    items, c = inst.items, len(inst.items.outputs_of(0))
    Q = H @ z - g
    constant = found.value + float((Q * z).sum() - 0.5 * (z * (H @ z)).sum())
    accuracy = SINGLE_ACCURACY if dtype == torch.float32 else DOUBLE_ACCURACY
    if not items.in_groups:
        return SearchForm(H, Q, constant, items.width, accuracy)
    own = items if index is None else items.select(index)
    item = own.item_of(torch.arange(own.features), 0).repeat_interleave(c)
    return SearchForm(H, Q, constant, 1, accuracy, item)


def _precision(inst: Instance, columns: int) -> torch.dtype:
    """The precision of the products: single where they cost much and the columns lose nothing that matters.

    Sparse entries would have to be copied for it.
    """
    if inst.source.matrix.dtype == torch.float32:
        return torch.float32
    if not inst.source.matrix.centres_entries:
        return torch.float64
    far = (inst.coordinates.shift / inst.coordinates.scale).abs().max() > MOST_SHIFT
    costly = 2.0 * inst.samples * columns**2 > FREE_DOUBLE
    return torch.float32 if costly and not bool(far) else torch.float64


def _rows(inst: Instance, index: Tensor | None) -> Tensor | None:
    """The features of some items, and the intercept."""
    if index is None:
        return None
    features = inst.items.features_of(index)
    return torch.cat([features, torch.arange(inst.items.features, len(inst.ridge), device=index.device)])


def _slopes(inst: Instance, problem: int, found: SupportFit) -> tuple[Tensor, Tensor]:
    """Predictors, and weighted slopes of this rank's samples, ``(m, c')`` each."""
    outputs, loss = inst.items.outputs_of(problem), inst.problem.loss
    target = inst.source.target[:, outputs]
    if inst.source.matrix.few_entries and inst.source.matrix.dtype == torch.float64:
        # To gather the columns of the support takes longer than a product with all of them.
        eta = inst.source.matrix.mv(found.fit.Z[:, outputs])
    else:
        view = Restriction(inst, outputs, inst.items.mask_one(found.chosen), loss, target)
        eta = view.predictors(view.gather(found.fit.Z))
    slope = loss.gradient(eta, target) if found.fit.slope is None else found.fit.slope
    return eta, inst.source.weight * slope


def _derivatives(inst: Instance, problem: int, found: SupportFit) -> tuple[Tensor, Tensor]:
    """The gradient ``(n, c')`` and the diagonal blocks ``(n, c', c')`` of the Hessian for all features, by a pass."""
    outputs, loss, c = inst.items.outputs_of(problem), inst.problem.loss, len(inst.items.outputs_of(problem))
    eta, slope = _slopes(inst, problem, found)
    weights = inst.source.weight.unsqueeze(2) * curvature_at(loss, eta, inst.source.target[:, outputs])
    n, own = len(inst.ridge), inst.source.matrix.own
    gradient, blocks = inst.ridge.new_zeros(n, c), inst.ridge.new_zeros(n, c * c)
    for at, strip in own[1].strips():
        gradient[own[0]] += strip.rmv(slope[at].to(inst.source.matrix.dtype))
        blocks[own[0]] += strip.squares(weights[at].flatten(1).to(inst.source.matrix.dtype))
    summed = inst.grid.total(torch.cat([gradient.flatten(), blocks.flatten()]))
    gradient = summed[: n * c].view(n, c) + inst.ridge * found.fit.Z[:, outputs]
    blocks = summed[n * c :].view(n, c, c) + torch.diag_embed(inst.ridge.expand(n, c))
    return gradient, blocks


def _pin_shifts(inst: Instance, H: Tensor, outputs: int) -> None:
    """Make the Hessian regular where all outputs of the intercept, or of a whole row, move together.

    A joint loss does not change there, and the ridge may be too small to matter. On every support the minimiser is the
    same as before, since it has no component in these directions.
    """
    if inst.problem.loss.joint:
        rows = len(H) // outputs if inst.items.width > 1 else inst.items.free
        last = H[len(H) - rows * outputs :, len(H) - rows * outputs :]
        blocks = last.unflatten(0, (rows, outputs)).unflatten(2, (rows, outputs)).diagonal(dim1=0, dim2=2)
        blocks.add_(blocks.diagonal(dim1=0, dim2=1).mean(dim=1))
