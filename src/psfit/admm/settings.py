"""The settings of the solver: the values each may have, and what follows from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from psfit.admm.local import BY_NAME, LocalSolver
from psfit.common.arguments import BOOLEAN, NONE, POSITIVE, Rule, check, instance, integer, number, one_of, satisfying

Penalty = float | Literal["auto"]

# A search with the effort "high" ends early only if the certificate leaves a gap of at most this.
THOROUGH_GAP = 1e-9

# The values that each setting may have.
RULES: dict[str, Rule] = {
    "rho_c": POSITIVE | one_of("auto"),
    "rho_b": POSITIVE | one_of("auto"),
    "rho_l": POSITIVE | one_of("auto"),
    "tol": number("a number above 0 and below 1", lambda value: 0 < value < 1),
    "max_iter": integer(1),
    "time_limit": number("a positive number of seconds", lambda value: value > 0) | NONE,
    "local": one_of(*BY_NAME) | instance("a psfit.admm.local.LocalSolver", LocalSolver) | NONE,
    "effort": one_of("low", "medium", "high"),
    "exact": BOOLEAN,
    "gap_tol": number("a number of at least 0 and below 1", lambda value: 0 <= value < 1),
    "checkpoint": instance("the path of a folder", str, Path) | NONE,
    "checkpoint_every": integer(1),
    "portfolio": BOOLEAN,
    "precision": one_of("auto", "highest"),
    "record_objective": BOOLEAN,
    "interruptible": BOOLEAN,
    "n_jobs": integer(1) | satisfying("-1", lambda value: value == -1 and not isinstance(value, float)) | NONE,
    "random_state": integer(0) | NONE,
}


@dataclass(frozen=True)
class Settings:
    """The solver's configuration.

    Parameters
    ----------
    rho_c, rho_b, rho_l : float or "auto"
        Penalties of consensus, of the bilinear constraint and of the feature decomposition, for columns divided by
        their standard deviations (about zero without an intercept). "auto" follows the curvature of the data.
    tol : float, default=1e-4
        Relative tolerance of the residuals.
    max_iter : int, default=1000
        Most outer iterations.
    time_limit : float or None, default=None
        Seconds after which the fit ends with the best answer so far; the refit of that answer takes a little longer.
    local : str, LocalSolver or None
        The local solver: "direct", "majoriser", "newton", "feature_split"; None chooses by loss, shape and grid.
    effort : {"low", "medium", "high"}, default="medium"
        How long to search for the support. "low" is the paper's algorithm with a refit. "medium" runs a portfolio of
        penalties as columns of one batch and improves the best support by swaps and a few perturbed restarts; "high"
        restarts until many restarts in a row bring no gain.
    exact : bool, default=False
        Continue with branch and bound until no support can be better by more than `gap_tol`, or the time limit is
        reached. This is quick if the certificate's gap is small; otherwise, without a limit, it may take very long.
    gap_tol : float, default=1e-4
        The relative gap at which exact mode ends. It is also the gap at which a certificate ends the search for
        supports (with the effort "high" that gap is smaller).
    checkpoint : str, Path or None
        A folder for checkpoints of the iteration and of the trees of exact mode. A run that finds its own checkpoint
        there continues from it; a checkpoint of other data or settings is refused. Only one run at a time can use a
        folder.
    checkpoint_every : int, default=50
        Iterations, or batches of tree nodes, between checkpoints; a tree is written less often if that takes long.
        SIGTERM during the iteration or a tree writes one, too, and raises `StoppedError`. A tree is also written when
        the time limit or Ctrl-C ends it: a later run with more time goes on from there.
    portfolio : bool, default=True
        Try several penalties side by side, where the effort allows it.
    precision : {"auto", "highest"}, default="auto"
        How Gram matrices of float32 data are made on a GPU. "auto": by integer products with a known error, where these
        are accurate enough. "highest": always in floating point. Refit and proof are always in float64.
    record_objective : bool, default=False
        Write the objective at z into every history record (one more pass over the data each).
    interruptible : bool, default=False
        Whether Ctrl-C and SIGTERM end the fit with the best answer so far; its status says so. Otherwise they end the
        program, as usual. A second Ctrl-C always ends the program.
    n_jobs : int or None, default=None
        Most threads of a fit on a CPU; -1 means all cores, None as many as torch uses. Ranks may differ.
    random_state : int or None, default=None
        Seed of the random numbers of searches; None means 0, so that the same call has the same answer.
    """

    rho_c: Penalty = "auto"
    rho_b: Penalty = "auto"
    rho_l: Penalty = "auto"
    tol: float = 1e-4
    max_iter: int = 1000
    time_limit: float | None = None
    local: LocalSolver[Any] | str | None = None
    effort: Literal["low", "medium", "high"] = "medium"
    exact: bool = False
    gap_tol: float = 1e-4
    checkpoint: str | Path | None = None
    checkpoint_every: int = 50
    portfolio: bool = True
    precision: Literal["auto", "highest"] = "auto"
    record_objective: bool = False
    interruptible: bool = False
    n_jobs: int | None = None
    random_state: int | None = None

    def __post_init__(self) -> None:
        for name, value in check(self, RULES).items():
            object.__setattr__(self, name, value)

    @property
    def thoroughness(self) -> str:
        """The effort; "brief" for the effort "medium" in exact mode, where branch and bound needs only a good start."""
        return "brief" if self.exact and self.effort == "medium" else self.effort

    @property
    def certified_gap(self) -> float:
        """The gap at which a certificate ends the search for supports; nearly zero for the effort "high"."""
        return min(self.gap_tol, THOROUGH_GAP) if self.effort == "high" else self.gap_tol
