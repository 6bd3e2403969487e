"""Small problems with demands on their coefficients, and their optima over all supports by solvers of SciPy and
Clarabel.

    python tests/constrained.py 0 300           # the optima of these problems, by the default and in exact mode
    python tests/constrained.py 1000 1300       # the same for problems that are awkward

"""

import itertools
import sys
from dataclasses import dataclass

import clarabel
import numpy as np
import torch
from scipy import optimize, sparse, special

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Gamma, Hinge, Huber, Logistic, Poisson, Softmax, Squared, SquaredHinge, Tweedie
from psfit.problem import Constraints

LOSSES = [Squared(), Logistic(), SquaredHinge(), Hinge(), Poisson(), Huber(1.0), Softmax()]
MORE_LOSSES = [*LOSSES, Gamma(), Tweedie(1.4)]
METHODS = {
    "L-BFGS-B": {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 30},
    "SLSQP": {"maxiter": 1000, "ftol": 1e-14},
}
# Problems from this number on are awkward.
AWKWARD = 1000


@dataclass(frozen=True)
class Case:
    """A problem, its data, and its least objective; infinite if no support is allowed."""

    problem: Problem
    A: np.ndarray
    b: np.ndarray
    weight: np.ndarray

    @property
    def source(self):
        parts = (torch.from_numpy(np.ascontiguousarray(part)) for part in (self.A, self.b, self.weight[:, None]))
        matrix, target, weight = parts
        return Source(Dense(matrix), target, weight)

    @property
    def by_entry(self):
        return self.problem.loss.joint and self.problem.sparsity == "element"

    def best_objective(self):
        """The least objective over every allowed support."""
        if self.problem.constraints.group is not None:
            return self._best_of_groups(self.problem.constraints)
        p, c = self.A.shape[1], self.b.shape[1]
        copies = c if self.by_entry else 1
        demands = self.problem.constraints
        extra = 0 if demands.count_included else copies * len(demands.include)
        most = self.problem.kappa[0] + extra
        best = np.inf
        for size in range(most + 1):
            for chosen in itertools.combinations(range(p * copies), size):
                table = np.zeros((p, copies), bool)
                table.flat[list(chosen)] = True
                if is_allowed(table, demands):
                    best = min(best, fit(self, np.broadcast_to(table, (p, c))))
        return best

    def _best_of_groups(self, demands):
        """The same where the items are groups, in all outputs."""
        groups, best = demands.group.max() + 1, np.inf
        included, excluded = (set(demands.group[list(part)].tolist()) for part in (demands.include, demands.exclude))
        for size in range(groups + 1):
            for chosen in itertools.combinations(range(groups), size):
                counted = chosen if demands.count_included else set(chosen) - included
                features = np.isin(demands.group, list(counted)).sum() if demands.counts_features else len(counted)
                if included <= set(chosen) and not excluded & set(chosen) and features <= self.problem.kappa[0]:
                    mask = np.isin(demands.group, chosen)[:, None]
                    best = min(best, fit(self, np.broadcast_to(mask, (len(mask), self.b.shape[1]))))
        return best


def is_allowed(table, demands):
    """Whether the demands allow a support; columns of ``table (p, copies)`` have limits and parents of their own."""
    if not table[list(demands.include)].all() or table[list(demands.exclude)].any():
        return False
    for column in table.T:
        for child, parents in demands.parents:
            needs = all if demands.heredity == "strong" else any
            if column[child] and not needs(column[list(parents)]):
                return False
        if demands.kind is not None:
            taken = np.bincount(demands.kind[column & (demands.kind >= 0)], minlength=len(demands.at_most))
            if (taken > demands.at_most).any():
                return False
    return True


def bounds_of(case):
    p, c = case.A.shape[1], case.b.shape[1]
    demands = case.problem.constraints
    low = np.full((p, c), -np.inf) if demands.lower is None else np.broadcast_to(demands.lower, (p, c))
    high = np.full((p, c), np.inf) if demands.upper is None else np.broadcast_to(demands.upper, (p, c))
    return low, high


def fit(case, mask):
    """The least objective with coefficients where ``mask (p, c)`` is true, between their bounds."""
    low, high = bounds_of(case)
    if case.problem.loss.name == "hinge":
        return _fit_hinge(case, mask[:, 0], low[:, 0], high[:, 0])
    A, b, weight, rows = case.A, case.b, case.weight[:, None], np.argwhere(mask)
    c, k, gamma = b.shape[1], len(rows), case.problem.gamma
    free = c if case.problem.fit_intercept else 0

    def evaluate(v):
        X = np.zeros(mask.shape)
        X[rows[:, 0], rows[:, 1]] = v[:k]
        value, slope = _losses(case.problem.loss, A @ X + (v[k:] if free else 0.0), b)
        pull = (A.T @ (weight * slope))[rows[:, 0], rows[:, 1]] + v[:k] / gamma
        gradient = np.concatenate([pull, (weight * slope).sum(axis=0)[:free]])
        return (weight * value).sum() + (v[:k] ** 2).sum() / (2 * gamma), gradient

    limits = [(low[i, o], high[i, o]) for i, o in rows] + [(None, None)] * free
    if not limits:
        return evaluate(np.zeros(0))[0]
    best, start = np.inf, np.zeros(len(limits))
    while True:
        # Either method can stop far from the end; begun there, the other one goes on.
        before = best
        for method, options in METHODS.items():
            found = optimize.minimize(evaluate, start, jac=True, method=method, bounds=limits, options=options)
            if found.fun < best:
                best, start = found.fun, found.x
        if not best < before - 1e-9 * abs(best):
            return best


