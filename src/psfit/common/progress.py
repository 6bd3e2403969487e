"""How far a fit is, and the callback that is told about it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from psfit.common.status import relative_gap


@dataclass(frozen=True)
class Progress:
    """How far a fit is; what is not known yet is not a number, or minus infinity for the bound.

    Parameters
    ----------
    phase : str
        What is being done: the iteration, the polish, the proof, ...
    seconds : float
        Since the start of the fit.
    iteration : int
        The last outer iteration.
    primal, dual, bilinear : float
        The paper's residuals of the iteration before, the largest of all problems; shares, as in `Record`.
    nonzeros : int
        Nonzero coefficients of the iterate, the most of any problem.
    objective : float
        The best answer so far, refitted on at most kappa nonzeros; summed over independent problems.
    lower_bound : float
        Proved so far: no answer within the limit is better.
    done, total : int
        Limits of a path that have an answer, and all of them.
    gamma, gammas : int
        The number of the gamma whose path is being fitted, from 1, and how many there are.
    explored, open : int
        Nodes of the search tree of exact mode: looked at, and waiting.
    seconds_left : float
        About how long it still takes, where that is known: of several folds or resamples.
    """

    phase: str = "the set-up"
    seconds: float = 0.0
    iteration: int = 0
    primal: float = math.nan
    dual: float = math.nan
    bilinear: float = math.nan
    nonzeros: int = 0
    objective: float = math.nan
    lower_bound: float = -math.inf
    done: int = 0
    total: int = 0
    gamma: int = 1
    gammas: int = 1
    explored: int = 0
    open: int = 0
    seconds_left: float = math.nan

    @property
    def gap(self) -> float:
        """``(objective - lower_bound) / |objective|``."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def share_done(self) -> float:
        """About the share of the work on all limits and gammas that is done; not a number before the first limit."""
        share = (self.gamma - 1 + (self.done / self.total if self.total else 0.0)) / self.gammas
        return share or math.nan


# Is told about progress; if it returns True, the fit ends with the best answer so far.
Callback = Callable[[Progress], bool | None]


class Reporter:
    """Tells a callback what is new, and remembers whether it asked to stop.

    Parameters
    ----------
    callback : callable, optional
        Without one nothing is reported.
    problems : int
        Independent problems whose objectives add up; zero if they do not, as along a path.
    """

    def __init__(self, callback: Callback | None = None, problems: int = 0) -> None:
        self.callback = callback
        self.asked_to_stop = False
        self._start = time.perf_counter()
        self._progress = Progress()
        self._objectives, self._bounds = [math.inf] * problems, [-math.inf] * problems

    @property
    def seconds(self) -> float:
        """Since the start of the fit."""
        return time.perf_counter() - self._start

    def report(self, **news: Any) -> None:
        """Tell the callback which fields of `Progress` have changed."""
        if self.callback is not None:
            self._progress = replace(self._progress, seconds=self.seconds, **news)
            self.asked_to_stop = bool(self.callback(self._progress)) or self.asked_to_stop

    def report_objective(self, problem: int, objective: float) -> None:
        """A problem has an answer with this objective."""
        if self._objectives and objective < self._objectives[problem]:
            self._objectives[problem] = objective
            total = sum(self._objectives)
            if math.isfinite(total):
                self.report(objective=total)

    def report_bound(self, problem: int, lower: float) -> None:
        """No answer of a problem is below this bound."""
        if self._bounds and lower > self._bounds[problem]:
            self._bounds[problem] = lower
            self.report(lower_bound=sum(self._bounds))
