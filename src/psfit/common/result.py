"""What a solve returns: an answer, how it was reached, and a status whose value is advice."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np


class Status(Enum):
    """How a run ended; the value tells the user what to do about it."""

    RUNNING = "still running"
    CONVERGED = "all residuals are within tolerance"
    SETTLED = "the support no longer changes; the coefficients on it were made exact by the refit"
    MAX_ITER = "the iteration limit came first; the answer is feasible and refitted, raise max_iter for more"
    TIME_LIMIT = "the time limit came first; the answer is feasible and refitted, raise time_limit for more"
    INTERRUPTED = (
        "it was asked to stop; the answer is the best so far, feasible and refitted, its bound what was proved"
    )
    TERMINATED = "SIGTERM came first; the answer is the best so far, refitted; its bound is what was proved by then"
    PROVED = "no support is better by more than gap_tol"
    TREE_LIMIT = (
        "the search tree filled the memory it may use; the gap is true, a smaller gamma makes it easier to close"
    )
    ROUNDING = (
        "every support was looked at, but rounding leaves a larger gap than gap_tol; the gap is true, "
        "a smaller gamma makes it smaller"
    )
    DIVERGED = (
        "the iteration left the range of floating-point numbers; the answer is refitted from the last finite point. "
        "Rescale y, or leave rho_c and rho_b at 'auto'"
    )


# How a run can end before its work is done although nobody asked it to; those who asked know.
CUT_SHORT = (Status.MAX_ITER, Status.TIME_LIMIT, Status.TREE_LIMIT, Status.ROUNDING, Status.DIVERGED)
# A proof as tight as this says that the answer is good, however the run ended.
CLOSED_GAP = 1e-4
# A healthy refit leaves far less of the gradient over than this share; with more, the coefficients are not the best of
# their support.
REFIT_TOLERANCE = 1e-6


def relative_gap(objective: float, lower_bound: float) -> float:
    """Their distance as a share of the objective; zero only if they are equal."""
    distance = objective - lower_bound
    return 0.0 if distance == 0 else distance / max(abs(objective), np.finfo(float).tiny)


@dataclass(frozen=True)
class Record:
    """One outer iteration: the paper's residuals p, d, b and what else was measured.

    Parameters
    ----------
    iteration : int
        Its number, from one.
    primal, dual, bilinear : float
        The residuals ``p = sum_i ||x_i - z||``, ``d = sqrt(N) rho_c ||z - z_old||`` and ``b = |s'z - t|``, as shares of
        the sizes of what they compare. They are within tolerance if they are at most `tol`, whatever the units of the
        data.
    nonzeros : int
        Nonzero items of z.
    seconds : float
        Time since the start of the fit.
    objective : float or None
        The objective at z, if ``BiCADMM(record_objective=True)`` asked for it.
    sent_bytes, sent_seconds, fetched_bytes, fetched_seconds : int, float
        What was sent to the device and fetched back from it since the placing of the data; zero where the device is
        the host.
    """

    iteration: int
    primal: float
    dual: float
    bilinear: float
    nonzeros: int
    seconds: float
    objective: float | None = None
    sent_bytes: int = 0
    sent_seconds: float = 0.0
    fetched_bytes: int = 0
    fetched_seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """The answer to a sparse fitting problem; ``print`` says it in words.

    Parameters
    ----------
    coef : ndarray (p, c)
        Coefficients in the user's units; at most kappa nonzeros.
    intercept : ndarray (c,)
        Intercepts; zeros if none was fitted.
    objectives : ndarray (problems,)
        Objective of each independent problem.
    lower_bounds : ndarray (problems,)
        Proved: no coefficients within the limit have a smaller objective. Minus infinity if no proof was asked for.
    kappa : tuple of int
        The limit of each independent problem.
    loss, sparsity : str
        What was minimised, and what kappa counted.
    samples, nodes, blocks : int
        Samples on all nodes together, and the grid.
    local : str
        The local solver.
    status : Status
        How the iteration ended.
    n_iter : int
        Outer iterations.
    seconds : float
        Time of the whole fit, proof included.
    certain_in, certain_out : int
        How many items (coefficients, or rows) are proved to be in every better support, or in none.
    tree_nodes : int
        Nodes of the search tree of exact mode.
    candidates : int
        Features that the iteration saw; all of them unless the data are too large for that.
    passes : float
        How often the data were read from where they lie; zero if they were in memory.
    residual : float
        Relative size of the gradient (or duality gap) that the final refit left over; rounding level in a healthy fit.
        Above `REFIT_TOLERANCE` (1e-6) the printed text and `concerns` say so.
    penalties : dict
        The penalties rho_c, rho_b and rho_l that were used, in internal coordinates.
    history : tuple of Record
        A record for every outer iteration.
    """

    coef: np.ndarray
    intercept: np.ndarray
    objectives: np.ndarray
    lower_bounds: np.ndarray
    kappa: tuple[int, ...]
    loss: str
    sparsity: str
    samples: int
    nodes: int
    blocks: int
    local: str
    status: Status
    n_iter: int
    seconds: float
    certain_in: int
    certain_out: int
    tree_nodes: int
    residual: float
    penalties: dict[str, float]
    candidates: int
    passes: float
    history: tuple[Record, ...] = field(repr=False, default=())

    @property
    def objective(self) -> float:
        """The objective, summed over independent problems."""
        return float(self.objectives.sum())

    @property
    def lower_bound(self) -> float:
        """The proved lower bound, summed over independent problems."""
        return float(self.lower_bounds.sum())

    @property
    def gap(self) -> float:
        """``(objective - lower_bound) / |objective|``: by how much, at most, a better answer could be better."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def concerns(self) -> tuple[str, ...]:
        """Why the answer may not be what was asked for, each with a remedy; none in a healthy fit."""
        doubtful = self.status in CUT_SHORT and not self.gap <= CLOSED_GAP
        ended = f"{self.status.name}: {self.status.value}" if doubtful else ""
        return tuple(said for said in (ended, self._refit()) if said)

    def _refit(self) -> str:
        """What is wrong with the refit, if anything is."""
        if self.residual <= REFIT_TOLERANCE:
            return ""
        return (
            f"the refit left a relative residual of {self.residual:.1e}, above {REFIT_TOLERANCE:g}: the coefficients "
            "do not minimise the objective on their support; use a smaller gamma, or standardize=True"
        )

    def _proved(self) -> str:
        """The certificate in words."""
        if not np.isfinite(self.lower_bound):
            return "none was asked for"
        said = f"no answer within the limit has an objective below {self.lower_bound:.8g}, gap {self.gap:.2g}"
        if len(self.kappa) == 1 and self.certain_in >= self.kappa[0]:
            said += "; no other support is better"
        elif self.certain_in or self.certain_out:
            said += f"; every better support has {self.certain_in} known items and none of {self.certain_out} others"
        if self.tree_nodes:
            said += f"; {self.tree_nodes:,} tree nodes"
        if self.gap > 0.05:
            on = "more time" if self.tree_nodes else "exact mode"
            said += f" (a smaller gamma proves more, {on} searches on)"
        return said

    def _reading(self) -> str:
        """What was special about data that are large."""
        said = f", on {self.candidates:,} candidate features" if self.candidates < self.coef.shape[0] else ""
        return said + (f", data read {self.passes:.1f} times" if self.passes else "")

    @property
    def support(self) -> np.ndarray:
        """Sorted indices of the features with a nonzero coefficient in any output."""
        return np.flatnonzero(np.any(self.coef != 0, axis=1))

    def __str__(self) -> str:
        p, c = self.coef.shape
        shown = ", ".join(str(j) for j in self.support[:12]) + (", ..." if len(self.support) > 12 else "")
        limit = str(self.kappa[0]) if len(set(self.kappa)) == 1 else str(list(self.kappa))
        unit = "rows" if self.sparsity == "feature" and c > 1 else "nonzero coefficients"
        each = f" in each of {len(self.kappa)} problems" if len(self.kappa) > 1 else ""
        outputs = f" x {c} outputs" if c > 1 else ""
        return "\n".join(
            [
                f"Sparse {self.loss} fit: {self.samples:,} samples x {p:,} features{outputs}, "
                f"{self.nodes} node{'s' * (self.nodes > 1)} x {self.blocks} block{'s' * (self.blocks > 1)}",
                f"  objective  {self.objective:.8g}",
                f"  proved     {self._proved()}",
                f"  support    {len(self.support)} features, at most {limit} {unit}{each}: {shown}",
                f"  iterations {self.n_iter} in {self.seconds:.2f} s, local solver {self.local}{self._reading()}",
                f"  status     {self.status.name}: {self.status.value}",
                *([f"  refit      {self._refit()}"] if self._refit() else []),
            ]
        )
