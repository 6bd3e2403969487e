"""Intervals by data splitting, beside formulas written a second time."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import t

import psfit
from psfit import SparseLinearRegression, SparseLogisticRegression, TableSource


def halves(m, seed=0):
    order = np.random.default_rng(seed).permutation(m)
    return order[: m // 2], order[m // 2 :]


def sandwich(Z, scores, hessian, x, level=0.95):
    m, k = Z.shape
    inverse = np.linalg.inv(hessian)
    errors = np.sqrt(np.diag(inverse @ ((Z * scores[:, None]).T @ (Z * scores[:, None])) @ inverse) * m / (m - k))
    return x + np.outer(t.ppf([(1 - level) / 2, (1 + level) / 2], m - k), errors)


def test_the_squared_loss_has_those_of_least_squares():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 8)) * np.arange(1, 9)
    y = X[:, 1] - 0.5 * X[:, 4] + (1 + np.abs(X[:, 1])) * rng.normal(size=200)
    model = SparseLinearRegression(2, certify=False).fit(X, y)
    table = model.coefficients(X, y, level=0.9).set_index("feature")
    first, second = halves(200)
    chosen = SparseLinearRegression(2, certify=False).fit(X[first], y[first]).support_
    Z = np.column_stack([X[second][:, chosen], np.ones(100)])
    x, *_ = np.linalg.lstsq(Z, y[second])
    lower, upper = sandwich(Z, y[second] - Z @ x, Z.T @ Z, x, 0.9)
    for place, j in enumerate(chosen):
        if j in table.index:
            assert table.loc[j, ["lower", "upper"]].tolist() == pytest.approx([lower[place], upper[place]], rel=1e-6)
    assert {1, 4} & set(chosen)
    assert np.isnan(table["lower"]).tolist() == [j not in chosen for j in table.index]
    assert "data splitting" in table.attrs["caveat"]
    assert "data splitting" in model.summary(X, y)


def test_the_logistic_loss_has_those_of_maximum_likelihood():
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(300, 5)), columns=list("abcde"))
    y = np.where(X["a"] - X["d"] + rng.logistic(size=300) > 0, "yes", "no")
    model = SparseLogisticRegression(2, certify=False).fit(X, y)
    table = model.coefficients(X, y).set_index("feature")
    first, second = halves(300)
    chosen = SparseLogisticRegression(2, certify=False).fit(X.iloc[first], y[first]).support_
    Z, sign = np.column_stack([X.values[second][:, chosen], np.ones(150)]), np.where(y[second] == "yes", 1.0, -1.0)
    x = minimize(lambda x: np.logaddexp(0, -sign * (Z @ x)).sum(), np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
    share = 1 / (1 + np.exp(-Z @ x))
    lower, upper = sandwich(Z, (sign > 0) - share, Z.T @ (Z * (share * (1 - share))[:, None]), x)
    assert set(chosen) == {0, 3}
    for place, j in enumerate(chosen):
        found = table.loc["abcde"[j], ["lower", "upper"]].tolist()
        assert found == pytest.approx([lower[place], upper[place]], rel=1e-4)


def test_what_cannot_be_estimated_is_infinite():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] > 0).astype(int)
    separable = SparseLogisticRegression(1, certify=False).fit(X, y).coefficients(X, y)
    assert separable["lower"].tolist() == [-np.inf]
    assert separable["upper"].tolist() == [np.inf]
    # All levels of a category and the intercept: only differences are known.
    frame = pd.DataFrame({"x": rng.normal(size=120), "city": rng.choice(["p", "q", "r"], size=120)})
    frame["y"] = 3 * frame["x"] + 5 * (frame["city"] == "q") + rng.normal(size=120)
    model = SparseLinearRegression(2, certify=False).fit(TableSource(frame, categories="group"))
    table = model.coefficients(frame.drop(columns="y"), frame["y"]).set_index("feature")
    assert table.loc["x", "lower"] < 3 < table.loc["x", "upper"]
    assert np.isinf(table.loc[["city=p", "city=q", "city=r"], "lower"]).all()


@pytest.mark.long
def test_they_hold_the_true_values_as_often_as_they_say():
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(120, 5))
        y = X[:, 0] - X[:, 2] + rng.normal(size=120)
        table = SparseLinearRegression(2, certify=False).fit(X, y).coefficients(X, y).set_index("feature")
        held += [table.loc[j, "lower"] <= value <= table.loc[j, "upper"] for j, value in ((0, 1), (2, -1))]
    # 120 intervals at 95 %: fewer than 104 would be less likely than one in ten thousand.
    assert sum(held) >= 104


def test_frequencies_and_mistakes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 4))
    y = X[:, 1] + 0.1 * rng.normal(size=60)
    model = SparseLinearRegression(1, certify=False).fit(X, y)
    stable = psfit.stability_selection(X, y, [1], resamples=4, random_state=0)
    assert model.coefficients(stability=stable)["frequency"].tolist() == [stable.scores[1]]
    other = psfit.stability_selection(X[:, :3], y, [1], resamples=4, random_state=0)
    with pytest.raises(ValueError, match="not the 4 of the model"):
        model.coefficients(stability=other)
    with pytest.raises(TypeError, match=r"must be what psfit\.stability_selection returns"):
        model.coefficients(stability=[1.0])
    with pytest.raises(ValueError, match="y was passed without X"):
        model.coefficients(y=y)
    with pytest.raises(ValueError, match=r"level=2\.0 must be between 0 and 1"):
        model.coefficients(X, y, level=2.0)
    hinge = psfit.SparseSVC(1, certify=False).fit(X, y > 0)
    with pytest.raises(ValueError, match="there are no intervals for the squared_hinge loss"):
        hinge.coefficients(X, y > 0)


def test_a_choice_of_kappa_is_made_again_by_the_first_half():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 4))
    y = np.exp(0.8 * X[:, 3]) * rng.gamma(4.0, size=100)
    model = psfit.SparseGammaRegressionCV([1, 2], gammas=[10.0], cv=2, certify=False).fit(X, y)
    table = model.coefficients(X, y).set_index("feature")
    assert table.loc[3, "lower"] < 0.8 < table.loc[3, "upper"]
