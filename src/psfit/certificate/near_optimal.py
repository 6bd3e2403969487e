"""All supports whose objectives are close to the best: the tree of exact mode, which keeps every leaf that is close."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from psfit.certificate import extraction
from psfit.certificate.branch import Search, Standing
from psfit.certificate.exact import has_small_form, relax
from psfit.certificate.exact_form import MOST_ITEMS, ROOT_ITERATIONS, improve_extraction, slope_of
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import Bounds, Fit, QuadraticRelaxation, Relaxation
from psfit.problem import are_few
from psfit.problem.instance import Instance

# The room for rounding when an objective is compared with the largest one that is listed, as a share of it.
ROOM = 1e-9
# How often the extraction of a quadratic form is improved.
EXTRACTIONS = 4


@dataclass(frozen=True)
class Listing:
    """Supports ``(S, size)`` of full size with their objectives ``(S,)``, the best first.

    Every other support of full size has an objective above `cutoff`, or of at least `lower` if that is smaller.
    """

    supports: Tensor
    objectives: Tensor
    cutoff: float
    lower: float
    explored: int


class CloseSearch(Search):
    """A search that keeps all supports within a share `within` of the best objective, at most `at_most`."""

    def __init__(self, relaxation: Relaxation, upper: float, within: float, at_most: int, most_open: float) -> None:
        super().__init__(relaxation, upper, 0.0, most_open)
        self.within, self.at_most = within, at_most
        self.found: dict[bytes, tuple[float, Tensor]] = {}

    @property
    def cutoff(self) -> float:
        return self.upper + (self.within + ROOM) * abs(self.upper)

    @property
    def enough(self) -> float:
        return self.cutoff

    @property
    def lower(self) -> float:
        """A bound of the supports that were not looked at; minus infinity after `try_all` was stopped."""
        return -inf if self.floor == -inf else self.lowest_open

    @property
    def is_full(self) -> bool:
        """Whether more supports were found than are asked for; those that are not close any more do not count."""
        if len(self.found) > self.at_most:
            self.found = {key: one for key, one in self.found.items() if one[0] <= self.cutoff}
        return len(self.found) > self.at_most

    def _note(self, key: bytes, support: Tensor, value: float) -> None:
        if value <= self.cutoff and int(support.sum()) == self.relaxation.kappa:
            self.found[key] = value, support

    def listing(self) -> Listing:
        """What was found."""
        ranked = sorted((one for one in self.found.values() if one[0] <= self.cutoff), key=lambda one: one[0])
        kept = ranked[: self.at_most]
        lower = min(self.lower, ranked[self.at_most][0] if len(ranked) > self.at_most else inf)
        size, device = self.relaxation.root.items.size, self.relaxation.device
        supports = torch.zeros(len(kept), size, dtype=torch.bool, device=device)
        for row, (_, support) in enumerate(kept):
            supports[row] = support
        objectives = torch.tensor([value for value, _ in kept], dtype=torch.float64)
        return Listing(supports, objectives, self.cutoff, lower, self.explored)


def list_close(
    inst: Instance,
    Z: Tensor,
    objective: float,
    fit: Fit,
    within: float,
    at_most: int,
    stop: Callable[[Standing], bool],
    most_open: float,
) -> Listing:
    """All supports of an instance of one problem with objectives within a share of the best; ``Z (n, c)`` is an answer.

    The arguments are those of `exact.prove`.
    """
    relaxation: Relaxation
    bounds: Bounds | None
    if has_small_form(inst):
        limited = LimitedForm.of(inst)
        enough = objective + within * abs(objective)
        relaxation, bounds = _relax_form(limited, Z[: inst.items.features], enough)
    else:
        relaxation, bounds = _relax_data(inst, Z, fit)
    search = CloseSearch(relaxation, objective, within, at_most, most_open)

    def must_stop(standing: Standing) -> bool:
        return inst.grid.follow_first_rank(search.is_full) or stop(standing)

    if bounds is None:
        search.try_all(must_stop)
    else:
        search.run(relaxation.root, bounds, must_stop)
    return search.listing()


def _relax_data(inst: Instance, Z: Tensor, fit: Fit) -> tuple[Relaxation, Bounds | None]:
    """The relaxation of a problem without a form, and its bounds; None where all supports are tried."""
    relaxation, steps = relax(inst, fit)
    if relaxation.root.heredity is None and are_few(relaxation.root.items.size, relaxation.kappa):
        return relaxation, None
    return relaxation, relaxation.bound(relaxation.root, relaxation.start(Z.double()), inf, steps)


def _relax_form(limited: LimitedForm, X: Tensor, enough: float) -> tuple[Relaxation, Bounds]:
    """The relaxation of a form with an improved extraction, and its bounds."""
    curvature, extracted = limited.form.curvature, limited.form.curvature.extracted
    every = torch.ones(limited.form.size, dtype=torch.bool, device=limited.index.device)
    for k in range(EXTRACTIONS + 1):
        relaxation = QuadraticRelaxation(limited, extracted)
        bounds = relaxation.bound(relaxation.root, relaxation.start(X.double()), enough, ROOT_ITERATIONS)
        slope = slope_of(bounds, limited.items, every)
        if (
            k == EXTRACTIONS
            or limited.form.size > MOST_ITEMS
            or not bool(slope.any())
            or not bool(curvature.extracted.any())
        ):
            break
        ideal = improve_extraction(limited, slope)
        extracted = extraction.make_safe(curvature, extracted + 1.5 / (k + 4) * (ideal - extracted))
    return relaxation, bounds
