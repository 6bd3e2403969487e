"""The settings of the solver: what each may be, and what follows from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from psfit.admm.local import BY_NAME, LocalSolver
from psfit.common.arguments import BOOLEAN, NONE, POSITIVE, Rule, check, instance, integer, number, one_of

Penalty = float | Literal["auto"]

# A search with the effort "high" ends early only where the certificate leaves as good as nothing to find.
THOROUGH_GAP = 1e-9

# What each setting may be.
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
        Seconds after which the fit ends with the best answer so far; the refit of that comes on top.
    local : str, LocalSolver or None
        The local solver: "direct", "newton", "feature_split"; None chooses by loss, shape and grid.
    effort : {"low", "medium", "high"}, default="medium"
        How hard to look for the support. "low" is the paper's algorithm with a refit. "medium" runs a portfolio of
        penalties as columns of one batch and improves the best support by swaps and a few perturbed restarts; "high"
        restarts until many of them in a row bring nothing.
    exact : bool, default=False
        Go on after the polish with branch and bound until no support can be better by more than `gap_tol`, or the time
        limit comes. Quick where the certificate's gap is small; without a limit it may search for very long elsewhere.
    gap_tol : float, default=1e-4
        The relative gap at which exact mode is done, and a certificate good enough to end the search for supports (with
        the effort "high" that needs a smaller one).
    checkpoint : str, Path or None
        A folder for checkpoints of the iteration. A run that finds one of its own there goes on from it; one of other
        data or settings is refused. Only one run at a time can use a folder.
    checkpoint_every : int, default=50
        Iterations between checkpoints; SIGTERM during the iteration writes one, too, and raises `StoppedError`.
    portfolio : bool, default=True
        Try several penalties side by side, where the effort allows it.
    precision : {"auto", "highest"}, default="auto"
        How Gram matrices of float32 data are made on a GPU: "auto" by integer products with a known error where they
        are good enough, "highest" always in floating point. The answer is refitted and proved in float64 either way.
    record_objective : bool, default=False
        Write the objective at z into every history record (one more pass over the data each).
    interruptible : bool, default=False
        Whether Ctrl-C and SIGTERM end the fit with the best answer so far, whose status says so; else they end the
        program, as usual. A second Ctrl-C does so in any case.
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

    def __post_init__(self) -> None:
        for name, value in check(self, RULES).items():
            object.__setattr__(self, name, value)

    @property
    def thoroughness(self) -> str:
        """The effort, but "brief" where a search that goes everywhere follows and needs no more than a good start."""
        return "brief" if self.exact and self.effort == "medium" else self.effort

    @property
    def certified_gap(self) -> float:
        """The gap at which a certificate is good enough and the search for supports can end; hardly any for "high"."""
        return min(self.gap_tol, THOROUGH_GAP) if self.effort == "high" else self.gap_tol
