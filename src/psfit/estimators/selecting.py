"""The base of all estimators that choose their own limit: try many limits, choose one, fit it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from psfit.common.arguments import BOOLEAN, CALLABLE, NONE, Rule, integer, one_of, satisfying
from psfit.estimators.choice import Candidates, Choice
from psfit.estimators.concerns import warn_of_targets
from psfit.estimators.criteria import CRITERIA
from psfit.estimators.criterion_choice import choose_by_criterion
from psfit.estimators.cross_validation import cross_validate, name_of
from psfit.estimators.display import prints, show_progress
from psfit.estimators.model import SparseModel
from psfit.estimators.posing import Given, Posed
from psfit.estimators.results import Selection
from psfit.estimators.settings import AUTO, GAMMAS, Settings, read_gammas
from psfit.estimators.shared_arguments import SelectionArguments, complete_arguments
from psfit.estimators.warning import warn
from psfit.problem.automatic_gamma import spread_gammas


def _is_splitter(cv: Any) -> bool:
    return not isinstance(cv, str) and (hasattr(cv, "split") or isinstance(cv, Iterable))


RULES: dict[str, Rule] = {
    # The limits may come from a generator, which can be read only once, so they are checked later, with the data.
    "kappas": satisfying("a sequence of integers", lambda value: isinstance(value, Iterable)) | NONE,
    "gammas": GAMMAS,
    "criterion": one_of("cv", *CRITERIA),
    "cv": integer(2) | satisfying("a splitter or pairs of indices", _is_splitter) | NONE,
    "scoring": satisfying("the name of a scorer", lambda value: isinstance(value, str)) | CALLABLE | NONE,
    "one_standard_error": BOOLEAN,
}


class SelectingModel(SparseModel):
    """A model that chooses its limit kappa itself, and gamma.

    Parameters
    ----------
    kappas : iterable of int or None, default=None
        The limits to choose from; None means 1, 2, ... up to the number of features, 50 at most.
    gammas : float, sequence of float or "auto", default="auto"
        Inverse weights of the ridge to choose from. "auto" are three, for columns divided by their standard deviations:
        ridges of 0.1 %, 1 % and 10 % of the curvature of the loss. Of those that are equally good, up to a tenth of a
        standard error, the smallest gamma is chosen. Without folds it is the automatic gamma of the plain estimators.
    criterion : {"cv", "aic", "bic", "ebic", "gic"}, default="cv"
        Cross-validation, or an information criterion on one path over all samples (for losses that are likelihoods).
    cv : int, splitter, iterable or None, default=None
        As in scikit-learn: the number of folds (5 by default; stratified for classes), a splitter, or pairs of indices.
        Every node splits its own samples.
    scoring : str, callable or None, default=None
        A scorer of scikit-learn; None means minus the mean loss. Scores of several nodes are averaged with the weights
        of their samples. If the score is a mean over samples, this is the score of all samples together.
    one_standard_error : bool, default=False
        Among the models within one standard error of the best score, choose the one with the fewest coefficients, then
        with the smallest gamma.

    Attributes
    ----------
    kappa_ : int
        The chosen limit, with which the model was fitted to all samples; so is `gamma_`.
    cv_results_ : dict
        Scores of all models on all splits, in the form of scikit-learn's searches; the time of a
        path is divided evenly among its models. Only with folds.
    selection_ : Selection
        Scores as a table over gammas and kappas; `psfit.plots.plot_selection` draws it.

    The search on a fold ends at supports that no swap improves, unless the solver's effort is "high". The final model
    has the full search, and a certificate.
    """

    # `fit` chooses them.
    kappa = None
    gamma = AUTO
    warm_start = False

    kappas: Iterable[int] | None
    gammas: float | str | Sequence[float]
    criterion: str
    cv: Any
    scoring: Any
    one_standard_error: bool

    kappa_: int
    selection_: Selection
    cv_results_: dict[str, Any]

    def __init__(self, kappas: Iterable[int] | None = None, **shared: Unpack[SelectionArguments]) -> None:
        self.kappas = kappas
        self._store(complete_arguments(shared, SelectionArguments, type(self).__name__))

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | int | None = None,
        offset: Any = None,
        groups: Any = None,
    ) -> "SelectingModel":
        """Choose the limit and fit the model with it to all samples.

        Parameters
        ----------
        X, y, sample_weight, target, offset :
            As in the plain estimators: arrays, tables, tensors, sparse matrices or files.
        groups : array-like (m,), optional
            Labels of groups, for splitters that keep them together.
        """
        if self.one_standard_error and self.criterion != "cv":
            raise ValueError(f"one_standard_error needs folds; criterion={self.criterion!r} has no standard errors")
        given = read_gammas(self.gammas)
        posed = self._pose(Given(X, y, sample_weight, target, offset))
        warn_of_targets(posed)
        gammas = self._list_gammas(posed) if given is None else given
        kappas = posed.read_limits(self.kappas)
        posed.grid.require_same(
            criterion=self.criterion,
            cv=name_of(self.cv),
            scoring=name_of(self.scoring),
            one_standard_error=self.one_standard_error,
            kappas=kappas,
            gammas=gammas,
        )
        choice = self._choose(posed, kappas, gammas, groups)
        selection = choice.selection
        if prints(self.verbose, posed.grid):
            print(selection)
        problems = len(posed.problem.kappa)
        problem = replace(posed.problem, kappa=(selection.kappa,) * problems, gamma=selection.gamma)
        result = self._solve(problem, posed, None, choice.raw)
        self._keep(posed, result)
        self._keep_choice(choice)
        warn([*choice.concerns, *result.concerns], posed.grid)
        return self

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return super()._rules() | RULES

    def _settings(self, parameters: Mapping[str, Any]) -> Settings:
        # The choice replaces gamma, unless it is automatic.
        gammas = read_gammas(self.gammas)
        return replace(super()._settings(parameters), gamma=AUTO if gammas is None else gammas[0])

    def _list_gammas(self, posed: Posed) -> list[float]:
        """The automatic gammas: several for folds, one for a criterion, which does not see the ridge."""
        gamma = posed.problem.gamma
        return spread_gammas(posed.problem.loss, gamma) if self.criterion == "cv" else [gamma]

    def _choose(self, posed: Posed, kappas: Sequence[int], gammas: Sequence[float], groups: Any) -> Choice:
        """Try all limits and gammas."""
        candidates = Candidates(kappas, gammas, self._make_solver(), careful=read_gammas(self.gammas) is None)
        with show_progress(self.verbose, posed.grid, self.callback) as report:
            if self.criterion != "cv":
                return choose_by_criterion(posed, candidates, self.criterion, report)
            return cross_validate(posed, candidates, self.cv, groups, self.scoring, self.one_standard_error, report)

    def _keep_choice(self, choice: Choice) -> None:
        self.selection_ = choice.selection
        self.kappa_ = choice.selection.kappa
        self.__dict__.pop("cv_results_", None)
        if choice.cv_results is not None:
            self.cv_results_ = choice.cv_results
