"""What scikit-learn expects of an estimator."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from psfit import (
    BiCADMM,
    GridSpec,
    SparseGammaRegression,
    SparseGammaRegressionCV,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePoissonRegression,
    SparsePoissonRegressionCV,
    SparseSoftmaxRegression,
    SparseSoftmaxRegressionCV,
    SparseSVC,
    SparseSVCCV,
    SparseTweedieRegression,
    SparseTweedieRegressionCV,
)

# The checks are about the interface, so the search may be short, and only one model proves how good it is.
SHORT = {"solver": BiCADMM(effort="low"), "certify": False}
ESTIMATORS = [
    SparseLinearRegression(),
    SparseLogisticRegression(**SHORT),
    SparseSoftmaxRegression(**SHORT),
    SparseSVC(**SHORT),
    SparsePoissonRegression(**SHORT),
    SparseGammaRegression(**SHORT),
    SparseTweedieRegression(**SHORT),
]
OTHER_LOSSES = [SparseLinearRegression(loss="huber"), SparseSVC(loss="hinge")]


# Few folds, since some checks have only a few samples of a class, and few iterations, since all are many fits.
CHOICE = {"kappas": [1, 2], "gammas": 1.0, "cv": 2, "solver": BiCADMM(effort="low", max_iter=5)}
SELECTING = [SparseLinearRegressionCV(**CHOICE)]
# How they fit is checked by the one above and by the models they choose from; their own are names and parameters.
MORE_SELECTING = [
    SparseLogisticRegressionCV(**CHOICE),
    SparseSoftmaxRegressionCV(**CHOICE),
    SparseSVCCV(**CHOICE),
    SparsePoissonRegressionCV(**CHOICE),
    SparseGammaRegressionCV(**CHOICE),
    SparseTweedieRegressionCV(**CHOICE),
]
OF_NAMES = {
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
}


def checks():
    for estimator in [*ESTIMATORS, *SELECTING, *MORE_SELECTING]:
        for copy, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            # Array API support needs a switch of SciPy's and is not offered.
            if name != "check_array_api_input" and (estimator not in MORE_SELECTING or name in OF_NAMES):
                yield pytest.param(copy, check, id=f"{type(estimator).__name__}-{name}")


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
# A few iterations are all that the interface needs.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, *OTHER_LOSSES], ids=repr)
def test_clone_and_pickle(estimator):
    X, y = load_breast_cancer(return_X_y=True)
    model = clone(estimator).set_params(kappa=3, grid=GridSpec(nodes=2))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    X = StandardScaler().fit_transform(X[:, :8])
    restored = pickle.loads(pickle.dumps(model.fit(X, y + 1 if isinstance(model, SparseGammaRegression) else y)))
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    assert str(restored.result_) == str(model.result_)


def test_pipeline_and_grid_search_over_kappa():
    X, y = load_diabetes(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SparseLinearRegression(gamma=100.0)),
        {"sparselinearregression__kappa": [1, 3, 8]},
        cv=3,
    ).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert len(np.unique(scores)) == 3
    assert search.best_params_["sparselinearregression__kappa"] > 1
    assert len(search.best_estimator_[-1].support_) == search.best_params_["sparselinearregression__kappa"]


def test_feature_names_are_kept_and_checked():
    frame = load_diabetes(as_frame=True)
    model = SparseLinearRegression(kappa=3).fit(frame.data, frame.target)
    assert list(model.feature_names_in_) == list(frame.data.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.data.rename(columns={"bmi": "BMI"}))


def test_results_are_what_the_result_holds():
    X, y = load_diabetes(return_X_y=True)
    model = SparseLinearRegression(kappa=4, gamma=100.0).fit(X, y)
    residual = y - model.predict(X)
    objective = (residual**2).sum() + (model.coef_**2).sum() / 200
    assert model.objective_ == pytest.approx(objective, rel=1e-12)
    np.testing.assert_array_equal(np.flatnonzero(model.coef_), model.support_)
    assert model.n_iter_ == model.history_[-1].iteration
    for word in ("442 samples", "10 features", f"{model.objective_:.8g}", model.result_.status.name):
        assert word in str(model.result_)


def test_verbose_prints_the_result(capsys):
    X, y = load_diabetes(return_X_y=True)
    model = SparseLinearRegression(kappa=2, verbose=1).fit(X, y)
    assert str(model.result_) in capsys.readouterr().out
    model.set_params(verbose=0).fit(X, y)
    assert capsys.readouterr().out == ""


def test_warm_start_begins_at_the_last_answer():
    X, y = load_diabetes(return_X_y=True)
    cold = SparseLinearRegression(kappa=4, gamma=100.0).fit(X, y)
    warm = SparseLinearRegression(kappa=4, gamma=100.0, warm_start=True).fit(X, y).fit(X, y)
    assert warm.objective_ <= cold.objective_ * (1 + 1e-12)
    assert warm.history_[0].nonzeros != cold.history_[0].nonzeros or warm.n_iter_ < cold.n_iter_
    assert warm.fit(X[:, :6], y).coef_.shape == (6,)


def test_pandas_and_numpy_agree():
    X, y = load_diabetes(return_X_y=True)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    one = SparseLinearRegression(kappa=4).fit(X, y)
    two = SparseLinearRegression(kappa=4).fit(frame, pd.Series(y))
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)
