"""The optimizer for pysindy: the best terms of known systems, found and proved."""

from itertools import combinations

import numpy as np
import pysindy as ps
import pytest
from scipy.integrate import solve_ivp

from psfit import BiCADMM
from psfit.sindy import SparseEquations

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def lorenz(noise):
    """A trajectory with derivatives that are disturbed."""

    def slope(_, x):
        return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]

    times = np.linspace(0, 4, 400)
    x = solve_ivp(slope, (0, 4), [-8, 8, 27], t_eval=times, rtol=1e-10, atol=1e-10).y.T
    slopes = np.array([slope(0, row) for row in x])
    return x, slopes + np.random.default_rng(0).normal(size=x.shape) * noise * slopes.std(axis=0)


def least_residual(theta, target, count):
    """The smallest sum of squares over all choices of so many terms."""
    best = np.inf
    for chosen in combinations(range(theta.shape[1]), count):
        part = theta[:, chosen]
        best = min(best, np.linalg.norm(target - part @ np.linalg.lstsq(part, target)[0]) ** 2)
    return best


def test_the_terms_are_the_best_of_all_and_proved():
    x, slopes = lorenz(noise=0.3)
    library = ps.PolynomialLibrary(degree=2)
    optimizer = SparseEquations([2, 3, 2], solver=BiCADMM(exact=True))
    model = ps.SINDy(feature_library=library, optimizer=optimizer).fit(x, t=0.01, x_dot=slopes)
    theta = np.asarray(library.transform(x))
    assert np.count_nonzero(model.coefficients(), axis=1).tolist() == [2, 3, 2]
    for k, count in enumerate([2, 3, 2]):
        found = np.linalg.norm(slopes[:, k] - theta @ model.coefficients()[k]) ** 2
        assert found == pytest.approx(least_residual(theta, slopes[:, k], count), rel=1e-6)
        # The ridge is tiny, so the bound is nearly that of the residual.
        assert optimizer.lower_bounds_[k] <= found * (1 + 1e-4)
    assert (optimizer.gaps_ <= 1e-4).all()


def test_a_clean_system_is_found_by_its_names():
    x, slopes = lorenz(noise=0.0)
    names = ["x", "y", "z"]
    model = ps.SINDy(optimizer=SparseEquations(3)).fit(x, t=0.01, x_dot=slopes, feature_names=names)
    found = [
        {name for name, value in zip(model.get_feature_names(), row, strict=True) if abs(value) > 1e-6}
        for row in model.coefficients()
    ]
    assert found == [{"x", "y"}, {"x", "y", "x z"}, {"z", "x y"}]


def test_coefficients_are_those_of_least_squares_though_terms_differ_by_many_orders():
    """Columns of degree 5 are a million times as large as those of degree 1."""
    x, slopes = lorenz(noise=0.05)
    theta = np.asarray(ps.PolynomialLibrary(degree=5).fit_transform(x))
    for limit in (3, 4, 5):
        coef = SparseEquations(limit).fit(theta, slopes).coef_
        for row, slope in zip(coef, slopes.T, strict=True):
            # At a minimiser the residuals are orthogonal to the terms.
            terms, rest = theta[:, row != 0], slope - theta @ row
            cosines = terms.T @ rest / (np.linalg.norm(terms, axis=0) * np.linalg.norm(rest))
            assert np.abs(cosines).max() < 1e-6


@pytest.mark.parametrize(
    ("kappa", "message"), [([1, 2], "2 limits for 3 equations"), (99, "at most 10"), (0, "kappa=0 must be")]
)
def test_wrong_limits_are_refused(kappa, message):
    x, slopes = lorenz(noise=0.0)
    with pytest.raises(ValueError, match=message):
        ps.SINDy(optimizer=SparseEquations(kappa)).fit(x, t=0.01, x_dot=slopes)
