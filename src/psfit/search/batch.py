"""Supports for many limits of one quadratic problem in lockstep: every limit is a row of one batch.

Going from limit to limit a GPU waits for the host, for each step is a small launch. Here each row keeps the inverse
``K = H_SS^-1`` of its support S. Items leave and join all rows at once by updates of low rank, so that hardly any
factor is made: with E marking the places of items that leave, or that are free for items I to join,

    leave:  K - K E (E'KE)^-1 E'K          join:  K + (U - E)(H_II - H_IS U)^-1 (U - E)',   U = K H_SI.

The scores of swaps are those of `swap`. Inverses that lose too many digits to rounding are noticed, for then the
gradient does not vanish on the support.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.search.neighbours import Stop
from psfit.search.objective import FormObjective
from psfit.search.refit import Fit
from psfit.search.swaps import MAX_ROUNDS

# Swaps of a row that are tried at once.
MOST_SWAPS = 128
# Numbers that the scores of some rows may hold together, and the inverses of all of them.
BLOCK_NUMBERS = 1 << 27
MOST_NUMBERS = 1 << 28
# How often neighbours may learn from each other.
SWEEPS = 3
# What the gradient on a support may be, as a share of that at zero.
MOST_DRIFT = 1e-9


class Batch:
    """Tensors whose first axis counts the same rows."""

    def at(self, index: Tensor | slice) -> Self:
        """Some of the rows."""
        return type(self)(*(part[index] for part in vars(self).values()))

    def updated(self, index: Tensor, other: Self) -> Self:
        """All rows, those in `index` exchanged for others."""
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine.index_copy(0, index, theirs) for mine, theirs in parts))

    @classmethod
    def together(cls, batches: Sequence[Self]) -> Self:
        """Rows one after the other."""
        return cls(*(torch.cat(parts) for parts in zip(*(vars(batch).values() for batch in batches), strict=True)))


@dataclass(frozen=True)
class Rows(Batch):
    """Supports: the variable in each place ``(L, W)``, whether it is `taken`, the inverse ``K (L, W, W)`` with zeros in
    the other places, the minimiser ``x (L, W)`` and its objective ``values (L,)``.
    """

    places: Tensor
    taken: Tensor
    K: Tensor
    x: Tensor
    values: Tensor


@dataclass(frozen=True)
class Scores(Batch):
    """For every row the best disjoint swaps, best first: `out` places, `into` variables and their `gains`, each
    ``(L, R)``; what each place costs to give up ``(L, W)``; and by how much each variable would help alone ``(L, n)``.
    """

    out: Tensor
    into: Tensor
    gains: Tensor
    costs: Tensor
    helps: Tensor


@dataclass(frozen=True)
class Along:
    """Supports by limit, steps with their inverses, and whether all that was searched twice ended at the same place."""

    stops: dict[int, Stop]
    steps: Callable[[Tensor], Tensor]
    benign: bool


def fits_in_memory(scene: FormObjective, kappas: list[int]) -> bool:
    """Whether the inverses of all limits do."""
    return 2 * len(kappas) * (kappas[-1] + scene.inst.items.free) ** 2 <= MOST_NUMBERS


def supports_in_lockstep(
    scene: FormObjective, kappas: list[int], starts: dict[int, Tensor], Z: Tensor, rel_tol: float
) -> Along | None:
    """The counterpart of `supports_along`; the first and the last of the rising `kappas` must have starts.

    The limits between two starts begin with what is left of the upper one. So does the lower one once more: if that
    leads to where its own start has led, the problem is benign. None where columns are so much alike that the
    inverses cannot be trusted.
    """
    step = Lockstep(scene, kappas[-1], rel_tol)
    first, labels = step.begun(kappas, starts)
    rows, scores = step.searched(first)
    index = torch.tensor([labels.index(kappa) for kappa in kappas], device=rows.x.device)
    twice = [k for k, kappa in enumerate(labels) if labels.index(kappa) < k and kappa in starts]
    rivals = rows.at(torch.tensor(twice, dtype=torch.long, device=index.device))
    of = torch.tensor([kappas.index(labels[k]) for k in twice], dtype=torch.long, device=index.device)
    rows, scores = rows.at(index), scores.at(index)
    apart = rivals.values - rows.values[of]
    benign = bool((apart.abs() <= rel_tol * rivals.values.abs()).all())
    better = (apart < 0).nonzero().flatten()
    if len(better):
        rows, scores = step.replaced(rows, scores, of[better], rivals.at(better))
    rows = step.passed_on(rows, scores, torch.tensor(kappas, device=index.device))
    if not bool(step.drift <= MOST_DRIFT):
        return None
    return Along(step.stops(rows, kappas, Z), step.steps(rows), benign)


class Lockstep:
    """What the rows share: the quadratic, the number of places, and how little a gain may be."""

    def __init__(self, scene: FormObjective, widest: int, rel_tol: float) -> None:
        self.scene, self.rel_tol = scene, rel_tol
        self.H, self.q, self.power = scene.inst.form.H, scene.form.Q[:, 0], scene.power
        self.p = scene.inst.items.features
        self.places = widest + scene.inst.items.free
        # The largest share of the gradient at zero that was left on any support.
        self.drift = self.q.new_zeros(())

    def fresh(self, chosen: Tensor) -> Rows:
        """One row, from a support ``(p,)``, by a factor."""
        free = torch.arange(self.p, len(self.q), device=chosen.device)
        variables = torch.cat([chosen.nonzero().flatten(), free])
        count = len(variables)
        places = variables.new_zeros(1, self.places)
        places[0, :count] = variables
        K = self.H.new_zeros(1, self.places, self.places)
        K[0, :count, :count] = torch.cholesky_inverse(cholesky(self.H[variables.unsqueeze(1), variables]))
        return self._solved(places, torch.arange(self.places, device=chosen.device).unsqueeze(0) < count, K)

    def begun(self, kappas: list[int], starts: dict[int, Tensor]) -> tuple[Rows, list[int]]:
        """Rows from the starts, and from what is left of each of them down to the next; and their limits."""
        labels = [kappa for kappa in kappas if kappa in starts]
        parts = [Rows.together([self.fresh(starts[kappa]) for kappa in labels])]
        below = [[k for k in reversed(kappas) if low <= k < high] for low, high in pairwise(labels)]
        rows, sizes = parts[0].at(slice(1, None)), labels[1:]
        for depth in range(max(map(len, below), default=0)):
            # Those that have arrived wait for the others.
            wanted = [limits[min(depth, len(limits) - 1)] for limits in below]
            counts = torch.tensor(sizes) - torch.tensor(wanted)
            rows, sizes = self.shrunk(rows, self.costs(rows), counts.to(rows.x.device)), wanted
            moving = [k for k, limits in enumerate(below) if depth < len(limits)]
            parts.append(rows.at(torch.tensor(moving, device=rows.x.device)))
            labels = [*labels, *(wanted[k] for k in moving)]
        return Rows.together(parts), labels

    def searched(self, rows: Rows) -> tuple[Rows, Scores]:
        """All rows after swaps, until none of them has one that helps; and their last scores."""
        scores = self._scores(rows)
        live = torch.arange(len(rows.x), device=rows.x.device)
        fresh = scores
        for _ in range(MAX_ROUNDS):
            least = self.rel_tol * rows.values[live].abs().unsqueeze(1)
            moving = fresh.gains[:, 0] > least[:, 0]
            live, fresh, least = live[moving], fresh.at(moving), least[moving]
            if not len(live) or self.scene.inst.watch.must_stop():
                break
            moved, changed = self._improved(rows.at(live), fresh, least)
            live = live[changed]
            if not len(live):
                break
            rows = rows.updated(live, moved.at(changed))
            fresh = self._scores(rows.at(live))
            scores = scores.updated(live, fresh)
        return rows, scores

    def replaced(self, rows: Rows, scores: Scores, index: Tensor, others: Rows) -> tuple[Rows, Scores]:
        """Rows with others in their places, searched."""
        others, theirs = self.searched(others)
        return rows.updated(index, others), scores.updated(index, theirs)

    def passed_on(self, rows: Rows, scores: Scores, kappas: Tensor) -> Rows:
        """The rows after every limit has learnt from the next larger and the next smaller one."""
        if len(kappas) == 1:
            return rows
        counts = kappas.diff()
        for _ in range(SWEEPS):
            lesser = self.shrunk(rows.at(slice(1, None)), scores.costs[1:], counts)
            larger = self.grown(rows.at(slice(-1)), scores.helps[:-1], counts)
            least = self.rel_tol * rows.values.abs()
            down = (lesser.values < rows.values[:-1] - least[:-1]).nonzero().flatten()
            if len(down):
                rows, scores = self.replaced(rows, scores, down, lesser.at(down))
            up = (larger.values < rows.values[1:] - least[1:]).nonzero().flatten()
            if len(up):
                rows, scores = self.replaced(rows, scores, up + 1, larger.at(up))
            if not len(down) and not len(up):
                break
        return rows

    def costs(self, rows: Rows) -> Tensor:
        """By how much each objective would rise without the item in each place ``(L, W)``; infinite for all others."""
        own = rows.K.diagonal(dim1=1, dim2=2)
        return torch.where(rows.taken & (rows.places < self.p), rows.x.square() / (2 * own), torch.inf)

    def shrunk(self, rows: Rows, costs: Tensor, counts: Tensor) -> Rows:
        """Rows without as many of the items that cost least as ``counts (L,)`` says."""
        places = costs.argsort(dim=1, stable=True)[:, : int(counts.max())]
        valid = torch.arange(places.shape[1], device=counts.device) < counts.unsqueeze(1)
        K, taken = self._left(rows, places, valid)
        return self._solved(rows.places, taken, K)

    def grown(self, rows: Rows, helps: Tensor, counts: Tensor) -> Rows:
        """Rows with as many more of the variables that help most as ``counts (L,)`` says."""
        most = int(counts.max())
        places = rows.taken.int().argsort(dim=1, stable=True)[:, :most]
        valid = torch.arange(places.shape[1], device=counts.device) < counts.unsqueeze(1)
        return self._joined(rows.places, rows.taken, rows.K, places, helps.topk(places.shape[1], dim=1).indices, valid)

    def stops(self, rows: Rows, kappas: list[int], Z: Tensor) -> dict[int, Stop]:
        """What was found, in the form of searches one by one."""
        outputs = self.scene.outputs
        full = self._spread(rows, rows.x)
        inside = self._spread(rows, rows.taken.double())[:, : self.p] > 0
        found = {}
        for k, kappa in enumerate(kappas):
            answer = Z.clone()
            answer[:, outputs] = full[k].unsqueeze(1)
            found[kappa] = Stop(inside[k], Fit(answer, float(rows.values[k]), 0.0))
        return found

    def steps(self, rows: Rows) -> Callable[[Tensor], Tensor]:
        """Newton's steps ``(n, L)`` on all supports for gradients ``(n, L)``."""

        def step(gradient: Tensor) -> Tensor:
            own = torch.where(rows.taken, gradient.T.gather(1, rows.places), 0.0)
            return self._spread(rows, (rows.K @ own.unsqueeze(2)).squeeze(2)).T

        return step

    def _spread(self, rows: Rows, values: Tensor) -> Tensor:
        """Values by place as values by variable, ``(L, n)``."""
        return values.new_zeros(len(values), len(self.q)).scatter_add(1, rows.places, values * rows.taken)

    def _solved(self, places: Tensor, taken: Tensor, K: Tensor) -> Rows:
        right = torch.where(taken, self.q[places], 0.0)
        x = (K @ right.unsqueeze(2)).squeeze(2)
        return Rows(places, taken, K, x, self.power - 0.5 * (right * x).sum(dim=1))

    def _left(self, rows: Rows, places: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """The inverses, and the places that are taken, once those ``(L, r)`` that are valid are free."""
        E = _one_hot(places, valid, rows.K)
        B = rows.K @ E
        inner = E.mT @ B + torch.diag_embed((~valid).to(B.dtype))
        keep = rows.taken & (E.sum(dim=2) == 0)
        K = rows.K - B @ torch.linalg.inv_ex(inner).inverse @ B.mT
        return K * (keep.unsqueeze(2) & keep.unsqueeze(1)), keep

    def _joined(self, places: Tensor, taken: Tensor, K: Tensor, at: Tensor, variables: Tensor, valid: Tensor) -> Rows:
        """Rows with more variables in free places."""
        E = _one_hot(at, valid, K)
        h = self.H[places.unsqueeze(2), variables.unsqueeze(1)]
        U = (K @ h) * valid.unsqueeze(1)
        inner = self.H[variables.unsqueeze(2), variables.unsqueeze(1)] - h.mT @ U
        both = valid.unsqueeze(2) & valid.unsqueeze(1)
        inner = torch.where(both, inner, 0.0) + torch.diag_embed((~valid).to(K.dtype))
        V = U - E
        K = K + V @ torch.linalg.inv_ex(inner).inverse @ V.mT
        filled = E.sum(dim=2) > 0
        places = torch.where(filled, (E * variables.unsqueeze(1)).sum(dim=2).long(), places)
        return self._solved(places, taken | filled, (K + K.mT) / 2)

    def _improved(self, rows: Rows, scores: Scores, least: Tensor) -> tuple[Rows, Tensor]:
        """Rows after all of their swaps, or after fewer and fewer of them until the objective falls; and which fell."""
        good = scores.gains > least
        order = (~good).int().argsort(dim=1, stable=True)[:, : int(good.sum(dim=1).max())]
        out, into = scores.out.gather(1, order), scores.into.gather(1, order)
        counts = good.sum(dim=1)
        waiting = torch.arange(len(counts), device=counts.device)
        changed = torch.zeros_like(waiting, dtype=torch.bool)
        while len(waiting):
            width = int(counts[waiting].max())
            valid = torch.arange(width, device=counts.device) < counts[waiting].unsqueeze(1)
            before = rows.at(waiting)
            at = out[waiting, :width]
            K, keep = self._left(before, at, valid)
            moved = self._joined(before.places, keep, K, at, into[waiting, :width], valid)
            fell = moved.values < before.values - least[waiting, 0]
            changed[waiting[fell]] = True
            rows = rows.updated(waiting[fell], moved.at(fell))
            waiting = waiting[~fell & (counts[waiting] > 1)]
            counts = torch.where(counts > 1, counts // 4, counts).clamp(min=1)
        return rows, changed

    def _scores(self, rows: Rows) -> Scores:
        """Scores of all rows, some at a time."""
        size = max(1, BLOCK_NUMBERS // (self.places * len(self.q)))
        return Scores.together([self._block(rows.at(slice(k, k + size))) for k in range(0, len(rows.x), size)])

    def _block(self, rows: Rows) -> Scores:
        self.scene.work += 2.0 * rows.K.numel() * len(self.q)
        columns = self.H[rows.places]
        T = rows.K @ columns
        own = self.H.diagonal()
        left = own - (columns * T).sum(dim=1)
        d = (rows.x.unsqueeze(1) @ columns).squeeze(1) - self.q
        del columns
        inside = self._spread(rows, rows.taken.to(T.dtype)) > 0
        left_over = torch.where(inside, d, 0.0).norm(dim=1) / self.q.norm().clamp(min=torch.finfo(d.dtype).tiny)
        # A number that is none stays in the maximum.
        self.drift = torch.maximum(self.drift, left_over.max())
        costs = self.costs(rows)
        removable = costs.isfinite()
        inverse = torch.where(removable, 1 / rows.K.diagonal(dim1=1, dim2=2), 0.0)
        curvature = T.square().mul_(inverse.unsqueeze(2)).add_(left.clamp(min=0).unsqueeze(1))
        curvature.clamp_(min=torch.finfo(T.dtype).tiny)
        gains = T.mul_((rows.x * inverse).unsqueeze(2)).neg_().add_(d.unsqueeze(1)).square_().div_(2 * curvature)
        del curvature
        gains.sub_(costs.unsqueeze(2)).masked_fill_(inside.unsqueeze(1), -torch.inf)
        count = min(MOST_SWAPS, gains.shape[1], self.p)
        out, into = gains.amax(dim=2).topk(count, dim=1).indices, gains.amax(dim=1).topk(count, dim=1).indices
        each = torch.arange(len(out), device=out.device).unsqueeze(1)
        helps = d.square() / (2 * torch.maximum(left, 1e-9 * own + torch.finfo(own.dtype).tiny))
        return Scores(out, into, gains[each, out, into], costs, torch.where(inside, -torch.inf, helps))


def _one_hot(places: Tensor, valid: Tensor, like: Tensor) -> Tensor:
    """``(L, W, r)``: a one in each of the places ``(L, r)`` that is valid."""
    E = like.new_zeros(len(places), like.shape[1], places.shape[1])
    return E.scatter(1, places.unsqueeze(1), valid.unsqueeze(1).to(like.dtype))
