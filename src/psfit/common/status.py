"""How a run ended: a status whose value is advice, and the gap that says how good an answer is."""

import sys
from enum import Enum


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
    ROUNDING = (
        "every support was looked at, but rounding leaves a larger gap than gap_tol; the gap is true, "
        "a smaller gamma makes it smaller"
    )
    DIVERGED = (
        "the iteration left the range of floating-point numbers; the answer is refitted from the last finite point. "
        "Rescale y, or leave rho_c and rho_b at 'auto'"
    )


# Why a fit may be stopped before it is done; if there are several reasons, the last one counts.
STOP_REASONS = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.TERMINATED)
# How a run can end before its work is done although nobody asked it to stop: a reason to warn the user.
CUT_SHORT = (Status.MAX_ITER, Status.TIME_LIMIT, Status.ROUNDING, Status.DIVERGED)
# A proof as tight as this says that the answer is good, however the run ended.
CLOSED_GAP = 1e-4


def relative_gap(objective: float, lower_bound: float) -> float:
    """Their distance as a share of the objective; zero only if they are equal."""
    distance = objective - lower_bound
    return 0.0 if distance == 0 else distance / max(abs(objective), sys.float_info.min)
