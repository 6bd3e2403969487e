"""What a report says about predictions: curves, calibration, residuals, and whose samples these are."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.metrics import average_precision_score, roc_auc_score

import psfit
from psfit import GridSpec
from psfit.reporting import describe
from psfit.reporting.charts import svg_chart
from psfit.reporting.formats import number, percent

CANCER = load_breast_cancer()
LABELS = np.array(["malignant", "benign"])[CANCER.target]
DIABETES = load_diabetes(scaled=False)
IRIS = load_iris()
GRID = GridSpec(backend="serial", device="cpu").build()
RNG = np.random.default_rng(5)
WEIGHTS = RNG.uniform(0.2, 2.0, size=1000)


def test_curves_are_those_of_scikit_learn():
    X, weights = CANCER.data, WEIGHTS[: len(LABELS)]
    model = psfit.SparseLogisticRegression(2, standardize=True, certify=False).fit(X[::2], LABELS[::2])
    (ranking,) = describe(model, X, LABELS, weights, grid=GRID).rankings
    decided, inside = model.decision_function(X), LABELS == "malignant"
    assert ranking.label == "malignant"
    assert ranking.area == pytest.approx(roc_auc_score(inside, decided, sample_weight=weights), abs=1e-3)
    expected = average_precision_score(inside, decided, sample_weight=weights)
    assert ranking.average_precision == pytest.approx(expected, abs=2e-3)
    assert ranking.share == pytest.approx(weights[inside].sum() / weights.sum())
    for curve in (ranking.found, ranking.alarms):
        assert curve[0] == 0
        assert curve[-1] == 1
        assert (np.diff(curve) >= 0).all()


def test_probabilities_are_compared_with_shares():
    X, y = IRIS.data, IRIS.target
    model = psfit.SparseSoftmaxRegression(4, certify=False).fit(X, y)
    found = describe(model, X, y, grid=GRID)
    shares = model.predict_proba(X)
    assert [one.label for one in found.calibrations] == ["0", "1", "2"]
    for k, one in enumerate(found.calibrations):
        place = np.minimum(np.floor(shares[:, k] * 10), 9)
        groups = [place == bin for bin in np.unique(place)]
        np.testing.assert_allclose(one.predicted, [shares[at, k].mean() for at in groups])
        np.testing.assert_allclose(one.observed, [(y[at] == k).mean() for at in groups])
        np.testing.assert_allclose(one.weights, [at.sum() for at in groups])
    for k, one in enumerate(found.rankings):
        assert one.area == pytest.approx(roc_auc_score(y == k, shares[:, k]), abs=1e-3)


def test_residuals_are_counted():
    X, y = DIABETES.data, DIABETES.target
    model = psfit.SparseLinearRegression(3, standardize=True, certify=False).fit(X, y)
    (one,) = describe(model, X, y, grid=GRID).residuals
    off = y - model.predict(X)
    assert one.spread == pytest.approx(off.std())
    assert one.mean == pytest.approx(0, abs=1e-9)
    for cells, across, upwards in ((one.agreement, y, model.predict(X)), (one.cells, model.predict(X), off)):
        assert cells.counts.sum() == len(y)
        inside = np.abs(across - cells.across.mean()) < np.ptp(cells.across) / 2
        inside &= np.abs(upwards - cells.upwards.mean()) < np.ptp(cells.upwards) / 2
        expected, _, _ = np.histogram2d(across, upwards, bins=(cells.across, cells.upwards))
        assert inside.sum() > 400
        # Cells at the rim also hold what lies further out.
        np.testing.assert_array_equal(cells.counts[1:-1, 1:-1], expected[1:-1, 1:-1])


MODELS = {
    "weights": (psfit.SparseLinearRegression(3), DIABETES.data, DIABETES.target, {"sample_weight": WEIGHTS[:442]}),
    "scaled": (psfit.SparseLinearRegression(3, standardize=True), DIABETES.data, DIABETES.target, {}),
    "scaled, weights": (
        psfit.SparseLinearRegression(3, standardize=True, gamma=0.01, fit_intercept=False),
        DIABETES.data,
        DIABETES.target,
        {"sample_weight": WEIGHTS[:442]},
    ),
    "balanced": (
        psfit.SparseLogisticRegression(3, standardize=True, gamma=0.1, class_weight="balanced"),
        CANCER.data,
        LABELS,
        {},
    ),
    "svc, three": (psfit.SparseSVC(2), IRIS.data, IRIS.target, {}),
    "softmax": (psfit.SparseSoftmaxRegression(4), IRIS.data, IRIS.target, {}),
    "offset": (psfit.SparsePoissonRegression(2), IRIS.data, IRIS.target, {"offset": np.log(WEIGHTS[:150])}),
    "chosen": (psfit.SparseLinearRegressionCV([1, 2], gammas=[0.1, 1], cv=2), DIABETES.data, DIABETES.target, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_knows_the_samples_of_the_fit(name):
    model, X, y, more = MODELS[name]
    model.set_params(certify=False).fit(X, y, **more)
    assert describe(model, X, y, grid=GRID, **more).of_fit is True
    # As many samples, of which one differs.
    other = X.copy()
    other[0] = X[1] + 1
    assert describe(model, other, y, grid=GRID, **more).of_fit is False
    half = {name: values[::2] for name, values in more.items()}
    assert describe(model, X[::2], y[::2], grid=GRID, **half).of_fit is False


def test_the_page_names_target_and_date_and_shows_the_pictures(tmp_path):
    table = pd.DataFrame(DIABETES.data, columns=DIABETES.feature_names).assign(progression=DIABETES.target)
    model = psfit.SparseLinearRegression(3, certify=False).fit(psfit.TableSource(table))
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", model.learned_.surroundings["date"])
    page = psfit.report(model, None, psfit.TableSource(table))
    assert "Target: <strong>progression</strong>" in page
    assert f"Fitted on {model.learned_.surroundings['date']}" in page
    assert "These are the samples of the fit" in page
    for title in ("Predicted against actual progression", "Residuals of progression"):
        assert f"<h3>{title}</h3>" in page
    other = psfit.report(model, None, psfit.TableSource(table[::2]))
    assert "The model was fitted to other samples than these" in other
    two = psfit.SparseLogisticRegression(2, certify=False).fit(CANCER.data, LABELS)
    page = psfit.report(two, None, CANCER.data, LABELS)
    for title in ("ROC curve", "Precision and recall", "Calibration"):
        assert f"<h3>{title}</h3>" in page
    # A model without probabilities has no calibration; samples of one class have no curve.
    page = psfit.report(psfit.SparseSVC(2, certify=False).fit(CANCER.data, LABELS), None, CANCER.data, LABELS)
    assert "ROC curve" in page
    assert "Calibration" not in page
    few = LABELS == "benign"
    assert "ROC curve" not in psfit.report(two, None, CANCER.data[few], LABELS[few])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.995, "100"), (0.9949, "99"), (1.0, "100"), (0.0996, "10"), (9.999, "1,000"), (5e-7, "under 0.0001")],
)
def test_percents_have_no_exponent(value, text):
    assert percent(value) == f"{text}\u00a0%"


@pytest.mark.parametrize(
    ("value", "digits", "text"), [(999.7, 3, "1,000"), (9999.96, 4, "10,000"), (999999.7, 6, "1,000,000")]
)
def test_rounding_up_adds_no_exponent(value, digits, text):
    assert number(value, digits) == text


@pytest.mark.parametrize("ends", [(150_000, 545_000), (-90_000, 60_000)])
def test_long_numbers_below_a_chart_do_not_touch(ends):
    def draw(axes):
        axes.scatter(ends, [-60_000, 70_000])
        axes.set_ylabel("actual")
        return axes

    labels = re.findall(r'text-anchor: middle[^>]* x="([\d.]+)"[^>]*>([^<]*)<', svg_chart("chart", "", 3.4, draw))
    places = [float(x) for x, text in labels if text.lstrip("\u2212").isdigit()]
    longest = max(len(text) for _, text in labels)
    assert len(places) >= 3
    # Digits of ten points are 6.4 points wide in the widest usual font.
    assert np.diff(places).min() > 6.4 * longest
