"""Estimators for dask collections: the plain ones, with another `fit`, and predictions that stay on the workers."""

import inspect
from typing import Any

import numpy as np
from distributed import Client, get_client
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from psfit.common.arguments import NONE, Rule, instance, integer
from psfit.dask.fit import fit_on_dask, make_job
from psfit.dask.partitions import is_collection, make_partitions
from psfit.dask.predictions import predict_collection
from psfit.data import TableSource
from psfit.estimators import (
    SparseGammaRegression,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
    SparseTweedieRegression,
)
from psfit.estimators.batches import METHODS
from psfit.estimators.docstrings import split
from psfit.estimators.model import SparseModel
from psfit.estimators.reading import as_source

# The text for the parameters that the estimators add.
CLIENT = """

Parameters
----------
client : distributed.Client or None, default=None
    The client of the cluster; None is the one that is active. It is not pickled with the estimator.
restarts : int, default=0
    How often the fit is started again after a worker was lost, with the same partitions in the same ranks: from the
    last checkpoint, if ``solver=BiCADMM(checkpoint=...)`` names a folder that all workers see, else from the start.
"""
# The parameters that the estimators add.
OWN = ("client", "restarts")


class DaskModel(SparseModel):
    """What the estimators for Dask add to the plain ones, from which all else is inherited."""

    client: Client | None
    restarts: int
    # The estimator for data in memory.
    _plain: type[SparseModel]

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | int | None = None,
        offset: Any = None,
    ) -> "DaskModel":
        """Fit the model where the partitions are: each process that holds some becomes a node of the algorithm.

        Parameters
        ----------
        X : dask DataFrame, dask array (m, p), list of delayed, or TableSource
            The samples. Delayed partitions give arrays, sparse matrices or tables. A `psfit.TableSource` of a dask
            DataFrame says how text, dates and missing values are read, and names the columns of targets and weights.
        y : dask Series, DataFrame or array, or list of delayed
            Divided like X.
        sample_weight : as y, optional
            Weights of the samples' losses; for a `TableSource`, the name of a column.
        target : None
            Not for dask collections; a `TableSource` names its target itself.
        offset : as y, optional
            Numbers that are added to the linear predictors; for a `TableSource`, the name of a column. The model then
            needs offsets to predict, too.
        """
        for name in ("client", "restarts"):
            self._rules()[name](name, getattr(self, name))
        source, rules = as_source(X, y, sample_weight, target, offset), None
        if isinstance(source, TableSource):
            X, rules = source.table, {name: value for name, value in vars(source).items() if name != "table"}
            sample_weight, offset = (None if isinstance(one, str) else one for one in (sample_weight, offset))
        elif source is not None:
            raise TypeError("X names files; read them with dask.dataframe, or fit the plain estimator to them")
        elif y is None:
            raise ValueError("y must be passed: a dask collection divided like X")
        partitions = make_partitions(X, y, sample_weight, offset)
        job = make_job(self._make_plain(), rules)
        fitted = fit_on_dask(job, partitions, self.client or get_client(), self.restarts)
        self.learned_, self.result_ = fitted.learned_, fitted.result_
        return self

    def to_local(self) -> Any:
        """The fitted model without Dask: a plain estimator, as for data in memory."""
        check_is_fitted(self)
        return self._make_plain()

    def _make_plain(self) -> SparseModel:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in OWN}
        plain = self._plain(**parameters)
        if "result_" in vars(self):
            plain.learned_, plain.result_ = self.learned_, self.result_
        return plain

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return super()._rules() | {"client": instance("a distributed.Client", Client) | NONE, "restarts": integer(0)}

    def __sklearn_clone__(self) -> "DaskModel":
        parameters = {
            name: clone(value, safe=False) for name, value in self._make_plain().get_params(deep=False).items()
        }
        return type(self)(**parameters).set_params(client=self.client, restarts=self.restarts)

    def __getstate__(self) -> Any:
        return super().__getstate__() | {"client": None}


def _make_method(base: type[SparseModel], name: str) -> Any:
    """A method that predicts: where the partitions are if X is a collection, else as the plain estimator does."""
    plain = getattr(base, name)

    def predict(self: DaskModel, X: Any, *, offset: Any = None) -> Any:
        if is_collection(X):
            return predict_collection(self.to_local(), name, X, offset)
        return np.asarray(plain(self, X, offset=offset))

    predict.__name__, predict.__doc__ = (
        name,
        f"{plain.__doc__} For a dask collection, a lazy one that is divided like it.",
    )
    return predict


def _make_estimator(base: type[SparseModel]) -> Any:
    """The estimator for Dask with the parameters of a plain one, the client and the number of restarts."""
    parameters = inspect.signature(base.__init__).parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=value) for name, value in zip(OWN, (None, 0), strict=True)]

    def __init__(self: Any, *args: Any, client: Client | None = None, restarts: int = 0, **settings: Any) -> None:
        base.__init__(self, *args, **settings)
        self.client = client
        self.restarts = restarts

    __init__.__signature__ = inspect.Signature([*parameters, *added])  # type: ignore[attr-defined]
    methods = {name: _make_method(base, name) for name in METHODS if hasattr(base, name)}
    about = {"__module__": __name__, "__doc__": split(base.__doc__ or "")[0] + CLIENT, "_plain": base}
    return type(f"Dask{base.__name__}", (DaskModel, base), {"__init__": __init__, **methods, **about})


DaskSparseLinearRegression = _make_estimator(SparseLinearRegression)
DaskSparseLogisticRegression = _make_estimator(SparseLogisticRegression)
DaskSparsePoissonRegression = _make_estimator(SparsePoissonRegression)
DaskSparseSVC = _make_estimator(SparseSVC)
DaskSparseSoftmaxRegression = _make_estimator(SparseSoftmaxRegression)
DaskSparseGammaRegression = _make_estimator(SparseGammaRegression)
DaskSparseTweedieRegression = _make_estimator(SparseTweedieRegression)
