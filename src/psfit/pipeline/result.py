"""The result of a fit: an answer, how it was found, and what is proved about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from psfit.admm.record import Record
from psfit.common.names import quote_name
from psfit.common.notebook import render_card
from psfit.common.status import CLOSED_GAP, CUT_SHORT, STOP_REASONS, Status, relative_gap
from psfit.search.explore import ALL_SUPPORTS, RESTARTS, Contribution

# A good refit has a far smaller relative residual than this. With a larger one, the coefficients are not the best of
# their support.
REFIT_TOLERANCE = 1e-6

# Objectives of starts that differ by less than this share are equal.
SAME = 1e-9

# The most features that a text lists.
MOST_NAMES = 12

# Losses without a minimum where classes can be separated, and the mean loss below which they are.
SEPARABLE = ("logistic", "softmax")
SEPARATED = 1e-6


@dataclass(frozen=True)
class Result:
    """The answer to a sparse fitting problem; ``print`` describes it in words.

    Parameters
    ----------
    coef : ndarray (p, c)
        Coefficients in the user's units; at most kappa nonzeros.
    intercept : ndarray (c,)
        Intercepts; zeros if none was fitted.
    objectives : ndarray (problems,)
        Objective of each independent problem.
    lower_bounds : ndarray (problems,)
        No coefficients within the limit have a smaller objective; this is proved. Minus infinity without a proof.
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
        How many items (coefficients, or rows) are proved to be in every better support, and how many in none.
    tree_nodes : int
        Nodes of the search tree of exact mode.
    candidates : int
        Features that were fitted; all of them unless the data are too large for that.
    passes : float
        How often all data were read; zero if they were in memory.
    residual : float
        Relative size of the gradient (or duality gap) after the final refit; at rounding level in a good fit.
        Above `REFIT_TOLERANCE` (1e-6) the printed text and `concerns` say so.
    penalties : dict
        The penalties rho_c, rho_b and rho_l that were used, in internal coordinates.
    history : tuple of Record
        A record for every outer iteration.
    starts : tuple of Contribution
        What each kind of start led to: its `kind`, the number of its `problem`, the objective on its support (`start`)
        and after the search from there (`end`). Of the kind "restarts" are searches from perturbations of the best
        support, of the kind "all supports" are fits on all supports, where they are few.
    constraints : tuple of str
        The constraints on the coefficients besides kappa, in words.
    counted : str
        What kappa counts, where constraints change that.
    gamma, standardize : float, bool
        The inverse weight of the ridge, and whether it applies to columns divided by their standard deviations.
    spreads : ndarray (features of the support,) or None
        The standard deviations of the features of the support in the samples of the fit, with their weights; None
        where the fit did not need them.
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
    starts: tuple[Contribution, ...] = field(repr=False, default=())
    constraints: tuple[str, ...] = ()
    counted: str = ""
    gamma: float = 1.0
    standardize: bool = False
    spreads: np.ndarray | None = field(repr=False, default=None)

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
        """``(objective - lower_bound) / |objective|``: an answer can be better by at most this share."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def concerns(self) -> tuple[str, ...]:
        """Why the answer may not be what was asked for, each with a remedy; empty for a good fit."""
        doubtful = self.status in CUT_SHORT and not self.gap <= CLOSED_GAP
        ended = f"{self.status.name}: {self.status.value}" if doubtful else ""
        return tuple(text for text in (ended, self._describe_separation(), self._describe_refit()) if text)

    def _describe_separation(self) -> str:
        """Whether classes are separated without a ridge; empty if not."""
        separable = self.loss in SEPARABLE and np.isinf(self.gamma)
        if not separable or not (self.objectives <= SEPARATED * self.samples).any():
            return ""
        return (
            "the features separate the classes perfectly, so that without a ridge (gamma=inf) the coefficients have no "
            "limit, and their sizes mean nothing; use gamma='auto'"
        )

    def _describe_refit(self) -> str:
        """What is wrong with the refit; empty if nothing is."""
        if self.residual <= REFIT_TOLERANCE:
            return ""
        return (
            f"the refit left a relative residual of {self.residual:.1e}, above {REFIT_TOLERANCE:g}: the coefficients "
            "do not minimise the objective on their support; use a smaller gamma, or standardize=True"
        )

    def _describe_proof(self) -> str:
        """The certificate in words."""
        if not np.isfinite(self.lower_bound):
            return "none was asked for"
        text = f"no model within the limit has an objective below {self.lower_bound:.8g}"
        # A gap above one means that the bound has the other sign.
        text += f", {self.gap:.2%} better than this one" if CLOSED_GAP < self.gap <= 1 else ""
        text += f" (gap {self.gap:.2g})"
        if len(self.kappa) == 1 and self.certain_in >= self.kappa[0]:
            text += f"; no other choice of {self.item}s is better"
        elif self.certain_in or self.certain_out:
            text += f"; {self._describe_decided()}"
        if self.tree_nodes:
            text += f"; {self.tree_nodes:,} tree nodes"
        if self.gap > 0.05:
            on = "more time" if self.tree_nodes else "exact mode"
            text += f" (a smaller gamma proves more, {on} searches on)"
        return text

    @property
    def item(self) -> str:
        """What is in a support or not as a whole: a feature, a group of features, or a coefficient."""
        if self.counted.startswith(("groups", "features in groups")):
            return "group"
        return "feature" if self.sparsity == "feature" or self.coef.shape[1] == 1 else "coefficient"

    def _describe_decided(self) -> str:
        """What is proved about better models: what they have of this one, and what none of them has."""
        inside, outside = self.certain_in, self.certain_out
        kept = f"a better one would have {inside:,} of these {self.item}s"
        if not outside:
            return kept
        if inside:
            return f"{kept} and none of {outside:,} others"
        return f"{outside:,} {self.item}{'s are' if outside != 1 else ' is'} in no better one"

    def _describe_reading(self) -> str:
        """How large data were read; empty for data in memory."""
        text = f", on {self.candidates:,} candidate features" if self.candidates < self.coef.shape[0] else ""
        return text + (f", data read {self.passes:.1f} times" if self.passes else "")

    def _describe_starts(self) -> str:
        """Which kind of start led to the answer of a single problem first, and how many were tried.

        Restarts are no kind of start: they begin where the search from the best start ended.
        """
        if len(self.kappa) > 1 or not self.starts:
            return ""
        if self.starts[0].kind == ALL_SUPPORTS:
            return self._describe_trying_all()
        least = min(one.end for one in self.starts)
        # Ends that differ by rounding alone are equal: the first of them counts.
        best = next((one for one in self.starts if one.end <= least + SAME * abs(least)), self.starts[0])
        tried = len({one.kind for one in self.starts} - {RESTARTS})
        origin = "from the best" if best.kind == RESTARTS else "the best"
        return f"{best.kind}, {origin} of {tried} kinds of starts" if tried > 1 else best.kind

    def _describe_trying_all(self) -> str:
        """That every choice was tried; a gap is then what the bound cannot prove."""
        if self.status in STOP_REASONS:
            return f"trying choices of {self.item}s one by one, until it was stopped"
        found = f"trying every choice of {self.item}s"
        return found + (": none is better (the proof does not use this)" if self.gap > CLOSED_GAP else "")

    @property
    def support(self) -> np.ndarray:
        """Sorted indices of the features with a nonzero coefficient in any output."""
        return np.flatnonzero(np.any(self.coef != 0, axis=1))

    @property
    def title(self) -> str:
        """What was fitted to how many samples."""
        p, c = self.coef.shape
        outputs = f" x {c} outputs" if c > 1 else ""
        return (
            f"Sparse {self.loss} fit: {self.samples:,} samples x {p:,} features{outputs}, "
            f"{self.nodes} node{'s' * (self.nodes > 1)} x {self.blocks} block{'s' * (self.blocks > 1)}"
        )

    def facts(
        self, names: Sequence[object] | np.ndarray | None = None, groups: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """What is known about the answer, in words, each with a name; features by number, or by their `names`.

        Where groups are in or out as a whole, `groups` has the group of each feature, and the support is one of groups.
        """
        limit = str(self.kappa[0]) if len(set(self.kappa)) == 1 else str(list(self.kappa))
        several = self.sparsity == "feature" and self.coef.shape[1] > 1
        unit = self.counted or ("rows" if several else "nonzero coefficients")
        unit = unit.removesuffix("s") if limit == "1" and " " not in unit.replace("nonzero ", "") else unit
        each = f" in each of {len(self.kappa)} problems" if len(self.kappa) > 1 else ""
        reading, refit, found = self._describe_reading(), self._describe_refit(), self._describe_starts()
        return [
            ("objective", f"{self.objective:.8g}"),
            ("proved", self._describe_proof()),
            ("support", self._describe_support(f"at most {limit} {unit}{each}", names, groups)),
            *(("subject to", text) for text in self.constraints),
            *([("found by", found)] if found else []),
            ("iterations", f"{self.n_iter} in {self.seconds:.2f} s, local solver {self.local}{reading}"),
            ("status", f"{self.status.name}: {self.status.value}"),
            *([("refit", refit)] if refit else []),
        ]

    def _describe_support(self, limit: str, names: Sequence[object] | np.ndarray | None, groups: Sequence[str]) -> str:
        """The features that are used, or their groups."""
        if not len(self.support):
            return f"no feature, {limit}"
        count = f"{len(self.support)} feature{'s' * (len(self.support) != 1)}"
        shown = [quote_name(j if names is None else names[j]) for j in self.support]
        if groups:
            shown = list(dict.fromkeys(quote_name(groups[j]) for j in self.support))
            count = f"{len(shown)} group{'s' * (len(shown) != 1)} of {count}"
        listed = ", ".join(shown[:MOST_NAMES]) + (", ..." if len(shown) > MOST_NAMES else "")
        return f"{count}, {limit}: {listed}"

    def __str__(self) -> str:
        return self.describe()

    def describe(self, names: Sequence[object] | np.ndarray | None = None, groups: Sequence[str] = ()) -> str:
        """A title and all facts; features by number, or by their `names` and `groups`."""
        return "\n".join([self.title, *(f"  {name:<10} {text}" for name, text in self.facts(names, groups))])

    def _repr_html_(self) -> str:
        return render_card(self.title, self.facts())
