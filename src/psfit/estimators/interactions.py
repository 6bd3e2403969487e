"""Products of features as further columns, and which features are their factors."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import (
    _check_feature_names,
    _check_feature_names_in,
    _check_n_features,
    check_array,
    check_is_fitted,
)

from psfit.common.arguments import describe
from psfit.estimators.constraints.arguments import FEATURES
from psfit.estimators.constraints.names import FeatureNames
from psfit.estimators.constraints.parents import SEPARATOR
from psfit.estimators.kinds import require_numbers

# A feature by name or number.
Pair = Sequence[str | int]


class Interactions(TransformerMixin, BaseEstimator):
    """Append products of pairs of columns; the product of ``a`` and ``b`` is called ``a:b``.

    A step of a scikit-learn pipeline, or for use on its own: `psfit.interactions`. A pandas table stays one, a sparse
    matrix too; other data become arrays.

    Parameters
    ----------
    pairs : sequence of pairs of features, default=None
        Which columns to multiply, by name or number; a pair of twice the same column is its square. None means all
        pairs of different columns.

    Attributes
    ----------
    parents_ : dict
        The factors of each product, for the argument `parents` of the estimators; by name if X has names, else by
        number.
    pairs_ : list of tuple of int
        The columns that are multiplied, by number.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of str
        Names of the columns of X, if it has names.
    """

    parents_: dict[Any, tuple[Any, ...]]
    pairs_: list[tuple[int, int]]

    def __init__(self, pairs: Iterable[Pair] | None = None) -> None:
        self.pairs = pairs

    def fit(self, X: Any, y: Any = None) -> "Interactions":
        """Find the columns to multiply; y is ignored."""
        _check_feature_names(self, X, reset=True)
        known = getattr(self, "feature_names_in_", None)
        _check_n_features(self, X if self._is_table(X) else _read_array(X), reset=True)
        features = FeatureNames(self.n_features_in_, None if known is None else tuple(known))
        self.pairs_ = _read_pairs(self.pairs, features)
        keys = self.get_feature_names_out() if known is not None else np.arange(features.count + len(self.pairs_))
        labels = keys.tolist()
        _require_new_names(labels)
        products = zip(labels[features.count :], self.pairs_, strict=True)
        self.parents_ = {child: tuple(dict.fromkeys(labels[j] for j in pair)) for child, pair in products}
        return self

    def transform(self, X: Any) -> Any:
        """X with the products behind its own columns."""
        check_is_fitted(self)
        _check_feature_names(self, X, reset=False)
        if self._is_table(X):
            _check_n_features(self, X, reset=False)
            return _extend_table(X, self.pairs_, self.get_feature_names_out()[self.n_features_in_ :])
        values = _read_array(X)
        _check_n_features(self, values, reset=False)
        first, second = (list(column) for column in zip(*self.pairs_, strict=True)) if self.pairs_ else ([], [])
        if scipy.sparse.issparse(values):
            columns = values.tocsc()
            return scipy.sparse.hstack([values, columns[:, first].multiply(columns[:, second])], format="csr")
        return np.hstack([values, values[:, first] * values[:, second]])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of all columns; those of X are ``x0``, ``x1``, ... if it has none."""
        check_is_fitted(self, "pairs_")
        names = _check_feature_names_in(self, input_features).tolist()
        products = [f"{names[first]}{SEPARATOR}{names[second]}" for first, second in self.pairs_]
        return np.array([*names, *products], dtype=object)

    def _is_table(self, X: Any) -> bool:
        """Whether X is a pandas table whose columns have names."""
        return hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(self, "feature_names_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def interactions(X: Any, pairs: Iterable[Pair] | None = None) -> tuple[Any, dict[Any, tuple[Any, ...]]]:
    """X with products of its columns behind it, and the factors of each product for the argument `parents`.

    The same as `Interactions`, which can also transform new samples.

    Parameters
    ----------
    X : array-like (m, p), table or sparse matrix
    pairs : sequence of pairs of features, default=None
        Which columns to multiply, by name or number. None means all pairs of different columns.
    """
    made = Interactions(pairs).fit(X)
    return made.transform(X), made.parents_


def _read_array(X: Any) -> Any:
    require_numbers(X, "X")
    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X", estimator="Interactions")


def _read_pairs(given: Any, features: FeatureNames) -> list[tuple[int, int]]:
    """The pairs by number, each once and in the order of the columns."""
    if given is None:
        return list(combinations(range(features.count), 2))
    found: list[tuple[int, int]] = []
    for pair in given:
        read = FEATURES("pairs", pair)
        if len(read) != 2:
            raise ValueError(f"pairs: {describe(pair)} is not a pair of features; give two names or numbers")
        first, second = sorted(features.find_one("pairs", one) for one in read)
        if (first, second) in found:
            raise ValueError(f"pairs names {features.show(first)} and {features.show(second)} twice; give a pair once")
        found.append((first, second))
    return found


def _require_new_names(labels: list[Any]) -> None:
    if len(set(labels)) < len(labels):
        twice = next(label for place, label in enumerate(labels) if label in labels[:place])
        raise ValueError(f"X: two columns would be called {twice!r}; rename one of them, or choose other pairs")


def _extend_table(X: Any, pairs: list[tuple[int, int]], names: np.ndarray) -> Any:
    """A table with further columns, made in double precision: products of small integers would overflow."""
    used = sorted({j for pair in pairs for j in pair})
    values = {j: _read_column(X.iloc[:, j], X.columns[j]) for j in used}
    products = {name: values[first] * values[second] for name, (first, second) in zip(names, pairs, strict=True)}
    import pandas as pd

    return pd.concat([X, pd.DataFrame(products, index=X.index)], axis=1)


def _read_column(column: Any, name: Any) -> np.ndarray:
    label = f"X: column {name!r}"
    require_numbers(column, label)
    return np.asarray(column, dtype=np.float64)
