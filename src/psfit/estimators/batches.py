"""Predictions for the frames of engines: they come in batches, and a batch may be empty."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from psfit.estimators.model import SparseModel

# The methods that predict, in the order in which engines offer them; not every model has all of them.
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function")


def predict_batch(model: SparseModel, method: str, X: Any, offset: Any = None) -> np.ndarray:
    """The predictions of one batch, by the name of the method that predicts."""
    if not X.shape[0]:
        return make_example(model, method, offset is not None)[:0]
    return np.asarray(getattr(model, method)(X, offset=offset))


def make_example(model: SparseModel, method: str, has_offset: bool = False) -> np.ndarray:
    """A prediction for one made-up sample: it has the type and the shape of all others.

    It is refused as all others would be: where the model needs an offset and there is none, or the other way round.
    """
    check_is_fitted(model)
    zeros: Any = np.zeros((1, model.n_features_in_))
    names = model.learned_.features.names
    if names is not None:
        import pandas as pd

        zeros = pd.DataFrame(zeros, columns=names)
    # A model that knows the column of its offset finds it in tables by itself.
    has_offset = has_offset or isinstance(model.learned_.offset, str)
    offset = np.zeros((1, model.result_.coef.shape[1])) if has_offset else None
    return np.asarray(getattr(model, method)(zeros, offset=offset))
