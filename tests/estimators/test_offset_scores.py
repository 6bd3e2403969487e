"""D^2 of models with an offset: what they explain beyond an intercept and this offset."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import d2_tweedie_score, mean_tweedie_deviance

import psfit
from psfit.reporting.samples import describe


@pytest.mark.parametrize(
    ("kind", "power"),
    [
        (psfit.SparsePoissonRegression, 1.0),
        (psfit.SparseTweedieRegression, 1.5),
        (psfit.SparseGammaRegression, 2.0),
    ],
)
def test_a_score_compares_with_the_best_constant_besides_the_offset(kind, power):
    rng = np.random.default_rng(8)
    X, offset, weight = rng.normal(size=(150, 3)), rng.uniform(-2, 2, 150), rng.uniform(0.5, 2, 150)
    y = rng.gamma(2.0, np.exp(0.4 * X[:, 0] + offset) / 2)
    model = kind(1, certify=False).fit(X, y, weight, offset=offset)

    def deviance(predicted):
        return mean_tweedie_deviance(y, predicted, power=power, sample_weight=weight)

    # The same with all offsets larger by a number that the intercept takes over.
    for shift in (0.0, 900.0):
        best = minimize_scalar(lambda constant: deviance(np.exp(constant + offset)), bracket=(-1, 1))
        expected = 1 - deviance(model.predict(X, offset=offset)) / best.fun
        again = kind(1, certify=False).fit(X, y, weight, offset=offset + shift)
        assert again.score(X, y, weight, offset=offset + shift) == pytest.approx(expected, rel=1e-5)
    # The report has the same number; without an offset it is scikit-learn's.
    grid = psfit.GridSpec(backend="serial").build()
    shown = describe(model, X, y, weight, offset=offset, grid=grid).scores
    assert shown["D\u00b2"] == pytest.approx(model.score(X, y, weight, offset=offset), rel=1e-9)
    plain = kind(1, certify=False).fit(X, y, weight)
    usual = d2_tweedie_score(y, plain.predict(X), power=power, sample_weight=weight)
    assert plain.score(X, y, weight) == pytest.approx(usual, rel=1e-12)


def test_a_score_on_a_table_finds_its_offset_for_given_targets(tmp_path):
    rng = np.random.default_rng(9)
    table = pd.DataFrame({"x": rng.normal(size=80), "time": rng.uniform(-1, 1, 80)})
    table["y"] = rng.poisson(np.exp(0.5 * table.x + table.time))
    model = psfit.SparsePoissonRegression(1).fit(psfit.TableSource(table, target="y", offset="time"))
    assert model.score(table[["x", "time"]], table["y"]) == pytest.approx(model.score(table), rel=1e-12)
    assert model.score(table) == pytest.approx(model.score(table[["x"]], table["y"], offset=table["time"]), rel=1e-12)
