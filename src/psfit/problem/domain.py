"""The domain: which supports are allowed. The search and the certificate know about supports only through it.

It gives three things: the minimiser of a quadratic form on a support, the scores of exchanges, and the conjugate of the
ridge over all supports that are still allowed. The search uses the first two, the bounds use the third. A further
constraint on the coefficients, such as a bound, changes these three here and nothing elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from psfit.data.quadratic_form import Minimum, QuadraticForm
from psfit.kernels.box_minimum import minimise_in_box
from psfit.kernels.linalg import cholesky, smallest_pivot
from psfit.problem import perspective
from psfit.problem.box import CoefficientBox
from psfit.problem.completion import Completion, fill_in_turn
from psfit.problem.exchanges import score_additions, score_swaps
from psfit.problem.heredity import Heredity
from psfit.problem.items import Items
from psfit.problem.local_model import LocalModel


@dataclass(frozen=True)
class Domain:
    """The supports allowed to a batch of problems with the same items.

    Parameters
    ----------
    items : Items
        What is counted.
    inside, outside : Tensor (B, size), bool
        Items that are in every support, and items that are in none.
    left : Tensor (B, 1)
        How many of the other items a support may have.
    group : Tensor (size,) of integers, optional
        The group of each item; -1 for items without a group.
    most : Tensor (groups,) of integers, optional
        How many items of each group a support may have.
    heredity : Heredity, optional
        Which items need others in the support.
    box : CoefficientBox, optional
        Bounds on the coefficients of all outputs.
    """

    items: Items
    inside: Tensor
    outside: Tensor
    left: Tensor
    group: Tensor | None = None
    most: Tensor | None = None
    heredity: Heredity | None = None
    box: CoefficientBox | None = None

    @classmethod
    def of(cls, items: Items, limit: Tensor | int, device: torch.device) -> "Domain":
        """Every support within the `limit`: one number for a batch of one, or ``(B, 1)``."""
        rows = limit.shape[0] if isinstance(limit, Tensor) else 1
        nothing = torch.zeros(rows, items.size, dtype=torch.bool, device=device)
        left = limit if isinstance(limit, Tensor) else torch.full((1, 1), limit, device=device)
        return cls(items, nothing, nothing, left)

    @property
    def limit(self) -> Tensor:
        """How many items a support may have, ``(B, 1)``."""
        return self.left + self.weigh(self.inside)

    @cached_property
    def weights(self) -> Tensor | None:
        """What each item takes of the limit ``(size,)``; None where items are counted."""
        weights = self.items.weights
        return None if weights is None else weights.to(self.inside.device)

    def weigh(self, chosen: Tensor) -> Tensor:
        """What the items ``chosen (..., size)`` take of the limit, ``(..., 1)``."""
        return (chosen if self.weights is None else chosen * self.weights).sum(dim=-1, keepdim=True)

    @cached_property
    def decided(self) -> bool:
        """Whether any item is inside or outside already."""
        return bool((self.inside | self.outside).any())

    @cached_property
    def completion(self) -> Completion:
        """How supports of a batch of one grow and shrink by items with all that they need."""
        return Completion.of(self)

    @property
    def counts_only(self) -> bool:
        """Whether supports are restricted only by a limit and by decided items. Bounds know no other rule."""
        return self.group is None and self.heredity is None

    def with_groups(self, group: Tensor, most: Tensor) -> "Domain":
        """The supports with at most ``most (groups,)`` items of each group; ``group (size,)`` is -1 for no group."""
        return replace(self, group=group, most=most)

    def to(self, device: torch.device) -> "Domain":
        """The same on another device."""
        heredity, box = self.heredity, self.box
        return replace(
            self,
            inside=self.inside.to(device),
            outside=self.outside.to(device),
            left=self.left.to(device),
            group=None if self.group is None else self.group.to(device),
            most=None if self.most is None else self.most.to(device),
            heredity=None if heredity is None else heredity.to(device),
            box=None if box is None else CoefficientBox(box.low.to(device), box.high.to(device)),
        )

    def restrict(self, index: Tensor) -> "Domain":
        """The domain of some of the items ``(k,)``; the others are outside."""
        outside, heredity = self.outside[:, index], None
        if self.heredity is not None:
            heredity, lacking = self.heredity.restrict(index)
            outside = outside | lacking
        return replace(
            self,
            items=self.items.select(index),
            inside=self.inside[:, index],
            outside=outside,
            group=None if self.group is None else self.group[index],
            heredity=heredity,
            box=None if self.box is None else self._restrict_box(self.box, index),
        )

    def _restrict_box(self, box: CoefficientBox, index: Tensor) -> CoefficientBox:
        if self.items.size <= self.items.features:
            return box.select_rows(self.items.features_of(index))
        # Some entries of several outputs are no table any more, only a list.
        low, high = (self.items.pack(part)[0][index].unsqueeze(1) for part in (box.low, box.high))
        return CoefficientBox(low, high)

    def find_closed(self, chosen: Tensor) -> Tensor:
        """Items ``(size,)`` whose group is full in a support ``chosen (size,)``."""
        if self.group is None or self.most is None:
            return torch.zeros_like(chosen)
        grouped = self.group >= 0
        number = self.group.clamp(min=0)
        taken = torch.zeros_like(self.most).index_add_(0, number, (chosen & grouped).to(self.most.dtype))
        return grouped & (taken >= self.most)[number]

    @property
    def free(self) -> Tensor:
        """Items that are not decided yet, ``(B, size)``."""
        return ~(self.inside | self.outside)

    def decide(self, inside: Tensor, outside: Tensor) -> "Domain":
        """The domain with the same limits and these items, ``(B, size)``, inside and outside."""
        return replace(self, inside=inside, outside=outside, left=self.limit - self.weigh(inside))

    def select(self, index: Tensor) -> "Domain":
        """Some rows of the batch."""
        return replace(self, inside=self.inside[index], outside=self.outside[index], left=self.left[index])

    def allows(self, support: Tensor) -> bool:
        """Whether a batch of one allows the items ``support (size,)``."""
        misses, exceeds = self.inside[0] & ~support, self.outside[0] & support
        if bool(misses.any() | exceeds.any()) or int(self.weigh(support)) > int(self.limit):
            return False
        if self.heredity is not None and bool(self.heredity.find_missing(support).any()):
            return False
        return self.group is None or self._groups_allow(support)

    def _groups_allow(self, support: Tensor) -> bool:
        assert self.group is not None
        assert self.most is not None
        grouped = support & (self.group >= 0)
        return bool((self.group[grouped].bincount(minlength=len(self.most)) <= self.most).all())

    def fill(self, chosen: Tensor, keys: Tensor, count: int) -> Tensor:
        """A support ``chosen (size,)`` with further items of a batch of one: those with the largest ``keys (size,)``.

        The items that are added take at most `count` of the limit. None has a key of minus infinity; ties go to the
        smaller index.
        """
        keys = torch.where(chosen | self.outside[0], -torch.inf, keys)
        if self.weights is not None or not self.counts_only:
            return fill_in_turn(self, chosen, keys, count)
        order = keys.argsort(descending=True, stable=True)[:count]
        return chosen.index_fill(0, order[keys[order] > -torch.inf], True)

    def tighten(self) -> tuple["Domain", Tensor]:
        """Decide items that the decided ones force in or out; tell which rows ``(B,)`` are still possible."""
        inside, outside = self.inside, self.outside
        while not self.counts_only:
            more_inside, more_outside = inside, outside
            if self.heredity is not None:
                more_inside, more_outside = self.heredity.tighten(inside, outside)
            if self.group is not None and self.most is not None:
                full = (self._count_groups(more_inside) >= self.most)[:, self.group.clamp(min=0)] & (self.group >= 0)
                more_outside = more_outside | (full & ~more_inside)
            if torch.equal(more_inside, inside) and torch.equal(more_outside, outside):
                break
            inside, outside = more_inside, more_outside
        domain = self.decide(inside & ~outside, outside)
        possible = ~(inside & outside).any(dim=1) & (domain.left.squeeze(1) >= 0)
        possible = possible & self.obeys_groups(domain.inside)
        if self.heredity is not None:
            # A child whose parents are open needs a place for one of them.
            waits = self.heredity.find_missing(domain.inside).any(dim=1)
            possible = possible & ~(waits & (domain.left.squeeze(1) <= 0))
        return domain, possible

    def largest(self, packed: Tensor) -> Tensor:
        """Supports ``(B, size)`` of the largest magnitudes in ``packed (B, size)``."""
        return self.choose(packed.abs())

    def choose(self, keys: Tensor) -> Tensor:
        """Supports ``(B, size)`` of the items with the largest ``keys (B, size)``."""
        numbers = torch.arange(len(keys), device=keys.device)
        rows, lefts = [self.select(number) for number in numbers.split(1)], self.left.flatten().tolist()
        return torch.stack(
            [row.fill(row.inside[0], key, left) for row, key, left in zip(rows, keys, lefts, strict=True)]
        )

    def obeys_groups(self, supports: Tensor) -> Tensor:
        """Whether supports ``(B, size)`` have at most as many items of each group as allowed, ``(B,)``."""
        if self.group is None or self.most is None:
            return torch.ones_like(supports[:, 0])
        return (self._count_groups(supports) <= self.most).all(dim=1)

    def _count_groups(self, supports: Tensor) -> Tensor:
        """How many items of each group supports ``(B, size)`` have, ``(B, groups)``."""
        assert self.group is not None
        assert self.most is not None
        counts = torch.zeros(len(supports), len(self.most) + 1, dtype=torch.long, device=supports.device)
        return counts.index_add(1, self.group + 1, supports.long())[:, 1:]

    def minimise(self, form: QuadraticForm, chosen: Tensor) -> Minimum:
        """The minimiser of a form over the items ``chosen (size,)`` and the rows that are not counted."""
        rows = self.items.rows_of(chosen)
        return form.minimise(rows) if self.box is None else self._minimise_in_box(form, rows)

    def _minimise_in_box(self, form: QuadraticForm, rows: Tensor) -> Minimum:
        """Every output on its own, since the outputs of a form are independent."""
        assert self.box is not None
        H, q = form.block(rows), form.Q[rows]
        low, high = self.bounds_of(rows)
        columns = [minimise_in_box(H, *column) for column in zip(q.T, low.T, high.T, strict=True)]
        x = torch.stack(columns, dim=1) if columns else q
        value = float(form.constant.sum() + (x * (0.5 * (H @ x) - q)).sum())
        return Minimum(rows, x, value, float(smallest_pivot(cholesky(H), H)) if len(rows) else 1.0)

    def bounds_of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The bounds ``(k, c)`` of some rows of the coefficients; intercepts have none."""
        assert self.box is not None
        low, high = self.box.with_free(self.items.free)
        return low[rows], high[rows]

    def swap_scores(self, model: LocalModel, chosen: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Gains of all exchanges that keep a support ``chosen (size,)`` allowed; see `exchanges.score_swaps`.

        The domain must be a batch of one.
        """
        kept = self.inside[0] if self.decided else None
        closed = None if self.group is None else self.find_closed(chosen)
        for gains, leaving, joining in score_swaps(model, kept, self._newcomers(chosen), self.items, self.box):
            if closed is not None and self.group is not None:
                same = self.group[leaving].unsqueeze(1) == self.group[joining]
                gains = torch.where(closed[joining] & ~same, -torch.inf, gains)
            yield gains, leaving, joining

    def addition_scores(self, model: LocalModel, chosen: Tensor) -> Tensor:
        """By how much each item would lower the model if it joined ``chosen (size,)``; zero where it must not."""
        gains = score_additions(model, self._newcomers(chosen), self.items, self.box)
        return gains if self.group is None else torch.where(self.find_closed(chosen), 0.0, gains)

    def _newcomers(self, chosen: Tensor) -> Tensor:
        """The numbers of the items that may join a support ``(size,)``."""
        joining = ~chosen & ~self.outside[0] if self.decided else ~chosen
        return joining.nonzero().flatten()

    def conjugate(self, scores: Tensor) -> Tensor:
        """The conjugate of the perspective ``(B,)`` for items with ``scores (B, size)``; see `perspective`."""
        return perspective.conjugate(scores, self.inside, self.free, self.left, self.weights)

    def screen(self, scores: Tensor, lower: Tensor, upper: float) -> tuple["Domain", Tensor]:
        """Decide every free item whose other choice leads above `upper`; tell which rows ``(B,)`` are still possible.

        The `scores` belong to the dual points behind the bounds ``lower (B,)``.
        """
        out, into = perspective.margins(scores, self.free, self.left, self.weights)
        missed = lower.unsqueeze(1) + out > upper
        useless = lower.unsqueeze(1) + into > upper
        possible = ~(missed & useless).any(dim=1) & (lower <= upper)
        decided = self.decide(self.inside | missed, self.outside | (useless & ~missed))
        tight, allowed = decided.tighten()
        return tight, possible & allowed

    def shrink(self, size: Tensor, ridge: Tensor, rho: Tensor | float) -> tuple[Tensor, Tensor]:
        """Factors ``(B, size)`` of the proximal step of the perspective at penalty `rho`, and shares."""
        return perspective.shrink(size, ridge, rho, self.inside, self.free, self.left, self.weights)
