"""The domain: which supports are allowed. The search and the certificate know about supports only through it.

It gives three things: the minimiser of a quadratic form on a support, the scores of exchanges, and the conjugate of the
ridge over all supports that are still allowed. The search uses the first two, the bounds use the third. A further
constraint on the coefficients, such as a bound, changes these three here and nothing elsewhere.

The conjugate is that of the perspective, the strongest convex relaxation of "at most kappa items, each with a ridge".
For items with ridges ``r`` it gives every item a share ``s_j`` in [0, 1] of the limit, and its value is

    1/2 min { sum_j r_j x_j^2 / s_j :  0 <= s <= 1,  sum_j s_j <= kappa }.

Its conjugate at ``g`` is the sum of the kappa largest scores ``g_j^2 / (2 r_j)``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from psfit.data.quadratic_form import Minimum, QuadraticForm
from psfit.problem.exchanges import score_additions, score_swaps
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
    """

    items: Items
    inside: Tensor
    outside: Tensor
    left: Tensor
    group: Tensor | None = None
    most: Tensor | None = None

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

    @property
    def counts_only(self) -> bool:
        """Whether supports are restricted only by a limit and by decided items. Bounds know no other rule."""
        return self.group is None

    def with_groups(self, group: Tensor, most: Tensor) -> "Domain":
        """The supports with at most ``most (groups,)`` items of each group; ``group (size,)`` is -1 for no group."""
        return replace(self, group=group, most=most)

    def restrict(self, index: Tensor) -> "Domain":
        """The domain of some of the items ``(k,)``; the others are outside."""
        return replace(
            self,
            items=self.items.select(index),
            inside=self.inside[:, index],
            outside=self.outside[:, index],
            group=None if self.group is None else self.group[index],
        )

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
        if self.weights is not None:
            return self._fill_weights(chosen, keys, count)
        if self.group is not None:
            return self._fill_groups(chosen, keys, count)
        order = keys.argsort(descending=True, stable=True)[:count]
        return chosen.index_fill(0, order[keys[order] > -torch.inf], True)

    def _fill_groups(self, chosen: Tensor, keys: Tensor, count: int) -> Tensor:
        """One item after the other, since each may close its group."""
        for _ in range(count):
            keys = torch.where(chosen | self.find_closed(chosen), -torch.inf, keys)
            best = int(keys.argmax())
            if keys[best] == -torch.inf:
                break
            chosen = chosen.index_fill(0, torch.tensor([best], device=chosen.device), True)
        return chosen

    def _fill_weights(self, chosen: Tensor, keys: Tensor, room: int) -> Tensor:
        """One item after the other, as far as there is room for it."""
        assert self.weights is not None
        order = keys.argsort(descending=True, stable=True)
        added = []
        for item, weight in zip(order[keys[order] > -torch.inf].tolist(), self.weights[order].tolist(), strict=False):
            if weight <= room:
                added.append(item)
                room -= weight
        return chosen.index_fill(0, torch.tensor(added, dtype=torch.int64, device=chosen.device), True)

    def largest(self, packed: Tensor) -> Tensor:
        """Supports ``(B, size)`` of the largest magnitudes in ``packed (B, size)``."""
        numbers = torch.arange(len(packed), device=packed.device)
        rows, lefts = [self.select(number) for number in numbers.split(1)], self.left.flatten().tolist()
        filled = [
            row.fill(row.inside[0], size, left) for row, size, left in zip(rows, packed.abs(), lefts, strict=True)
        ]
        return torch.stack(filled)

    def minimise(self, form: QuadraticForm, chosen: Tensor) -> Minimum:
        """The minimiser of a form over the items ``chosen (size,)`` and the rows that are not counted."""
        return form.minimise(self.items.rows_of(chosen))

    def swap_scores(self, model: LocalModel, chosen: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Gains of all exchanges that keep a support ``chosen (size,)`` allowed; see `exchanges.score_swaps`.

        The domain must be a batch of one.
        """
        kept = self.inside[0] if self.decided else None
        closed = None if self.group is None else self.find_closed(chosen)
        for gains, leaving, joining in score_swaps(model, kept, self._newcomers(chosen), self.items):
            if closed is not None and self.group is not None:
                same = self.group[leaving].unsqueeze(1) == self.group[joining]
                gains = torch.where(closed[joining] & ~same, -torch.inf, gains)
            yield gains, leaving, joining

    def addition_scores(self, model: LocalModel, chosen: Tensor) -> Tensor:
        """By how much each item would lower the model if it joined ``chosen (size,)``; zero where it must not."""
        gains = score_additions(model, self._newcomers(chosen), self.items)
        return gains if self.group is None else torch.where(self.find_closed(chosen), 0.0, gains)

    def _newcomers(self, chosen: Tensor) -> Tensor:
        """The numbers of the items that may join a support ``(size,)``."""
        joining = ~chosen & ~self.outside[0] if self.decided else ~chosen
        return joining.nonzero().flatten()

    def conjugate(self, scores: Tensor) -> Tensor:
        """``(B,)``: scores of the items inside, and the largest of the free ones in the places left.

        Where items have weights, the best item that does not fit any more counts with a share.
        """
        if self.weights is not None:
            ranked, weights, _ = self._rank_by_weight(scores)
            before = weights.cumsum(dim=1) - weights
            share = ((self.left - before) / weights).clamp(0, 1)
            return torch.where(self.inside, scores, 0.0).sum(dim=1) + (share * ranked).sum(dim=1)
        most = min(int(self.left.max()), scores.shape[1])
        ranked = torch.where(self.free, scores, 0.0).topk(max(most, 0), dim=1).values
        counted = torch.arange(ranked.shape[1], device=scores.device) < self.left
        return torch.where(self.inside, scores, 0.0).sum(dim=1) + torch.where(counted, ranked, 0.0).sum(dim=1)

    def _rank_by_weight(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, weights, and scores for each unit of weight ``(B, size)``, the largest of these first.

        Items that do not fit have a score of zero.
        """
        assert self.weights is not None
        fitting = torch.where(self.free & (self.weights <= self.left), scores, 0.0)
        ratio, order = (fitting / self.weights).sort(dim=1, descending=True)
        return fitting.gather(1, order), self.weights.expand_as(scores).gather(1, order), ratio

    def _weighted_margins(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """With the price of a unit of the limit, at which the conjugate is a sum over items, each counts by itself."""
        assert self.weights is not None
        _, weights, ratio = self._rank_by_weight(scores)
        whole = (weights.cumsum(dim=1) <= self.left).sum(dim=1, keepdim=True)
        price = torch.cat([ratio, torch.zeros_like(ratio[:, :1])], dim=1).gather(1, whole)
        fits = self.weights <= self.left
        out = torch.where(self.free & fits, (scores - price * self.weights).clamp(min=0), 0.0)
        into = torch.where(fits, (price * self.weights - scores).clamp(min=0), torch.inf)
        return out, torch.where(self.free, into, 0.0)

    def margins(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """By how much a bound rises if a free item is put outside, or inside: ``(B, size)`` each, else zero."""
        if self.weights is not None:
            return self._weighted_margins(scores)
        size = scores.shape[1]
        ranked = torch.where(self.free, scores, 0.0).sort(dim=1, descending=True).values
        ranked = torch.cat([torch.full_like(ranked[:, :1], torch.inf), ranked, torch.zeros_like(ranked[:, :1])], dim=1)
        last = ranked.gather(1, self.left.clamp(0, size))
        following = ranked.gather(1, (self.left + 1).clamp(0, size + 1))
        out = torch.where(self.free, (scores - following).clamp(min=0), 0.0)
        into = torch.where(self.free, (last - scores).clamp(min=0), 0.0)
        return out, into

    def screen(self, scores: Tensor, lower: Tensor, upper: float) -> tuple["Domain", Tensor]:
        """Decide every free item whose other choice leads above `upper`; tell which rows ``(B,)`` are still possible.

        The `scores` belong to the dual points behind the bounds ``lower (B,)``.
        """
        out, into = self.margins(scores)
        missed = lower.unsqueeze(1) + out > upper
        useless = lower.unsqueeze(1) + into > upper
        possible = ~(missed & useless).any(dim=1) & (lower <= upper)
        decided = self.decide(self.inside | missed, self.outside | (useless & ~missed))
        return decided, possible & (decided.left.squeeze(1) >= 0)

    def shrink(self, size: Tensor, ridge: Tensor, rho: Tensor | float) -> tuple[Tensor, Tensor]:
        """The proximal step of the perspective at penalty `rho`.

        Returns factors ``(B, size)`` for items of magnitude ``size (B, size)``, and shares. For given shares an item is
        multiplied by ``rho s / (rho s + r)``. The best shares are ``a_j theta - r_j / rho`` clipped to [0, 1] with
        ``a_j = size_j sqrt(r_j / weight_j)``, and the one number ``theta`` makes them add up to the places left. Their
        sum grows piecewise linearly in theta: sorted kinks and cumulative sums find the piece.
        """
        free = self.free & (size > 0)
        weights = torch.ones_like(size) if self.weights is None else self.weights.to(size).expand_as(size)
        slope = torch.where(free, size * (ridge / weights).sqrt(), 0.0).double()
        offset = (ridge / rho).double().expand_as(slope)
        # The share of an item is zero up to the first of its kinks and one from the second on.
        kinks, order = torch.cat([offset / slope, (1 + offset) / slope], dim=1).sort(dim=1)
        steep = (torch.cat([slope, -slope], dim=1) * weights.repeat(1, 2)).gather(1, order).cumsum(dim=1)
        level = (torch.cat([-offset, 1 + offset], dim=1) * weights.repeat(1, 2)).gather(1, order).cumsum(dim=1)
        before = (steep * kinks + level < self.left) & kinks.isfinite()
        piece = before.sum(dim=1, keepdim=True).clamp(1, kinks.shape[1] - 1)
        steep, level = steep.gather(1, piece - 1), level.gather(1, piece - 1)
        low, high = kinks.gather(1, piece - 1), kinks.gather(1, piece)
        theta = torch.where(steep > 0, (self.left - level) / steep, low).clamp(low, high)
        share = (slope * theta.nan_to_num() - offset).clamp(0, 1)
        roomy = self.weigh(free) <= self.left
        share = torch.where(roomy, free.to(share), share) * (self.left > 0)
        share = torch.where(self.inside, 1.0, share)
        return rho * share / (rho * share + ridge), share
