"""The quadratic form of the squared loss against sums over samples in extended precision."""

import numpy as np
import pytest
import torch

from psfit.data.curvature import Curvature
from psfit.data.form_elimination import complete, eliminate, rounding_of, single_optima
from psfit.data.quadratic_form import QuadraticForm

ROWS, COLUMNS, OUTPUTS = 40, 6, 2


def draw(seed=0, columns=COLUMNS, rows=ROWS):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(rows, columns)) + 0.3 * rng.normal(size=(rows, 1))
    return A, rng.normal(size=(rows, OUTPUTS)), rng.uniform(0.5, 2, size=(rows, 1)), rng


def form_of(A, b, w):
    """The form of some samples, every number in extended precision first."""
    A, b, w = (np.asarray(part, dtype=np.longdouble) for part in (A, b, w))
    parts = 2 * A.T @ (w * A), 2 * A.T @ (w * b), (w * b**2).sum(axis=0)
    return QuadraticForm.of(*(torch.tensor(part.astype(float)) for part in parts))


def value(form, X):
    """The form at coefficients ``(n, c)``, by its definition."""
    G, Q, constant, ridge = (part.numpy() for part in (form.G, form.Q, form.constant, form.ridge))
    return 0.5 * (X * (G @ X)).sum() - (Q * X).sum() + constant.sum() + 0.5 * (ridge[:, None] * X**2).sum()


def loss(A, b, w, X, ridge=0.0):
    return (w * (A @ X - b) ** 2).sum() + 0.5 * (np.reshape(ridge, (-1, 1)) * X**2).sum()


def least(A, b, w, ridge, support):
    """The minimum on a support, as least squares in rows that stand for the ridge."""
    rows = np.diag(np.sqrt(ridge / 2))[:, support]
    stacked = np.vstack([np.sqrt(w) * A[:, support], rows])
    sides = np.vstack([np.sqrt(w) * b, np.zeros((len(ridge), b.shape[1]))])
    x = np.linalg.lstsq(stacked, sides, rcond=None)[0]
    return ((stacked @ x - sides) ** 2).sum()


def test_its_value_is_the_loss():
    A, b, w, rng = draw()
    X, ridge = rng.normal(size=(COLUMNS, OUTPUTS)), rng.uniform(size=COLUMNS)
    form = form_of(A, b, w)
    assert value(form, X) == pytest.approx(loss(A, b, w, X), rel=1e-12)
    assert value(form.with_ridge(torch.tensor(ridge)), X) == pytest.approx(loss(A, b, w, X, ridge), rel=1e-12)
    some = form.with_outputs([1, 1, 0])
    assert value(some, X[:, [1, 1, 0]]) == pytest.approx(loss(A, b[:, [1, 1, 0]], w, X[:, [1, 1, 0]]), rel=1e-12)
    rows = torch.tensor([0, 2, 5])
    X[[1, 3, 4]] = 0
    assert value(form.restrict(rows), X[rows]) == pytest.approx(loss(A, b, w, X), rel=1e-12)


def test_forms_of_parts_add_up():
    A, b, w, _ = draw()
    parts = [form_of(A[at], b[at], w[at]) for at in (slice(0, 7), slice(7, 30), slice(30, ROWS))]
    together, whole = QuadraticForm.sum(parts), form_of(A, b, w)
    for name in ("G", "Q", "constant"):
        torch.testing.assert_close(getattr(together, name), getattr(whole, name), rtol=1e-13, atol=1e-12)
    again = QuadraticForm.sum([whole, whole.empty()])
    assert torch.equal(again.G, whole.G)
    assert torch.equal(again.constant, whole.constant)


