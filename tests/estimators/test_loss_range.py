"""The share that a choice by mean loss explains, beside scikit-learn's scores of the same held-out predictions."""

import numpy as np
import pytest
from sklearn.metrics import d2_log_loss_score, d2_tweedie_score, r2_score
from sklearn.model_selection import KFold, cross_val_predict

import psfit

RNG = np.random.default_rng(2)
X = RNG.normal(size=(120, 4))
RATE = np.exp(0.6 * X[:, 0] - 0.3 * X[:, 1])
FOLDS = KFold(4)
COUNTS, AMOUNTS = RNG.poisson(RATE), RNG.gamma(2, RATE)
NUMBERS = X[:, 0] + RNG.normal(size=120)


def d2(power):
    return lambda y, predicted: d2_tweedie_score(y, predicted, power=power)


CASES = {
    "squared": (psfit.SparseLinearRegression, NUMBERS + 3, r2_score),
    "poisson": (psfit.SparsePoissonRegression, COUNTS, d2(1)),
    "gamma": (psfit.SparseGammaRegression, AMOUNTS, d2(2)),
    "tweedie": (psfit.SparseTweedieRegression, AMOUNTS, d2(1.5)),
    "logistic": (psfit.SparseLogisticRegression, NUMBERS > 0.5, d2_log_loss_score),
    "softmax": (psfit.SparseLogisticRegression, np.digitize(NUMBERS, [-1, 1]), d2_log_loss_score),
}


@pytest.mark.parametrize("name", CASES)
def test_the_share_that_is_explained_is_that_of_scikit_learn(name, tmp_path):
    kind, y, score = CASES[name]
    method = "predict_proba" if score is d2_log_loss_score else "predict"
    chooses = getattr(psfit, f"{kind.__name__}CV")([1, 2], gammas=1.0, cv=FOLDS, certify=False).fit(X, y)
    held_out = cross_val_predict(kind(1, gamma=1.0, certify=False), X, y, cv=FOLDS, method=method)
    row = chooses.selection_.rows()[0]
    # Folds of the same size have equal weight.
    assert row["explained"] == pytest.approx(score(y, held_out), rel=1e-4)
    assert f"{row['explained']:8.3f}" in str(chooses.selection_)
    psfit.save(chooses, tmp_path / "m.psfit")
    assert str(psfit.load(tmp_path / "m.psfit").selection_) == str(chooses.selection_)


def test_other_scores_have_no_such_share():
    scored = psfit.SparseLinearRegressionCV([1, 2], scoring="r2", certify=False).fit(X, X[:, 0])
    assert scored.selection_.rows()[0]["explained"] is None
    y = RNG.poisson(RATE)
    offset = psfit.SparsePoissonRegressionCV([1], certify=False).fit(X, y, offset=X[:, 2])
    assert offset.selection_.rows()[0]["explained"] is None
