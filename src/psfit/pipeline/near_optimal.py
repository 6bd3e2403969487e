"""All supports close to the best one of a model that was fitted before."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.certificate import Standing
from psfit.certificate.near_optimal import list_close
from psfit.comm import Grid
from psfit.common.progress import Callback
from psfit.data import Source
from psfit.pipeline.checks import require_served
from psfit.pipeline.exact_mode import count_open
from psfit.pipeline.proofs import fit_supports
from psfit.pipeline.task import agree_on_task
from psfit.problem import Problem

# The objective of a model on the data may differ by this share from that of its fit: by rounding, but not by more.
SAME = 1e-4


@dataclass(frozen=True)
class CloseSupports:
    """Supports ``(S, size)`` and objectives ``(S,)``, the best first.

    All others have objectives above `cutoff`, or of at least `lower`.
    """

    supports: np.ndarray
    objectives: np.ndarray
    cutoff: float
    lower: float
    explored: int


@torch.inference_mode()
def find_close_supports(
    problem: Problem,
    source: Source,
    solver: BiCADMM,
    grid: Grid,
    answer: tuple[Tensor, Tensor],
    objective: float,
    within: float,
    at_most: int,
    callback: Callback | None = None,
) -> CloseSupports:
    """List the supports within a share of the best objective; `answer` has coefficients and intercepts of the user."""
    task = agree_on_task(problem, source, solver, grid, True, exact=True, within=within, at_most=at_most)
    watch = task.start_watch(callback, 1, keyboard=True)
    with watch.catch_signals():
        inst = task.pose(watch)
        require_served(inst)
        Z = inst.coordinates.from_user(*answer).double()
        found = float(inst.objective(Z))
        if not abs(found - objective) <= SAME * max(abs(objective), 1.0):
            raise ValueError(
                f"the model has the objective {found:.8g} on these samples, but had {objective:.8g} in its fit; "
                "pass the samples, weights and settings of its fit"
            )

        def stop(state: Standing) -> bool:
            watch.reporter.report_objective(0, state.upper)
            watch.reporter.report(explored=state.explored, open=state.open)
            return watch.must_stop()

        with task.end_other_ranks_on_error():
            fit = fit_supports(inst, 0, Z)
            listing = list_close(inst, Z, objective, fit, within, at_most, stop, count_open(inst))
    supports, objectives = listing.supports.cpu().numpy(), listing.objectives.numpy()
    return CloseSupports(supports, objectives, listing.cutoff, listing.lower, listing.explored)