def test_parts_of_the_hessian():
    A, b, w, rng = draw()
    ridge = rng.uniform(size=COLUMNS)
    form, H = form_of(A, b, w).with_ridge(torch.tensor(ridge)), 2 * A.T @ (w * A) + np.diag(ridge)
    rows = torch.tensor([1, 2, 5])
    before = form.G.clone()
    np.testing.assert_allclose(form.with_hessian().hessian, H, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(form.diagonal, H.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(form.columns(rows), H[:, [1, 2, 5]], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(form.block(rows), H[np.ix_(rows, rows)], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(form.factor(rows), np.linalg.cholesky(H[np.ix_(rows, rows)]), rtol=1e-10, atol=1e-12)
    assert torch.equal(form.G, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bounds_on_errors_hold(dtype):
    """Sums made one after the other, the worst order, against extended precision."""
    rows = 400
    A, b, w, _ = draw(rows=rows)
    A = A.astype(dtype).astype(float)
    G, Q, constant = np.zeros((COLUMNS, COLUMNS)), np.zeros((COLUMNS, OUTPUTS)), np.zeros(OUTPUTS)
    for a, y, weight in zip(A, b, w, strict=True):
        G, Q, constant = G + 2 * np.outer(a, weight * a), Q + 2 * np.outer(a, weight * y), constant + weight * y**2
    norm = float(np.sqrt((w * A**2).sum(axis=0)).max())
    made = QuadraticForm.of(*(torch.tensor(part) for part in (G, Q, constant))).bound_errors(rows, norm)
    exact = form_of(A, b, w)
    assert float((made.G - exact.G).abs().max()) <= made.curvature.entry_error <= 1e-9
    assert bool(((made.Q - exact.Q).abs().amax(dim=0) <= made.linear_error).all())
    assert bool(((made.constant - exact.constant).abs() <= made.constant_error).all())
    assert made.curvature.spectral_error == 0
    assert made.curvature.rank == rows


def test_columns_that_were_rounded_are_counted():
    A, b, w, rng = draw(columns=20, rows=60)
    rest = 1e-3 * rng.normal(size=A.shape)
    rounded = torch.tensor((w * rest**2).sum(axis=0))
    exact, moved = form_of(A, b, w), form_of(A + rest, b, w)
    form = QuadraticForm.of(moved.G, moved.Q, moved.constant, rounded).bound_errors(60, 100.0)
    error = float(torch.linalg.matrix_norm(moved.G - exact.G, 2))
    assert error <= form.curvature.spectral_error <= 100 * error


def test_nothing_is_extracted_where_nothing_is_known():
    A, b, w, _ = draw()
    form = form_of(A, b, w)
    assert not bool(form.curvature.extracted.any())
    assert bool(form.bound_errors(ROWS, 20.0).curvature.extracted.any())
    wide = form_of(*draw(columns=9, rows=5)[:3]).bound_errors(5, 20.0)
    assert not bool(wide.curvature.extracted.any())


@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_eigenvalue_is_safe_and_found_once(seed, monkeypatch):
    A, b, w, _ = draw(seed)
    form = form_of(A, b, w).bound_errors(ROWS, 20.0)
    true = np.linalg.eigvalsh(form.G.numpy())[0]
    assert true * (1 - 1e-8) <= form.curvature.smallest_eigenvalue <= true
    monkeypatch.setattr(Curvature, "smallest_eigenvalue_without", None)
    others = form.with_outputs([0]), form.with_ridge(torch.ones(COLUMNS, dtype=torch.float64))
    for other in others:
        assert other.curvature.smallest_eigenvalue == form.curvature.smallest_eigenvalue


@pytest.mark.parametrize("seed", range(3))
def test_an_optimum_is_that_of_least_squares(seed):
    A, b, w, rng = draw(seed)
    ridge = rng.uniform(0.1, 1, size=COLUMNS)
    form = form_of(A, b, w).bound_errors(ROWS, 20.0).with_ridge(torch.tensor(ridge))
    for support in ([], [3], [0, 2, 5], list(range(COLUMNS))):
        found = form.minimise(torch.tensor(support, dtype=torch.long))
        assert abs(found.value - least(A, b, w, ridge, support)) <= rounding_of(form, found) <= 1e-9
    singles = single_optima(form).numpy()
    reached = np.array([least(A, b, w, ridge, [j]) for j in range(COLUMNS)])
    assert (singles <= reached).all()
    np.testing.assert_allclose(singles, reached, rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_eliminated_variables_stay_at_their_best(seed):
    A, b, w, rng = draw(seed)
    ridge = rng.uniform(0.1, 1, size=COLUMNS)
    form = form_of(A, b, w).bound_errors(ROWS, 20.0).with_ridge(torch.tensor(ridge))
    inside, outside = torch.zeros(2, COLUMNS, dtype=torch.bool)
    inside[[1, 4]], outside[2] = True, True
    smaller = eliminate(form, inside, outside)
    assert smaller.size == 3
    for chosen, support in (([0, 2], [0, 1, 4, 5]), ([1], [1, 3, 4]), ([], [1, 4])):
        found = smaller.minimise(torch.tensor(chosen, dtype=torch.long))
        assert abs(found.value - least(A, b, w, ridge, support)) <= rounding_of(smaller, found) <= 1e-8
    assert smaller.curvature.entry_error >= form.curvature.entry_error
    assert bool((smaller.linear_error >= form.linear_error).all())
    free = ~(inside | outside)
    x = rng.normal(size=(3, OUTPUTS))
    X = complete(form, inside, free, torch.tensor(x)).numpy()
    assert (X[free] == x).all()
    assert not X[2].any()
    gradient = form.with_hessian().hessian.numpy() @ X - form.Q.numpy()
    np.testing.assert_allclose(gradient[[1, 4]], 0, atol=1e-11)
    assert value(smaller, x) == pytest.approx(value(form, X), rel=1e-10)


def test_a_spectral_error_that_exceeds_what_is_eliminated_leaves_nothing_to_say():
    A, b, w, _ = draw()
    form = form_of(A, b, w)
    doubtful = QuadraticForm.of(form.G, form.Q, form.constant, 1e6 + 0 * form.Q[:, 0]).bound_errors(ROWS, 20.0)
    first = torch.arange(COLUMNS) == 0
    assert eliminate(doubtful, first, torch.zeros_like(first)).curvature.spectral_error == float("inf")
    assert bool((single_optima(doubtful) == -torch.inf).all())
