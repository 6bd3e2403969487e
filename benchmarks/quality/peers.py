"""The peers: every one returns the support it found, as items (features, or entries for softmax), and is timed."""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from formulas import FORMULAS, target_of
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, lars_path
from sklearn.linear_model import OrthogonalMatchingPursuit as Omp
from sklearn.svm import LinearSVC
from suite import Case

sys.path.append(str(Path(__file__).parents[1] / "proof"))
from exact_peers import scip as scip_model

Finder = Callable[[Case], np.ndarray]


def abess_fixed(case: Case, threads: int = 1) -> np.ndarray:
    """Abess at exactly kappa features."""
    return _abess(case, [case.spec.kappa], threads)


def abess_path(case: Case, threads: int = 1) -> np.ndarray:
    """Abess along all sizes up to kappa, each started from the one before."""
    return _abess(case, list(range(1, case.spec.kappa + 1)), threads)


def _abess(case: Case, sizes: list[int], threads: int) -> np.ndarray:
    """The other settings are its defaults.

    Among the sizes of a path the information criterion must not decide: the last, largest one is wanted. Its `alpha`
    for the ridge of the objective would be ``1 / (2 gamma)``; it finds better supports on average with this small one.
    """
    from abess.linear import LinearRegression, MultinomialRegression
    from abess.linear import LogisticRegression as AbessLogistic

    kind = {"linear": LinearRegression, "logistic": AbessLogistic, "softmax": MultinomialRegression}[case.spec.model]
    model = kind(support_size=sizes, ic_type="loss", alpha=1 / (4 * case.spec.gamma * len(case.y)), thread=threads)
    model.fit(case.X, case.y)
    coef = np.asarray(model.coef_)
    return np.flatnonzero(np.any(coef.reshape(case.spec.features, -1) != 0, axis=1))


def skscope(case: Case) -> np.ndarray:
    """Skscope's splicing solver on the same objective, with a gradient: its own one is compiled anew in each fit."""
    from skscope import ScopeSolver

    A, gamma, n = case.X, case.spec.gamma, case.X.shape[1]
    formula, target = FORMULAS[case.spec.model], target_of(case.spec.model, case.y)

    def predictors(params: np.ndarray) -> np.ndarray:
        return (A @ params[:n] + params[n])[:, None]

    def objective(params: np.ndarray) -> float:
        return formula.value(predictors(params), target).sum() + np.square(params[:n]).sum() / (2 * gamma)

    def gradient(params: np.ndarray) -> np.ndarray:
        slope = formula.gradient(predictors(params), target)[:, 0]
        return np.append(slope @ A + params[:n] / gamma, slope.sum())

    solver = ScopeSolver(n + 1, case.spec.kappa + 1, preselect=[n])
    solver.solve(objective, gradient=gradient)
    support = np.asarray(solver.get_support())
    return support[support < n]


def matching_pursuit(case: Case) -> np.ndarray:
    """Orthogonal matching pursuit."""
    return np.flatnonzero(Omp(n_nonzero_coefs=case.spec.kappa).fit(case.X, case.y).coef_)


def l1(case: Case) -> np.ndarray:
    """The l1 model with as many nonzeros as the limit allows."""
    fitting = [coef for coef in l1_path(case) if np.count_nonzero(coef) <= case.spec.kappa]
    return np.flatnonzero(fitting[-1]) if fitting else np.array([], dtype=int)


def l1_path(case: Case) -> Iterator[np.ndarray]:
    """Coefficients of l1 models, as items: those along LARS's path, or those of a bisection for kappa nonzeros."""
    kappa = case.spec.kappa
    if case.spec.model == "linear":
        X, y = case.X - case.X.mean(axis=0), case.y - case.y.mean()
        yield from lars_path(X, y, method="lasso", max_iter=4 * kappa)[2].T
        return
    low, high = -5.0, 2.0
    for _ in range(12):
        C = 10 ** ((low + high) / 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            coef = _l1_model(case, C).fit(case.X, case.y).coef_
        yield coef.T.ravel()
        if np.count_nonzero(coef) <= kappa:
            low = np.log10(C)
        else:
            high = np.log10(C)


def _l1_model(case: Case, C: float) -> LogisticRegression | LinearSVC:
    if case.spec.model == "svm":
        return LinearSVC(penalty="l1", C=C, dual=False, max_iter=5000)
    solver = "saga" if case.spec.model == "softmax" else "liblinear"
    return LogisticRegression(l1_ratio=1.0, C=C, solver=solver, max_iter=300)


def scip(case: Case) -> np.ndarray:
    """The mixed-integer program solved by SCIP; exact unless its minute runs out."""
    X, y = case.X - case.X.mean(axis=0), case.y - case.y.mean()
    dense = np.linalg.solve(X.T @ X + np.eye(X.shape[1]) / (2 * case.spec.gamma), X.T @ y)
    data = {"kappa": case.spec.kappa, "gamma": case.spec.gamma, "most": 10 * np.abs(dense).max()}
    return np.flatnonzero(scip_model(X, y, data, 60.0)[0])


def peers_of(case: Case) -> dict[str, Finder]:
    """Those that can work on this model and count the same way: abess's softmax limits rows, the l1 model entries."""
    by_row = case.spec.sparsity == "feature"
    found: dict[str, Finder] = {} if by_row else {"l1": l1}
    if case.spec.model in ("linear", "logistic") or by_row:
        found |= {"abess": abess_fixed, "abess path": abess_path}
    if case.spec.model != "softmax":
        found["skscope"] = skscope
    if case.spec.model == "linear":
        found["matching pursuit"] = matching_pursuit
        if case.spec.features <= 60:
            found["SCIP"] = scip
    return found
