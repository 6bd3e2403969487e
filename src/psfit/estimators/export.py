"""A fitted model in the formats of other tools: scikit-learn's models, ONNX, a table of coefficients."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from psfit.common.output_files import write_lines, write_whole

if TYPE_CHECKING:
    from psfit.estimators.model import SparseModel


def as_sklearn(model: "SparseModel") -> Any:
    """scikit-learn's model with the same predictions."""
    check_is_fitted(model)
    if model.learned_.offset:
        raise ValueError(
            "the model was fitted with an offset, which scikit-learn's models and ONNX graphs made of them cannot "
            "have; use coef_ and intercept_, or psfit.save"
        )
    features, target = model.learned_.features, model.learned_.target
    other = target.to_sklearn(model.result_.coef, model.result_.intercept)
    other.n_features_in_ = features.count
    if features.names is not None:
        other.feature_names_in_ = features.names
    return other


def write_onnx(model: "SparseModel", path: str | Path) -> None:
    """An ONNX graph with one input ``X`` of 32-bit floats ``(m, p)``."""
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError:
        raise ImportError("ONNX files need skl2onnx: pip install 'psfit-toolbox[onnx]'") from None
    from sklearn.linear_model import LogisticRegression

    other = as_sklearn(model)
    if hasattr(other, "feature_names_in_"):
        # With names the graph would have one input for each name.
        del other.feature_names_in_
    options = {"zipmap": False} if isinstance(other, LogisticRegression) else None
    kinds = [("X", FloatTensorType([None, model.n_features_in_]))]
    graph = to_onnx(other, initial_types=kinds, options=options)
    write_whole(Path(path), lambda file: file.write(graph.SerializeToString()))


def write_coefficients(model: "SparseModel", path: str | Path) -> None:
    """A CSV of the nonzero coefficients and the intercepts: output, feature, coefficient."""
    check_is_fitted(model)
    coef, intercept = model.result_.coef, model.result_.intercept
    names = getattr(model, "feature_names_in_", np.arange(coef.shape[0]))
    labels = list(getattr(model, "classes_", range(coef.shape[1])))
    if len(labels) == 2 and coef.shape[1] == 1:
        labels = labels[1:]
    rows: list[list[Any]] = [["output", "feature", "coefficient"]]
    for column, label in enumerate(labels):
        rows.append([label, "(intercept)", float(intercept[column])])
        rows += [[label, names[j], float(coef[j, column])] for j in np.flatnonzero(coef[:, column])]
    write_lines(Path(path), rows)
