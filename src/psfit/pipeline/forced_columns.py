"""Wide problems with features that are always in: these are eliminated once, or replaced by fewer columns.

With the columns F of these features, their ridge R and the residuals r that all other coefficients leave, the best
values of theirs leave of the squared loss

    min_x  |r - F x|^2 + x'Rx / 2  =  r'M^-1 r,      M = 1 + 2 F R^-1 F'.

So any L with ``L'L = M^-1`` times the other columns, and times the targets, is the same problem without these features.
With any loss, their predictors are ``F x = K^1/2 c`` with ``K = F R^-1 F'``, and the least ridge of such coefficients
is that of `c` with ridges of one. So no more columns are needed than there are samples. Fits and proofs of what the
search finds are made with all features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.data import Dense, Source
from psfit.kernels.linalg import cholesky
from psfit.pipeline.answers import Answers
from psfit.problem.instance import Instance
from psfit.search.refit import refit

# The fewest features that are worth it; the most numbers of the new columns, and the most multiplications for them.
FEWEST = 8
MOST_NUMBERS = 1 << 25
MOST_WORK = {"cpu": 2e10, "cuda": 2e12}
# With a weak ridge M has values so large that its others, which are one, would be lost in a factor. Up to this sum of
# the values of M - 1 a factor is exact enough to search with; beyond, singular values are, which take much longer.
MOST_SPREAD = 1e7
# Directions in which K is smaller than this share of its largest value have no coefficients.
LEAST_SHARE = 1e-12


@dataclass(frozen=True)
class ShortProblem:
    """The problem `rest` has the features `kept` of the `whole`, and fewer columns for the `forced` ones.

    The first of the forced features may be kept as carriers: their columns stand for those of all forced ones, whose
    coefficients are ``back (f, carriers)`` times those of the carriers.
    """

    whole: Instance
    rest: Instance
    forced: Tensor
    kept: Tensor
    back: Tensor

    def lower(self, kappas: Sequence[int]) -> list[int]:
        """Limits without the places of the features that are not kept."""
        return [kappa - (len(self.forced) - self.back.shape[1]) for kappa in kappas]

    def restore(self, answers: Answers) -> Answers:
        """The answers with all features: fits on the supports that were found, and the forced features."""
        inst, fits = self.whole, []
        Z = torch.stack([inst.fill_rows(one, self.kept) for one in answers.Z])
        Z[:, self.forced] = self.back @ Z[:, self.forced[: self.back.shape[1]]]
        always = Z.new_zeros(Z.shape[1:]).index_fill(0, self.forced, 1.0)
        for number in range(inst.items.problems):
            supports = [inst.items.pack(always + one.abs())[number] > 0 for one in Z]
            fits.append([refit(inst, number, support, one) for support, one in zip(supports, Z, strict=True)])
        found = Answers.of(inst, fits, answers.iteration, answers.contributions)
        return replace(found, candidates=answers.candidates + len(self.forced) - self.back.shape[1])


def shorten_forced_columns(inst: Instance) -> ShortProblem | None:
    """The problem with fewer forced columns; None where that does not serve."""
    forced = torch.tensor(sorted(inst.problem.constraints.include), dtype=torch.long, device=inst.ridge.device)
    if not _serves(inst, forced):
        return None
    if inst.problem.loss.quadratic:
        return _eliminate(inst, forced)
    return _replace(inst, forced) if len(forced) > inst.samples else None


def _eliminate(inst: Instance, forced: Tensor) -> ShortProblem:
    """The squared loss without the forced features."""
    source, root = inst.source, inst.source.weight.sqrt()
    shrink = _make_shrink(root * _take_columns(inst, forced) * (2 / inst.ridge[forced, 0]).sqrt()) * root.T
    part, kept = _restrict(inst, forced, 0)
    columns = shrink @ part.source.matrix.chunk(0, inst.samples, torch.float64)
    norm = float(columns[:, : len(kept)].square().sum(dim=0).mean().sqrt())
    matrix = Dense(columns.to(source.matrix.dtype))
    rest = replace(
        part,
        source=Source(matrix, shrink @ source.target, torch.ones_like(source.weight)),
        coordinates=replace(part.coordinates, column_norm=norm),
    )
    return ShortProblem(inst, rest, forced, kept, inst.ridge.new_zeros(len(forced), 0))


def _make_shrink(half: Tensor) -> Tensor:
    """A matrix ``L`` with ``L'L = (1 + half half')^-1``."""
    M = half @ half.T
    if float(M.trace()) <= MOST_SPREAD:
        M.diagonal().add_(1.0)
        return torch.linalg.solve_triangular(cholesky(M), torch.eye(len(M)).to(M), upper=False)
    vectors, sizes, _ = torch.linalg.svd(half, full_matrices=False)
    shrink = (vectors * ((1 + sizes.square()).rsqrt() - 1)) @ vectors.T
    shrink.diagonal().add_(1.0)
    return shrink


def _replace(inst: Instance, forced: Tensor) -> ShortProblem:
    """Any loss with as many forced features as there are samples."""
    F, ridge, count = _take_columns(inst, forced), inst.ridge[forced, 0], inst.samples
    root = F / ridge.sqrt()
    values, vectors = torch.linalg.eigh(root @ root.T)
    values = values.clamp(min=0)
    # The carriers have ridges of their own, and their columns are as much larger.
    scale = ridge[:count].sqrt()
    half = (vectors * values.sqrt()) @ vectors.T * scale
    inverse = torch.where(values > LEAST_SHARE * values[-1], values, torch.inf).rsqrt()
    back = (F / ridge).T @ ((vectors * inverse) @ vectors.T * scale)
    part, kept = _restrict(inst, forced, count)
    columns = part.source.matrix.chunk(0, count, torch.float64).clone()
    columns[:, torch.searchsorted(kept, forced[:count])] = half
    matrix = Dense(columns.to(inst.source.matrix.dtype))
    rest = replace(part, source=Source(matrix, inst.source.target, inst.source.weight))
    return ShortProblem(inst, rest, forced, kept, back)


def _take_columns(inst: Instance, features: Tensor) -> Tensor:
    return inst.source.matrix.columns(features).chunk(0, inst.samples, torch.float64)


def _restrict(inst: Instance, forced: Tensor, carriers: int) -> tuple[Instance, Tensor]:
    """The problem with the first of the forced features and all others, and the features that it has."""
    gone, constraints = forced[carriers:], inst.problem.constraints
    here = torch.ones(inst.items.features, dtype=torch.bool, device=forced.device).index_fill(0, gone, False)
    kept = here.nonzero().flatten()
    part = inst.restrict(kept)
    rules = replace(
        constraints, include=tuple(forced[:carriers].tolist()), exclude=(*constraints.exclude, *gone.tolist())
    )
    kappa = tuple(kappa - len(gone) for kappa in inst.problem.kappa)
    return replace(part, problem=replace(part.problem, kappa=kappa, constraints=rules)), kept


def _serves(inst: Instance, forced: Tensor) -> bool:
    """Whether all samples are here, with too many columns for a form, and the features have no rules and no bounds.

    Searches in a form of all columns eliminate the forced ones from it, which costs less where there is such a form.
    """
    problem, matrix, costs = inst.problem, inst.source.matrix, inst.costs
    alone = inst.grid.world.size == 1 and inst.grid.nodes.size == 1 and inst.grid.blocks.size == 1
    wide = alone and not matrix.streamed and costs.uses_candidates and not costs.tall
    if not wide or len(forced) < FEWEST or min(problem.kappa) <= len(forced):
        return False
    rules = problem.constraints
    ruled, numbers = rules.group is not None or rules.kind is not None, matrix.shape[0] * matrix.shape[1]
    if ruled or rules.parents or numbers > MOST_NUMBERS or inst.samples * numbers > MOST_WORK[matrix.device.type]:
        return False
    box = None if inst.box is None else inst.box.select_rows(forced)
    return box is None or bool((box.low.isinf() & box.high.isinf()).all())
