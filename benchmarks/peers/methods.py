"""The methods: each gives the supports it found for a case; of several the judge takes the best.

Packages are imported where they are used: each method runs in a process of its own, and one that is not installed is
reported as absent.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "quality"))
from peers import abess_fixed, abess_path, l1_path, matching_pursuit, skscope
from suite import Case

Supports = list[np.ndarray]
EXACT_LIMIT = 60.0
# Exact mode is asked where it has a chance.
EXACT_FEATURES = 200
# Models of a path with more than so many times kappa nonzeros are left out; so many of its supports are judged.
BEYOND = 2
CANDIDATES = 8
# Penalties of the path of MCP, from the one that removes everything.
PENALTIES = np.geomspace(1, 1e-3, 60)


@dataclass(frozen=True)
class Method:
    """A package in one setting; `find` takes a case and the number of threads.

    `untimed` methods run once: they only serve the best known objective.
    """

    find: Callable[[Case, int], Supports]
    package: str
    suits: Callable[[Case], bool] = lambda case: True
    untimed: bool = False

    @property
    def absent(self) -> bool:
        return find_spec(self.package) is None


def _psfit(case: Case, threads: int, **settings: object) -> Supports:
    """The estimator as a user calls it: with its certificate; the environment says how many threads."""
    from psfit import BiCADMM, GridSpec, SparseLinearRegression, SparseLogisticRegression

    kind = {"linear": SparseLinearRegression, "logistic": SparseLogisticRegression}[case.spec.model]
    solver = BiCADMM(**settings) if settings else None
    model = kind(case.spec.kappa, gamma=case.spec.gamma, solver=solver, grid=GridSpec(device="cpu"))
    return [np.flatnonzero(model.fit(case.X, case.y).coef_)]


def _one(find: Callable[[Case], np.ndarray], case: Case, threads: int) -> Supports:
    """A method without a setting for threads."""
    return [find(case)]


def _abess(find: Callable[[Case, int], np.ndarray], case: Case, threads: int) -> Supports:
    return [find(case, threads)]


def _l1(case: Case, threads: int) -> Supports:
    return largest(l1_path(case), case.spec.kappa)


def _mcp(case: Case, threads: int) -> Supports:
    return largest(_mcp_path(case), case.spec.kappa)


def _mcp_path(case: Case) -> Iterator[np.ndarray]:
    """Coefficients of MCP models (its default shape, gamma 3) along falling penalties, each started from the last."""
    from skglm.datafits import Logistic, Quadratic
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD
    from skglm.utils.jit_compilation import compiled_clone

    linear = case.spec.model == "linear"
    # It wants columns that lie together, and labels of plus and minus one.
    X, y = np.asfortranarray(case.X), case.y if linear else 2.0 * case.y - 1
    fit, penalty = compiled_clone(Quadratic() if linear else Logistic()), compiled_clone(MCPenalty(1.0, 3.0))
    fit.initialize(X, y)
    solver = AndersonCD(warm_start=True, fit_intercept=True)
    top = np.abs(X.T @ (y - y.mean())).max() / len(y) / (1 if linear else 2)
    coef, predictors = np.zeros(X.shape[1] + 1), np.zeros(len(y))
    for share in PENALTIES:
        penalty.alpha = top * share
        coef, _, _ = solver.solve(X, y, fit, penalty, coef, predictors)
        predictors = X @ coef[:-1] + coef[-1]
        yield coef[:-1].copy()
        if np.count_nonzero(coef[:-1]) > BEYOND * case.spec.kappa:
            break


def largest(path: Iterable[np.ndarray], kappa: int) -> Supports:
    """The kappa largest coefficients of the models of a path, from the last one within the limit to twice the limit."""
    supports: list[tuple[int, ...]] = [()]
    for coef in path:
        if np.count_nonzero(coef) > BEYOND * kappa:
            continue
        chosen = np.argsort(-np.abs(coef), kind="stable")[: min(kappa, np.count_nonzero(coef))]
        found = tuple(np.sort(chosen).tolist())
        if len(found) < kappa:
            # Only the last of the models that have room left is of interest.
            supports = [s for s in supports if len(s) == kappa]
        if found not in supports:
            supports.append(found)
    places = np.unique(np.linspace(0, len(supports) - 1, CANDIDATES).round().astype(int))
    return [np.array(supports[place], dtype=int) for place in places]


METHODS: dict[str, Method] = {
    "PsFiT": Method(_psfit, "psfit"),
    "abess": Method(partial(_abess, abess_fixed), "abess"),
    "abess path": Method(partial(_abess, abess_path), "abess"),
    "skscope": Method(partial(_one, skscope), "skscope"),
    "matching pursuit": Method(partial(_one, matching_pursuit), "sklearn", lambda case: case.spec.model == "linear"),
    "l1 path": Method(_l1, "sklearn"),
    "skglm MCP path": Method(_mcp, "skglm"),
    "PsFiT high": Method(partial(_psfit, effort="high"), "psfit", untimed=True),
    "PsFiT exact": Method(
        partial(_psfit, exact=True, time_limit=EXACT_LIMIT),
        "psfit",
        lambda case: case.X.shape[1] <= EXACT_FEATURES,
        untimed=True,
    ),
}
