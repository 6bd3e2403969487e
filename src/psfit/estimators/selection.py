"""What all estimators with a limit of their own choice share: try many limits, choose one, fit it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.base import is_classifier

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.common.arguments import BOOLEAN, CALLABLE, GAMMAS, NONE, Rule, integer, one_of, satisfying
from psfit.common.progress import Callback
from psfit.estimators.concerns import concerns_of_parts, warn_of
from psfit.estimators.criteria import CRITERIA, LIKELIHOODS, information
from psfit.estimators.display import require_whole, shown, within
from psfit.estimators.folds import Folds
from psfit.estimators.model import Posed, SparseModel
from psfit.estimators.path import limits_of, ridges_of
from psfit.estimators.reading import summed
from psfit.estimators.scores import held_out_scores, models_of, scorer_of
from psfit.pipeline.path import solve_path
from psfit.pipeline.subsamples import Subsamples, loss_sums
from psfit.problem import Sparsity

# More samples with less weight than this have weights of another kind: shares that sum to one.
LEAST_WEIGHT = 3.0
MEAN_LOSS = "mean loss on held-out samples"


@dataclass(frozen=True)
class Selection:
    """How limits and gammas were judged: `scores` ``(G, K)``, larger is better, and what was chosen.

    Parameters
    ----------
    kappas : ndarray (K,)
    gammas : ndarray (G,)
    scores : ndarray (G, K)
        Mean scores over the splits, or minus the information criterion.
    errors : ndarray (G, K) or None
        Standard errors of the means; None for a criterion.
    label : str
        What the scores are; see `smaller_is_better`.
    kappa, gamma : int, float
        The choice.
    best_kappa, best_gamma : int, float
        Those with the best score; a simpler model may have been chosen for it is as good within one standard error.
    """

    kappas: np.ndarray
    gammas: np.ndarray
    scores: np.ndarray
    errors: np.ndarray | None
    label: str
    kappa: int
    gamma: float
    best_kappa: int
    best_gamma: float

    @property
    def smaller_is_better(self) -> bool:
        """Whether what the label names is minus the score, as for a loss or a criterion."""
        return self.label in (MEAN_LOSS, *(criterion.upper() for criterion in CRITERIA))

    def rows(self) -> list[dict[str, Any]]:
        """A line for every gamma and limit, with what the label names."""
        sign = -1.0 if self.smaller_is_better else 1.0
        return [
            {
                "gamma": float(gamma),
                "kappa": int(kappa),
                "value": sign * float(self.scores[g, k]),
                "standard_error": None if self.errors is None else float(self.errors[g, k]),
                "chosen": bool(gamma == self.gamma and kappa == self.kappa),
            }
            for g, gamma in enumerate(self.gammas)
            for k, kappa in enumerate(self.kappas)
        ]

    def __str__(self) -> str:
        better = "lower" if self.smaller_is_better else "higher"
        lines = [f"Choice of kappa = {self.kappa}, gamma = {self.gamma:g} by {self.label} ({better} is better)"]
        lines.append(f"{'gamma':>10} {'kappa':>7} {'value':>14}" + ("" if self.errors is None else f" {'+-':>9}"))
        for row in self.rows():
            error = "" if row["standard_error"] is None else f" {row['standard_error']:>9.2g}"
            mark = "  <- chosen" if row["chosen"] else ""
            lines.append(f"{row['gamma']:>10.4g} {row['kappa']:>7} {row['value']:>14.6g}{error}{mark}")
        return "\n".join(lines)

    @classmethod
    def of(
        cls,
        kappas: Sequence[int],
        gammas: Sequence[float],
        scores: np.ndarray,
        errors: np.ndarray | None,
        label: str,
        tolerant: bool,
    ) -> "Selection":
        """The best score wins; if `tolerant`, the simplest model within one standard error of it."""
        if not np.isfinite(scores).any():
            raise ValueError(f"scoring: the {label} is not a number for any of the models; use another one")
        best = _simplest(kappas, gammas, scores >= np.nanmax(scores))
        chosen = best
        if tolerant and errors is not None:
            enough = scores[best] - errors[best]
            chosen = _simplest(kappas, gammas, scores >= enough)
        return cls(
            np.array(kappas),
            np.array(gammas),
            scores,
            errors,
            label,
            int(kappas[chosen[1]]),
            float(gammas[chosen[0]]),
            int(kappas[best[1]]),
            float(gammas[best[0]]),
        )


def _simplest(kappas: Sequence[int], gammas: Sequence[float], allowed: np.ndarray) -> tuple[int, int]:
    """The place among the allowed models ``(G, K)`` with the fewest coefficients, then with the strongest ridge."""
    places = [(int(g), int(k)) for g, k in np.argwhere(allowed)]
    return min(places, key=lambda place: (kappas[place[1]], gammas[place[0]]))


def _is_splitter(cv: Any) -> bool:
    return not isinstance(cv, str) and (hasattr(cv, "split") or isinstance(cv, Iterable))


class SelectingModel(SparseModel):
    """A model that chooses its limit kappa, and gamma if there are several, by itself.

    Parameters
    ----------
    kappas : iterable of int or None, default=None
        The limits to choose from; None: 1, 2, ... up to the number of features, 50 at most.
    gammas : float or sequence of float, default=1.0
        Inverse weights of the ridge to choose from.
    criterion : {"cv", "aic", "bic", "ebic", "gic"}, default="cv"
        Cross-validation, or an information criterion on one path over all samples (for losses that are likelihoods).
    cv : int, splitter, iterable or None, default=None
        As in scikit-learn: the number of folds (5 by default; stratified for classes), a splitter, or pairs of indices.
        Every node splits its own samples.
    scoring : str, callable or None, default=None
        A scorer of scikit-learn's; None: minus the mean loss. Scores of several nodes are averaged by the weights of
        their samples, which for means over samples is the score of all of them together.
    one_standard_error : bool, default=False
        Choose the fewest coefficients (then the smallest gamma) whose score is within one standard error of the best.

    Attributes
    ----------
    kappa_, gamma_ : int, float
        The choice, with which the model was fitted to all samples.
    cv_results_ : dict
        Scores of all models on all splits, in the form of scikit-learn's searches; times are a model's share of those
        of its path. Only with folds.
    selection_ : Selection
        Scores as a table over gammas and kappas; `psfit.plots.plot_selection` draws it.

    Models of the folds end at supports that no swap improves, unless the solver's effort is "high"; the final one goes
    on from there, and is certified.
    """

    _rules: ClassVar[dict[str, Rule]] = {
        # The limits may come from a generator, which can be read only once, and their number depends on the data.
        "kappas": satisfying("a sequence of integers", lambda value: isinstance(value, Iterable)) | NONE,
        "gammas": GAMMAS,
        "criterion": one_of("cv", *CRITERIA),
        "cv": integer(2) | satisfying("a splitter or pairs of indices", _is_splitter) | NONE,
        "scoring": satisfying("the name of a scorer", lambda value: isinstance(value, str)) | CALLABLE | NONE,
        "one_standard_error": BOOLEAN,
    }
    # Chosen in `fit`; what is posed before holds for every choice.
    kappa = None
    gamma = 1.0
    warm_start = False

    kappa_: int
    gamma_: float
    selection_: Selection
    cv_results_: dict[str, Any]

    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        gammas: float | Sequence[float] = 1.0,
        criterion: str = "cv",
        cv: Any = None,
        scoring: Any = None,
        one_standard_error: bool = False,
        fit_intercept: bool = True,
        standardize: bool = False,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | None = None,
        certify: bool = True,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.kappas = kappas
        self.gammas = gammas
        self.criterion = criterion
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.sparsity = sparsity
        self.solver = solver
        self.grid = grid
        self.certify = certify
        self.verbose = verbose
        self.callback = callback

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | int | None = None, groups: Any = None
    ) -> "SelectingModel":
        """Choose the limit and fit the model with it to all samples.

        Parameters
        ----------
        X, y, sample_weight, target :
            As in the plain estimators: arrays, tables, tensors, sparse matrices or files.
        groups : array-like (m,), optional
            Labels of groups, for splitters that keep them together.
        """
        self._settings()
        if self.one_standard_error and self.criterion != "cv":
            raise ValueError(f"one_standard_error needs folds; criterion={self.criterion!r} has no standard errors")
        gammas = ridges_of(self.gammas)
        posed = self._posed(X, y, sample_weight, target)
        kappas = limits_of(self.kappas, posed)
        posed.grid.require_alike(
            criterion=self.criterion,
            cv=_name(self.cv),
            scoring=_name(self.scoring),
            one_standard_error=self.one_standard_error,
            kappas=kappas,
            gammas=gammas,
        )
        if hasattr(self, "cv_results_"):
            del self.cv_results_
        moments = None
        if self.criterion == "cv":
            parts, self.selection_, concerns = self._validated(posed, kappas, gammas, groups)
            moments = parts.whole
        else:
            self.selection_, concerns = self._informed(posed, kappas, gammas)
        self.kappa_, self.gamma_ = self.selection_.kappa, self.selection_.gamma
        if self._speaks(posed.grid):
            print(self.selection_)
        problems = len(posed.problem.kappa)
        problem = replace(posed.problem, kappa=(self.kappa_,) * problems, gamma=self.gamma_)
        self._solve(problem, posed, None, moments)
        warn_of([*concerns, *self.result_.concerns], posed.grid)
        return self

    def _trial(self) -> BiCADMM:
        """The solver of the models to choose from: a choice that was cut short would be none."""
        return replace(self.solver or BiCADMM(), interruptible=False)

    def _validated(
        self, posed: Posed, kappas: Sequence[int], gammas: Sequence[float], groups: Any
    ) -> tuple[Subsamples, Selection, list[str]]:
        """Scores on held-out samples, for all splits; and what is to be said of their models."""
        source, grid = posed.source, posed.grid
        bounds = source.split(len(grid.nodes.hosted)).bounds
        folds = Folds.drawn(self.cv, posed.y, groups, is_classifier(self), bounds, grid)
        folds.require_use(self, posed)
        scorer = scorer_of(self, self.scoring)
        began = time.perf_counter()
        parts = Subsamples.of(posed.problem, source, grid, folds.train, self._trial())
        shared = (time.perf_counter() - began) / len(folds.train)
        paths, seconds = [], []
        with shown(self._speaks(grid), self.callback) as callback:
            for split in range(len(folds.train)):
                began = time.perf_counter()
                told = within(callback, f"fold {split + 1} of {len(folds.train)}")
                paths.append(require_whole(parts.path(split, kappas, gammas, told)))
                seconds.append(time.perf_counter() - began + shared)
        began = time.perf_counter()
        scores = held_out_scores(self, scorer, posed, folds, *models_of(paths))
        scoring = (time.perf_counter() - began) / scores.size
        self.cv_results_ = _results(kappas, gammas, scores, np.array(seconds) / scores.shape[1], scoring)
        splits, shape = len(scores), (len(gammas), len(kappas))
        spread = scores.std(axis=0, ddof=1) if splits > 1 else np.zeros(scores.shape[1])
        errors = (spread / np.sqrt(splits)).reshape(shape)
        label = MEAN_LOSS if self.scoring is None else _name(self.scoring)
        mean = scores.mean(axis=0).reshape(shape)
        selection = Selection.of(kappas, gammas, mean, errors, label, self.one_standard_error)
        return parts, selection, concerns_of_parts(paths, "folds")

    def _informed(self, posed: Posed, kappas: Sequence[int], gammas: Sequence[float]) -> tuple[Selection, list[str]]:
        """An information criterion for every model of one path; and what is to be said of them."""
        problem, source, grid = posed.problem, posed.source, posed.grid
        if problem.loss.name not in LIKELIHOODS:
            raise ValueError(
                f"criterion={self.criterion!r} needs a likelihood, which the {problem.loss.name} loss is not; use 'cv'"
            )
        with shown(self._speaks(grid), self.callback) as callback:
            paths = require_whole(
                solve_path(problem, source, kappas, gammas, self._trial(), grid, certify=False, callback=callback)
            )
        coefs, intercepts = models_of([paths])
        everything = torch.ones(1, source.matrix.shape[0], dtype=torch.bool)
        sums, weights = loss_sums(problem, source, grid, everything, coefs, intercepts)
        counting = summed(grid, np.array([np.count_nonzero(posed.weights)]))[0]
        if weights[0] < LEAST_WEIGHT <= counting:
            raise ValueError(
                f"sample_weight sums to {float(weights[0]):.3g}: criterion={self.criterion!r} reads weights as counts "
                "of samples; scale them so that they sum to their number"
            )
        items = problem.items(source.matrix.shape[1], source.outputs)
        packed = torch.stack([items.pack(Z) != 0 for Z in coefs[0]]).sum(dim=2).numpy()
        free = (coefs[0] != 0).sum(dim=(1, 2)).numpy() + items.outputs * items.free
        values = information(
            self.criterion, problem.loss.name, sums[0].numpy(), float(weights[0]), packed, free, items.size
        )
        scores = -values.reshape(len(gammas), len(kappas))
        selection = Selection.of(kappas, gammas, scores, None, self.criterion.upper(), False)
        return selection, concerns_of_parts([[points] for points in paths], "paths")


def _name(setting: Any) -> str:
    """A setting in words that are the same on every rank."""
    if setting is None or isinstance(setting, (str, int, np.integer)):
        return str(setting)
    return str(getattr(setting, "__name__", type(setting).__name__))


def _results(
    kappas: Sequence[int], gammas: Sequence[float], scores: np.ndarray, fit_seconds: np.ndarray, score_seconds: float
) -> dict[str, Any]:
    """Scores ``(S, G * K)`` in the form of scikit-learn's searches."""
    params = [{"gamma": gamma, "kappa": kappa} for gamma in gammas for kappa in kappas]
    count = len(params)
    mean = scores.mean(axis=0)
    ranks = rankdata(-np.where(np.isnan(mean), -np.inf, mean), method="min").astype(np.int32)
    return {
        "mean_fit_time": np.full(count, fit_seconds.mean()),
        "std_fit_time": np.full(count, fit_seconds.std()),
        "mean_score_time": np.full(count, score_seconds),
        "std_score_time": np.zeros(count),
        "param_gamma": np.ma.MaskedArray([one["gamma"] for one in params], mask=False),
        "param_kappa": np.ma.MaskedArray([one["kappa"] for one in params], mask=False),
        "params": params,
        **{f"split{split}_test_score": row for split, row in enumerate(scores)},
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=0),
        "rank_test_score": ranks,
    }
