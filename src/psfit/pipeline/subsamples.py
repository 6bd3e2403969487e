"""Paths on parts of the samples: the training folds of cross-validation, the halves of stability selection.

A part is a mask: the other samples keep their places and weigh nothing, so that data of every kind can be divided
without being moved. For the squared loss the quadratic forms of all parts come from one pass: the masks cut the samples
into pieces, and the form of a part is the sum over its pieces.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid
from psfit.comm.watch import Callback
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.pipeline.path import Points, solve_path
from psfit.problem import Problem
from psfit.problem.costs import form_suffices
from psfit.problem.pose import reference_point


@dataclass(frozen=True)
class Parts:
    """Parts of this rank's samples by their ``masks (S, m)``, with what their squares are made of, if that is known.

    The form of part s is the sum of those `pieces` that ``patterns[s]`` marks.
    """

    problem: Problem
    source: Source
    grid: Grid
    masks: Tensor
    pieces: tuple[RawForm, ...]
    patterns: Tensor

    @classmethod
    @torch.inference_mode()
    def of(cls, problem: Problem, source: Source, grid: Grid, masks: Tensor, solver: BiCADMM | None) -> "Parts":
        """Read the data once for all parts, if their forms are all that is needed and there are few enough of them."""
        masks = masks.to(source.matrix.device)
        patterns, piece = torch.unique(masks, dim=1, return_inverse=True)
        count = patterns.shape[1]
        most = int(grid.world.all_reduce(torch.tensor([count]), "max"))
        pieces: list[RawForm] = []
        # As many pieces as folds, and what no fold leaves out; masks drawn at random cut everything to dust.
        if most <= 2 * len(masks) and form_suffices(problem, source, grid, most + 1):
            exact = solver is not None and (solver.exact or solver.precision == "highest")
            reference = reference_point(problem, source, grid)
            split = source.split(len(grid.nodes.hosted))
            pieces = grid.together(lambda: RawForm.of_parts(split, reference, exact, piece, count))
        return cls(problem, source, grid, masks, tuple(pieces), patterns)

    @property
    def whole(self) -> RawForm | None:
        """The form of all samples."""
        return RawForm.sum(self.pieces) if self.pieces else None

    def path(
        self,
        number: int,
        kappas: Sequence[int],
        gammas: Sequence[float],
        solver: BiCADMM | None,
        callback: Callback | None = None,
    ) -> list[Points]:
        """Paths without certificates, one for each gamma, on one of the parts."""
        weight = self.source.weight * self.masks[number].unsqueeze(1)
        source = Source(self.source.matrix, self.source.target, weight, self.source.bounds)
        # Folds are fitted often: only those who ask for the highest effort want restarts there, too.
        brief = solver is None or solver.effort != "high"
        return solve_path(
            self.problem,
            source,
            kappas,
            gammas,
            solver,
            self.grid,
            certify=False,
            brief=brief,
            raw=self._form(number),
            callback=callback,
        )

    def _form(self, number: int) -> RawForm | None:
        """The form of one of the parts; of nothing, where this rank has no sample in it."""
        if not self.pieces:
            return None
        mine = [piece for piece, member in zip(self.pieces, self.patterns[number].tolist(), strict=True) if member]
        return RawForm.sum(mine) if mine else self.pieces[0].empty()


@torch.inference_mode()
def predictors(
    source: Source, masks: Tensor, coefs: Tensor, intercepts: Tensor
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Predictors of all models of every part on the samples that its mask marks, from one pass over the data.

    Parameters
    ----------
    masks : Tensor (S, m), bool
    coefs : Tensor (S, J, p, c)
    intercepts : Tensor (S, J, c)

    Yields the number of a part, some of its samples ``(h,)`` and their predictors ``(h, J, c)``.
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
    """Weighted losses ``(S, J, d)`` of the models of every part on the samples of its mask, and their weights ``(S,)``.

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
