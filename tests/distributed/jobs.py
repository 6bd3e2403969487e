"""The fits that every grid must reproduce: all losses, uneven rows, both kinds of sparsity."""

from dataclasses import dataclass, replace

import numpy as np

from psfit import (
    BiCADMM,
    GridSpec,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
    SparseTweedieRegression,
    sparse_path,
)

SAMPLES, FEATURES, KAPPA = 150, 12, 3
PLAIN = BiCADMM(effort="low")


@dataclass(frozen=True)
class Job:
    """A model on targets."""

    model: type
    y: np.ndarray
    options: dict
    solver: BiCADMM = PLAIN
    offset: np.ndarray | None = None


@dataclass(frozen=True)
class PathJob:
    """A whole path on targets."""

    loss: str
    y: np.ndarray

    def fit(self, X: np.ndarray, rows: slice, grid: GridSpec) -> dict:
        path = sparse_path(X[rows], self.y[rows], [1, KAPPA, 6], gammas=10.0, loss=self.loss, grid=grid)
        return {
            "objective": float(path.objectives.sum()),
            "lower_bound": float(path.lower_bounds.sum()),
            "coef": path.coefs.tolist(),
            "intercept": path.intercepts.tolist(),
            "classes": [],
            "samples": SAMPLES,
        }


@dataclass(frozen=True)
class SelectionJob:
    """A model that chooses its limit; every sample has its fold, on any rank."""

    model: type
    y: np.ndarray
    scoring: str | None = None
    gammas: tuple[float, ...] = (10.0,)

    def fit(self, X: np.ndarray, rows: slice, grid: GridSpec) -> dict:
        # Ranks with rows 0 to 9, or 50 and more, have samples of one fold only.
        fold = np.digitize(np.arange(SAMPLES), [10, 50])[rows]
        cv = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
        # Searches and proofs have jobs of their own.
        short = {"solver": PLAIN, "certify": False}
        model = self.model([1, KAPPA], gammas=self.gammas, cv=cv, scoring=self.scoring, grid=grid, **short)
        model.fit(X[rows], self.y[rows])
        return {
            "objective": float(model.cv_results_["mean_test_score"].sum()),
            "lower_bound": -np.inf,
            "coef": [*model.result_.coef.tolist(), [float(model.kappa_)], [model.gamma_]],
            "intercept": model.result_.intercept.tolist(),
            "classes": np.asarray(getattr(model, "classes_", [])).tolist(),
            "samples": model.result_.samples,
        }


