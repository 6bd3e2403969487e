"""What a model says about itself, and settings of its solver as parameters."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import psfit
from psfit import BiCADMM, SparseLinearRegression, SparseLogisticRegression, TableSource, plots


@pytest.fixture
def classes():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": 100 * rng.normal(size=80), "b": rng.normal(size=80), "c": rng.normal(size=80)})
    y = np.where(0.02 * frame["a"] + frame["b"] + rng.normal(size=80) > 0, "yes", "no")
    return frame, y, SparseLogisticRegression(2, standardize=True, certify=False).fit(frame, y)


def test_coefficients_with_and_without_samples(classes):
    frame, _, model = classes
    plain = model.coefficients()
    assert plain.columns.tolist() == ["feature", "coefficient", "odds_ratio"]
    assert plain["feature"].tolist() == ["b", "a"]
    np.testing.assert_allclose(plain["odds_ratio"], np.exp(plain["coefficient"]))
    table = model.coefficients(frame).set_index("feature")
    assert table.index.tolist() == ["a", "b"]
    spread = frame[["a", "b"]].std(ddof=0)
    np.testing.assert_allclose(table["standardised"], table["coefficient"] * spread)
    predictor = frame[["a", "b"]] @ table["coefficient"]
    without = frame["b"] * table["coefficient"]["b"]
    assert table["lost"]["a"] == pytest.approx(1 - without.var() / predictor.var())


def test_coefficients_of_several_outputs_and_of_a_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=30), "city": ["p", "q", "r"] * 10, "kind": ["u", "v", "w"] * 10})
    source = TableSource(frame, target="kind", categories="group")
    model = psfit.SparseSoftmaxRegression(3, certify=False, groups=None).fit(source)
    table = model.coefficients(frame.drop(columns="kind"))
    assert len(table) == np.count_nonzero(model.coef_) == 3
    for row in table.itertuples():
        j, k = model.feature_names_in_.tolist().index(row.feature), model.classes_.tolist().index(row.output)
        assert row.coefficient == model.coef_[k, j]
    said = model.summary()
    assert "target     kind" in said
    assert all(name in said for name in table["feature"])


def test_pictures_show_what_scikit_learn_computes(classes):
    from sklearn.metrics import roc_auc_score

    frame, y, model = classes
    curve = plots.plot_roc(model, frame, y)
    area = roc_auc_score(y == "yes", model.decision_function(frame))
    assert curve.get_legend().texts[0].get_text() == f"area {area:.3f}"
    points = plots.plot_calibration(model, frame, y).lines[0].get_xydata()
    assert points[:, 1].mean() == pytest.approx((y == "yes").mean())
    numbers = SparseLinearRegression(1, certify=False).fit(frame[["a"]], frame["b"])
    dots = plots.plot_predictions(numbers, frame[["a"]], frame["b"]).collections[0].get_offsets()
    np.testing.assert_allclose(dots, np.column_stack([frame["b"], numbers.predict(frame[["a"]])]))
    with pytest.raises(ValueError, match="plot_roc is for models of two classes"):
        plots.plot_roc(numbers, frame[["a"]], frame["b"])
    with pytest.raises(ValueError, match="plot_predictions is for numbers"):
        plots.plot_predictions(model, frame, y)
    import matplotlib.pyplot as plt

    plt.close("all")


def test_settings_of_the_solver_are_parameters(classes):
    frame, y, _ = classes
    model = SparseLogisticRegression(1, certify=False).set_params(kappa=2, solver__effort="low", solver__tol=1e-3)
    assert (model.kappa, model.solver) == (2, BiCADMM(effort="low", tol=1e-3))
    assert clone(model).solver == model.solver
    with pytest.raises(ValueError, match="solver__speed is not a setting of the solver"):
        model.set_params(solver__speed=1)
    search = GridSearchCV(model, {"solver__effort": ["low", "medium"], "kappa": [1, 2]}, cv=2).fit(frame, y)
    assert search.best_params_["kappa"] in (1, 2)