def _losses(loss, eta, b):
    """Values and slopes of all samples."""
    residual, margin = eta - b, b * eta
    if loss.name == "softmax":
        value = special.logsumexp(eta, axis=1, keepdims=True) - (b * eta).sum(axis=1, keepdims=True)
        return value, special.softmax(eta, axis=1) - b
    if loss.name == "huber":
        inner = np.abs(residual) <= loss.delta
        outside = 2 * loss.delta * np.abs(residual) - loss.delta**2
        return np.where(inner, residual**2, outside), 2 * np.clip(residual, -loss.delta, loss.delta)
    short = np.maximum(0, 1 - margin)
    return {
        "squared": lambda: (residual**2, 2 * residual),
        "logistic": lambda: (np.logaddexp(0, -margin), -b * special.expit(-margin)),
        "squared_hinge": lambda: (short**2, -2 * b * short),
        "poisson": lambda: (np.exp(eta) - b * eta, np.exp(eta) - b),
        "gamma": lambda: (np.exp(-residual) + residual - 1, 1 - np.exp(-residual)),
        "tweedie": lambda: _tweedie(eta, b, loss.power),
    }[loss.name]()


def _tweedie(eta, b, power):
    """Half the deviance: the loss less its least value, which is at the logarithm of the target."""
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(b > 0, b ** (2 - power) / (2 - power) + b ** (2 - power) / (power - 1), 0.0)
    value = np.exp((2 - power) * eta) / (2 - power) + b * np.exp((1 - power) * eta) / (power - 1)
    return value - best, np.exp((2 - power) * eta) - b * np.exp((1 - power) * eta)


def _fit_hinge(case, mask, low, high):
    """The support vector machine with bounds as a quadratic program in (x, intercept, slacks)."""
    A, b, w, low, high = case.A[:, mask], case.b[:, 0], case.weight, low[mask], high[mask]
    m, k = A.shape
    intercept = float(case.problem.fit_intercept)
    P = sparse.diags(np.r_[np.full(k, 1 / case.problem.gamma), 1.0 - intercept, np.zeros(m)], format="csc")
    unit = sparse.eye(k, k + 1 + m, format="csr")
    rows = [
        sparse.hstack([-b[:, None] * A, -intercept * b[:, None], -sparse.eye(m)]),
        sparse.hstack([sparse.csc_matrix((m, k + 1)), -sparse.eye(m)]),
        unit[np.isfinite(high)],
        -unit[np.isfinite(low)],
    ]
    right = np.r_[-np.ones(m), np.zeros(m), high[np.isfinite(high)], -low[np.isfinite(low)]]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cone = [clarabel.NonnegativeConeT(len(right))]
    linear = np.r_[np.zeros(k + 1), w]
    return clarabel.DefaultSolver(P, linear, sparse.vstack(rows, format="csc"), right, cone, settings).solve().obj_val


def make_case(seed):
    """A random problem with random demands."""
    if seed >= AWKWARD:
        return _make_awkward(seed)
    rng = np.random.default_rng(seed)
    loss = LOSSES[seed % len(LOSSES)]
    sparsity = "element" if seed % 2 or not loss.joint else "feature"
    p = 4 if loss.joint and sparsity == "element" else int(rng.integers(5, 8))
    A = rng.normal(size=(60, p)) @ (np.eye(p) + 0.4 * rng.normal(size=(p, p)))
    b = _draw_targets(loss, A, rng)
    weight = rng.integers(1, 3, size=60).astype(float) if rng.random() < 0.4 else np.ones(60)
    demands = _draw_demands(p, b.shape[1], rng)
    kappa, gamma = int(rng.integers(1, 4)), float(10 ** rng.uniform(-2, 3))
    problem = Problem(loss, (kappa,), gamma, sparsity, bool(rng.random() < 0.7), constraints=demands)
    return Case(problem, A, b, weight)


def _make_awkward(seed):
    """A problem with few samples, equal, opposite, constant or nearly dependent columns, or hardly any ridge."""
    rng = np.random.default_rng(seed)
    loss = MORE_LOSSES[seed % len(MORE_LOSSES)]
    sparsity = str(rng.choice(["element", "feature"])) if loss.joint else "element"
    p, m = 4 if loss.joint and sparsity == "element" else 7, int(rng.choice([5, 20, 60]))
    A = rng.normal(size=(m, p)) + rng.choice([0.0, 3.0])
    A[:, 1] = rng.choice([-1.0, 1.0]) * A[:, 0] + rng.choice([0.0, 1e-6, 0.1]) * A[:, 2]
    if rng.random() < 0.5:
        A[:, -1] = rng.choice([0.0, 1.0])
    if rng.random() < 0.3:
        A = A.astype(np.float32).astype(np.float64)
    b = _draw_targets(loss, A, rng)
    weight = rng.integers(0 if m > 5 else 1, 4, size=m).astype(float) if rng.random() < 0.5 else np.ones(m)
    kappa, gamma = int(rng.integers(1, 4)), float(10 ** rng.uniform(-2, 5 if loss.quadratic else 3))
    demands = _draw_demands(p, b.shape[1], rng)
    problem = Problem(loss, (kappa,), gamma, sparsity, bool(rng.random() < 0.5), constraints=demands)
    return Case(problem, A, b, weight)


