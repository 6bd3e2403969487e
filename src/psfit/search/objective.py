"""The objective of one problem for the search: fits on supports, and the quadratic form around a fit.

There are two kinds. For the squared loss the quadratic form may be at hand: then it is the objective itself, and no
pass over the data is needed. For any loss the form is a model of second order at a fit, made by one weighted Gram
product; only true fits decide between supports.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from psfit.data.quadratic_form import Minimum
from psfit.problem import LocalModel
from psfit.problem.instance import Instance
from psfit.search.batch_search import Recordings
from psfit.search.equal_samples import FEWEST_SAMPLES, EqualSamples
from psfit.search.form_search import SearchForm
from psfit.search.local_form import LocalForm
from psfit.search.model_form import make_form, pick_items
from psfit.search.pass_model import model_by_pass
from psfit.search.refit import Fit, refit
from psfit.search.restriction import Restriction
from psfit.search.support_fit import SupportFit

# Accurate enough to compare supports; the final answer is refitted more accurately.
SEARCH_TOL = 1e-7
# A fit by the quadratic form is trusted up to this ratio of the targets' power to the objective times the smallest
# pivot (the share of a column that is no combination of the others).
MOST_LOST = 1e8
# The share of the losses without coefficients that an objective cannot be told from.
NEXT_TO_ROUNDING = 1e3 * torch.finfo(torch.float64).eps
# Searches by models that cost more operations than this are costly, by the kind of device.
MOST_WORK = {"cpu": float("inf"), "cuda": 1.5e11}


class Objective(ABC):
    """One problem of an instance: fits on supports, and forms around them."""

    # Whether the form is the objective itself, and not only a model of it.
    exact: ClassVar[bool]

    def __init__(self, inst: Instance, problem: int) -> None:
        self.inst, self.problem = inst, problem
        self.outputs = inst.items.outputs_of(problem)
        self.domain = inst.domain_of(problem)
        self._recordings: Recordings = {}
        # The limits of the supports that are searched.
        self.limits: list[int] = [inst.problem.kappa[problem]]
        # Whether supports are fitted only where a model promises a lower objective, as many folds need it.
        self.brief = False
        # Operations of searches by models so far, by an estimate that is the same on every machine; and from how many
        # on they are costly.
        self.work, self.most_work = 0.0, MOST_WORK[inst.source.matrix.device.type]
        # Supports from which searches have found nothing better.
        self._finished: set[bytes] = set()

    def is_finished(self, chosen: Tensor) -> bool:
        """Whether a search from this support has found nothing better."""
        return chosen.cpu().numpy().tobytes() in self._finished

    def note_finished(self, chosen: Tensor) -> None:
        """Note that a search from this support has found nothing better."""
        self._finished.add(chosen.cpu().numpy().tobytes())

    @property
    def rel_tol(self) -> float:
        """Differences of the objective below this share are rounding."""
        return self.inst.resolution

    @cached_property
    def rounding(self) -> float:
        """An objective of this size has nothing left to gain: it is next to rounding of the losses at zero.

        Where all targets are alike, losses fall for ever as the intercept grows. Objectives can be negative.
        """
        source, outputs = self.inst.source, self.outputs
        target = source.target[:, outputs]
        losses = source.weight * self.inst.problem.loss.value(torch.zeros_like(target.real), target)
        return NEXT_TO_ROUNDING * float(self.inst.grid.nodes.total(losses.sum().reshape(1)))

    @property
    def fits_in_batches(self) -> bool:
        """Whether many supports can be fitted together: the loss is smooth, and all supports have the same size."""
        return self.inst.problem.loss.smooth and self.domain.heredity is None

    @cached_property
    def equal_samples(self) -> EqualSamples | None:
        """Samples of this rank that are equal on a support, where it pays to look for them.

        A loss with a `box` may be fitted by a method that needs a multiplier for every sample.
        """
        source, loss, output = self.inst.source, self.inst.problem.loss, self.outputs[0]
        here = source.matrix.device.type == "cpu" and not source.matrix.streamed and self.inst.grid.blocks.size == 1
        many = source.matrix.shape[0] >= FEWEST_SAMPLES
        if not (here and many and loss.smooth and not loss.joint and loss.box(source.target) is None):
            return None
        return EqualSamples(source, output)

    @property
    def is_costly(self) -> bool:
        """Whether searches by models have cost so much that only those that gain much should follow."""
        return self.work > self.most_work

    @abstractmethod
    def fit(self, chosen: Tensor, Z: Tensor, give_up: float = float("inf"), tol: float = SEARCH_TOL) -> Fit:
        """The minimiser over the items ``chosen (size,)``, from `Z`; or any point if it clearly exceeds `give_up`."""

    @abstractmethod
    def local_form(self, found: SupportFit) -> LocalForm:
        """The quadratic form around a fit."""


class DataObjective(Objective):
    """Any loss; every fit is a few passes over the support's columns."""

    exact: ClassVar[bool] = False
    # The last fit around which a form was made, and the form: a search often ends where the next one begins.
    _last: tuple[SupportFit, LocalForm] | None = None

    def fit(self, chosen: Tensor, Z: Tensor, give_up: float = float("inf"), tol: float = SEARCH_TOL) -> Fit:
        return refit(self.inst, self.problem, chosen, Z, give_up, tol, self.equal_samples)

    def local_form(self, found: SupportFit) -> LocalForm:
        if self._last is not None and self._last[0] is found:
            return self._last[1]
        self._last = None
        index = pick_items(self.inst, self.problem, found)
        form = make_form(self.inst, self.problem, found, index)
        local = LocalForm(form, self.domain, index, self.inst.grid, self.rel_tol, self._recordings)
        local.search.limits = self.limits
        self._last = found, local
        return local

    def model(self, fit: Fit, chosen: Tensor) -> LocalModel:
        """The model of all items around the support, by one pass over the data, without products of other pairs."""
        inst = self.inst
        mask = inst.items.mask_one(chosen)
        view = Restriction(inst, self.outputs, mask, inst.problem.loss, inst.source.target[:, self.outputs])
        return model_by_pass(inst, view, fit)


