"""What all estimators share: one short `fit`, from the user's arrays to `solve` and back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.record import Record
from psfit.comm import ALONE, Grid, GridSpec
from psfit.common.arguments import BOOLEAN, CALLABLE, GAMMA, NONE, Rule, describe, instance, integer, number, one_of
from psfit.common.environment import environment
from psfit.common.progress import Callback
from psfit.data import DesignMatrix, FileSource, Samples, Source, Spread
from psfit.data.raw_form import RawForm
from psfit.data.schema import Schema
from psfit.estimators.concerns import warn_of
from psfit.estimators.display import shown
from psfit.estimators.docstrings import gather
from psfit.estimators.export import as_sklearn, write_coefficients, write_onnx
from psfit.estimators.reading import (
    as_array,
    as_file,
    forget_names,
    place,
    read_design,
    read_weights,
    require_finite,
    summed,
    to_tensor,
)
from psfit.losses import Loss
from psfit.pipeline.result import Result
from psfit.pipeline.solve import solve
from psfit.problem import Problem, Sparsity


@dataclass(frozen=True)
class Posed:
    """What to solve, this rank's data and the grid; the targets and the samples' own weights as they were given."""

    problem: Problem
    source: Source
    grid: Grid
    y: np.ndarray
    weights: np.ndarray

    @property
    def weighted(self) -> bool:
        """Whether any sample on any rank has a weight other than one."""
        return bool(self.grid.nodes.most(torch.tensor([float((self.weights != 1).any())])))


# What the arguments of every estimator may be; classes add their own in `_rules`.
RULES: dict[str, Rule] = {
    "kappa": integer(1, floats=True) | number("a share between 0 and 1", lambda value: 0 < value < 1) | NONE,
    "gamma": GAMMA,
    "fit_intercept": BOOLEAN,
    "standardize": BOOLEAN,
    "sparsity": one_of("element", "feature"),
    "solver": instance("a psfit.BiCADMM", BiCADMM) | NONE,
    "grid": instance("a psfit.GridSpec", GridSpec) | NONE,
    "certify": BOOLEAN,
    "warm_start": BOOLEAN,
    "verbose": BOOLEAN | integer(0),
    "callback": CALLABLE | NONE,
}


class SparseModel(BaseEstimator, ABC):
    """Base of all estimators: a loss, a limit kappa on the nonzero coefficients, a ridge.

    Parameters
    ----------
    kappa : int, float in (0, 1) or None, default=None
        The limit on nonzero coefficients. An integer is the limit itself, a float its share of all coefficients; None
        is a tenth of the features (at least one) for each output. With several targets, or one-against-rest problems,
        each has its own limit; see `sparsity`.
    gamma : float, default=1.0
        Inverse weight of the ridge ``||x||^2 / (2 gamma)``, against losses summed over samples: a large one means
        hardly any shrinkage, a small one shrinks more and makes the certificate tighter.
    fit_intercept : bool, default=True
        Fit an intercept; it pays no ridge and does not count.
    standardize : bool, default=False
        Let the ridge see columns divided by their standard deviations (about zero without an intercept), so that it
        does not depend on their units. Coefficients are reported in the units of X either way.
    sparsity : {"element", "feature"}, default="element"
        With several outputs: whether kappa limits entries (of each target, or over all classes) or whole rows.
    solver : BiCADMM or None, default=None
        Configuration of the algorithm: tolerance, limits of iterations and time, effort, exact mode, checkpoints. None
        is ``BiCADMM()``.
    grid : GridSpec or None, default=None
        Nodes, feature blocks, device, precision and the engine that connects ranks. None is one node in this process.
    certify : bool, default=True
        Prove how far the answer can be from the best one: `lower_bound_` and `gap_`.
    warm_start : bool, default=False
        Start from the previous answer if its shape fits.
    verbose : int, default=0
        1 shows how far the fit is, in one live line where there is a terminal or a notebook, and prints the result.
        Ctrl-C then ends the fit with the best answer so far, whose status says so; a second one ends the program.
    callback : callable or None
        Hears of `psfit.Progress` while the fit runs, on every rank that has one; if it returns True, the fit ends with
        the best answer so far.

    Attributes
    ----------
    result_ : Result
        All that is known about the fit; ``print(model.result_)`` says it in words.
    n_features_in_ : int
        Features of X.
    feature_names_in_ : ndarray (p,)
        Names of the features, if X was a table or a file that has them.
    """

    _rules: ClassVar[dict[str, Rule]] = RULES

    result_: Result
    n_features_in_: int
    # Where the data were read and fitted, for reports.
    _surroundings: dict[str, str]
    # What files told about their columns; None if the model was fitted to arrays.
    _schema: Schema | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        gather(cls)

    def __init__(
        self,
        kappa: int | float | None = None,
        *,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        standardize: bool = False,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | None = None,
        certify: bool = True,
        warm_start: bool = False,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.kappa = kappa
        self.gamma = gamma
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.sparsity = sparsity
        self.solver = solver
        self.grid = grid
        self.certify = certify
        self.warm_start = warm_start
        self.verbose = verbose
        self.callback = callback

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | int | None = None
    ) -> "SparseModel":
        """Fit the model.

        With a grid of several ranks, every rank calls this with the rows of the nodes it hosts (or with the same files,
        of which it reads its part), and ends with the same model. Ranks that share a node pass the same rows; each
        works on its own columns of them.

        Parameters
        ----------
        X : array-like (m, p), path or FileSource
            NumPy array or memory map, DataFrame, torch tensor on any device (used in place where precision allows),
            SciPy or torch sparse matrix; or a file, a folder of files, or a `FileSource` that says more about them.
        y : array-like (m,) or (m, targets)
            Not needed where a file holds the target.
        sample_weight : array-like (m,) or str, optional
            Non-negative weights of the samples' losses; for a file, the name of their column.
        target : str or int, optional
            The target's column in a file, see `FileSource`.
        """
        posed = self._posed(X, y, sample_weight, target)
        self._solve(posed.problem, posed, self._start(posed.source))
        warn_of(self.result_.concerns, posed.grid)
        return self

    def _solve(
        self, problem: Problem, posed: Posed, start: tuple[Tensor, Tensor] | None, raw: RawForm | None = None
    ) -> None:
        """Fit to the posed data, and speak of it if asked to."""
        speaks = self._speaks(posed.grid)
        # Who watches a fit may want to end it.
        watched = self.verbose > 0
        with shown(speaks, self.callback) as callback:
            self.result_ = solve(
                problem, posed.source, self.solver, posed.grid, start, self.certify, callback, raw, watched
            )
        if speaks:
            print(self.result_)

    def _speaks(self, grid: Grid) -> bool:
        """Whether this is the rank that says what all of them do."""
        return self.verbose > 0 and grid.world.rank == 0

    def _posed(self, X: Any, y: Any, sample_weight: Any, target: Any) -> Posed:
        """Read and check everything; remembers what `predict` needs."""
        asked = RULES["grid"]("grid", self.grid) or ALONE
        grid = asked.build(X.device if isinstance(X, Tensor) else None)
        grid.together(self._settings)
        self._surroundings = environment() | {"device": str(grid.device), "ranks": str(grid.world.size)}
        matrix, y, weights = self._read(X, y, sample_weight, target, grid)
        grid.require_alike(features=matrix.shape[1], dtype=str(matrix.dtype))
        if not summed(grid, weights.sum(keepdims=True)) > 0:
            raise ValueError("sample_weight is zero everywhere; at least one sample must count")
        codes, effective = self._encode(y, weights, grid)
        matrix = self._own_columns(matrix, grid)
        source = Source(
            matrix,
            to_tensor(codes, grid, torch.float64),
            to_tensor(effective.reshape(-1, 1), grid, torch.float64),
        )
        loss = self._loss(codes)
        kappa = grid.together(lambda: self._limits(loss, *self._shape(source)))
        asked = {name: getattr(self, name) for name in ("gamma", "sparsity", "fit_intercept", "standardize")}
        problem = Problem(loss, kappa, **asked)
        return Posed(problem, source, grid, y, weights)

    def _read(
        self, X: Any, y: Any, sample_weight: Any, target: Any, grid: Grid
    ) -> tuple[DesignMatrix, np.ndarray, np.ndarray]:
        """Data of this rank, as far as they can be checked without the others."""
        source = grid.together(lambda: as_file(X, y, sample_weight, target))
        if source is None:
            return grid.together(lambda: self._read_arrays(X, y, sample_weight, grid))
        samples = source.read(grid, labelled=y is None, numeric=is_regressor(self))
        return grid.together(lambda: self._read_samples(samples, y, sample_weight))

    def _read_arrays(
        self, X: Any, y: Any, sample_weight: Any, grid: Grid
    ) -> tuple[DesignMatrix, np.ndarray, np.ndarray]:
        values = read_design(self, X, reset=True)
        self._schema = None
        weights = read_weights(sample_weight, values.shape[0])
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = self._read_target(as_array(y), values.shape[0])
        matrix = place(values, grid)
        require_finite(self, matrix)
        return matrix, y, weights

    def _read_samples(
        self, samples: Samples, y: Any, sample_weight: Any
    ) -> tuple[DesignMatrix, np.ndarray, np.ndarray]:
        rows, self.n_features_in_ = samples.matrix.shape
        forget_names(self)
        self._schema = samples.schema
        if samples.names is not None:
            self.feature_names_in_ = np.array(samples.names, dtype=object)
        given = None if isinstance(sample_weight, str) else sample_weight
        weights = read_weights(samples.weight if given is None else given, rows)
        y = samples.y if y is None else y
        if y is None:
            raise ValueError("y: the file holds no target; pass y, or say where it is with target")
        return samples.matrix, self._read_target(as_array(y), rows), weights

    def _own_columns(self, matrix: DesignMatrix, grid: Grid) -> DesignMatrix:
        """The columns of the blocks hosted here; with one rank a node, all of them."""
        p = matrix.shape[1]
        if grid.blocks.size > p:
            raise ValueError(f"grid: blocks={grid.blocks.size} is more than the {p} features; use at most {p}")
        if grid.blocks.comm.size == 1:
            return matrix
        columns = grid.columns(p + self.fit_intercept)
        at = slice(min(columns.start, p), min(columns.stop, p))
        return Spread(matrix.columns(at), at, p, grid.blocks)

    @abstractmethod
    def _read_target(self, y: Any, rows: int) -> np.ndarray:
        """The targets of this rank's samples, checked."""

    @abstractmethod
    def _encode(self, y: np.ndarray, weights: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        """Targets as floats ``(m, c)`` and the weights to use; remembers what `predict` needs."""

    @abstractmethod
    def _loss(self, target: np.ndarray) -> Loss:
        """The loss to minimise."""

    def _predictor(self, X: Any) -> np.ndarray:
        """``X coef + intercept``, shape ``(m, c)``; tensors are multiplied where they lie, files as they are read."""
        check_is_fitted(self)
        source = as_file(X)
        if source is not None:
            return self._predictor_of(source)
        values = read_design(self, X, reset=False)
        where = str(values.device) if isinstance(values, Tensor) else "cpu"
        matrix = place(values, GridSpec(backend="serial", device=where).build())
        require_finite(self, matrix)
        return self._product(matrix, self.result_.coef)

    def _predictor_of(self, source: FileSource) -> np.ndarray:
        """The same for the samples of a file, read as those of the fit were; with names, only features that count."""
        coef = self.result_.coef
        names = getattr(self, "feature_names_in_", None)
        if names is not None and len(self.support_) > 0:
            names, coef = names[self.support_], coef[self.support_]
        grid = GridSpec(backend="serial", device="cpu").build()
        bare = replace(source, sample_weight=None)
        known = None if names is None else tuple(names)
        matrix = bare.read(grid, known, labelled=False, features=self.n_features_in_, schema=self._schema).matrix
        if matrix.shape[1] != len(coef):
            raise ValueError(f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting {len(coef)}")
        return self._product(matrix, coef)

    def _product(self, matrix: DesignMatrix, coefficients: np.ndarray) -> np.ndarray:
        coef = torch.from_numpy(coefficients).to(matrix.device)
        parts = [strip.mv(coef) for _, strip in matrix.strips(torch.float64)]
        return np.asarray(torch.cat(parts).cpu().numpy() + self.result_.intercept)

    def _shape(self, source: Source) -> tuple[int, int]:
        return source.matrix.shape[1], source.outputs

    def _limits(self, loss: Loss, p: int, c: int) -> tuple[int, ...]:
        """Kappa as a number for each independent problem."""
        problems = 1 if loss.joint or (self.sparsity == "feature" and c > 1) else c
        items = p * c if loss.joint and self.sparsity == "element" else p
        kappa = RULES["kappa"]("kappa", self.kappa)
        if kappa is None:
            kappa = max(1, p // 10) * (items // p)
        elif kappa < 1:
            kappa = max(1, round(kappa * items))
        if kappa > items:
            given = describe(self.kappa)
            raise ValueError(f"kappa={given} must be between 1 and {items}, the number of items it limits")
        return (kappa,) * problems

    def _settings(self) -> dict[str, Any]:
        """All arguments of the constructor as they were meant; errors name those that are not allowed."""
        rules: dict[str, Rule] = {}
        for base in reversed(type(self).__mro__):
            rules |= vars(base).get("_rules", {})
        return {name: rules[name](name, value) for name, value in self.get_params(deep=False).items()}

    def _start(self, source: Source) -> tuple[Tensor, Tensor] | None:
        previous = getattr(self, "result_", None)
        if not self.warm_start or previous is None or previous.coef.shape != self._shape(source):
            return None
        device = source.matrix.device
        return torch.from_numpy(previous.coef).to(device), torch.from_numpy(previous.intercept).to(device)

    def to_sklearn(self) -> Any:
        """scikit-learn's own fitted model with the same predictions, for places where PsFiT is not installed."""
        return as_sklearn(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as an ONNX graph (``pip install 'psfit[onnx]'``); it computes in 32-bit floats."""
        write_onnx(self, path)

    def to_csv(self, path: str | Path) -> None:
        """Write intercepts and nonzero coefficients as a table: output, feature, coefficient."""
        write_coefficients(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def support_(self) -> np.ndarray:
        """Sorted indices of the features with a nonzero coefficient."""
        return self.result_.support

    @property
    def objective_(self) -> float:
        """The objective, summed over independent problems."""
        return self.result_.objective

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
