"""Supports for many limits of one quadratic problem in lockstep: every limit is a row of one batch.

In a search from limit to limit each step is a small launch, and the GPU waits for the host. Here all limits make their
steps at once. The scores of swaps are those of `exchanges`. If inverses have lost too many digits to rounding, the
gradient does not vanish on the support; this is checked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from psfit.problem import Domain
from psfit.search.inverses import Batch, Inverses, SupportBatch
from psfit.search.objective import FormObjective
from psfit.search.refit import Fit
from psfit.search.support_fit import SupportFit
from psfit.search.swaps import MAX_ROUNDS

# The most swaps of a row that are tried at once.
MOST_SWAPS = 128
# The most numbers in the scores of a block of rows, and in the inverses of all rows.
BLOCK_NUMBERS = 1 << 27
MOST_NUMBERS = 1 << 28
# How often the supports of all limits are tried at their neighbours.
SWEEPS = 3
# The largest gradient on a support, as a share of the gradient at zero, for which inverses are trusted.
MOST_DRIFT = 1e-9


@dataclass(frozen=True)
class SwapScores(Batch):
    """For every row the best disjoint swaps, best first: places `out`, variables `into` and their `gains`, each
    ``(L, R)``; the cost of removing each place ``(L, W)``; and the gain of adding each variable ``(L, n)``.
    """

    out: Tensor
    into: Tensor
    gains: Tensor
    costs: Tensor
    additions: Tensor


@dataclass(frozen=True)
class PathSupports:
    """Supports by limit; Newton's steps by their inverses; whether searches from two starts always ended the same."""

    found: dict[int, SupportFit]
    steps: Callable[[Tensor], Tensor]
    agreed: bool


def objection(domain: Domain) -> str | None:
    """Why supports of a domain cannot be searched in lockstep, or None."""
    if not domain.counts_only or domain.decided:
        return "supports that are restricted by more than their size are searched one by one"
    if domain.items.width > 1:
        return "items of several coefficients are searched one by one"
    return None


def fits_in_memory(objective: FormObjective, kappas: list[int]) -> bool:
    """Whether the inverses of all limits fit in memory."""
    return 2 * len(kappas) * (kappas[-1] + objective.inst.items.free) ** 2 <= MOST_NUMBERS


def search_in_lockstep(
    objective: FormObjective, kappas: list[int], starts: dict[int, Tensor], Z: Tensor, rel_tol: float
) -> PathSupports | None:
    """The counterpart of `search_limits`; the first and the last of the rising `kappas` must have starts.

    A limit between two starts begins with the upper start, shrunk to its size. The lower limit is searched from there,
    too: if both of its searches end at the same objective, they agree. The result is None if columns are so similar
    that the inverses cannot be trusted.
    """
    lockstep = Lockstep(objective, kappas[-1], rel_tol)
    first, labels = lockstep.start(kappas, starts)
    rows, scores = lockstep.search(first)
    index = torch.tensor([labels.index(kappa) for kappa in kappas], device=rows.x.device)
    twice = [k for k, kappa in enumerate(labels) if labels.index(kappa) < k and kappa in starts]
    second = rows.select(torch.tensor(twice, dtype=torch.long, device=index.device))
    limits = torch.tensor([kappas.index(labels[k]) for k in twice], dtype=torch.long, device=index.device)
    rows, scores = rows.select(index), scores.select(index)
    difference = second.values - rows.values[limits]
    agreed = bool((difference.abs() <= rel_tol * second.values.abs()).all())
    better = (difference < 0).nonzero().flatten()
    if len(better):
        rows, scores = lockstep.replace(rows, scores, limits[better], second.select(better))
    rows = lockstep.pass_on(rows, scores, torch.tensor(kappas, device=index.device))
    if not bool(lockstep.drift <= MOST_DRIFT):
        return None
    return PathSupports(lockstep.supports(rows, kappas, Z), lockstep.inverses.newton_steps(rows), agreed)