def _draw_targets(loss, A, rng):
    m, p = A.shape
    if loss.joint:
        eta = A @ rng.normal(size=(p, 3))
        return np.eye(3)[(eta + rng.gumbel(size=eta.shape)).argmax(axis=1)]
    eta = A @ (rng.normal(size=p) * (rng.random(p) < 0.6)) + 0.3
    if loss.name == "poisson":
        return rng.poisson(np.exp(np.clip(0.3 * eta, -3, 2))).astype(float)[:, None]
    if loss.name == "tweedie":
        return np.where(rng.random(m) < 0.4, 0.0, np.exp(np.clip(0.3 * eta, -2, 2)))[:, None]
    if loss.name in ("squared", "huber", "gamma"):
        return (eta + rng.normal(size=m) * rng.choice([0.3, 3.0]))[:, None]
    return np.where(eta + rng.logistic(size=m) > 0, 1.0, -1.0)[:, None]


def _draw_demands(p, c, rng):
    chance, given = rng.random(5), {}
    order = rng.permutation(p)
    if chance[0] < 0.4:
        given |= {"include": (int(order[0]),), "count_included": bool(rng.random() < 0.3)}
    if chance[1] < 0.3:
        given["exclude"] = (int(order[1]),)
    if chance[2] < 0.6:
        low, high = (np.abs(rng.normal(size=(p, 1))) * np.full((1, c), 0.5) for _ in range(2))
        signs = rng.random((p, 1)) < rng.choice([0.5, 1.0])
        if rng.random() < 0.6:
            low, high = np.where(signs, 0.0, np.inf), np.where(signs, np.inf, 0.0)
        given |= {"lower": -low, "upper": high}
    if chance[3] < 0.3:
        kind = rng.integers(-1, 2, size=p)
        if {0, 1} <= set(kind.tolist()):
            given |= {"kind": kind, "at_most": np.array([1, 1])}
    if chance[4] < 0.3:
        pairs = ((p - 1, (0, 1)), (p - 2, (1, 2)))[: int(rng.integers(1, 3))]
        given |= {"parents": pairs, "heredity": str(rng.choice(["strong", "weak"]))}
    if rng.random() < 0.2:
        given = _draw_groups(
            p, {name: given[name] for name in given if name not in ("kind", "at_most", "parents")}, rng
        )
    return Constraints(**given)


def _draw_groups(p, given, rng):
    """Demands with groups of features as items: what is included and excluded are whole groups."""
    group = np.unique(rng.integers(0, 4, size=p), return_inverse=True)[1]
    whole = {
        name: tuple(np.flatnonzero(np.isin(group, group[list(given[name])])).tolist())
        for name in ("include", "exclude")
        if name in given
    }
    if set(whole.get("include", ())) & set(whole.get("exclude", ())):
        del whole["exclude"]
        given = {name: given[name] for name in given if name != "exclude"}
    bounded = "lower" in given
    return given | whole | {"group": group, "counts_features": bool(rng.random() < 0.5) and not bounded}


def check(seed, exact):
    """Compare the answer of one problem with its optimum; returns a text if something is wrong."""
    case = make_case(seed)
    best = case.best_objective()
    nodes = GridSpec(nodes=1 + seed % 2, device="cpu", backend="serial")
    try:
        result = solve(case.problem, case.source, BiCADMM(exact=exact), nodes)
    except ValueError as error:
        # Some demands leave no support, or fewer items than kappa.
        known = "must hold" in str(error) or "features of every group" in str(error)
        return "" if best == np.inf or known else str(error)
    if best == np.inf:
        return "an answer where no support is allowed"
    tol, low, high = 1e-6 * abs(best) + 1e-9, *bounds_of(case)
    wrong = {
        "a bound above the optimum": result.lower_bound > best + tol,
        "an objective below the optimum": result.objective < best - tol,
        "not the optimum": exact and result.objective > best + tol,
        "no proof": exact and result.objective - result.lower_bound > 1e-4 * abs(result.objective) + 1e-9,
        "beyond a bound": bool(((result.coef < low) | (result.coef > high)).any()),
    }
    return ", ".join(name for name, is_so in wrong.items() if is_so)


if __name__ == "__main__":
    failed, (first, end) = 0, map(int, sys.argv[1:3])
    for number in range(first, end):
        for mode in (False, True):
            if text := check(number, mode):
                failed += 1
                print(f"problem {number}, {'exact' if mode else 'default'}: {text}", flush=True)
    print(f"{failed} of {2 * (end - first)} answers are wrong")