def data() -> tuple[np.ndarray, dict[str, Job | PathJob | SelectionJob]]:
    """Features with different scales, and a job for every loss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(SAMPLES, FEATURES)) * np.logspace(-1, 1, FEATURES) + 1.0
    signal = 2 * (X[:, 1] - 1) / X[:, 1].std() - 3 * (X[:, 5] - 1) / X[:, 5].std() + 2 * (X[:, 9] - 1) / X[:, 9].std()
    noise = rng.normal(size=SAMPLES)
    text = np.where(signal + noise > 0, "yes", "no")
    three = np.digitize(signal, [-2, 2])
    pair = np.column_stack([signal + noise, signal - X[:, 3]])
    jobs = {
        "squared": Job(SparseLinearRegression, signal + noise, {}),
        "squared, default effort": Job(SparseLinearRegression, signal + noise, {}, BiCADMM()),
        "squared, exact": Job(SparseLinearRegression, signal + noise, {}, BiCADMM(exact=True, time_limit=60)),
        "squared, two targets, rows": Job(SparseLinearRegression, pair, {"sparsity": "feature"}),
        "squared, no intercept": Job(SparseLinearRegression, signal + noise, {"fit_intercept": False}),
        "huber": Job(SparseLinearRegression, signal + noise, {"loss": "huber"}),
        "logistic": Job(SparseLogisticRegression, text, {"class_weight": "balanced"}),
        "softmax": Job(SparseSoftmaxRegression, three, {"sparsity": "feature"}),
        "squared hinge": Job(SparseSVC, text, {}),
        "hinge": Job(SparseSVC, text, {"loss": "hinge"}),
        "poisson": Job(SparsePoissonRegression, rng.poisson(np.exp(signal / 5)), {}),
        "poisson, offset": Job(SparsePoissonRegression, rng.poisson(np.exp(signal / 5 + noise)), {}, PLAIN, noise + 3),
        "tweedie, offset": Job(SparseTweedieRegression, rng.poisson(np.exp(signal / 5)), {}, PLAIN, noise / 2),
        **constrained(signal + noise, text, three),
        "squared path": PathJob("squared", signal + noise),
        "logistic path": PathJob("logistic", text),
        "squared, cross-validated": SelectionJob(SparseLinearRegressionCV, signal + noise),
        "logistic, cross-validated by a scorer": SelectionJob(SparseLogisticRegressionCV, text, "accuracy"),
    }
    return X, jobs


def constrained(y: np.ndarray, text: np.ndarray, three: np.ndarray) -> dict[str, Job]:
    """Jobs with demands on the coefficients: signs and bounds, features that are in or out, groups, heredity."""
    signs = {"lower": [0.0 if j % 2 else -np.inf for j in range(FEATURES)], "include": [0], "exclude": [9]}
    parents = {"heredity": "strong", "parents": {5: [2, 4], 9: [3]}}
    lags = {"groups": np.arange(FEATURES) // 4, "at_most": 1}
    return {
        "squared, signs": Job(SparseLinearRegression, y, signs, BiCADMM()),
        "squared, forced": Job(SparseLinearRegression, y, {"include": [1, 7], "exclude": [9]}, BiCADMM()),
        "squared, heredity": Job(SparseLinearRegression, y, parents, BiCADMM()),
        "logistic, bounds": Job(SparseLogisticRegression, text, {"lower": -0.1, "upper": 0.2} | lags, BiCADMM()),
        "logistic, groups": Job(SparseLogisticRegression, text, {"groups": np.arange(FEATURES) // 2}, BiCADMM()),
        "softmax, groups": Job(SparseSoftmaxRegression, three, {"groups": np.arange(FEATURES) // 3}, BiCADMM()),
    }


# Fits of many small nodes, which no block of columns divides; those of the other list are not repeated.
SPLIT = ["squared", "squared, no intercept", "huber", "logistic", "squared hinge", "poisson"]
# One job for each kind of exchange.
DEMANDS = [
    "squared, signs",
    "squared, forced",
    "squared, heredity",
    "logistic, bounds",
    "logistic, groups",
    "softmax, groups",
]
FEW = ["logistic", "poisson, offset", *DEMANDS, "squared path"]
# Fits that the engines must reproduce.
ENGINES = ["squared", "logistic", "softmax"]


def plain(jobs: dict[str, Job | PathJob | SelectionJob]) -> list[str]:
    """Names of the single fits by the plain algorithm, without offsets."""
    return [name for name, job in jobs.items() if isinstance(job, Job) and job.solver is PLAIN and job.offset is None]


def chosen(jobs: dict[str, Job | PathJob | SelectionJob], which: str) -> list[str]:
    """Names of all jobs, of those of many small nodes, of few nodes and blocks, of the engines, or of very few.

    The path of the squared loss searches with the default effort, too.
    """
    blocks = [name for name in jobs if name not in (*SPLIT, "squared, default effort") or name == "logistic"]
    lists = {"all": list(jobs), "split": SPLIT, "blocks": blocks, "few": FEW, "plain": plain(jobs), "engines": ENGINES}
    return lists[which]


def uneven_share(rows: int, ranks: int, rank: int) -> slice:
    """Rows of a rank when each has about twice as many as the one before."""
    ends = np.round(rows * (2.0 ** np.arange(ranks + 1) - 1) / (2.0**ranks - 1)).astype(int)
    return slice(int(ends[rank]), int(ends[rank + 1]))


def fit(job: Job | PathJob | SelectionJob, X: np.ndarray, rows: slice, grid: GridSpec, **change: object) -> dict:
    """What must not depend on the grid."""
    if not isinstance(job, Job):
        return job.fit(X, rows, grid)
    model = job.model(KAPPA, gamma=10.0, grid=grid, solver=replace(job.solver, **change), **job.options)
    model.fit(X[rows], job.y[rows], offset=None if job.offset is None else job.offset[rows])
    result = model.result_
    return {
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "coef": result.coef.tolist(),
        "intercept": result.intercept.tolist(),
        "classes": np.asarray(getattr(model, "classes_", [])).tolist(),
        "samples": result.samples,
        "iterations": result.n_iter,
    }