class Lockstep:
    """Searches of many rows at once; a swap must gain the share `rel_tol` of the objective."""

    def __init__(self, objective: FormObjective, widest: int, rel_tol: float) -> None:
        items, form = objective.inst.items, objective.form
        self.objective, self.rel_tol = objective, rel_tol
        assert form.hessian is not None
        self.inverses = Inverses(form.hessian, form.Q[:, 0], objective.power, items.features, widest + items.free)
        # The largest gradient on any support, as a share of the gradient at zero.
        self.drift = self.inverses.q.new_zeros(())

    def start(self, kappas: list[int], starts: dict[int, Tensor]) -> tuple[SupportBatch, list[int]]:
        """Rows of the starts, and of each start shrunk to all limits down to the next start; and their limits."""
        labels = [kappa for kappa in kappas if kappa in starts]
        parts = [SupportBatch.join([self.inverses.invert(starts[kappa]) for kappa in labels])]
        below = [[k for k in reversed(kappas) if low <= k < high] for low, high in pairwise(labels)]
        rows, sizes = parts[0].select(slice(1, None)), labels[1:]
        for depth in range(max(map(len, below), default=0)):
            # Rows that have reached their last limit wait for the others.
            goals = [limits[min(depth, len(limits) - 1)] for limits in below]
            counts = (torch.tensor(sizes) - torch.tensor(goals)).to(rows.x.device)
            rows, sizes = self.inverses.shrink(rows, self.inverses.costs(rows), counts), goals
            moving = [k for k, limits in enumerate(below) if depth < len(limits)]
            parts.append(rows.select(torch.tensor(moving, device=rows.x.device)))
            labels = [*labels, *(goals[k] for k in moving)]
        return SupportBatch.join(parts), labels

    def search(self, rows: SupportBatch) -> tuple[SupportBatch, SwapScores]:
        """Swap in all rows until none of them has a swap that helps; return them and their last scores."""
        scores = self._score(rows)
        live = torch.arange(len(rows.x), device=rows.x.device)
        latest = scores
        for _ in range(MAX_ROUNDS):
            least = self.rel_tol * rows.values[live].abs().unsqueeze(1)
            moving = latest.gains[:, 0] > least[:, 0]
            live, latest, least = live[moving], latest.select(moving), least[moving]
            if not len(live) or self.objective.inst.watch.must_stop():
                break
            moved, changed = self._improve(rows.select(live), latest, least)
            live = live[changed]
            if not len(live):
                break
            rows = rows.replace(live, moved.select(changed))
            latest = self._score(rows.select(live))
            scores = scores.replace(live, latest)
        return rows, scores

    def replace(
        self, rows: SupportBatch, scores: SwapScores, index: Tensor, others: SupportBatch
    ) -> tuple[SupportBatch, SwapScores]:
        """Search from other supports, and put the results in place of some rows."""
        others, theirs = self.search(others)
        return rows.replace(index, others), scores.replace(index, theirs)

    def pass_on(self, rows: SupportBatch, scores: SwapScores, kappas: Tensor) -> SupportBatch:
        """Try the support of every limit at the next smaller and the next larger one."""
        if len(kappas) == 1:
            return rows
        counts = kappas.diff()
        for _ in range(SWEEPS):
            smaller = self.inverses.shrink(rows.select(slice(1, None)), scores.costs[1:], counts)
            larger = self.inverses.grow(rows.select(slice(-1)), scores.additions[:-1], counts)
            least = self.rel_tol * rows.values.abs()
            down = (smaller.values < rows.values[:-1] - least[:-1]).nonzero().flatten()
            if len(down):
                rows, scores = self.replace(rows, scores, down, smaller.select(down))
            up = (larger.values < rows.values[1:] - least[1:]).nonzero().flatten()
            if len(up):
                rows, scores = self.replace(rows, scores, up + 1, larger.select(up))
            if not len(down) and not len(up):
                break
        return rows

    def supports(self, rows: SupportBatch, kappas: list[int], Z: Tensor) -> dict[int, SupportFit]:
        """The rows as `SupportFit`s by limit."""
        outputs, inverses = self.objective.outputs, self.inverses
        full = inverses.by_variable(rows, rows.x)
        inside = inverses.by_variable(rows, rows.taken.double())[:, : inverses.features] > 0
        found = {}
        for k, kappa in enumerate(kappas):
            answer = Z.clone()
            answer[:, outputs] = full[k].unsqueeze(1)
            found[kappa] = SupportFit(inside[k], Fit(answer, float(rows.values[k]), 0.0))
        return found

    def _improve(self, rows: SupportBatch, scores: SwapScores, least: Tensor) -> tuple[SupportBatch, Tensor]:
        """Rows after all their swaps, or after fewer of them so that the objective falls; and where it fell."""
        good = scores.gains > least
        order = (~good).int().argsort(dim=1, stable=True)[:, : int(good.sum(dim=1).max())]
        out, into = scores.out.gather(1, order), scores.into.gather(1, order)
        counts = good.sum(dim=1)
        waiting = torch.arange(len(counts), device=counts.device)
        changed = torch.zeros_like(waiting, dtype=torch.bool)
        while len(waiting):
            width = int(counts[waiting].max())
            valid = torch.arange(width, device=counts.device) < counts[waiting].unsqueeze(1)
            before = rows.select(waiting)
            moved = self.inverses.swap(before, out[waiting, :width], into[waiting, :width], valid)
            fell = moved.values < before.values - least[waiting, 0]
            changed[waiting[fell]] = True
            rows = rows.replace(waiting[fell], moved.select(fell))
            waiting = waiting[~fell & (counts[waiting] > 1)]
            counts = torch.where(counts > 1, counts // 4, counts).clamp(min=1)
        return rows, changed

    def _score(self, rows: SupportBatch) -> SwapScores:
        """Scores of all rows, some at a time."""
        size = max(1, BLOCK_NUMBERS // (self.inverses.places * len(self.inverses.q)))
        return SwapScores.join(
            [self._score_block(rows.select(slice(k, k + size))) for k in range(0, len(rows.x), size)]
        )

    def _score_block(self, rows: SupportBatch) -> SwapScores:
        inverses, H, q = self.inverses, self.inverses.H, self.inverses.q
        self.objective.work += 2.0 * rows.K.numel() * len(q)
        columns = H[rows.places]
        T = rows.K @ columns
        own = H.diagonal()
        left = own - (columns * T).sum(dim=1)
        d = (rows.x.unsqueeze(1) @ columns).squeeze(1) - q
        del columns
        inside = inverses.by_variable(rows, rows.taken.to(T.dtype)) > 0
        remains = torch.where(inside, d, 0.0).norm(dim=1) / q.norm().clamp(min=torch.finfo(d.dtype).tiny)
        # A NaN here makes `drift` NaN, which the test at the end rejects.
        self.drift = torch.maximum(self.drift, remains.max())
        costs = inverses.costs(rows)
        removable = costs.isfinite()
        inverse = torch.where(removable, 1 / rows.K.diagonal(dim1=1, dim2=2), 0.0)
        curvature = T.square().mul_(inverse.unsqueeze(2)).add_(left.clamp(min=0).unsqueeze(1))
        curvature.clamp_(min=torch.finfo(T.dtype).tiny)
        gains = T.mul_((rows.x * inverse).unsqueeze(2)).neg_().add_(d.unsqueeze(1)).square_().div_(2 * curvature)
        del curvature
        gains.sub_(costs.unsqueeze(2)).masked_fill_(inside.unsqueeze(1), -torch.inf)
        count = min(MOST_SWAPS, gains.shape[1], inverses.features)
        out, into = gains.amax(dim=2).topk(count, dim=1).indices, gains.amax(dim=1).topk(count, dim=1).indices
        each = torch.arange(len(out), device=out.device).unsqueeze(1)
        additions = d.square() / (2 * torch.maximum(left, 1e-9 * own + torch.finfo(own.dtype).tiny))
        return SwapScores(out, into, gains[each, out, into], costs, torch.where(inside, -torch.inf, additions))
