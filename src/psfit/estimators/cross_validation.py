"""Cross-validation: paths on the training samples of folds, and scores of their models on the other samples."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from psfit.common.progress import Callback
from psfit.common.signals import Signals
from psfit.data.raw_form import RawForm
from psfit.estimators.choice import Candidates, Choice
from psfit.estimators.display import label_round
from psfit.estimators.folds import Folds
from psfit.estimators.loss_range import find_losses
from psfit.estimators.posing import Posed
from psfit.estimators.results.selection import MEAN_LOSS, Selection
from psfit.estimators.scores import find_scorer, score_held_out, stack_models
from psfit.estimators.stopping import stop_choice, was_stopped, watch_choice
from psfit.estimators.warning import count_unfinished
from psfit.pipeline.path import Points
from psfit.pipeline.subsamples import Subsamples


def cross_validate(
    posed: Posed,
    candidates: Candidates,
    cv: Any,
    groups: Any,
    scoring: Any,
    one_standard_error: bool,
    callback: Callback | None,
) -> Choice:
    """Choose by scores on held-out samples, over all splits."""
    folds = Folds.draw(cv, posed, groups)
    folds.require_enough(posed)
    scorer = find_scorer(scoring)
    # Where missing values are filled, every split fills them as its own training samples suggest.
    together = [slice(None)] if posed.gaps is None else [slice(k, k + 1) for k in range(len(folds.train))]
    begin, rounds = time.perf_counter(), []
    label = MEAN_LOSS if scoring is None else name_of(scoring)
    watch = watch_choice(posed.grid, candidates.solver)
    with watch.catch_signals():
        for part in together:
            rounds.append(_score_splits(posed, candidates, folds, part, scorer, callback, begin, watch.signals))
            if rounds[-1].stopped:
                break
        scores = np.concatenate([one.scores for one in rounds])
        if rounds[-1].stopped or watch.must_stop():
            selection = _select(candidates, scores, label, one_standard_error) if len(scores) else None
            raise stop_choice(watch, posed.grid, *_describe_folds(len(scores), len(folds.train)), selection)
    seconds = [second for one in rounds for second in one.seconds]
    scoring_seconds = sum(one.scoring_seconds for one in rounds) / scores.size
    paths = [path for one in rounds for path in one.paths]
    selection = _select(candidates, scores, label, one_standard_error)
    return Choice(
        replace(selection, losses=find_losses(posed) if scorer is None else None),
        count_unfinished(paths, "folds"),
        _search_results(candidates, scores, np.array(seconds) / scores.shape[1], scoring_seconds),
        rounds[0].whole if posed.gaps is None else None,
    )


@dataclass(frozen=True)
class _Round:
    """Paths, scores and times of some splits; the form of all samples, if it was made for them; and whether someone
    asked to stop before all splits were done: then there are only those before.
    """

    paths: list[list[Points]]
    scores: np.ndarray
    seconds: list[float]
    scoring_seconds: float
    whole: RawForm | None
    stopped: bool


def _score_splits(
    posed: Posed,
    candidates: Candidates,
    folds: Folds,
    part: slice,
    scorer: Any,
    callback: Callback | None,
    begin: float,
    received: Signals,
) -> _Round:
    """Fit and score all candidates on some of the splits; the first one began at the time `begin`."""
    own = Folds(folds.train[part], folds.test[part])
    start = time.perf_counter()
    posed = posed.fill_again(own.train[0].cpu().numpy())
    parts = Subsamples.of(posed.problem, posed.source, posed.grid, own.train, candidates.solver)
    shared = (time.perf_counter() - start) / len(own.train)
    paths, seconds = [], []
    for split in range(len(own.train)):
        start = time.perf_counter()
        report = label_round(callback, "fold", (part.start or 0) + split + 1, len(folds.train), begin)
        path = parts.path(split, candidates.kappas, candidates.gammas, report, received)
        if was_stopped(path):
            break
        paths.append(path)
        seconds.append(time.perf_counter() - start + shared)
    start = time.perf_counter()
    done = Folds(own.train[: len(paths)], own.test[: len(paths)])
    scores = np.zeros((0, len(candidates.gammas) * len(candidates.kappas)))
    if paths:
        scores = score_held_out(scorer, posed, done, *stack_models(paths))
    stopped = len(paths) < len(own.train)
    return _Round(paths, scores, seconds, time.perf_counter() - start, parts.whole, stopped)


def _describe_folds(done: int, total: int) -> tuple[str, str]:
    """Where a choice was stopped, and what the choice so far comes from."""
    if done == total:
        return f"after all {total} folds", "from all of them"
    place = f"during fold {done + 1} of {total}"
    if not done:
        return place, "no fold is complete, so there is no choice yet"
    return place, "from the fold before" if done == 1 else f"from the {done} folds before"


def _select(candidates: Candidates, scores: np.ndarray, label: str, one_standard_error: bool) -> Selection:
    """The choice by the mean over the splits of scores ``(S, G * K)``."""
    splits, shape = len(scores), (len(candidates.gammas), len(candidates.kappas))
    spread = scores.std(axis=0, ddof=1) if splits > 1 else np.zeros(scores.shape[1])
    errors = (spread / np.sqrt(splits)).reshape(shape)
    mean = scores.mean(axis=0).reshape(shape)
    tried = candidates.kappas, candidates.gammas
    return Selection.of(*tried, mean, errors, label, one_standard_error, candidates.careful)


def name_of(setting: Any) -> str:
    """A name of a setting that is the same on every rank."""
    if setting is None or isinstance(setting, (str, int, np.integer)):
        return str(setting)
    return str(getattr(setting, "__name__", type(setting).__name__))


def _search_results(
    candidates: Candidates, scores: np.ndarray, fit_seconds: np.ndarray, score_seconds: float
) -> dict[str, Any]:
    """Scores ``(S, G * K)`` in the form of scikit-learn's searches."""
    params = [{"gamma": gamma, "kappa": kappa} for gamma in candidates.gammas for kappa in candidates.kappas]
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
