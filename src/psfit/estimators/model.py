"""The base of all estimators: the parameters, `fit`, and the fitted attributes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.record import Record
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import Rule
from psfit.common.progress import Callback
from psfit.data.raw_form import RawForm
from psfit.estimators.concerns import clear_constant, warn_of_targets
from psfit.estimators.constraints import Constrained
from psfit.estimators.description import Described
from psfit.estimators.display import prints, show_progress
from psfit.estimators.docstrings import gather
from psfit.estimators.export import as_sklearn, write_coefficients, write_onnx
from psfit.estimators.posing import Given, Learned, Posed, pose_samples
from psfit.estimators.predictors import compute_predictors
from psfit.estimators.settings import RULES, Settings, start_grid
from psfit.estimators.shared_arguments import ModelArguments, add_parameters, complete_arguments
from psfit.estimators.solver_settings import SolverSettings
from psfit.estimators.warning import warn
from psfit.pipeline.result import Result
from psfit.pipeline.solve import solve
from psfit.problem import Problem, Sparsity


class SparseModel(Constrained, SolverSettings, Described):
    """Base of all estimators: a loss, a limit kappa on the nonzero coefficients, a ridge.

    Parameters
    ----------
    kappa : int, float in (0, 1) or None, default=None
        The limit on nonzero coefficients. An integer is the limit itself, a float its share of all coefficients; None
        is a tenth of the features (at least one) for each output. With several targets, or one-against-rest problems,
        each has its own limit; see `sparsity`.
    gamma : float or "auto", default="auto"
        Inverse weight of the ridge ``||x||^2 / (2 gamma)``, against losses summed over samples: a large gamma
        shrinks little; a small one shrinks more, and the certificate is tighter. Infinity means no ridge. "auto" is a
        ridge that hardly shrinks: a thousandth of the curvature that the squared loss has in a column divided by its
        standard deviation, a ten-thousandth for the other losses. The number is in `gamma_`.
    fit_intercept : bool, default=True
        Fit an intercept; it has no ridge and is not counted.
    standardize : bool, default=False
        Apply the ridge to columns divided by their standard deviations (about zero without an intercept), so that it
        does not depend on their units. Coefficients are reported in the units of X in both cases. With
        ``gamma="auto"`` the ridge is always of this kind.
    sparsity : {"element", "feature"}, default="element"
        With several outputs: whether kappa limits entries (of each target, or over all classes) or whole rows.
    solver : BiCADMM or None, default=None
        Configuration of the algorithm: tolerance, limits of iterations and time, effort, exact mode, checkpoints. None
        means ``BiCADMM()``.
    grid : GridSpec, Grid or None, default=None
        Nodes, feature blocks, device, precision and the engine that connects ranks; or a grid that was built before.
        None means one node in this process.
    certify : bool, default=True
        Prove how far the answer can be from the best one: `lower_bound_` and `gap_`.
    warm_start : bool, default=False
        Start from the previous answer if its shape fits.
    verbose : int, default=0
        1 prints the progress of the fit, in one line that changes in a terminal or a notebook, and then the result;
        2 also prints the residuals of the iteration.
        Ctrl-C then ends the fit with the best answer so far, and the status says so; a second Ctrl-C ends the program.
    callback : callable or None
        Called with a `psfit.Progress` while the fit runs, on every rank that has a callback; if it returns True, the
        fit ends with the best answer so far.

    Attributes
    ----------
    result_ : Result
        All results of the fit; ``print(model.result_)`` describes them in words.
    learned_ : Learned
        Facts about the data: the columns of X, the targets, and where the fit ran.
    """

    # A name in the registry of losses; some estimators have it as a parameter.
    loss: str
    kappa: int | float | None
    gamma: float | str
    fit_intercept: bool
    standardize: bool
    sparsity: Sparsity
    solver: BiCADMM | None
    grid: GridSpec | Grid | None
    certify: bool
    warm_start: bool
    verbose: int
    callback: Callback | None

    result_: Result
    learned_: Learned

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "__init__" in vars(cls):
            add_parameters(cls.__init__)
        gather(cls)

    @add_parameters
    def __init__(self, kappa: int | float | None = None, **shared: Unpack[ModelArguments]) -> None:
        self.kappa = kappa
        self._store(complete_arguments(shared, ModelArguments, type(self).__name__))

    def _store(self, arguments: Mapping[str, Any]) -> None:
        for name, value in arguments.items():
            setattr(self, name, value)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | int | None = None,
        offset: Any = None,
    ) -> "SparseModel":
        """Fit the model.

        With a grid of several ranks, every rank calls this with the rows of the nodes it hosts (or with the same files,
        of which it reads its part), and gets the same model. Ranks of the same node pass the same rows; each
        works on its own columns.

        Parameters
        ----------
        X : array-like (m, p), path or FileSource
            NumPy array or memory map, DataFrame, torch tensor on any device (used in place where precision allows),
            SciPy or torch sparse matrix; or a file, a folder of files, or a `FileSource` that describes them.
        y : array-like (m,) or (m, targets)
            Not needed if a file holds the target.
        sample_weight : array-like (m,) or str, optional
            Non-negative weights of the samples' losses; for a file, the name of their column.
        target : str or int, optional
            The target's column in a file, see `FileSource`.
        offset : array-like (m,) or (m, outputs), or str, optional
            Numbers that are added to the linear predictors, such as the logarithm of exposure; for a file, the name of
            their column. With more than two classes there is a column for each class. The model then needs offsets to
            predict, too; of a file it remembers the column.
        """
        posed = self._pose(Given(X, y, sample_weight, target, offset))
        warn_of_targets(posed)
        result = self._solve(posed.problem, posed, self._start(posed))
        self._keep(posed, result)
        warn(result.concerns, posed.grid)
        return self

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        """The rules for the arguments of the constructor; subclasses add their own."""
        return RULES

    def _pose(self, given: Given) -> Posed:
        """Check the arguments, read the data and pose the problem on them; this does not change the estimator."""
        parameters = self.get_params(deep=False)
        grid = start_grid(self._rules(), parameters, given.X)
        grid.run_together(self._make_solver)
        return pose_samples(self._settings(parameters), type(self).__name__, given, grid)

    def _settings(self, parameters: Mapping[str, Any]) -> Settings:
        """What is to be fitted."""
        return Settings(
            self.loss, self.kappa, self.gamma, self.fit_intercept, self.standardize, self.sparsity, parameters
        )

    def _solve(
        self, problem: Problem, posed: Posed, start: tuple[Tensor, Tensor] | None, raw: RawForm | None = None
    ) -> Result:
        """Fit to the posed data, and print what happens if `verbose`."""
        # Ctrl-C ends a fit whose progress is printed.
        keyboard = self.verbose > 0
        with show_progress(self.verbose, posed.grid, self.callback) as callback:
            result = solve(
                problem, posed.source, self._make_solver(), posed.grid, start, self.certify, callback, raw, keyboard
            )
        result = clear_constant(replace(result, constraints=posed.constraints.words), posed)
        if prints(self.verbose, posed.grid):
            print(result.describe(posed.learned.features.names, posed.constraints.groups))
        return result

    def _start(self, posed: Posed) -> tuple[Tensor, Tensor] | None:
        """The previous answer, if a warm start is asked for and its shape fits."""
        previous, matrix = getattr(self, "result_", None), posed.source.matrix
        if not self.warm_start or previous is None or previous.coef.shape != (matrix.shape[1], posed.source.outputs):
            return None
        return torch.from_numpy(previous.coef).to(matrix.device), torch.from_numpy(previous.intercept).to(matrix.device)

    def _keep(self, posed: Posed, result: Result) -> None:
        """Store the results at the end of a fit, so that a fit that fails does not change the estimator."""
        self.learned_, self.result_ = posed.learned, result

    @property
    def _target(self) -> Any:
        """The target of the fit: for regression `Numbers`, for classes `Labels`."""
        check_is_fitted(self)
        return self.learned_.target

    def _predictors(self, X: Any, offset: Any) -> np.ndarray:
        """``X coef + intercept``, shape ``(m, c)``, plus the offset if the model was fitted with one."""
        check_is_fitted(self)
        return compute_predictors(self, self.learned_, self.result_, X, offset)

    def to_sklearn(self) -> Any:
        """scikit-learn's own fitted model with the same predictions, for places where PsFiT is not installed."""
        return as_sklearn(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as an ONNX graph (``pip install 'psfit-toolbox[onnx]'``); it computes in 32-bit floats."""
        write_onnx(self, path)

    def to_csv(self, path: str | Path) -> None:
        """Write intercepts and nonzero coefficients as a table: output, feature, coefficient."""
        write_coefficients(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def n_features_in_(self) -> int:
        """Features of X."""
        return self.learned_.features.count

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features ``(p,)``, if X was a table or a file that has them."""
        names = self.learned_.features.names
        if names is None:
            raise AttributeError("the features have no names: X was not a table")
        return names

    @property
    def support_(self) -> np.ndarray:
        """Sorted indices of the features with a nonzero coefficient."""
        return self.result_.support

    @property
    def objective_(self) -> float:
        """The objective, summed over independent problems."""
        return self.result_.objective

    @property
    def gamma_(self) -> float:
        """The gamma of the fit. If it was automatic or chosen, ``gamma=model.gamma_`` gives the same model, with
        ``standardize=True`` if ``result_.standardize`` says so.
        """
        return self.result_.gamma

    @property
    def lower_bound_(self) -> float:
        """No model within the limit has a smaller objective; minus infinity without `certify`."""
        return self.result_.lower_bound

    @property
    def gap_(self) -> float:
        """``(objective_ - lower_bound_) / |objective_|``."""
        return self.result_.gap

    @property
    def n_iter_(self) -> int:
        """Outer iterations."""
        return self.result_.n_iter

    @property
    def history_(self) -> tuple[Record, ...]:
        """A record for every outer iteration."""
        return self.result_.history
