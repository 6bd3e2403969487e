"""Estimators for dask collections: the plain ones, with another `fit`, and predictions that stay on the workers."""

import inspect
from typing import Any

import numpy as np
from distributed import Client, get_client
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from psfit.common.arguments import NONE, Rule, instance
from psfit.dask.fit import fit_on_dask
from psfit.dask.partitions import is_collection, make_partitions
from psfit.dask.predictions import predict_collection
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

# The text for the parameter that the estimators add.
CLIENT = """

Parameters
----------
client : distributed.Client or None, default=None
    The client of the cluster; None is the one that is active. It is not pickled with the estimator.
"""


class DaskModel(SparseModel):
    """What the estimators for Dask add to the plain ones, from which all else is inherited."""

    client: Client | None
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
        X : dask DataFrame, dask array (m, p) or list of delayed
            The samples. Delayed partitions give arrays, sparse matrices or tables.
        y : dask Series, DataFrame or array, or list of delayed
            Divided like X.
        sample_weight : as y, optional
            Weights of the samples' losses.
        target, offset : None
            Not for dask collections; see the plain estimators.
        """
        if offset is not None:
            raise ValueError("offset is not taken for dask collections; fit the plain estimator to data in memory")
        if target is not None:
            raise ValueError(f"target={target!r} names a column of a file; pass y, divided like X")
        self._rules()["client"]("client", self.client)
        partitions = make_partitions(X, y, sample_weight)
        fitted = fit_on_dask(self._make_plain(), partitions, self.client or get_client())
        self.learned_, self.result_ = fitted.learned_, fitted.result_
        return self

    def to_local(self) -> Any:
        """The fitted model without Dask: a plain estimator, as for data in memory."""
        check_is_fitted(self)
        return self._make_plain()

    def _make_plain(self) -> SparseModel:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "client"}
        plain = self._plain(**parameters)
        if "result_" in vars(self):
            plain.learned_, plain.result_ = self.learned_, self.result_
        return plain

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return super()._rules() | {"client": instance("a distributed.Client", Client) | NONE}

    def __sklearn_clone__(self) -> "DaskModel":
        parameters = {
            name: clone(value, safe=False) for name, value in self._make_plain().get_params(deep=False).items()
        }
        return type(self)(**parameters).set_params(client=self.client)

    def __getstate__(self) -> Any:
        return super().__getstate__() | {"client": None}


def _make_method(base: type[SparseModel], name: str) -> Any:
    """A method that predicts: where the partitions are if X is a collection, else as the plain estimator does."""
    plain = getattr(base, name)

    def predict(self: DaskModel, X: Any) -> Any:
        return predict_collection(self.to_local(), name, X) if is_collection(X) else np.asarray(plain(self, X))

    predict.__name__, predict.__doc__ = (
        name,
        f"{plain.__doc__} For a dask collection, a lazy one that is divided like it.",
    )
    return predict


def _make_estimator(base: type[SparseModel]) -> Any:
    """The estimator for Dask with the parameters of a plain one, and the client."""
    parameters = inspect.signature(base.__init__).parameters.values()
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)

    def __init__(self: Any, *args: Any, client: Client | None = None, **settings: Any) -> None:
        base.__init__(self, *args, **settings)
        self.client = client

    __init__.__signature__ = inspect.Signature([*parameters, client])  # type: ignore[attr-defined]
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