class FormObjective(Objective):
    """The squared loss by its quadratic form: no pass over the data."""

    exact: ClassVar[bool] = True

    def __init__(self, inst: Instance, problem: int) -> None:
        super().__init__(inst, problem)
        self.form = inst.search_form.with_outputs(self.outputs)
        self.power = float(inst.grid.agree(self.form.constant.sum())[0])

    def fit(self, chosen: Tensor, Z: Tensor, give_up: float = float("inf"), tol: float = SEARCH_TOL) -> Fit:
        found = self._minimise(chosen)
        if len(found.rows) and self.power > MOST_LOST * found.pivot * found.value:
            # The form has too few digits for nearly dependent columns, and for a fit with nearly no residual.
            return refit(self.inst, self.problem, chosen, Z, give_up, tol)
        answer = Z.clone()
        answer[:, self.outputs] = 0
        answer[found.rows.unsqueeze(1), torch.tensor(self.outputs, device=Z.device)] = found.x.to(Z.dtype)
        return Fit(answer, found.value, 0.0)

    def _minimise(self, chosen: Tensor) -> Minimum:
        """The minimiser by the form, the same on all ranks."""
        found = self.domain.minimise(self.form, chosen)
        if self.inst.grid.world.size == 1:
            return found
        numbers = torch.tensor([found.value, found.pivot], dtype=torch.float64, device=found.x.device)
        x, numbers = self.inst.grid.agree(found.x, numbers)
        return Minimum(found.rows, x, *numbers.tolist())

    def local_form(self, found: SupportFit) -> LocalForm:
        return self.whole_form

    @cached_property
    def whole_form(self) -> LocalForm:
        """The form of all items, which is the same everywhere."""
        assert self.form.hessian is not None
        items = self.inst.items
        item = items.item_of(torch.arange(items.features), 0) if items.in_groups else None
        form = SearchForm(self.form.hessian, self.form.Q, self.power, item=item)
        local = LocalForm(form, self.domain, None, self.inst.grid, self.rel_tol, self._recordings)
        local.search.limits = self.limits
        return local


def objective_of(inst: Instance, problem: int, search: bool = True) -> Objective:
    """By the quadratic form or by passes, whichever costs less; `search` tells that more than a fit is needed."""
    if inst.costs.searches_by_form if search else inst.costs.form_at_hand:
        return FormObjective(inst, problem)
    return DataObjective(inst, problem)
