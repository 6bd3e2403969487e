"""Paths on subsamples: the training folds of cross-validation, the halves of stability selection.

A subsample is a mask: the other samples stay where they are and have weight zero, so data of every kind can be divided
without a copy. For the squared loss the quadratic forms of all subsamples come from one pass: the masks divide the
samples into pieces, and the form of a subsample is the sum over its pieces.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid
from psfit.common.progress import Callback
from psfit.common.signals import Signals
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.pipeline.path import Points, run_path, widen
from psfit.pipeline.task import Task, agree_on_task
from psfit.problem import Problem
from psfit.problem.costs import form_suffices
from psfit.problem.pose import reference_point


@dataclass(frozen=True)
class Subsamples:
    """Subsamples of this rank's samples by their ``masks (S, m)``, and the forms of the `pieces`, if known: the form of
    subsample s is the sum of the `pieces` that ``patterns[s]`` marks.
    """

    task: Task
    masks: Tensor
    pieces: tuple[RawForm, ...]
    patterns: Tensor

    @classmethod
    @torch.inference_mode()
    def of(cls, problem: Problem, source: Source, grid: Grid, masks: Tensor, solver: BiCADMM | None) -> "Subsamples":
        """Agree on the task; if quadratic forms are all that is needed, make them in one pass for all subsamples."""
        # Many models are fitted to subsamples, so only the highest effort restarts their searches.
        brief = solver is None or solver.effort != "high"
        task = agree_on_task(problem, source, solver, grid, False, brief)
        masks = masks.to(source.matrix.device)
        patterns, piece = torch.unique(masks, dim=1, return_inverse=True)
        count = patterns.shape[1]
        most = int(grid.world.all_reduce(torch.tensor([count]), "max"))
        pieces: list[RawForm] = []
        # Folds make one piece each, and perhaps one more. Random masks would make too many pieces.
        if most <= 2 * len(masks) and form_suffices(problem, source, grid, most + 1):
            # The fit to all samples may use these forms, too, and may need exact products.
            exact = task.exact_products or task.solver.exact
            reference = reference_point(problem, source, grid)
            split = source.split(len(grid.nodes.hosted))
            pieces = grid.run_together(lambda: RawForm.of_parts(split, reference, exact, piece, count))
        return cls(task, masks, tuple(pieces), patterns)

    @property
    def whole(self) -> RawForm | None:
        """The form of all samples."""
        return RawForm.sum(self.pieces) if self.pieces else None

    @torch.inference_mode()
    def path(
        self,
        number: int,
        kappas: Sequence[int],
        gammas: Sequence[float],
        callback: Callback | None = None,
        received: Signals | None = None,
    ) -> list[Points]:
        """Paths over rising `kappas` without certificates, one for each gamma, on one of the subsamples.

        Signals are noted in `received`, if it is given; those that came before end the paths, too.
        """
        source = self.task.source
        weight = source.weight * self.masks[number].unsqueeze(1)
        part = Source(source.matrix, source.target, weight, source.bounds)
        task = replace(self.task, problem=widen(self.task.problem, part, kappas), source=part)
        return run_path(task, kappas, gammas, self._form(number), callback, received=received)

    def _form(self, number: int) -> RawForm | None:
        """The form of one of the subsamples; that of no samples where this rank has none of it."""
        if not self.pieces:
            return None
        mine = [piece for piece, member in zip(self.pieces, self.patterns[number].tolist(), strict=True) if member]
        return RawForm.sum(mine) if mine else self.pieces[0].empty()


@torch.inference_mode()
def predictors(
    source: Source, masks: Tensor, coefs: Tensor, intercepts: Tensor
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Predictors of all models of every subsample on the samples that its mask marks, from one pass over the data.

    Parameters
    ----------
    masks : Tensor (S, m), bool
    coefs : Tensor (S, J, p, c)
    intercepts : Tensor (S, J, c)

    Yields the number of a subsample, some of its samples ``(h,)`` and their predictors ``(h, J, c)``.
    """
    _, models, p, c = coefs.shape
    masks = masks.to(source.matrix.device)
    stacked = coefs.to(source.matrix.device, torch.float64).permute(0, 2, 1, 3).reshape(len(coefs), p, models * c)
    offsets = intercepts.to(stacked).reshape(len(coefs), 1, models * c)
    for at, strip in source.matrix.strips(torch.float64):
        for number, mask in enumerate(masks[:, at]):
            index = mask.nonzero().flatten()
            if len(index):
                eta = strip.rows(index).mv(stacked[number]) + offsets[number]
                yield number, index + at.start, eta.view(-1, models, c)


@torch.inference_mode()
def loss_sums(
    problem: Problem, source: Source, grid: Grid, masks: Tensor, coefs: Tensor, intercepts: Tensor
) -> tuple[Tensor, Tensor]:
    """Weighted losses ``(S, J, d)`` of the models of every mask on its samples, and their weights ``(S,)``.

    See `predictors` for the parameters; d is the number of outputs, or one for a joint loss.
    """
    parts, models, _, c = coefs.shape
    outputs = 1 if problem.loss.joint else c
    sums = torch.zeros(parts, models * outputs + 1, dtype=torch.float64, device=source.matrix.device)
    for number, rows, eta in predictors(source, masks, coefs, intercepts):
        target = source.target[rows].unsqueeze(1).expand_as(eta)
        values = problem.loss.value(eta.reshape(-1, c), target.reshape(-1, c)).view(len(rows), models * outputs)
        weight = source.weight[rows]
        sums[number, :-1] += (weight * values).sum(dim=0)
        sums[number, -1] += weight.sum()
    sums = grid.nodes.total(sums).cpu()
    return sums[:, :-1].view(parts, models, outputs), sums[:, -1]
